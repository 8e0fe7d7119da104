//! One process's part of a profile, as a profile of its own: nothing of the others is in it.

use std::collections::HashMap;

use crate::aggregate::{Beyond, Entry, Moment, ProcessIndex, Profile, ThreadIndex, Timeline};
use crate::stack::{FrameId, Frames, StackId, Stacks};

/// What was taken over so far, by its number in the whole.
struct Part<'a> {
    whole: &'a Profile,
    frames: Frames,
    stacks: Stacks,
    threads: HashMap<ThreadIndex, ThreadIndex>,
}

impl Profile {
    /// What of this profile is of one process; none when there is no such process. Ticks that were
    /// lost are nobody's in particular, so they stay out of its accounts.
    #[must_use]
    pub fn of_process(&self, process: ProcessIndex) -> Option<Self> {
        let info = self.processes.get(process.0 as usize)?;
        let its = (0..).map(ThreadIndex).zip(&self.threads);
        let its = its.filter(|(thread, _)| self.process_of(*thread) == process);
        let (numbers, threads): (Vec<_>, Vec<_>) = its.unzip();
        let mut part = Part {
            whole: self,
            frames: Frames::new(),
            stacks: Stacks::new(),
            threads: numbers.into_iter().zip((0..).map(ThreadIndex)).collect(),
        };
        let mut meta = self.meta.clone();
        meta.pid = info.pid;
        meta.command.clone_from(&info.command);
        meta.python.clone_from(&info.python);
        let entries = self.entries.iter().filter_map(|entry| part.entry(entry));
        let entries = entries.collect();
        let timeline = match &self.timeline {
            Timeline::Kept(moments) => {
                let moments = moments.iter().filter_map(|moment| part.moment(moment));
                Timeline::Kept(moments.collect())
            }
            other => other.clone(),
        };
        let is_its = |thread: ThreadIndex| part.threads.contains_key(&thread);
        Some(Self {
            duration: self.duration,
            ledger: self.ledger.of_process(process, &meta, is_its),
            meta,
            processes: vec![info.clone()],
            process_of: vec![ProcessIndex(0); threads.len()],
            threads: threads.into_iter().cloned().collect(),
            frames: part.frames,
            stacks: part.stacks,
            entries,
            timeline,
            beyond: Beyond::default(),
        })
    }
}

impl Part<'_> {
    fn entry(&mut self, entry: &Entry) -> Option<Entry> {
        let thread = *self.threads.get(&entry.thread)?;
        Some(Entry {
            thread,
            stack: self.stack(entry.stack),
            behind: self.behind(entry.behind),
            ..*entry
        })
    }

    fn moment(&mut self, moment: &Moment) -> Option<Moment> {
        let thread = *self.threads.get(&moment.thread)?;
        Some(Moment {
            thread,
            stack: self.stack(moment.stack),
            behind: self.behind(moment.behind),
            ..*moment
        })
    }

    fn behind(&self, thread: Option<ThreadIndex>) -> Option<ThreadIndex> {
        thread.and_then(|thread| self.threads.get(&thread).copied())
    }

    fn stack(&mut self, stack: StackId) -> StackId {
        let frames = self.whole.stacks.get(stack).unwrap_or_default();
        let frames: Vec<FrameId> = frames
            .iter()
            .filter_map(|id| {
                let frame = self.whole.frames.get(*id)?.clone();
                self.frames.intern(frame, usize::MAX)
            })
            .collect();
        // Cannot fail: there is no limit, and no more of them than in the whole.
        let taken = self.stacks.intern(&frames, usize::MAX, usize::MAX);
        taken.unwrap_or(StackId(0))
    }
}
