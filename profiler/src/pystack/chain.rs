//! A thread's frame chain as numbers: sent by the kernel or walked from here.
//!
//! The walk itself is [`profiler_common::walk`], the same on both sides. Not here: what the
//! numbers mean (see [`super::Resolver`]), and whether the thread ran while it was walked.

use std::fmt;

use profiler_common::plan::{NO_FIELD, Plan};
use profiler_common::walk::{
    BLOCK_BYTES, BLOCK_WORDS, Block, END_BAD_POINTER, END_COMPLETE, END_CYCLE, END_NO_FRAME,
    END_NO_THREAD_STATE, END_NOT_TRIED, END_TOO_DEEP, END_UNREADABLE, First, MAX_FRAMES,
    MAX_GENERATORS, RawFrame, RawGenerator, Reader, Walked, first_frame, frame_of, owner_of,
    root_start, walk,
};

use crate::target::Memory;
use crate::words::{CoroutineAddr, FrameAddr, RemoteAddr, ThreadStateAddr};

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

impl std::error::Error for ChainEnd {}

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
    /// Which frames are a generator's, leaf first; none when the plan did not ask.
    pub generators: Vec<GeneratorFrame>,
    /// How many more there are that were not noted, or not believed.
    pub generators_missing: u32,
    /// The frame at the root; none when the plan did not ask or the walk did not come to it.
    pub root: Option<FrameAddr>,
    /// An address in the C frame of the evaluator that runs the first run of frames; none when the
    /// plan did not ask or nothing tells.
    pub entry: Option<RemoteAddr>,
}

/// A frame that is a generator's or, which is the same to it, a coroutine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GeneratorFrame {
    /// The generator or coroutine.
    pub coroutine: CoroutineAddr,
    /// The frame's index from the leaf, as if none had been left out; see [`Chain::place`].
    pub frame: usize,
}

impl From<RawGenerator> for GeneratorFrame {
    fn from(raw: RawGenerator) -> Self {
        Self {
            coroutine: CoroutineAddr(raw.generator),
            frame: raw.frame as usize,
        }
    }
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
            generators: Vec::new(),
            generators_missing: 0,
            root: None,
            entry: None,
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
            generators: Vec::new(),
            generators_missing: 0,
            root: None,
            entry: None,
        }
    }

    /// The same with what the walk noted beside the frames: generators, how many more there were,
    /// the last frame that it followed. What cannot be is counted as missing.
    #[must_use]
    pub fn with_notes(
        mut self,
        generators: impl IntoIterator<Item = RawGenerator>,
        missing: u32,
        last: Option<FrameAddr>,
    ) -> Self {
        let depth = self.frames.len() + self.missing as usize;
        self.generators_missing = missing;
        for raw in generators {
            let is_object = raw.generator != 0 && raw.generator.is_multiple_of(8);
            if is_object && (raw.frame as usize) < depth {
                self.generators.push(raw.into());
            } else {
                self.generators_missing = self.generators_missing.saturating_add(1);
            }
        }
        self.root = last.filter(|_| self.end == ChainEnd::Complete);
        self
    }

    /// The same with the evaluator of its first frames; 0 is none.
    #[must_use]
    pub fn with_entry(self, entry: u64) -> Self {
        Self {
            entry: Some(RemoteAddr(entry)).filter(|entry| entry.0 != 0),
            ..self
        }
    }

    /// The same with nothing noted beside the frames.
    #[must_use]
    pub fn without_notes(self) -> Self {
        Self {
            generators: Vec::new(),
            generators_missing: 0,
            root: None,
            entry: None,
            ..self
        }
    }

    /// Where in `frames` the frame with an index from the leaf stands; none when it was left out.
    #[must_use]
    pub fn place(&self, frame: usize) -> Option<usize> {
        if frame < self.cut_at {
            return Some(frame);
        }
        let place = frame.checked_sub(self.missing as usize)?;
        (self.cut_at..self.frames.len())
            .contains(&place)
            .then_some(place)
    }
}

/// Walks frame chains from user space; keeps its buffers.
pub struct Walker {
    frames: Box<[RawFrame; MAX_FRAMES]>,
    generators: Box<[RawGenerator; MAX_GENERATORS]>,
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
            generators: Box::new([RawGenerator::default(); MAX_GENERATORS]),
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
        self.follow(memory, plan, |reader| {
            let mut block = Block::EMPTY;
            if !reader.block(state.0, plan.state.state_bytes, &mut block) {
                return Err(END_UNREADABLE);
            }
            first_frame(reader, &plan.walk, &block)
        })
    }

    /// The chain that begins at a frame, whoever it belongs to: of a greenlet
    /// that is suspended, it is on no thread. Exact only if nobody runs these frames meanwhile.
    pub fn chain_from(&mut self, memory: &dyn Memory, plan: &Plan, frame: FrameAddr) -> Chain {
        if frame.0 == 0 {
            return Chain::empty(ChainEnd::NoFrame);
        }
        self.follow(memory, plan, |_| {
            Ok(First {
                frame: frame.0,
                caller: 0,
                unproven: 0,
                _pad: 0,
                cframes: [0; 2],
            })
        })
    }

    fn follow(
        &mut self,
        memory: &dyn Memory,
        plan: &Plan,
        first: impl FnOnce(&mut Window<'_>) -> Result<First, u32>,
    ) -> Chain {
        let mut reader = Window {
            memory,
            bytes: &mut self.window,
            start: 0,
            // Frames of 3.11 and later lie side by side; before, each is an object by itself.
            pages: plan.walk.frame_owner != NO_FIELD,
        };
        reader.bytes.clear();
        let mut block = Block::EMPTY;
        let walked = match first(&mut reader) {
            Ok(first) => walk(
                &mut reader,
                &plan.walk,
                first,
                &mut block,
                &mut self.frames,
                &mut self.generators,
            ),
            Err(end) => Walked::nothing(end),
        };
        let kept = self.frames.get(..walked.kept as usize).unwrap_or_default();
        let noted = self.generators.iter().take(walked.generators as usize);
        let root = Some(FrameAddr(walked.root)).filter(|root| root.0 != 0);
        Chain::from_record(kept, walked.depth, walked.leaf, walked.end)
            .with_notes(noted.copied(), walked.generators_missing, root)
            .with_entry(walked.entry)
    }
}

/// One frame and not its callers: of a generator that is suspended, whose frame is in no chain and
/// may still have the caller of the time when it ran.
///
/// # Errors
/// Why there is none, as a walk that began there would have ended. [`ChainEnd::NoFrame`] also for
/// what a walk passes over.
pub fn one_frame(memory: &dyn Memory, plan: &Plan, frame: FrameAddr) -> Result<RawFrame, ChainEnd> {
    if frame.0 == 0 {
        return Err(ChainEnd::NoFrame);
    }
    if !frame.0.is_multiple_of(8) {
        return Err(ChainEnd::BadPointer);
    }
    let mut reader = Window {
        memory,
        bytes: &mut Vec::new(),
        start: 0,
        pages: false,
    };
    let mut block = Block::EMPTY;
    if !reader.block(frame.0, plan.walk.frame_bytes, &mut block) {
        return Err(ChainEnd::Unreadable);
    }
    if owner_of(&plan.walk, &block) >= plan.walk.shim_owner {
        return Err(ChainEnd::NoFrame);
    }
    Ok(frame_of(&plan.walk, &block))
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
