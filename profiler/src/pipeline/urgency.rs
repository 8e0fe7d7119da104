//! When each sample is worth a wake-up of its own.
//!
//! A program that imports, or compiles what it runs, makes code objects that are freed as soon as
//! they have run, and puts others at their addresses. Their names are there as long as they run: who
//! comes a tenth of a second later finds nothing, or something else.

use crate::words::{DurationNs, MonotonicNs};

/// For how long it goes on after the last news: no longer than it takes to meet the next, for who is
/// woken by each tick may take the CPU from whom it met, whose ticks then are more than its time.
const AFTER: DurationNs = DurationNs(50_000_000);

/// Whether samples are urgent, by how much was news.
#[derive(Debug)]
pub(super) struct Urgency {
    news: u64,
    until: MonotonicNs,
}

impl Urgency {
    /// At the start all is news.
    pub(super) fn new(now: MonotonicNs) -> Self {
        Self {
            news: 0,
            until: MonotonicNs(now.0.saturating_add(AFTER.0)),
        }
    }

    /// Whether they are at `now`, when so much has been news up to now.
    pub(super) fn is_urgent(&mut self, news: u64, now: MonotonicNs) -> bool {
        // Less than before is of processes that have ended.
        if news > self.news {
            self.until = MonotonicNs(now.0.saturating_add(AFTER.0));
        }
        self.news = news;
        now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_as_long_as_there_is_news_and_a_while_longer() {
        let ms = |ms: u64| MonotonicNs(ms * 1_000_000);
        let mut urgency = Urgency::new(ms(1000));
        let steps = [
            (0, 1040, true),
            (0, 1050, false),
            (3, 2000, true),
            (3, 2049, true),
            (3, 2050, false),
            // A process ended with what it had.
            (1, 2060, false),
            (2, 2070, true),
            (3, 2110, true),
            (3, 2160, false),
        ];
        for (news, now, expected) in steps {
            assert_eq!(urgency.is_urgent(news, ms(now)), expected, "{now} ms");
        }
    }
}
