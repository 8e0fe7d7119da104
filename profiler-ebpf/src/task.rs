//! Fields of the kernel's task, at the offsets that user space found in the kernel's BTF.

use aya_ebpf::{
    bindings::{pt_regs, task_struct},
    helpers,
};
use profiler_common::{offsets::NO_FIELD, walk::Block};

use crate::maps::OFFSETS;

/// The bits of a code segment that say user mode.
pub const USER_MODE: u64 = 3;

/// Whether this kernel has no `bpf_task_pt_regs`. It is known at the load, so the verifier drops
/// the other road, and with it the helpers that an old kernel does not know.
#[inline(always)]
fn finds_registers_itself() -> bool {
    OFFSETS.load().task_stack != NO_FIELD
}

/// A task, as the kernel hands it to a program.
#[derive(Clone, Copy)]
pub struct Task(*mut task_struct);

impl Task {
    /// The task that runs on this CPU.
    #[inline(always)]
    pub fn current() -> Self {
        // SAFETY: a helper without arguments; its result is a valid task for as long as the
        // program runs. Only the second, of 5.11, gives a task that `bpf_task_pt_regs` takes.
        Self(unsafe {
            if finds_registers_itself() {
                helpers::bpf_get_current_task() as *mut task_struct
            } else {
                helpers::bpf_get_current_task_btf()
            }
        })
    }

    /// A task that a tracepoint passed.
    #[inline(always)]
    pub fn from_argument(task: *mut task_struct) -> Self {
        Self(task)
    }

    /// The 32-bit field at `offset`; 0 when it cannot be read, which no kernel does for a task.
    #[inline(always)]
    fn u32(self, offset: u32) -> u32 {
        // SAFETY: the helper checks the address and fails cleanly.
        unsafe { helpers::bpf_probe_read_kernel(self.0.byte_add(offset as usize).cast::<u32>()) }
            .unwrap_or(0)
    }

    /// The same for a 64-bit field.
    #[inline(always)]
    fn u64(self, offset: u32) -> u64 {
        // SAFETY: as in `u32`.
        unsafe { helpers::bpf_probe_read_kernel(self.0.byte_add(offset as usize).cast::<u64>()) }
            .unwrap_or(0)
    }

    /// The thread's id.
    #[inline(always)]
    pub fn tid(self) -> u32 {
        self.u32(OFFSETS.load().task_pid)
    }

    /// The process's id.
    #[inline(always)]
    pub fn tgid(self) -> u32 {
        self.u32(OFFSETS.load().task_tgid)
    }

    /// The task state: 0 is running or preempted.
    #[inline(always)]
    pub fn state(self) -> u32 {
        self.u32(OFFSETS.load().task_state)
    }

    /// Whether the task is on a CPU at the moment.
    #[inline(always)]
    pub fn is_on_cpu(self) -> bool {
        self.u32(OFFSETS.load().task_on_cpu) != 0
    }

    /// `thread.fsbase`: the TLS base on x86-64, kept in the task since `arch_prctl` set it.
    #[inline(always)]
    pub fn tls_base(self) -> u64 {
        self.u64(OFFSETS.load().task_fsbase)
    }

    /// The registers the thread left user mode with, read into `block`; false if there are none.
    #[inline(always)]
    pub fn user_registers(self, block: &mut Block) -> bool {
        // `struct pt_regs` of x86-64 is 168 bytes; BTF tells where its fields lie, not its size.
        const PT_REGS_BYTES: u32 = 168;
        // SAFETY: the helper takes the task the kernel gave; the read checks the address and is
        // within the block.
        unsafe {
            let regs = if finds_registers_itself() {
                let offsets = OFFSETS.load();
                let stack = self.u64(offsets.task_stack);
                stack.wrapping_add(u64::from(offsets.stack_regs))
            } else {
                helpers::bpf_task_pt_regs(self.0) as u64
            };
            let read = helpers::generated::bpf_probe_read_kernel(
                core::ptr::from_mut(block).cast(),
                PT_REGS_BYTES,
                regs as *const _,
            );
            // What lies at the end of a stack of another size came from no user mode.
            const CS: u32 = core::mem::offset_of!(pt_regs, cs) as u32;
            read == 0 && (!finds_registers_itself() || block.u64(CS) & USER_MODE == USER_MODE)
        }
    }
}
