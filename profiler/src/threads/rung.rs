//! The rungs, what each says, and where they disagree.

use std::fmt;

use crate::words::{PthreadId, Tid};

/// A way to know which thread a pthread id belongs to, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rung {
    /// The TLS base that the kernel saw.
    TlsBase,
    /// `native_thread_id` of the state.
    NativeThreadId,
    /// The thread id in the C library's control block.
    ControlBlock,
    /// The control block on the thread's stack.
    StackScan,
    /// The process's first thread on its first stack.
    MainThread,
    /// The only thread and the only id that are left over, and have been for a while.
    LastStanding,
}

impl Rung {
    /// The word for it in ledgers and reports.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::TlsBase => "tls_base",
            Self::NativeThreadId => "native_thread_id",
            Self::ControlBlock => "control_block",
            Self::StackScan => "stack_scan",
            Self::MainThread => "main_thread",
            Self::LastStanding => "last_standing",
        }
    }
}

/// What one rung says: this thread has this pthread id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Evidence {
    pub(super) rung: Rung,
    pub(super) tid: Tid,
    pub(super) pthread_id: PthreadId,
}

/// A rung that says otherwise than a stronger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Contradiction {
    /// The weaker rung.
    pub rung: Rung,
    /// The thread it names,
    pub tid: Tid,
    /// and the id it gives to it.
    pub pthread_id: PthreadId,
    /// The stronger rung.
    pub against: Rung,
    /// The thread the stronger rung gave the id to, or `tid` itself,
    pub holder: Tid,
    /// and the id that thread has by the stronger rung.
    pub held: PthreadId,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} says that thread `{}` is {}, but by {} thread `{}` is {}",
            self.rung.key(),
            self.tid,
            self.pthread_id,
            self.against.key(),
            self.holder,
            self.held
        )
    }
}
