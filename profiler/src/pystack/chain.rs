//! A thread's frame chain as numbers: sent by the kernel or walked from here.
//!
//! The walk itself is [`profiler_common::walk`], the same on both sides. Not here: what the
//! numbers mean (see [`super::Resolver`]), and whether the thread ran while it was walked.

use std::fmt;

use profiler_common::plan::{NO_FIELD, Plan};
use profiler_common::walk::{
    BLOCK_BYTES, BLOCK_WORDS, Block, END_BAD_POINTER, END_COMPLETE, END_CYCLE, END_NO_FRAME,
    END_NO_THREAD_STATE, END_NOT_TRIED, END_TOO_DEEP, END_UNREADABLE, MAX_FRAMES, RawFrame, Reader,
    Walked, first_frame, root_start, walk,
};

use crate::target::Memory;
use crate::words::{RemoteAddr, ThreadStateAddr};

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChainEnd {
    /// At the root: the chain is whole.
    Complete,
    /// It was not tried.
    NotTried,
    /// The thread has no thread state.
    NoThreadState,
    /// The thread runs no Python code.
    NoFrame,
    /// A frame could not be read.
    Unreadable,
    /// The chain leads back into itself.
    Cycle,
    /// The root was not reached in as many frames as a walk follows.
    TooDeep,
    /// A pointer of the chain cannot be one.
    BadPointer,
    /// A number that this program does not know.
    Unknown(u32),
}

impl ChainEnd {
    /// From an `END_` constant of the kernel contract.
    #[must_use]
    pub const fn from_code(code: u32) -> Self {
        match code {
            END_COMPLETE => Self::Complete,
            END_NOT_TRIED => Self::NotTried,
            END_NO_THREAD_STATE => Self::NoThreadState,
            END_NO_FRAME => Self::NoFrame,
            END_UNREADABLE => Self::Unreadable,
            END_CYCLE => Self::Cycle,
            END_TOO_DEEP => Self::TooDeep,
            END_BAD_POINTER => Self::BadPointer,
            unknown => Self::Unknown(unknown),
        }
    }

    /// The number behind it.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::Complete => END_COMPLETE,
            Self::NotTried => END_NOT_TRIED,
            Self::NoThreadState => END_NO_THREAD_STATE,
            Self::NoFrame => END_NO_FRAME,
            Self::Unreadable => END_UNREADABLE,
            Self::Cycle => END_CYCLE,
            Self::TooDeep => END_TOO_DEEP,
            Self::BadPointer => END_BAD_POINTER,
            Self::Unknown(code) => code,
        }
    }

    /// Whether the walk stopped on its way, so that callers are missing at the root.
    #[must_use]
    pub const fn is_early(self) -> bool {
        matches!(
            self,
            Self::Unreadable | Self::Cycle | Self::TooDeep | Self::BadPointer | Self::Unknown(_)
        )
    }
}

impl fmt::Display for ChainEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Complete => "complete",
            Self::NotTried => "not tried",
            Self::NoThreadState => "the thread has no Python state",
            Self::NoFrame => "the thread runs no Python",
            Self::Unreadable => "a caller's frame could not be read",
            Self::Cycle => "the frames lead in a circle",
            Self::TooDeep => "the stack is deeper than a walk follows",
            Self::BadPointer => "a caller's frame is no valid address",
            Self::Unknown(code) => return write!(f, "ended by unknown code {code}"),
        })
    }
}

/// A frame chain, leaf first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The frames that were kept.
    pub frames: Vec<RawFrame>,
    /// Where `missing` frames were left out: before this index of `frames`.
    pub cut_at: usize,
    /// How many frames were left out between the leaf end and the root end.
    pub missing: u32,
    /// How the walk ended.
    pub end: ChainEnd,
}

impl Chain {
    /// A chain without frames.
    #[must_use]
    pub const fn empty(end: ChainEnd) -> Self {
        Self {
            frames: Vec::new(),
            cut_at: 0,
            missing: 0,
            end,
        }
    }

