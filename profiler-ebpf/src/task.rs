//! Fields of the kernel's task, at the offsets that user space found in the kernel's BTF.

use aya_ebpf::{
    bindings::{pt_regs, task_struct},
    helpers,
};
use profiler_common::offsets::NO_FIELD;

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

    /// The field of `T` at `offset`.
    ///
    /// A load, not a call of a helper: the verifier knows the type behind the pointer and the value
    /// of the offset, which is a constant for it, and makes a fault read as zero.
    #[inline(always)]
    fn field<T: Copy>(self, offset: u32) -> T {
        // SAFETY: the verifier refuses a load that is not of a field of the task.
        unsafe { self.0.byte_add(offset as usize).cast::<T>().read_volatile() }
    }

    /// The 64-bit field at `offset` of what is only an address to the verifier; 0 if unreadable.
    #[inline(always)]
    fn probed(base: *const u8, offset: u32) -> u64 {
        // SAFETY: the helper checks the address and fails cleanly.
        unsafe { helpers::bpf_probe_read_kernel(base.byte_add(offset as usize).cast::<u64>()) }
            .unwrap_or(0)
    }

    /// The thread's id.
    #[inline(always)]
    pub fn tid(self) -> u32 {
        self.field(OFFSETS.load().task_pid)
    }

    /// The process's id.
    #[inline(always)]
    pub fn tgid(self) -> u32 {
        self.field(OFFSETS.load().task_tgid)
    }

    /// The task state: 0 is running or preempted.
    #[inline(always)]
    pub fn state(self) -> u32 {
        self.field(OFFSETS.load().task_state)
    }

    /// Whether the task is on a CPU at the moment.
    #[inline(always)]
    pub fn is_on_cpu(self) -> bool {
        self.field::<u32>(OFFSETS.load().task_on_cpu) != 0
    }

    /// Whether the thread has begun to end (`PF_EXITING` of `include/linux/sched.h`).
    #[inline(always)]
    fn is_ending(self) -> bool {
        const PF_EXITING: u32 = 0x4;
        let offset = OFFSETS.load().task_flags;
        let flags = if finds_registers_itself() {
            Self::probed(self.0.cast(), offset) as u32
        } else {
            self.field(offset)
        };
        flags & PF_EXITING != 0
    }

    /// `thread.fsbase`: the TLS base on x86-64, kept in the task since `arch_prctl` set it. 0 once
    /// the thread has begun to end: from then on another thread may get the same memory for its
    /// stack, and with it the same base.
    #[inline(always)]
    pub fn tls_base(self) -> u64 {
        if self.is_ending() {
            return 0;
        }
        let offset = OFFSETS.load().task_fsbase;
        if finds_registers_itself() {
            // The current task of such a kernel is a number to the verifier.
            Self::probed(self.0.cast(), offset)
        } else {
            self.field(offset)
        }
    }

    /// The registers the thread left user mode with.
    #[inline(always)]
    pub fn user_registers(self) -> Registers {
        if finds_registers_itself() {
            let offsets = OFFSETS.load();
            let stack = Self::probed(self.0.cast(), offsets.task_stack);
            return Registers(stack.wrapping_add(u64::from(offsets.stack_regs)) as *const u8);
        }
        // SAFETY: the helper takes the task the kernel gave; its result is the place at the top of
        // the task's kernel stack, which every task has.
        Registers(unsafe { helpers::bpf_task_pt_regs(self.0) } as *const u8)
    }
}

/// `struct pt_regs`.
#[derive(Clone, Copy)]
pub struct Registers(*const u8);

impl Registers {
    /// Whether they are of user mode: what lies at the end of a stack of another size than the one
    /// that was supposed is not.
    #[inline(always)]
    pub fn are_of_user(self) -> bool {
        const CS: u32 = core::mem::offset_of!(pt_regs, cs) as u32;
        !finds_registers_itself() || Task::probed(self.0, CS) & USER_MODE == USER_MODE
    }

    /// The register at `offset`.
    #[inline(always)]
    pub fn get(self, offset: u32) -> u64 {
        if finds_registers_itself() {
            return Task::probed(self.0, offset);
        }
        // SAFETY: as in `Task::field`.
        unsafe {
            self.0
                .byte_add(offset as usize)
                .cast::<u64>()
                .read_volatile()
        }
    }
}
