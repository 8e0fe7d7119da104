//! What looks found counts once it is known how long it lasted, and what no look met at the end.

use profiler_common::account::Account;

use super::{Kind, Sleeper, opened};
use crate::{
    aggregate::Place,
    pipeline::{
        absence::{Away, Meeting, Stretch},
        books,
        session::{Kit, member::Member},
        stacks,
    },
    sample::{Activity, FramesFrom, Gc, Gil, Handling, Sample, Wait},
    wire::Times,
    words::{DurationNs, Generation, MonotonicNs, Pid, Tid},
};

impl Member {
    /// What a thread was met in is over, if it is, and counts.
    pub(super) fn settle(
        &mut self,
        kit: &mut Kit,
        tid: Tid,
        account: &Account,
        end: Option<MonotonicNs>,
    ) {
        let period = kit.settings.period();
        let Some(sleeper) = self.off.sleepers.get_mut(&tid) else {
            return;
        };
        let over = sleeper.absence.settle(account, end, period);
        self.count(kit, tid, over, end.is_some());
    }

    /// The last stretch of a thread counts; `last` says that its round is over.
    fn count(&mut self, kit: &mut Kit, tid: Tid, over: Option<Stretch>, last: bool) {
        let Some(sleeper) = self.off.sleepers.get_mut(&tid) else {
            return;
        };
        let thread = sleeper.thread;
        let (Some(over), Some(met)) = (over, sleeper.met.take()) else {
            return;
        };
        let looks = (kit.off.round + u64::from(last)).saturating_sub(met.round);
        let looks = u32::try_from(looks.max(1)).unwrap_or(u32::MAX);
        self.off.counted = true;
        kit.off.looks += u64::from(looks);
        let Away { blocked, runnable } = over.weight;
        let runnable_looks = match over.length {
            Some(length) if blocked > 0 && runnable > 0 => {
                let share = length.runnable as f64 / (length.blocked + length.runnable) as f64;
                (f64::from(looks) * share).round() as u32
            }
            _ if runnable > 0 || met.how != Meeting::Blocked => looks,
            _ => 0,
        };
        let end = met.since.0 + blocked;
        let parts = [
            (
                Activity::Blocked(met.wait),
                looks - runnable_looks,
                blocked,
                end,
            ),
            (Activity::Runnable, runnable_looks, runnable, end + runnable),
        ];
        let kind = |activity, frames_from| Kind {
            place: Place {
                thread,
                stack: met.stack,
                frames_from,
                behind: met.behind,
            },
            activity,
            gil: met.gil,
            gc: met.gc,
            handling: met.handling,
        };
        if let Some(due) = over.due {
            let [of_blocked, of_runnable] = &mut sleeper.debts;
            let blocks = kind(Activity::Blocked(met.wait), met.frames_from);
            of_blocked.note(blocks, due.blocked, blocked);
            let waits = kind(Activity::Runnable, met.frames_from);
            of_runnable.note(waits, due.runnable, runnable);
        }
        let who = (self.pid, tid, met.generation);
        let mut walked = met.frames_from == FramesFrom::User;
        for (activity, looks, weight, time) in parts {
            // The first look walked; at the others the thread had not run since.
            let first = u32::from(walked && looks > 0);
            walked &= looks == 0;
            let own = weight.checked_div(looks.into()).unwrap_or(0) * u64::from(first);
            let rest_from = match met.frames_from {
                FramesFrom::User => FramesFrom::Cached,
                other => other,
            };
            for (ticks, weight, frames_from) in [
                (first, own, FramesFrom::User),
                (looks - first, weight - own, rest_from),
            ] {
                if ticks == 0 && weight == 0 {
                    continue;
                }
                let sample = kind(activity, frames_from);
                sample.add(kit, who, MonotonicNs(time), ticks, weight);
            }
        }
    }

    /// A thread is gone: all of its time counts.
    pub(in crate::pipeline::session) fn gone_off_cpu(
        &mut self,
        kit: &mut Kit,
        tid: Tid,
        times: Times,
        now: MonotonicNs,
    ) {
        if !kit.settings.mode.looks_off_cpu() {
            return;
        }
        self.off.note_over(tid, times.opened(now));
        let Some(thread) = self.people.place_of(tid) else {
            return;
        };
        let away = Away {
            blocked: times.blocked.0,
            runnable: times.runnable.0,
        };
        let period = kit.settings.period();
        let sleeper = self.off.sleepers.entry(tid);
        let sleeper = sleeper.or_insert_with(|| Sleeper::new(thread));
        let over = sleeper.absence.settle_for_good(away, period);
        self.count(kit, tid, over, false);
        self.count_rest(kit, tid, times.on_cpu, now);
        self.off.sleepers.remove(&tid);
    }

    /// The run is over: what still lasts of a thread counts up to now.
    pub(in crate::pipeline::session) fn end_off_cpu(
        &mut self,
        kit: &mut Kit,
        account: &Account,
        now: MonotonicNs,
    ) {
        let tid = Tid(account.tid);
        // It ended after the accounts were read, and was told to have.
        if self.off.is_over(account) {
            return;
        }
        let opened = opened(account);
        // It ended while the run did, and its id is another thread's already.
        if self.people.is_anothers(tid, opened) || self.people.is_younger(tid, opened) {
            return;
        }
        self.sleeper(kit, account);
        self.settle(kit, tid, account, Some(now));
        let on_cpu = books::times_until(account, now).on_cpu;
        self.count_rest(kit, tid, on_cpu, now);
    }

    /// What was counted for a thread and not yet handed out: what its looks are owed, and what no
    /// look and no tick met.
    fn count_rest(&mut self, kit: &mut Kit, tid: Tid, on_cpu: DurationNs, now: MonotonicNs) {
        let Some(sleeper) = self.off.sleepers.get_mut(&tid) else {
            return;
        };
        let thread = sleeper.thread;
        let Away {
            mut blocked,
            mut runnable,
        } = sleeper.absence.rest();
        let mut paid = Vec::new();
        for (debts, left) in sleeper.debts.iter().zip([&mut blocked, &mut runnable]) {
            debts.pay(*left, |kind, weight| paid.push((kind, weight)));
            if !debts.is_empty() {
                *left = 0;
            }
        }
        let stack = stacks::between_looks(&mut kit.builder);
        let on_cpu = self.people.unweighed(tid, on_cpu).0;
        let unmet = |activity| Kind {
            place: Place {
                thread,
                stack,
                frames_from: FramesFrom::None,
                behind: None,
            },
            activity,
            gil: self.gil_or(Gil::Unknown),
            gc: Gc::Unknown,
            handling: Handling::Unknown,
        };
        paid.extend([
            (unmet(Activity::OnCpu), on_cpu),
            (unmet(Activity::Blocked(Wait::Unknown)), blocked),
            (unmet(Activity::Runnable), runnable),
        ]);
        let who = (self.pid, tid, Generation(0));
        for (kind, weight) in paid.into_iter().filter(|(_, weight)| *weight > 0) {
            kind.add(kit, who, now, 0, weight);
        }
    }
}

impl Kind {
    /// So many looks of a thread, and what they stand for.
    fn add(
        self,
        kit: &mut Kit,
        (pid, tid, generation): (Pid, Tid, Generation),
        time: MonotonicNs,
        ticks: u32,
        weight: u64,
    ) {
        let sample = Sample {
            time,
            pid,
            tid,
            cpu: None,
            ticks,
            weight: DurationNs(weight),
            activity: self.activity,
            gil: self.gil,
            gc: self.gc,
            handling: self.handling,
            generation,
        };
        kit.builder.add(self.place, &sample);
    }
}
