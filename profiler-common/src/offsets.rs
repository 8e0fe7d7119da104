//! Where fields of the running kernel's structures lie, found in its BTF by user space and
//! handed over before the programs load (rustc emits no CO-RE relocations).

/// Absent on this kernel.
pub const NO_FIELD: u32 = u32::MAX;

/// Byte offsets, each from the start of its structure.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelOffsets {
    /// `task_struct.pid`: the thread's id in the initial pid namespace.
    pub task_pid: u32,
    /// `task_struct.tgid`: the process's id in the initial pid namespace.
    pub task_tgid: u32,
    /// `task_struct.__state` (`state` before 5.14).
    pub task_state: u32,
    /// `task_struct.thread.fsbase`, the TLS base on x86-64.
    pub task_fsbase: u32,
    /// `task_struct.on_cpu`: not 0 while the task is on a CPU.
    pub task_on_cpu: u32,
    /// `task_struct.exit_code`: as `wait` gives it.
    pub task_exit_code: u32,
    /// `task_struct.comm`: what the kernel calls the thread.
    pub task_comm: u32,
    /// `task_struct.thread_pid`: the thread's ids, one for each pid namespace it is in.
    pub task_thread_pid: u32,
    /// `task_struct.signal`: what the threads of a process share.
    pub task_signal: u32,
    /// `signal_struct.pids[PIDTYPE_TGID]`: the process's ids.
    pub signal_tgid: u32,
    /// `signal_struct.live`: threads that have not begun to end.
    pub signal_live: u32,
    /// `signal_struct.nr_threads`: threads that are not yet released.
    pub signal_nr_threads: u32,
    /// `pid.level`: how deep the namespace is that made it; the initial one is 0.
    pub pid_level: u32,
    /// `pid.numbers`: a `upid` for each level.
    pub pid_numbers: u32,
    /// `upid.nr`: the id.
    pub upid_nr: u32,
    /// `upid.ns`: the namespace.
    pub upid_ns: u32,
    /// `pid_namespace.ns.inum`: the inode that `/proc/PID/ns/pid` shows.
    pub namespace_inum: u32,
    /// `task_struct.flags`: whether the thread has begun to end, among others.
    pub task_flags: u32,
    /// `pt_regs.sp`.
    pub regs_sp: u32,
    /// `pt_regs.ip`.
    pub regs_ip: u32,
    /// `pt_regs.bp`.
    pub regs_bp: u32,
    /// `pt_regs.orig_ax`: the system call's number while inside one, else negative.
    pub regs_orig_ax: u32,
    /// `pt_regs.di`: a system call's first argument.
    pub regs_di: u32,
    /// `pt_regs.si`: its second.
    pub regs_si: u32,
    /// 1 where `sched_switch` passes the previous state as its fourth argument (5.18 and later).
    pub switch_passes_state: u32,
    /// `task_struct.stack`; [`NO_FIELD`] where the kernel itself tells where a task's registers
    /// are (`bpf_task_pt_regs`, 5.15 and later).
    pub task_stack: u32,
    /// From the bottom of that stack to the registers with which the thread entered the kernel.
    pub stack_regs: u32,
    /// Padding, zero.
    pub _pad: u32,
}

const _: () = assert!(size_of::<KernelOffsets>() == 112);

#[cfg(feature = "user")]
crate::pod!(KernelOffsets);

/// User space looks at threads that are off the CPU: note what each waits for, and open accounts
/// also for those that do not run.
pub const LOOK_OFF_CPU: u32 = 1 << 0;

/// Send the native stack of each tick.
pub const LOOK_AT_STACKS: u32 = 1 << 1;
/// And with it the kernel's own, when the tick landed in the kernel.
pub const LOOK_AT_KERNEL: u32 = 1 << 2;

/// What does not change while the programs run.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// [`crate::CONTRACT_VERSION`] of the program that loads the object.
    pub contract: u32,
    /// Wake user space when this many bytes wait in the ring; 0 wakes it at every record.
    pub wake_bytes: u32,
    /// Nanoseconds between two ticks of one CPU.
    pub period_ns: u64,
    /// The `LOOK_` bits.
    pub flags: u32,
    /// The inode of the profiler's pid namespace, by whose numbers all ids go; 0 when that is the
    /// initial one, whose numbers the kernel itself uses.
    pub pid_namespace: u32,
    /// Send so many bytes of the user stack, at most [`crate::record::MAX_STACK_BYTES`].
    pub stack_bytes: u32,
    /// And send none while this many bytes wait in the ring: what is left is for samples.
    pub stacks_until: u32,
}

const _: () = assert!(size_of::<Settings>() == 32);

#[cfg(feature = "user")]
crate::pod!(Settings);
