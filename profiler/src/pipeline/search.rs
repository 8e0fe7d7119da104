//! When to look for the interpreter of a process again: often while its program is young, ever
//! more seldom later, since most programs never become a Python.

use crate::words::{DurationNs, MonotonicNs};

/// No program has an interpreter sooner.
const FIRST: DurationNs = DurationNs(3_000_000);
/// No longer is one that starts late waited for.
const LONGEST: DurationNs = DurationNs(1_000_000_000);
/// A program that is younger may be about to start its interpreter.
const YOUNG: DurationNs = DurationNs(1_000_000_000);

/// The search for one program's interpreter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    since: MonotonicNs,
    next: MonotonicNs,
}

impl Search {
    /// For a program that begins.
    pub(super) fn begin(since: MonotonicNs) -> Self {
        Self {
            since,
            next: MonotonicNs(since.0 + FIRST.0),
        }
    }

    /// Whether it is time to look.
    pub(super) fn is_due(&self, now: MonotonicNs) -> bool {
        now >= self.next
    }

    /// It was looked and nothing was found.
    pub(super) fn failed(&mut self, now: MonotonicNs) {
        let age = now.0.saturating_sub(self.since.0);
        self.next = MonotonicNs(now.0 + (age / 8).min(LONGEST.0));
    }

    /// Whether the program may be about to start its interpreter.
    pub(super) fn is_young(&self, now: MonotonicNs) -> bool {
        now.0.saturating_sub(self.since.0) < YOUNG.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_a_program_the_less_often_it_is_looked_at() {
        let ms = |ms: u64| MonotonicNs(ms * 1_000_000);
        let mut search = Search::begin(ms(1000));
        let mut looks = Vec::new();
        for now in 1000..20_000 {
            if search.is_due(ms(now)) {
                search.failed(ms(now));
                looks.push(now);
            }
        }
        assert_eq!(looks[0], 1003);
        assert!(search.is_young(ms(1999)) && !search.is_young(ms(2000)));
        let early = looks.iter().filter(|at| **at < 1100).count();
        let late = looks.iter().filter(|at| **at >= 19_000).count();
        assert!(early > 10 && late == 1, "{looks:?}");
    }
}
