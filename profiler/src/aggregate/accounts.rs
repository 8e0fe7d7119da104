//! What the ledger says in words: whether the books balance, and what deserves attention.

use profiler_common::loss::REASONS;

use crate::aggregate::{Ledger, count, percent, seconds};
use crate::words::DurationNs;

/// One thing about a run that a reader of its profile should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Whether it casts doubt on the profile, rather than only describing it.
    pub warning: bool,
    /// A sentence, lower case, without a full stop.
    pub text: String,
}

impl Ledger {
    /// Ticks lost, all reasons together.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.losses
            .values()
            .fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// By how many `ticks + looks = samples + Σ losses` fails; zero when the books balance.
    #[must_use]
    pub fn imbalance(&self) -> i128 {
        i128::from(self.ticks) + i128::from(self.looks)
            - i128::from(self.samples)
            - i128::from(self.lost())
    }

    /// Nanoseconds sampled and nanoseconds the scheduler counted, over the threads for which
    /// it could be asked; `None` when it could be asked for none.
    #[must_use]
    pub fn sampled_of_scheduled(&self) -> Option<(DurationNs, DurationNs)> {
        self.threads
            .iter()
            .filter_map(|thread| Some((thread.sampled_ns, thread.scheduler_ns?)))
            .reduce(|(a, b), (c, d)| (a.saturating_add(c), b.saturating_add(d)))
            .map(|(sampled, scheduled)| {
                // What met threads are sampled for stands for those that were not met.
                let scheduled = scheduled.saturating_add(self.unsampled.on_cpu_ns);
                (DurationNs(sampled), DurationNs(scheduled))
            })
    }

    /// The accounts in a sentence: ticks, samples, losses, and the scheduler's opinion.
    #[must_use]
    pub fn sentence(&self) -> String {
        let mut text = self.books();
        if let Some((sampled, scheduled)) = self.sampled_of_scheduled() {
            text += &format!(
                " · sampled {} of {} the scheduler counted ({})",
                seconds(sampled),
                seconds(scheduled),
                percent(sampled.0, scheduled.0),
            );
        }
        text
    }

    fn books(&self) -> String {
        let mut lost = count(self.lost()) + " lost";
        let reasons: Vec<String> = self
            .by_size()
            .iter()
            .map(|(reason, n)| format!("{reason} {}", count(*n)))
            .collect();
        if !reasons.is_empty() {
            lost += &format!(" ({})", reasons.join(", "));
        }
        let ticks = count(self.ticks);
        let samples = count(self.samples);
        match self.imbalance() {
            0 => format!("{ticks} ticks = {samples} samples + {lost}"),
            off => format!(
                "{ticks} ticks against {samples} samples + {lost}: the books are off by {}",
                count(u64::try_from(off.unsigned_abs()).unwrap_or(u64::MAX)),
            ),
        }
    }

    fn by_size(&self) -> Vec<(&str, u64)> {
        let mut losses: Vec<_> = self
            .losses
            .iter()
            .filter(|(_, n)| **n > 0)
            .map(|(reason, n)| (reason.as_str(), *n))
            .collect();
        losses.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        losses
    }

    /// What else a reader should know, most doubtful first.
    #[must_use]
    pub fn remarks(&self) -> Vec<Remark> {
        let mut remarks = Vec::new();
        let mut say = |warning, text| remarks.push(Remark { warning, text });
        if self.imbalance() != 0 {
            say(
                true,
                String::from("the books do not balance: this is a defect of the profiler"),
            );
        }
        for (name, n) in self.by_size() {
            if let Some(reason) = REASONS.iter().find(|reason| reason.name == name) {
                say(true, format!("{} lost: {}", ticks(n), reason.sentence));
            }
        }
        if self.events_lost > 0 {
            let n = count(self.events_lost);
            say(
                true,
                format!(
                    "{n} births and deaths of threads were lost: the ring was full: raise \
                     --ring-bytes or lower --rate"
                ),
            );
        }
        if self.unsampled.threads > 0 {
            let n = count(self.unsampled.threads);
            let time = seconds(DurationNs(self.unsampled.on_cpu_ns));
            say(
                false,
                format!("{n} threads of {time} in all ended between two ticks"),
            );
        }
        if self.frames_from.estimated > 0 {
            let n = self.frames_from.estimated;
            let text = format!(
                "{} of samples ({}) were read while the thread ran: their frames are estimated",
                percent(n, self.samples),
                ticks(n),
            );
            say(true, text);
        }
        if self.contradictions > 0 {
            let n = count(self.contradictions);
            say(
                true,
                format!("{n} times two ways to name a thread disagreed"),
            );
        }
        if self.moved > 0 {
            let n = count(self.moved);
            say(
                false,
                format!("{n} walks were given up because the thread ran on"),
            );
        }
        if let Some(text) = self.cost() {
            say(false, text);
        }
        remarks
    }

