//! Samples in, one [`Profile`] out, in bounded memory.
//!
//! Every table has a limit. What does not fit is counted under a frame or thread whose name
//! says so, and in [`Beyond`]; no sample is ever dropped here.

use rustc_hash::FxHashMap;

use crate::aggregate::{
    Beyond, Entry, Ledger, Moment, Profile, ProfileMeta, ThreadIndex, ThreadInfo, Timeline,
};
use crate::sample::{Activity, FramesFrom, Gc, Gil, Handling, Sample, Wait};
use crate::stack::{Frame, FrameId, FrameKind, Frames, StackId, Stacks};
use crate::words::{DurationNs, MonotonicNs, Tid};

/// How much a profile may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Distinct frames.
    pub frames: usize,
    /// Distinct stacks.
    pub stacks: usize,
    /// Frames over all distinct stacks, four bytes each.
    pub stack_frames: usize,
    /// Threads.
    pub threads: usize,
    /// Distinct entries, 48 bytes each and as much again for finding them.
    pub entries: usize,
    /// Samples of the timeline, 48 bytes each.
    pub timeline: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frames: 500_000,
            stacks: 1_000_000,
            stack_frames: 50_000_000,
            threads: 65_536,
            entries: 2_000_000,
            timeline: 2_000_000,
        }
    }
}

/// Everything of an entry but its amounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    thread: ThreadIndex,
    stack: StackId,
    activity: Activity,
    gil: Gil,
    gc: Gc,
    handling: Handling,
    behind: Option<ThreadIndex>,
    frames_from: FramesFrom,
}

/// Where a sample belongs.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its thread.
    pub thread: ThreadIndex,
    /// Its frames.
    pub stack: StackId,
    /// Where those came from.
    pub frames_from: FramesFrom,
    /// For a thread that waits for the GIL: who had it, where that is known.
    pub behind: Option<ThreadIndex>,
}

/// A profile in the making.
#[derive(Debug)]
pub struct ProfileBuilder {
    meta: ProfileMeta,
    limits: Limits,
    threads: Vec<ThreadInfo>,
    frames: Frames,
    stacks: Stacks,
    entries: Vec<Entry>,
    by_key: FxHashMap<Key, usize>,
    timeline: Timeline,
    beyond: Beyond,
    stacks_beyond: Option<StackId>,
    threads_beyond: Option<ThreadIndex>,
}

impl ProfileBuilder {
    /// An empty profile with the default limits and no timeline.
    #[must_use]
    pub fn new(meta: ProfileMeta) -> Self {
        Self {
            meta,
            limits: Limits::default(),
            threads: Vec::new(),
            frames: Frames::new(),
            stacks: Stacks::new(),
            entries: Vec::new(),
            by_key: FxHashMap::default(),
            timeline: Timeline::NotKept,
            beyond: Beyond::default(),
            stacks_beyond: None,
            threads_beyond: None,
        }
    }

    /// The same with other limits.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The same with every sample's place in time kept, up to the limit.
    #[must_use]
    pub fn with_timeline(mut self) -> Self {
        self.timeline = Timeline::Kept(Vec::new());
        self
    }

    /// Notes the interpreter, which may be found only after the first samples.
    pub fn python(&mut self, version: &str, build: &str) {
        version.clone_into(&mut self.meta.python);
        build.clone_into(&mut self.meta.build);
    }

    /// Registers a thread. Each call makes another one, so that a tid used again is not taken
    /// for the thread before it; the caller keeps the index beside the thread's identity.
    pub fn thread(&mut self, info: ThreadInfo) -> ThreadIndex {
        if self.threads.len() < self.limits.threads
            && let Ok(index) = u32::try_from(self.threads.len())
        {
            self.threads.push(info);
            return ThreadIndex(index);
        }
        self.beyond.threads += 1;
        self.threads_beyond()
    }

    /// Gives a thread the name it has by now, and says whether it has a Python thread state.
    pub fn rename(&mut self, thread: ThreadIndex, name: &str, python: bool) {
        if Some(thread) == self.threads_beyond {
            return;
        }
        if let Some(info) = self.threads.get_mut(thread.0 as usize) {
            if info.name != name {
                name.clone_into(&mut info.name);
            }
            info.python = python;
        }
    }

    /// The frame's number, for as long as this profile lives.
    pub fn frame(&mut self, frame: Frame) -> FrameId {
        if let Some(id) = self.frames.intern(frame, self.limits.frames) {
            return id;
        }
        self.beyond.frames += 1;
        self.own_frame("[frames beyond the limit]")
    }

    /// The stack's number; `frames` is leaf first, and empty for a thread without Python.
    pub fn stack(&mut self, frames: &[FrameId]) -> StackId {
        let Limits {
            stacks,
            stack_frames,
            ..
        } = self.limits;
        match self.stacks.intern(frames, stacks, stack_frames) {
            Some(id) => id,
            None => self.stacks_beyond(),
        }
    }

