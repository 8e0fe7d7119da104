//! Fields of the kernel's task, at the offsets that user space found in the kernel's BTF.

use aya_ebpf::{
    bindings::{pt_regs, task_struct},
    helpers,
    programs::PerfEventContext,
};
use profiler_common::{offsets::NO_FIELD, record::NAME_BYTES};

use crate::{
    maps::{OFFSETS, SETTINGS},
    namespace,
};

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

    /// The task's own address: who it is, whatever its ids are.
    #[inline(always)]
    pub fn address(self) -> u64 {
        self.0 as u64
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

    /// The pointer at `offset`, as the number that it is: for what is behind it.
    #[inline(always)]
    fn pointer(self, offset: u32) -> u64 {
        Self::probed(self.0.cast(), offset)
    }

    /// The thread's id, as the profiler's pid namespace numbers it; 0 when it is not in there, and
    /// in all but the initial one also for a thread that has been released.
    #[inline(always)]
    pub fn tid(self) -> u32 {
        if SETTINGS.load().pid_namespace == 0 {
            self.field(OFFSETS.load().task_pid)
        } else {
            namespace::number(self.pointer(OFFSETS.load().task_thread_pid))
        }
    }

    /// The process's id, likewise.
    #[inline(always)]
    pub fn tgid(self) -> u32 {
        if SETTINGS.load().pid_namespace == 0 {
            self.field(OFFSETS.load().task_tgid)
        } else {
            namespace::number(self.of_process(OFFSETS.load().signal_tgid))
        }
    }

    /// The address of what the threads of the process share: the process itself.
    #[inline(always)]
    pub fn process(self) -> u64 {
        self.pointer(OFFSETS.load().task_signal)
    }

    /// The 64-bit field at `offset` of what the threads of the process share.
    #[inline(always)]
    fn of_process(self, offset: u32) -> u64 {
        Self::probed(self.process() as *const u8, offset)
    }

    /// Whether every thread of the process has at least begun to end.
    #[inline(always)]
    pub fn process_ends(self) -> bool {
        self.of_process(OFFSETS.load().signal_live) as u32 == 0
    }

    /// Whether no other thread of the process will run any more, given that this one will not: all
    /// have begun to end, and those that are not yet released are none but the first.
    #[inline(always)]
    pub fn process_is_over(self) -> bool {
        self.process_ends() && self.of_process(OFFSETS.load().signal_nr_threads) as u32 <= 1
    }

    /// What the thread ends with, as `wait` gives it.
    #[inline(always)]
    pub fn exit_code(self) -> u32 {
        self.field(OFFSETS.load().task_exit_code)
    }

    /// What the kernel calls the thread.
    #[inline(always)]
    pub fn name(self) -> [u8; NAME_BYTES] {
        let offset = OFFSETS.load().task_comm as usize;
        // SAFETY: the helper checks the address and fails cleanly.
        unsafe { helpers::bpf_probe_read_kernel(self.0.byte_add(offset).cast()) }
            .unwrap_or_default()
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

    /// The TLS base; 0 once the thread has begun to end: from then on another thread may get the same
    /// memory for its stack, and with it the same base.
    #[inline(always)]
    pub fn tls_base(self) -> u64 {
        if self.is_ending() {
            0
        } else {
            self.last_tls_base()
        }
    }

    /// `thread.fsbase`: the TLS base on x86-64, kept in the task since `arch_prctl` set it.
    #[inline(always)]
    pub fn last_tls_base(self) -> u64 {
        let offset = OFFSETS.load().task_fsbase;
        if finds_registers_itself() {
            // The current task of such a kernel is a number to the verifier.
            Self::probed(self.0.cast(), offset)
        } else {
            self.field(offset)
        }
    }

    /// The running thread's user frame pointer, if it is one: the interrupt's if that came in user
    /// mode, else the one with which the thread entered the kernel.
    #[inline(always)]
    pub fn frame_pointer(self, ctx: &PerfEventContext, in_kernel: bool) -> u64 {
        if in_kernel {
            self.user_registers().get(OFFSETS.load().regs_bp)
        } else {
            // SAFETY: the context of a perf event program begins with the interrupted registers.
            unsafe { (*ctx.ctx).regs.rbp }
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
