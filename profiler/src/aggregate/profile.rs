//! The closed profile: who spent how much in which stack.
//!
//! It cannot be changed, so whatever is written from it, and however often, agrees.

use crate::aggregate::{Ledger, ProcessIndex, ProcessInfo, ProfileMeta, ThreadIndex, ThreadInfo};
use crate::sample::{Activity, FramesFrom, Gc, Gil, Handling};
use crate::stack::{Frames, StackId, Stacks};
use crate::words::{DurationNs, MonotonicNs};

/// All samples of one thread that agree in everything but time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The thread.
    pub thread: ThreadIndex,
    /// Its frames; the empty stack is a thread that runs no Python.
    pub stack: StackId,
    /// What it was doing.
    pub activity: Activity,
    /// The GIL.
    pub gil: Gil,
    /// The collector.
    pub gc: Gc,
    /// The exception.
    pub handling: Handling,
    /// For a thread that waits for the GIL: who had it, where that is known.
    pub behind: Option<ThreadIndex>,
    /// Where the frames came from.
    pub frames_from: FramesFrom,
    /// How many ticks these samples stand for.
    pub ticks: u64,
    /// How much time they stand for.
    pub weight: DurationNs,
}

/// One sample's place in time; its stretch ends at `time`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// What the thread was doing.
    pub activity: Activity,
    /// The GIL.
    pub gil: Gil,
    /// When.
    pub time: MonotonicNs,
    /// How much time it stands for.
    pub weight: DurationNs,
    /// The thread.
    pub thread: ThreadIndex,
    /// Its frames.
    pub stack: StackId,
    /// For a thread that waits for the GIL: who had it, where that is known.
    pub behind: Option<ThreadIndex>,
}

/// The samples in the order of time, where that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Timeline {
    /// It was not.
    NotKept,
    /// Every sample, earliest first.
    Kept(Vec<Moment>),
    /// There were more samples than the limit, so none are kept.
    TooLong {
        /// The limit.
        limit: usize,
    },
}

/// What did not fit: samples counted under a name that says so instead of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beyond {
    /// Frames asked for that had to share `[frames beyond the limit]`; one asked for again
    /// counts again.
    pub frames: u64,
    /// Ticks under the stack `[stacks beyond the limit]`.
    pub stack_ticks: u64,
    /// Threads that share `[threads beyond the limit]`.
    pub threads: u64,
    /// Processes that share `[processes beyond the limit]`.
    pub processes: u64,
}

/// A closed profile.
#[derive(Debug)]
pub struct Profile {
    pub(super) meta: ProfileMeta,
    pub(super) duration: DurationNs,
    pub(super) processes: Vec<ProcessInfo>,
    pub(super) process_of: Vec<ProcessIndex>,
    pub(super) threads: Vec<ThreadInfo>,
    pub(super) frames: Frames,
    pub(super) stacks: Stacks,
    pub(super) entries: Vec<Entry>,
    pub(super) timeline: Timeline,
    pub(super) beyond: Beyond,
    pub(super) ledger: Ledger,
}

impl Profile {
    /// What was profiled, and how.
    #[must_use]
    pub fn meta(&self) -> &ProfileMeta {
        &self.meta
    }

    /// From the first tick to the end.
    #[must_use]
    pub fn duration(&self) -> DurationNs {
        self.duration
    }

    /// The processes, by [`ProcessIndex`]; some may have no samples.
    #[must_use]
    pub fn processes(&self) -> &[ProcessInfo] {
        &self.processes
    }

    /// The process of a thread.
    #[must_use]
    pub fn process_of(&self, thread: ThreadIndex) -> ProcessIndex {
        let known = self.process_of.get(thread.0 as usize);
        known.copied().unwrap_or(ProcessIndex(u32::MAX))
    }

    /// The threads, by [`ThreadIndex`]; some may have no samples.
    #[must_use]
    pub fn threads(&self) -> &[ThreadInfo] {
        &self.threads
    }

    /// The frames of the stacks.
    #[must_use]
    pub fn frames(&self) -> &Frames {
        &self.frames
    }

    /// The stacks of the entries, leaf first.
    #[must_use]
    pub fn stacks(&self) -> &Stacks {
        &self.stacks
    }

    /// Who spent how much where, in the order of first appearance.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The samples in the order of time.
    #[must_use]
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// What did not fit.
    #[must_use]
    pub fn beyond(&self) -> Beyond {
        self.beyond
    }

    /// The accounts of the run.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The ticks of all entries.
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.entries.iter().map(|entry| entry.ticks).sum()
    }

    /// The time of all entries.
    #[must_use]
    pub fn weight(&self) -> DurationNs {
        DurationNs(self.entries.iter().map(|entry| entry.weight.0).sum())
    }
}
