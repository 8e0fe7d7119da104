//! The fixed words: one name and one type for each thing a number can be.
//!
//! No bare `u64` crosses from room to room. The kernel's vocabulary (pid, tid) and CPython's
//! (pthread id, thread state, code object) meet only in [`crate::threads`].

use std::fmt;

macro_rules! word {
    ($(#[$doc:meta])* $name:ident($inner:ty), $format:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "(", $format, ")"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    };
}

word! {
    /// A process (the kernel's tgid), as the profiler's own pid namespace numbers it.
    Pid(u32), "{}"
}
word! {
    /// A thread of the kernel (its pid), as the profiler's own pid namespace numbers it.
    Tid(u32), "{}"
}
word! {
    /// A thread as the target's innermost pid namespace numbers it (`gettid()` inside).
    InnerTid(u32), "{}"
}
word! {
    /// `pthread_self()` of a thread; under glibc and musl also its TLS base.
    PthreadId(u64), "{:#x}"
}
word! {
    /// An address in the target.
    RemoteAddr(u64), "{:#x}"
}
word! {
    /// Address of a `PyThreadState` in the target.
    ThreadStateAddr(u64), "{:#x}"
}
word! {
    /// Address of a `PyInterpreterState` in the target.
    InterpreterAddr(u64), "{:#x}"
}
word! {
    /// Address of a `PyCodeObject` in the target.
    CodeAddr(u64), "{:#x}"
}
word! {
    /// Address of a frame in the target: a `PyFrameObject` (to 3.10) or a `_PyInterpreterFrame`.
    FrameAddr(u64), "{:#x}"
}
word! {
    /// Address of a coroutine, or of another generator, in the target.
    CoroutineAddr(u64), "{:#x}"
}
word! {
    /// Address of an asyncio task, or of a greenlet, in the target.
    TaskAddr(u64), "{:#x}"
}
word! {
    /// Where a frame is in its code: `f_lasti` (to 3.10) or an instruction's address (3.11+).
    Instr(u64), "{:#x}"
}
word! {
    /// A CPU's number.
    Cpu(u32), "{}"
}
word! {
    /// How often a thread went on or off a CPU: the same twice means that it did not run between.
    Generation(u64), "{}"
}
word! {
    /// A point of `CLOCK_MONOTONIC`, nanoseconds.
    MonotonicNs(u64), "{}"
}
word! {
    /// A point of one CPU's task clock, nanoseconds. It stands still while a host has taken the
    /// CPU away; another CPU's is another clock.
    TaskClock(u64), "{}"
}
word! {
    /// A stretch of time, nanoseconds.
    DurationNs(u64), "{}"
}
word! {
    /// When a process or thread started, in clock ticks since boot (`/proc/PID/stat` field 22):
    /// together with its id it is an identity that is never reused.
    StartTime(u64), "{}"
}

impl RemoteAddr {
    /// The address `bytes` further on; wraps, as a hostile target's pointers may.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

macro_rules! is_address {
    ($($name:ident),+) => {
        $(impl From<$name> for RemoteAddr {
            fn from(addr: $name) -> Self {
                Self(addr.0)
            }
        })+
    };
}
is_address!(
    ThreadStateAddr,
    InterpreterAddr,
    CodeAddr,
    FrameAddr,
    CoroutineAddr,
    TaskAddr,
    PthreadId
);
