//! What a sample says of its thread at one instant, apart from its frames.
//!
//! Every answer that can be unknown has a variant for it; unknown is never shown as "no".

mod mode;
mod wait;

pub use mode::Mode;
pub use wait::Wait;

use crate::words::{Cpu, DurationNs, Generation, MonotonicNs, Pid, Tid};

/// What the thread was doing, as the scheduler has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Activity {
    /// On a CPU.
    OnCpu,
    /// Able to run, waiting for a CPU.
    Runnable,
    /// Waiting in the kernel, and for what.
    Blocked(Wait),
    /// Not known.
    Unknown,
}

/// The thread and the global interpreter lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Gil {
    /// This thread holds it.
    Holds,
    /// This thread asks for it.
    Waits,
    /// Neither: native code or a system call that has let it go.
    Neither,
    /// There is none: a free-threaded build that runs without it.
    NoGil,
    /// Could not be told.
    Unknown,
}

/// Whether the thread was handling an exception (in an `except` or `finally` block).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Handling {
    /// It was.
    Exception,
    /// It was not.
    Nothing,
    /// Could not be told: this version's own table does not say where to look.
    Unknown,
}

/// Whether a collection was running in the thread's interpreter, started by this thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Gc {
    /// This thread was collecting.
    Collecting,
    /// It was not.
    Idle,
    /// Could not be told.
    Unknown,
}

/// Where a sample's Python frames came from; only [`FramesFrom::Estimated`] is not exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FramesFrom {
    /// Read in the kernel at the tick, the thread held by the interrupt.
    Kernel,
    /// Read from user space while the thread was off the CPU, proven by its generation.
    User,
    /// Taken over from the last walk: the thread has not run since.
    Cached,
    /// Read from user space while the thread could run: may be torn.
    Estimated,
    /// There are none: the thread runs no Python, or none could be read.
    None,
}

/// One sample, its frames aside: they are handed on beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub time: MonotonicNs,
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// The CPU it was on, if it was on one.
    pub cpu: Option<Cpu>,
    /// How many ticks, or looks at a thread off the CPU, it stands for (more than one when the
    /// timer came late, or the thread stayed where it was).
    pub ticks: u32,
    /// How much time it stands for.
    pub weight: DurationNs,
    /// What the thread was doing.
    pub activity: Activity,
    /// The GIL.
    pub gil: Gil,
    /// The collector.
    pub gc: Gc,
    /// The exception.
    pub handling: Handling,
    /// The thread's scheduler generation at that instant.
    pub generation: Generation,
}

impl Activity {
    /// The word for it in ledgers, labels and reports; why a thread is blocked is
    /// [`Activity::wait`].
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::OnCpu => "on_cpu",
            Self::Runnable => "runnable",
            Self::Blocked(_) => "blocked",
            Self::Unknown => "unknown",
        }
    }

    /// What it waits for, if it is blocked.
    #[must_use]
    pub const fn wait(self) -> Option<Wait> {
        match self {
            Self::Blocked(wait) => Some(wait),
            _ => None,
        }
    }
}

macro_rules! keys {
    ($name:ident { $($variant:ident => $key:literal),+ $(,)? }) => {
        impl $name {
            /// The word for it in ledgers, labels and reports.
            #[must_use]
            pub const fn key(self) -> &'static str {
                match self {
                    $(Self::$variant => $key,)+
                }
            }
        }
    };
}
keys!(Handling { Exception => "exception", Nothing => "nothing", Unknown => "unknown" });
keys!(Gil { Holds => "holds", Waits => "waits", Neither => "neither", NoGil => "no_gil", Unknown => "unknown" });
keys!(Gc { Collecting => "collecting", Idle => "idle", Unknown => "unknown" });
keys!(FramesFrom { Kernel => "kernel", User => "user", Cached => "cached", Estimated => "estimated", None => "none" });
