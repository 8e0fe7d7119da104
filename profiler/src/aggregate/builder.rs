//! Samples in, one [`Profile`] out, in bounded memory.
//!
//! Every table has a limit. What does not fit is counted under a frame or thread whose name
//! says so, and in [`Beyond`]; no sample is ever dropped here.

use rustc_hash::FxHashMap;

use super::ledger::Parties;
use crate::aggregate::{
    Beyond, Entry, Ledger, Moment, ProcessIndex, ProcessInfo, Profile, ProfileMeta, ThreadIndex,
    ThreadInfo, Timeline,
};
use crate::sample::{Activity, FramesFrom, Gc, Gil, Handling, Sample, Wait};
use crate::stack::{Frame, FrameId, FrameKind, Frames, StackId, Stacks};
use crate::words::{DurationNs, MonotonicNs, Pid, Tid};

/// How much a profile may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Distinct frames.
    pub frames: usize,
    /// Distinct stacks.
    pub stacks: usize,
    /// Frames over all distinct stacks, four bytes each.
    pub stack_frames: usize,
    /// Processes.
    pub processes: usize,
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
            processes: 16_384,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
#[derive(Clone, Debug)]
pub struct ProfileBuilder {
    meta: ProfileMeta,
    limits: Limits,
    processes: Vec<ProcessInfo>,
    /// The process that has an id now.
    by_pid: FxHashMap<Pid, ProcessIndex>,
    threads: Vec<ThreadInfo>,
    /// The process of each thread.
    process_of: Vec<ProcessIndex>,
    frames: Frames,
    stacks: Stacks,
    entries: Vec<Entry>,
    by_key: FxHashMap<Key, usize>,
    timeline: Timeline,
    beyond: Beyond,
    stacks_beyond: Option<StackId>,
    threads_beyond: Option<ThreadIndex>,
    processes_beyond: Option<ProcessIndex>,
}

impl ProfileBuilder {
    /// An empty profile with the default limits and no timeline.
    #[must_use]
    pub fn new(meta: ProfileMeta) -> Self {
        Self {
            meta,
            limits: Limits::default(),
            processes: Vec::new(),
            by_pid: FxHashMap::default(),
            threads: Vec::new(),
            process_of: Vec::new(),
            frames: Frames::new(),
            stacks: Stacks::new(),
            entries: Vec::new(),
            by_key: FxHashMap::default(),
            timeline: Timeline::NotKept,
            beyond: Beyond::default(),
            stacks_beyond: None,
            threads_beyond: None,
            processes_beyond: None,
        }
    }

    /// What the profile will say of itself.
    #[must_use]
    pub fn meta(&self) -> &ProfileMeta {
        &self.meta
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

    /// Registers a process: threads registered under its id from now on are its. Each call makes
    /// another one, so that an id used again is not taken for the process before.
    pub fn process(&mut self, info: ProcessInfo) -> ProcessIndex {
        let pid = info.pid;
        let index = if self.processes.len() < self.limits.processes {
            let index = u32::try_from(self.processes.len()).unwrap_or(u32::MAX);
            self.processes.push(info);
            ProcessIndex(index)
        } else {
            self.beyond.processes += 1;
            self.processes_beyond()
        };
        self.by_pid.insert(pid, index);
        index
    }

    /// What is known of a process so far.
    #[must_use]
    pub fn process_info(&self, process: ProcessIndex) -> Option<&ProcessInfo> {
        self.processes.get(process.0 as usize)
    }

    /// The process with this id is over: threads that come under it are another's.
    pub fn process_ended(&mut self, pid: Pid) {
        self.by_pid.remove(&pid);
    }

    /// What of a process is known only later: the program that it runs by now.
    pub fn process_runs(&mut self, process: ProcessIndex, command: &str) {
        if let Some(info) = self.own_process(process) {
            command.clone_into(&mut info.command);
        }
    }

    /// The version of its interpreter.
    pub fn process_python(&mut self, process: ProcessIndex, python: &str) {
        if let Some(info) = self.own_process(process) {
            python.clone_into(&mut info.python);
        }
    }

    /// A process that has a place of its own.
    fn own_process(&mut self, process: ProcessIndex) -> Option<&mut ProcessInfo> {
        let shared = Some(process) == self.processes_beyond;
        self.processes
            .get_mut(process.0 as usize)
            .filter(|_| !shared)
    }

    /// Registers a thread. Each call makes another one, so that a tid used again is not taken
    /// for the thread before it; the caller keeps the index beside the thread's identity.
    pub fn thread(&mut self, info: ThreadInfo) -> ThreadIndex {
        if self.threads.len() < self.limits.threads
            && let Ok(index) = u32::try_from(self.threads.len())
        {
            let process = match self.by_pid.get(&info.pid) {
                Some(process) => *process,
                None => self.process(ProcessInfo {
                    pid: info.pid,
                    parent: None,
                    command: String::new(),
                    python: String::new(),
                }),
            };
            self.process_of.push(process);
            self.threads.push(info);
            return ThreadIndex(index);
        }
        self.beyond.threads += 1;
        self.threads_beyond()
    }

    /// Takes over the processes and threads of another profile of the same run, with their numbers;
    /// what came to it since the last time, and what is known of them by now.
    pub fn take_people(&mut self, other: &Self) {
        self.meta.python.clone_from(&other.meta.python);
        self.meta.build.clone_from(&other.meta.build);
        self.processes.clone_from(&other.processes);
        self.by_pid.clone_from(&other.by_pid);
        self.threads.clone_from(&other.threads);
        self.process_of.clone_from(&other.process_of);
        self.threads_beyond = other.threads_beyond;
        self.processes_beyond = other.processes_beyond;
    }

    /// Threads so far.
    #[must_use]
    pub fn thread_count(&self) -> usize {
        self.threads.len()
    }

    /// Gives a thread the id it has by now, when an exec has made it its process's first.
    pub fn renumber(&mut self, thread: ThreadIndex, tid: Tid) {
        if Some(thread) != self.threads_beyond
            && let Some(info) = self.threads.get_mut(thread.0 as usize)
        {
            info.tid = tid;
        }
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

    /// The frames of a stack, leaf first; none of one that is not this profile's.
    #[must_use]
    pub fn frames_of(&self, stack: StackId) -> &[FrameId] {
        self.stacks.get(stack).unwrap_or_default()
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
        Ledger::of_samples(
            &self.meta,
            self.duration(end),
            Parties {
                processes: &self.processes,
                threads: &self.threads,
                process_of: &self.process_of,
            },
            &self.entries,
        )
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
            processes: self.processes,
            threads: self.threads,
            process_of: self.process_of,
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
        let process = match self.processes.len() {
            1 => ProcessIndex(0),
            _ => self.processes_beyond(),
        };
        self.process_of.push(process);
        self.threads.push(ThreadInfo {
            pid: self.meta.pid,
            tid: Tid(0),
            name: String::from("[threads beyond the limit]"),
            python: false,
        });
        self.threads_beyond = Some(index);
        index
    }

    fn processes_beyond(&mut self) -> ProcessIndex {
        if let Some(index) = self.processes_beyond {
            return index;
        }
        let index = ProcessIndex(u32::try_from(self.processes.len()).unwrap_or(u32::MAX));
        self.processes.push(ProcessInfo {
            pid: Pid(0),
            parent: None,
            command: String::from("[processes beyond the limit]"),
            python: String::new(),
        });
        self.processes_beyond = Some(index);
        index
    }
}