    /// Puts frames in order as the walk leaves them, which is how the kernel sends them: the
    /// leaf end, then the root end as a ring. `depth` frames there were in all, `leaf` of the
    /// kept ones are the leaf end, `end` is an `END_` constant.
    #[must_use]
    pub fn from_record(frames: &[RawFrame], depth: u32, leaf: u32, end: u32) -> Self {
        let mut frames = frames.to_vec();
        let kept = u32::try_from(frames.len()).unwrap_or(u32::MAX);
        let leaf = leaf.min(kept);
        // A record that lies of its depth has nothing missing.
        let depth = depth.max(kept);
        let start = root_start(depth, leaf, kept) as usize;
        frames[leaf as usize..].rotate_left(start);
        Self {
            frames,
            cut_at: leaf as usize,
            missing: depth - kept,
            end: ChainEnd::from_code(end),
        }
    }
}

/// Walks frame chains from user space; keeps its buffers.
pub struct Walker {
    frames: Box<[RawFrame; MAX_FRAMES]>,
    window: Vec<u8>,
}

impl fmt::Debug for Walker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walker").finish_non_exhaustive()
    }
}

impl Default for Walker {
    fn default() -> Self {
        Self {
            frames: Box::new([RawFrame::default(); MAX_FRAMES]),
            window: Vec::new(),
        }
    }
}

impl Walker {
    /// The chain of one thread state at this moment. Exact only if its thread did not run
    /// meanwhile, which the caller has to prove.
    pub fn chain(&mut self, memory: &dyn Memory, plan: &Plan, state: ThreadStateAddr) -> Chain {
        if state.0 == 0 {
            return Chain::empty(ChainEnd::NoThreadState);
        }
        let mut reader = Window {
            memory,
            bytes: &mut self.window,
            start: 0,
            // Frames of 3.11 and later lie side by side; before, each is an object by itself.
            pages: plan.walk.frame_owner != NO_FIELD,
        };
        reader.bytes.clear();
        let mut block = Block::EMPTY;
        let walked = if reader.block(state.0, plan.state.state_bytes, &mut block) {
            match first_frame(&mut reader, &plan.walk, &block) {
                Ok(frame) => walk(&mut reader, &plan.walk, frame, &mut block, &mut self.frames),
                Err(end) => Walked::nothing(end),
            }
        } else {
            Walked::nothing(END_UNREADABLE)
        };
        let kept = self.frames.get(..walked.kept as usize).unwrap_or_default();
        Chain::from_record(kept, walked.depth, walked.leaf, walked.end)
    }
}

const PAGE: u64 = 4096;

/// Reads by whole pages and answers from the last ones: about forty frames for one call. It
/// lives for one walk, so it never answers from the past.
struct Window<'a> {
    memory: &'a dyn Memory,
    bytes: &'a mut Vec<u8>,
    start: u64,
    pages: bool,
}

impl Window<'_> {
    fn held(&self, addr: u64, bytes: usize) -> Option<&[u8]> {
        let from = usize::try_from(addr.checked_sub(self.start)?).ok()?;
        self.bytes.get(from..from.checked_add(bytes)?)
    }

    fn fill(&mut self, addr: u64, bytes: usize) -> Option<()> {
        let start = addr & !(PAGE - 1);
        let end = addr
            .checked_add(bytes as u64)?
            .checked_next_multiple_of(PAGE)?;
        self.bytes.clear();
        self.bytes.resize((end - start) as usize, 0);
        self.start = start;
        if self.memory.read(RemoteAddr(start), self.bytes).is_err() {
            self.bytes.clear();
            return None;
        }
        Some(())
    }
}

impl Reader for Window<'_> {
    fn block(&mut self, addr: u64, bytes: u32, block: &mut Block) -> bool {
        let wanted = bytes.min(BLOCK_BYTES) as usize;
        let mut buffer = [0; BLOCK_BYTES as usize];
        let buffer = &mut buffer[..wanted];
        if self.pages && self.held(addr, wanted).is_none() {
            self.fill(addr, wanted);
        }
        match self.held(addr, wanted) {
            Some(bytes) => buffer.copy_from_slice(bytes),
            // A recorded image need not hold whole pages.
            None if self.memory.read(RemoteAddr(addr), buffer).is_err() => return false,
            None => {}
        }
        let mut words = [0; BLOCK_WORDS];
        for (word, bytes) in words.iter_mut().zip(buffer.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(padded);
        }
        block.words = words;
        true
    }

    fn word(&mut self, addr: u64) -> Option<u64> {
        self.memory.u64(RemoteAddr(addr)).ok()
    }
}

#[cfg(test)]
mod tests;
