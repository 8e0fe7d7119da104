//! Whether a thread may touch Python objects now, as its state has it (3.13 and later). Not here: the
//! GIL (see [`super::runtime`]).

/// What stands in place of the GIL in a free-threaded build, and beside it in others: whether a
/// thread may touch Python objects now (`_Py_THREAD_` in `Include/internal/pycore_pystate.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// It may not: it runs native code or waits.
    Detached,
    /// It may.
    Attached,
    /// Another thread has stopped it for a while, as a collection does.
    Stopped,
    /// The interpreter ends, and it will never run Python again.
    Ending,
    /// Another number.
    Unknown(u32),
}

impl Attachment {
    pub(super) const fn from_word(word: u32) -> Self {
        match word {
            0 => Self::Detached,
            1 => Self::Attached,
            2 => Self::Stopped,
            3 => Self::Ending,
            word => Self::Unknown(word),
        }
    }

    /// The word for it in files and reports.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Detached => "detached",
            Self::Attached => "attached",
            Self::Stopped => "stopped",
            Self::Ending => "ending",
            Self::Unknown(_) => "unknown",
        }
    }
}
