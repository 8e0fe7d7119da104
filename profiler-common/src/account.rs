//! One thread's account, kept by the `switch` program in the map `ACCOUNTS` (tid → account).

/// What the scheduler did with a thread since its process became a target.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The process, as the initial pid namespace numbers it.
    pub tgid: u32,
    /// 1 while the thread is on a CPU.
    pub on_cpu: u32,
    /// The scheduler generation: bumped each time the thread goes on or off a CPU.
    pub generation: u64,
    /// Nanoseconds on a CPU, without the stretch that `since` began when `on_cpu` is 1.
    pub on_cpu_ns: u64,
    /// Nanoseconds off the CPU though it could run.
    pub runnable_ns: u64,
    /// Nanoseconds off the CPU because it blocked.
    pub blocked_ns: u64,
    /// `CLOCK_MONOTONIC` of the last switch, on or off.
    pub since: u64,
    /// The TLS base, seen at the last switch off.
    pub tls_base: u64,
    /// The task state it went off with: 0 is preempted (runnable), else why it sleeps.
    pub off_state: u32,
    /// The system call it blocked in, negative when it was in none.
    pub off_syscall: i32,
}

const _: () = assert!(size_of::<Account>() == 64);

/// `TASK_DEAD | EXIT_DEAD | EXIT_ZOMBIE` of `include/linux/sched.h`: the thread is gone.
pub const STATE_DEAD: u32 = 0x80 | 0x10 | 0x20;

#[cfg(feature = "user")]
crate::pod!(Account);
