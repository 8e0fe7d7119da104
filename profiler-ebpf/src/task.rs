//! Fields of the kernel's task, at the offsets that user space found in the kernel's BTF.

use aya_ebpf::{bindings::task_struct, helpers};
use profiler_common::walk::Block;

use crate::maps::OFFSETS;

/// A task, as the kernel hands it to a program.
#[derive(Clone, Copy)]
pub struct Task(*mut task_struct);

impl Task {
    /// The task that runs on this CPU.
    #[inline(always)]
    pub fn current() -> Self {
        // SAFETY: a helper without arguments; its result is a valid task for as long as the
        // program runs.
        Self(unsafe { helpers::bpf_get_current_task_btf() })
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
        let offset = OFFSETS.load().task_fsbase as usize;
        // SAFETY: as in `u32`.
        unsafe { helpers::bpf_probe_read_kernel(self.0.byte_add(offset).cast::<u64>()) }
            .unwrap_or(0)
    }

    /// The registers the thread left user mode with, read into `block`; false if there are none.
    #[inline(always)]
    pub fn user_registers(self, block: &mut Block) -> bool {
        // `struct pt_regs` of x86-64 is 168 bytes; BTF tells where its fields lie, not its size.
        const PT_REGS_BYTES: u32 = 168;
        // SAFETY: the helper takes the task the kernel gave; the read checks the address and is
        // within the block.
        unsafe {
            let regs = helpers::bpf_task_pt_regs(self.0);
            helpers::generated::bpf_probe_read_kernel(
                core::ptr::from_mut(block).cast(),
                PT_REGS_BYTES,
                regs as *const _,
            ) == 0
        }
    }
}