    fn cost(&self) -> Option<String> {
        let mut parts = Vec::new();
        if let Some(ns) = self.profiler.cpu_ns {
            parts.push(format!("{} of CPU", seconds(DurationNs(ns))));
        }
        if let Some(ns) = self.profiler.bpf_ns {
            parts.push(format!(
                "{} in its kernel programs",
                seconds(DurationNs(ns))
            ));
        }
        if let Some(bytes) = self.profiler.rss_bytes {
            parts.push(format!("{:.1} MB of memory", bytes as f64 / 1e6));
        }
        (!parts.is_empty()).then(|| format!("the profiler took {}", parts.join(", ")))
    }
}

fn ticks(n: u64) -> String {
    format!("{} {}", count(n), if n == 1 { "tick" } else { "ticks" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::ThreadAccount;

    fn thread(sampled_ns: u64, scheduler_ns: Option<u64>) -> ThreadAccount {
        ThreadAccount {
            sampled_ns,
            scheduler_ns,
            ..ThreadAccount::default()
        }
    }

    fn ledger(ticks: u64, samples: u64, losses: &[(&str, u64)]) -> Ledger {
        Ledger {
            ticks,
            samples,
            losses: losses.iter().map(|(k, n)| ((*k).into(), *n)).collect(),
            ..Ledger::default()
        }
    }

    #[test]
    fn the_sentence_balances_the_books_or_says_by_how_much_it_fails() {
        let check = |ledger: Ledger, sentence: &str| assert_eq!(ledger.sentence(), sentence);
        check(ledger(0, 0, &[]), "0 ticks = 0 samples + 0 lost");
        check(
            ledger(1234, 1230, &[("ring_full", 4), ("exiting", 0)]),
            "1,234 ticks = 1,230 samples + 4 lost (ring_full 4)",
        );
        check(
            ledger(10, 4, &[("exiting", 2), ("ring_full", 4)]),
            "10 ticks = 4 samples + 6 lost (ring_full 4, exiting 2)",
        );
        check(
            ledger(10, 4, &[("ring_full", 4)]),
            "10 ticks against 4 samples + 4 lost (ring_full 4): the books are off by 2",
        );
        let mut scheduled = ledger(5, 5, &[]);
        scheduled.threads = vec![
            thread(6_170_000_000, Some(6_175_000_000)),
            thread(6_170_000_000, Some(6_175_000_000)),
            thread(999, None),
        ];
        check(
            scheduled,
            "5 ticks = 5 samples + 0 lost · sampled 12.34 s of 12.35 s the scheduler counted (99.9 %)",
        );
    }

    #[test]
    fn doubts_come_before_descriptions() {
        let mut ledger = ledger(10, 4, &[("ring_full", 4)]);
        ledger.frames_from.estimated = 1;
        ledger.moved = 3;
        ledger.profiler.cpu_ns = Some(120_000_000);
        ledger.profiler.rss_bytes = Some(23_456_789);
        let remarks = ledger.remarks();
        let warnings: Vec<bool> = remarks.iter().map(|remark| remark.warning).collect();
        assert_eq!(warnings, [true, true, true, false, false]);
        assert!(
            remarks[1]
                .text
                .starts_with("4 ticks lost: the ring was full")
        );
        assert_eq!(
            remarks[4].text,
            "the profiler took 0.12 s of CPU, 23.5 MB of memory"
        );
    }
}
