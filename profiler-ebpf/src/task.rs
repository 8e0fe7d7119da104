//! Fields of the kernel's task, at the offsets that user space found in the kernel's BTF.

use crate::maps::OFFSETS;
use aya_ebpf::{bindings::task_struct, helpers};

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

    /// The field of `T` at `offset`.
    ///
    /// A load, not a call of a helper: the verifier knows the type behind the pointer and the value
    /// of the offset, which is a constant for it, and makes a fault read as zero.
    #[inline(always)]
    fn field<T: Copy>(self, offset: u32) -> T {
        // SAFETY: the verifier refuses a load that is not of a field of the task.
        unsafe { self.0.byte_add(offset as usize).cast::<T>().read_volatile() }
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

    /// `thread.fsbase`: the TLS base on x86-64, kept in the task since `arch_prctl` set it.
    #[inline(always)]
    pub fn tls_base(self) -> u64 {
        self.field(OFFSETS.load().task_fsbase)
    }

    /// The registers the thread left user mode with.
    #[inline(always)]
    pub fn user_registers(self) -> Registers {
        // SAFETY: the helper takes the task the kernel gave; its result is the place at the top of
        // the task's kernel stack, which every task has.
        Registers(unsafe { helpers::bpf_task_pt_regs(self.0) } as *const u8)
    }
}

/// `struct pt_regs`.
#[derive(Clone, Copy)]
pub struct Registers(*const u8);

impl Registers {
    /// The register at `offset`.
    #[inline(always)]
    pub fn get(self, offset: u32) -> u64 {
        // SAFETY: as in `Task::field`.
        unsafe {
            self.0
                .byte_add(offset as usize)
                .cast::<u64>()
                .read_volatile()
        }
    }
}