    /// Counts one sample at its place.
    pub fn add(&mut self, place: Place, sample: &Sample) {
        let Place {
            thread,
            stack,
            frames_from,
            behind,
        } = place;
        let thread = if (thread.0 as usize) < self.threads.len() {
            thread
        } else {
            self.threads_beyond()
        };
        let mut key = Key {
            thread,
            stack,
            activity: sample.activity,
            gil: sample.gil,
            gc: sample.gc,
            handling: sample.handling,
            behind: behind.filter(|behind| (behind.0 as usize) < self.threads.len()),
            frames_from,
        };
        let full = self.entries.len() >= self.limits.entries && !self.by_key.contains_key(&key);
        if full || self.stacks.get(stack).is_none() {
            key.stack = self.stacks_beyond();
        }
        if full {
            // What there can be too many of: the rest is a handful for each thread.
            key.behind = None;
            if let Activity::Blocked(Wait::Syscall(_)) = key.activity {
                key.activity = Activity::Blocked(Wait::Unknown);
            }
        }
        if Some(key.stack) == self.stacks_beyond {
            self.beyond.stack_ticks += u64::from(sample.ticks);
        }
        let entries = &mut self.entries;
        let at = *self.by_key.entry(key).or_insert_with(|| {
            entries.push(Entry {
                thread,
                stack: key.stack,
                activity: key.activity,
                gil: key.gil,
                gc: key.gc,
                handling: key.handling,
                behind: key.behind,
                frames_from,
                ticks: 0,
                weight: DurationNs(0),
            });
            entries.len() - 1
        });
        if let Some(entry) = entries.get_mut(at) {
            entry.ticks = entry.ticks.saturating_add(u64::from(sample.ticks));
            entry.weight = DurationNs(entry.weight.0.saturating_add(sample.weight.0));
        }
        if let Timeline::Kept(moments) = &mut self.timeline {
            if moments.len() >= self.limits.timeline {
                self.timeline = Timeline::TooLong {
                    limit: self.limits.timeline,
                };
            } else {
                moments.push(Moment {
                    activity: key.activity,
                    gil: key.gil,
                    time: sample.time,
                    weight: sample.weight,
                    thread,
                    stack: key.stack,
                    behind: key.behind,
                });
            }
        }
    }

    /// The samples' side of the accounts at `end`: who had how many, and what they knew. The
    /// kernel's side (ticks, losses, scheduler times, the profiler's own cost) is zero or
    /// unknown in it and is the caller's to fill in.
    #[must_use]
    pub fn ledger(&self, end: MonotonicNs) -> Ledger {
        Ledger::of_samples(&self.meta, self.duration(end), &self.threads, &self.entries)
    }

    /// The profile so far, closed at `end`, with the accounts of the run.
    #[must_use]
    pub fn close(mut self, end: MonotonicNs, ledger: Ledger) -> Profile {
        let duration = self.duration(end);
        let mode = self.meta.mode;
        if let Timeline::Kept(moments) = &mut self.timeline {
            // Each CPU's samples arrive in order, those of several CPUs only nearly so.
            moments.retain(|moment| mode.keeps(moment.activity, moment.gil));
            moments.sort_by_key(|moment| moment.time);
        }
        // The ledger is of all samples; what the mode is not about is only left out of the profile.
        self.entries
            .retain(|entry| mode.keeps(entry.activity, entry.gil));
        Profile {
            meta: self.meta,
            duration,
            threads: self.threads,
            frames: self.frames,
            stacks: self.stacks,
            entries: self.entries,
            timeline: self.timeline,
            beyond: self.beyond,
            ledger,
        }
    }

    fn duration(&self, end: MonotonicNs) -> DurationNs {
        DurationNs(end.0.saturating_sub(self.meta.start.0))
    }

    fn own_frame(&mut self, words: &str) -> FrameId {
        let frame = Frame::words(FrameKind::Unknown, words);
        // Cannot fail: there is no limit, and fewer than 2^32 frames by the limits above.
        self.frames.intern(frame, usize::MAX).unwrap_or(FrameId(0))
    }

    fn stacks_beyond(&mut self) -> StackId {
        if let Some(id) = self.stacks_beyond {
            return id;
        }
        let frame = self.own_frame("[stacks beyond the limit]");
        let id = self.stacks.intern(&[frame], usize::MAX, usize::MAX);
        let id = id.unwrap_or(StackId(0));
        self.stacks_beyond = Some(id);
        id
    }

    fn threads_beyond(&mut self) -> ThreadIndex {
        if let Some(index) = self.threads_beyond {
            return index;
        }
        let index = ThreadIndex(u32::try_from(self.threads.len()).unwrap_or(u32::MAX));
        self.threads.push(ThreadInfo {
            pid: self.meta.pid,
            tid: Tid(0),
            name: String::from("[threads beyond the limit]"),
            python: false,
        });
        self.threads_beyond = Some(index);
        index
    }
}
