//! What a snapshot of tasks found, until it is known how long that lasted.

use rustc_hash::FxHashMap;

use crate::{
    aggregate::{Place, ProfileBuilder, ThreadIndex},
    pipeline::session::{Kit, task_books::TaskBooks},
    sample::{Activity, FramesFrom, Gc, Gil, Handling, Sample},
    source::{Accounts, Slot},
    stack::Frame,
    words::{DurationNs, Generation, MonotonicNs, Pid, Tid},
};

/// What makes two tasks the same in a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Group {
    pub(super) place: Place,
    pub(super) activity: Activity,
}

/// All tasks of a process as they were read once.
#[derive(Clone, Debug)]
pub(in super::super) struct Held {
    at: MonotonicNs,
    round: u64,
    groups: FxHashMap<Group, u32>,
    /// Those that could not be read, by the reason.
    unread: FxHashMap<&'static str, u64>,
    /// The threads of the loops, and when they were still.
    pub(super) watch: Vec<(Slot, Generation)>,
    /// When it is asked again whether other threads run loops.
    pub(super) loops_again: MonotonicNs,
    /// Of all threads of the process, when that was asked last.
    pub(super) switches: u64,
}

impl Held {
    pub(super) fn new(at: MonotonicNs, round: u64) -> Self {
        Self {
            at,
            round,
            groups: FxHashMap::default(),
            unread: FxHashMap::default(),
            watch: Vec::new(),
            loops_again: at,
            switches: 0,
        }
    }

    /// Whether no loop's thread has run since.
    pub(super) fn is_still(&self, accounts: &Accounts) -> bool {
        let mut watch = self.watch.iter();
        watch.all(|(slot, generation)| accounts.generation(*slot) == *generation)
    }

    /// So many tasks of a kind.
    pub(super) fn add(&mut self, group: Group, tasks: u32) {
        let count = self.groups.entry(group).or_default();
        *count = count.saturating_add(tasks);
    }

    /// So many tasks that could not be read.
    pub(super) fn unread(
        &mut self,
        kit: &mut Kit,
        thread: ThreadIndex,
        reason: &'static str,
        tasks: u64,
    ) {
        let builder = &mut kit.tasks.builder;
        let stack = unread_stack(builder, reason);
        let place = Place {
            thread,
            stack,
            frames_from: FramesFrom::None,
            behind: None,
        };
        let activity = Activity::Unknown;
        let count = u32::try_from(tasks).unwrap_or(u32::MAX);
        self.add(Group { place, activity }, count);
        *self.unread.entry(reason).or_default() += tasks;
    }

    /// One that is in its group counts as not readable.
    pub(super) fn note_unread(&mut self, reason: &'static str) {
        *self.unread.entry(reason).or_default() += 1;
    }

    /// It lasted until `now`: each task is a sample of each round since.
    pub(super) fn count(self, kit: &mut Kit, pid: Pid, now: MonotonicNs) {
        let rounds = u32::try_from(kit.off.round.saturating_sub(self.round)).unwrap_or(u32::MAX);
        let rounds = rounds.max(1);
        let lasted = now.0.saturating_sub(self.at.0);
        let TaskBooks {
            builder, accounts, ..
        } = &mut kit.tasks;
        for (group, tasks) in self.groups {
            let samples = u64::from(tasks) * u64::from(rounds);
            accounts.samples += samples;
            match group.activity {
                Activity::Runnable => accounts.runnable += samples,
                Activity::Blocked(crate::sample::Wait::Await) => accounts.waiting += samples,
                Activity::OnCpu | Activity::Blocked(_) => accounts.running += samples,
                Activity::Unknown => {}
            }
            if group.place.frames_from == FramesFrom::Estimated {
                accounts.estimated += samples;
            }
            // At the first look it was read, at the others its loop had not run since.
            let later = match group.place.frames_from {
                FramesFrom::User => FramesFrom::Cached,
                other => other,
            };
            let weight = lasted.saturating_mul(u64::from(tasks));
            let first = weight / u64::from(rounds);
            for (rounds, weight, frames_from) in [
                (1, first, group.place.frames_from),
                (rounds - 1, weight - first, later),
            ] {
                if rounds == 0 {
                    continue;
                }
                let place = Place {
                    frames_from,
                    ..group.place
                };
                let ticks = tasks.saturating_mul(rounds);
                builder.add(place, &sample(pid, group.activity, now, ticks, weight));
            }
        }
        for (reason, tasks) in self.unread {
            *accounts.unreadable.entry(reason.to_owned()).or_default() += tasks * u64::from(rounds);
        }
    }
}

fn sample(pid: Pid, activity: Activity, time: MonotonicNs, ticks: u32, weight: u64) -> Sample {
    Sample {
        time,
        pid,
        tid: Tid(0),
        cpu: None,
        ticks,
        weight: DurationNs(weight),
        activity,
        gil: Gil::Unknown,
        gc: Gc::Unknown,
        handling: Handling::Unknown,
        generation: Generation(0),
    }
}

fn unread_stack(builder: &mut ProfileBuilder, reason: &str) -> crate::stack::StackId {
    let id = builder.frame(Frame::unreadable_task(reason));
    builder.stack(&[id])
}
