//! Fields of the kernel's task, at the offsets that user space found in the kernel's BTF.

use aya_ebpf::{bindings::task_struct, helpers};
use profiler_common::{record::NAME_BYTES, walk::Block};

use crate::{
    maps::{OFFSETS, SETTINGS},
    namespace,
};

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

    /// The task's own address: who it is, whatever its ids are.
    #[inline(always)]
    pub fn address(self) -> u64 {
        self.0 as u64
    }

    /// The 32-bit field at `offset`; 0 when it cannot be read, which no kernel does for a task.
    #[inline(always)]
    fn u32(self, offset: u32) -> u32 {
        // SAFETY: the helper checks the address and fails cleanly.
        unsafe { helpers::bpf_probe_read_kernel(self.0.byte_add(offset as usize).cast::<u32>()) }
            .unwrap_or(0)
    }

    /// The 64-bit field at `offset`, likewise.
    #[inline(always)]
    fn u64(self, offset: u32) -> u64 {
        // SAFETY: as in `u32`.
        unsafe { helpers::bpf_probe_read_kernel(self.0.byte_add(offset as usize).cast::<u64>()) }
            .unwrap_or(0)
    }

    /// The thread's id, as the profiler's pid namespace numbers it; 0 when it is not in there, and
    /// in all but the initial one also for a thread that has been released.
    #[inline(always)]
    pub fn tid(self) -> u32 {
        if SETTINGS.load().pid_namespace == 0 {
            self.u32(OFFSETS.load().task_pid)
        } else {
            namespace::number(self.u64(OFFSETS.load().task_thread_pid))
        }
    }

    /// The process's id, likewise.
    #[inline(always)]
    pub fn tgid(self) -> u32 {
        if SETTINGS.load().pid_namespace == 0 {
            self.u32(OFFSETS.load().task_tgid)
        } else {
            namespace::number(self.of_process(OFFSETS.load().signal_tgid))
        }
    }

    /// The address of what the threads of the process share: the process itself.
    #[inline(always)]
    pub fn process(self) -> u64 {
        self.u64(OFFSETS.load().task_signal)
    }

    /// The 64-bit field at `offset` of what the threads of the process share.
    #[inline(always)]
    fn of_process(self, offset: u32) -> u64 {
        let place = self.process().wrapping_add(u64::from(offset));
        // SAFETY: as in `u32`.
        unsafe { helpers::bpf_probe_read_kernel(place as *const u64) }.unwrap_or(0)
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
        self.u32(OFFSETS.load().task_exit_code)
    }

    /// What the kernel calls the thread.
    #[inline(always)]
    pub fn name(self) -> [u8; NAME_BYTES] {
        let offset = OFFSETS.load().task_comm as usize;
        // SAFETY: as in `u32`.
        unsafe { helpers::bpf_probe_read_kernel(self.0.byte_add(offset).cast()) }
            .unwrap_or_default()
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
            let regs = helpers::bpf_task_pt_regs(self.0);
            helpers::generated::bpf_probe_read_kernel(
                core::ptr::from_mut(block).cast(),
                PT_REGS_BYTES,
                regs as *const _,
            ) == 0
        }
    }
}
