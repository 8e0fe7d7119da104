//! Whether a thread's times agree: on a CPU, runnable and blocked together are its life.
//!
//! The scheduler's accounts alone are compared here; how the samples stand against them is in
//! `accounts`.

use crate::aggregate::{ThreadAccount, seconds, sum};
use crate::words::DurationNs;

/// Below this a thread's ends weigh too much to judge it.
const LONG_ENOUGH_NS: u64 = 1_000_000_000;
/// How far a thread's times may be from its life: a hundredth of it.
const LEEWAY: u64 = 100;

/// What the scheduler counted, of one thread or of several.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lives {
    on_cpu: u64,
    runnable: u64,
    blocked: u64,
    wall: u64,
}

impl Lives {
    /// One thread's, where all of it was measured.
    fn of(thread: &ThreadAccount) -> Option<Self> {
        Some(Self {
            on_cpu: thread.scheduler_ns?,
            runnable: thread.runnable_ns?,
            blocked: thread.blocked_ns?,
            wall: thread.wall_ns?,
        })
    }

    /// Those of all threads for which all was measured; `None` when there is no such thread.
    pub(super) fn of_all(threads: &[ThreadAccount]) -> Option<Self> {
        threads.iter().filter_map(Self::of).reduce(|a, b| Self {
            on_cpu: sum([a.on_cpu, b.on_cpu]),
            runnable: sum([a.runnable, b.runnable]),
            blocked: sum([a.blocked, b.blocked]),
            wall: sum([a.wall, b.wall]),
        })
    }

    fn counted(self) -> u64 {
        sum([self.on_cpu, self.runnable, self.blocked])
    }

    fn off_by(self) -> u64 {
        self.counted().abs_diff(self.wall)
    }

    fn is_off(self) -> bool {
        self.wall >= LONG_ENOUGH_NS && self.off_by() > self.wall / LEEWAY
    }

    /// The sum, and what it should be.
    pub(super) fn sentence(self) -> String {
        let words = |ns| seconds(DurationNs(ns));
        format!(
            "on CPU {} + runnable {} + blocked {} = {} of {} lived",
            words(self.on_cpu),
            words(self.runnable),
            words(self.blocked),
            words(self.counted()),
            words(self.wall),
        )
    }
}

/// Whether the times of some thread are off, in a sentence that shows the worst.
pub(super) fn doubt(threads: &[ThreadAccount]) -> Option<String> {
    let off = threads
        .iter()
        .filter_map(|thread| Some((thread.tid, Lives::of(thread)?)))
        .filter(|(_, lives)| lives.is_off());
    let off: Vec<(u32, Lives)> = off.collect();
    let (tid, worst) = off.iter().max_by_key(|(_, lives)| lives.off_by())?;
    let worst = worst.sentence();
    Some(match off.len() {
        1 => format!("the account of thread {tid} is off by more than 1 %: {worst}"),
        n => format!(
            "the accounts of {n} threads are off by more than 1 %, that of {tid} most: {worst}"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(tid: u32, [on_cpu, runnable, blocked, wall]: [u64; 4]) -> ThreadAccount {
        ThreadAccount {
            tid,
            scheduler_ns: Some(on_cpu * 1_000_000),
            runnable_ns: Some(runnable * 1_000_000),
            blocked_ns: Some(blocked * 1_000_000),
            wall_ns: Some(wall * 1_000_000),
            ..ThreadAccount::default()
        }
    }

    #[test]
    fn a_thread_is_doubted_when_its_times_are_not_its_life() {
        let check = |threads: &[ThreadAccount], expected: Option<&str>| {
            assert_eq!(doubt(threads).as_deref(), expected);
        };
        let right = thread(7, [3_010, 20, 26_970, 30_000]);
        let unmeasured = ThreadAccount {
            runnable_ns: None,
            ..thread(8, [0, 0, 0, 30_000])
        };
        let short = thread(9, [0, 0, 0, 999]);
        let within = thread(10, [990, 0, 0, 1_000]);
        check(&[], None);
        check(&[right.clone(), unmeasured.clone(), short, within], None);
        let less = thread(11, [989, 0, 0, 1_000]);
        check(
            &[right.clone(), less.clone()],
            Some(
                "the account of thread 11 is off by more than 1 %: on CPU 0.99 s + runnable 0.00 s \
                 + blocked 0.00 s = 0.99 s of 1.00 s lived",
            ),
        );
        let more = thread(12, [2_000, 500, 0, 2_000]);
        check(
            &[less, more, unmeasured, right],
            Some(
                "the accounts of 2 threads are off by more than 1 %, that of 12 most: on CPU 2.00 s \
                 + runnable 0.50 s + blocked 0.00 s = 2.50 s of 2.00 s lived",
            ),
        );
    }
}
