//! One thread's account, kept by the scheduler's programs.
//!
//! `SLOTS` says in which place of `ACCOUNTS` a thread's account is; its key is the address of the
//! kernel's own structure for the thread, which stays the same when an `exec` gives the thread
//! another id, and while its id is already somebody else's. User space maps `ACCOUNTS`
//! into its own memory and reads it without asking the kernel: ten thousand threads that sleep
//! cost ten thousand loads.
//!
//! The kernel writes every field before it makes the generation even, and makes it odd before it
//! writes any. So what was read between two reads of the same even generation belongs together,
//! and the thread was off the CPU all that time.

/// What the scheduler did with a thread since its process became a target.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The scheduler generation: bumped each time the thread goes on or off a CPU. Odd while it
    /// is on one, or while the account is being opened. Never the same twice in one place, also
    /// when the place goes to another thread.
    pub generation: u64,
    /// The thread, as the profiler's pid namespace numbers it; 0 when the place is free. Changed
    /// by an `exec` that makes the thread its process's first, at the moment of its record.
    pub tid: u32,
    /// Its process.
    pub tgid: u32,
    /// `CLOCK_MONOTONIC` of the last switch, on or off.
    pub since: u64,
    /// `CLOCK_MONOTONIC` at which the thread, off the CPU, became able to run; 0 when it did not.
    pub woken_ns: u64,
    /// Nanoseconds on a CPU, without the stretch that `since` began when the generation is odd.
    pub on_cpu_ns: u64,
    /// Nanoseconds off the CPU though it could run, without the stretch that still lasts.
    pub runnable_ns: u64,
    /// Nanoseconds off the CPU because it blocked, likewise.
    pub blocked_ns: u64,
    /// The Python thread state, once it was found in the thread's own storage; else 0.
    pub thread_state: u64,
    /// The TLS base, seen at the last switch off or tick.
    pub tls_base: u64,
    /// The task state it went off with: 0 is preempted (runnable), else why it sleeps.
    pub off_state: u32,
    /// The system call it went off in, negative when it was in none.
    pub off_syscall: i32,
    /// That call's first two arguments.
    pub off_args: [u64; 2],
    /// The user instruction pointer it went off with.
    pub off_ip: u64,
    /// Written by user space: the generation of the stretch whose length it wants to know. The
    /// kernel makes it odd when that stretch has ended.
    pub marked: u64,
    /// Nanoseconds blocked in the last marked stretch that ended.
    pub marked_blocked_ns: u64,
    /// Nanoseconds runnable in it.
    pub marked_runnable_ns: u64,
    /// The user stack pointer it went off with, where native stacks are asked for; else 0.
    pub off_sp: u64,
    /// Likewise its user frame pointer, which need not be one.
    pub off_bp: u64,
}

const _: () = assert!(size_of::<Account>() == 144);

/// Most threads that have an account at one time.
pub const MAX_ACCOUNTS: u32 = 32_768;

/// Set in an entry of the map `FREE` that stands for [`PLACES_OF_STRIDE`] places, none of which was
/// ever used; the other bits are the first of them. To put in each by itself would cost user space
/// as many system calls.
pub const FREE_STRIDE: u32 = 1 << 31;
/// Places of a stride.
pub const PLACES_OF_STRIDE: u32 = 64;
const _: () = assert!(MAX_ACCOUNTS.is_multiple_of(PLACES_OF_STRIDE));

/// How much of `ACCOUNTS` was ever used (map `USED`, one entry).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// All places that were ever handed out lie before this one.
    pub places: u64,
}

/// `TASK_DEAD | EXIT_DEAD | EXIT_ZOMBIE` of `include/linux/sched.h`: the thread is gone.
pub const STATE_DEAD: u32 = 0x80 | 0x10 | 0x20;
/// `__TASK_STOPPED | __TASK_TRACED` of `include/linux/sched.h`: stopped by a signal or a tracer.
pub const STATE_STOPPED: u32 = 0x4 | 0x8;

#[cfg(feature = "user")]
crate::pod!(Account, Used);
