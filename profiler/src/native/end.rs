//! How a native chain ended, and by what each of its frames was found.

use std::fmt;

use crate::words::RemoteAddr;

/// How unwinding ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnwindEnd {
    /// At the thread's first function: the chain is whole.
    Root,
    /// The stack goes on behind what was copied of it.
    StackCopyEnded,
    /// The function at this address has no unwind information, and the frame pointer proves
    /// nothing.
    NoUnwindInfo(RemoteAddr),
    /// The next frame hangs on a register whose value is not known at this address.
    UnknownRegister(RemoteAddr),
    /// No code is mapped at this address.
    NotMapped(RemoteAddr),
    /// There are more frames than are followed.
    TooManyFrames,
    /// The stack does not hold what the unwind information of this address says.
    Damaged(RemoteAddr),
    /// There was nothing to unwind.
    NotTried,
}

impl UnwindEnd {
    /// The word for it in files.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::StackCopyEnded => "stack_copy_ended",
            Self::NoUnwindInfo(_) => "no_unwind_info",
            Self::UnknownRegister(_) => "unknown_register",
            Self::NotMapped(_) => "not_mapped",
            Self::TooManyFrames => "too_many_frames",
            Self::Damaged(_) => "damaged",
            Self::NotTried => "not_tried",
        }
    }

    /// Whether the chain is whole.
    #[must_use]
    pub const fn is_root(self) -> bool {
        matches!(self, Self::Root)
    }
}

impl fmt::Display for UnwindEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("complete"),
            Self::StackCopyEnded => f.write_str("the stack goes on behind what was copied of it"),
            Self::NoUnwindInfo(addr) => write!(f, "the code at {addr} has no unwind information"),
            Self::UnknownRegister(addr) => {
                write!(
                    f,
                    "the caller of {addr} hangs on a register that is not known"
                )
            }
            Self::NotMapped(addr) => write!(f, "no code is mapped at {addr}"),
            Self::TooManyFrames => f.write_str("the stack is deeper than is followed"),
            Self::Damaged(addr) => write!(
                f,
                "the stack does not hold what the unwind information of {addr} says"
            ),
            Self::NotTried => f.write_str("not tried"),
        }
    }
}

/// By what a frame was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Found {
    /// By the instruction pointer: the leaf.
    Registers,
    /// By the unwind information of the function that it called.
    UnwindInfo,
    /// By the instructions that follow the call, which return: the code of `-X perf`, which has no
    /// unwind information.
    Instructions,
    /// By the frame pointer of the function that it called.
    FramePointer,
}

impl Found {
    /// The word for it in files.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Registers => "registers",
            Self::UnwindInfo => "unwind_info",
            Self::Instructions => "instructions",
            Self::FramePointer => "frame_pointer",
        }
    }
}
