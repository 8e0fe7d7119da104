//! What the ledger says in words: whether the books balance, and what deserves attention.

use profiler_common::loss::REASONS;
use profiler_common::plan::MAX_PLANS;

use crate::aggregate::lives::{self, Lives};
use crate::aggregate::{Ledger, ThreadAccount, count, counted, percent, seconds, sum};
use crate::sample::Mode;
use crate::source::throttle;
use crate::words::DurationNs;

/// One thing about a run that a reader of its profile should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Whether it casts doubt on the profile, rather than only describing it.
    pub warning: bool,
    /// A sentence, lower case, without a full stop.
    pub text: String,
}

/// Which of a thread's time a mode is about, as far as the scheduler can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    OnCpu,
    OffCpu,
    All,
}

impl Ledger {
    /// Ticks and looks lost, all reasons together.
    #[must_use]
    pub fn lost(&self) -> u64 {
        sum(self.losses.values().copied())
    }

    /// By how many `ticks + looks = samples + Σ losses` fails; zero when the books balance.
    #[must_use]
    pub fn imbalance(&self) -> i128 {
        i128::from(self.ticks) + i128::from(self.looks)
            - i128::from(self.samples)
            - i128::from(self.lost())
    }

    /// Nanoseconds sampled and nanoseconds the scheduler counted of the mode's kind of time,
    /// over the threads for which it could be asked; `None` when it could be asked for none.
    #[must_use]
    pub fn sampled_of_scheduled(&self) -> Option<(DurationNs, DurationNs)> {
        let on_cpu = |thread: &ThreadAccount| Some((thread.sampled_ns, thread.scheduler_ns?));
        let off_cpu = |thread: &ThreadAccount| {
            let sampled = [thread.sampled_runnable_ns, thread.sampled_blocked_ns];
            let scheduled = [thread.runnable_ns?, thread.blocked_ns?];
            Some((sum(sampled), sum(scheduled)))
        };
        let all = |thread: &ThreadAccount| {
            let sampled = sum([thread.sampled_ns, off_cpu(thread)?.0]);
            Some((sampled, thread.wall_ns?))
        };
        let pairs: Vec<(u64, u64)> = match self.kind() {
            Kind::OnCpu => self.threads.iter().filter_map(on_cpu).collect(),
            Kind::OffCpu => self.threads.iter().filter_map(off_cpu).collect(),
            Kind::All => self.threads.iter().filter_map(all).collect(),
        };
        // What met threads are sampled for stands for those that were not met.
        let unmet = match self.kind() {
            Kind::OnCpu => self.unsampled.on_cpu_ns,
            Kind::OffCpu | Kind::All => 0,
        };
        (!pairs.is_empty()).then(|| {
            let sampled = sum(pairs.iter().map(|(sampled, _)| *sampled));
            let scheduled = sum(pairs.iter().map(|(_, scheduled)| *scheduled));
            (DurationNs(sampled), DurationNs(sum([scheduled, unmet])))
        })
    }

    fn kind(&self) -> Kind {
        match self.mode.as_str() {
            mode if mode == Mode::Wall.key() => Kind::All,
            mode if mode == Mode::OffCpu.key() => Kind::OffCpu,
            _ => Kind::OnCpu,
        }
    }

    /// The accounts in a sentence: ticks, samples, losses, and the scheduler's opinion.
    #[must_use]
    pub fn sentence(&self) -> String {
        let mut text = self.books();
        if let Some((sampled, scheduled)) = self.sampled_of_scheduled() {
            let whose = match self.kind() {
                Kind::OnCpu if self.looks == 0 => "the scheduler counted",
                Kind::OnCpu => "on a CPU the scheduler counted",
                Kind::OffCpu => "off the CPU the scheduler counted",
                Kind::All => "the threads lived",
            };
            text += &format!(
                " · sampled {} of {} {whose} ({})",
                seconds(sampled),
                seconds(scheduled),
                percent(sampled.0, scheduled.0),
            );
        }
        if self.kind() == Kind::All
            && let Some(lives) = Lives::of_all(&self.threads)
        {
            text += &format!(" · {}", lives.sentence());
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
        let mut came = format!("{} ticks", count(self.ticks));
        if self.looks > 0 {
            came += &format!(" + {} looks", count(self.looks));
        }
        let samples = count(self.samples);
        match self.imbalance() {
            0 => format!("{came} = {samples} samples + {lost}"),
            off => format!(
                "{came} against {samples} samples + {lost}: the books are off by {}",
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
                    "births and deaths of threads that were lost: {n}, since the ring was full: \
                     raise --ring-bytes or lower --rate"
                ),
            );
        }
        if let Some(text) = self.held_back() {
            say(true, text);
        }
        if let Some(text) = lives::doubt(&self.threads) {
            say(true, text);
        }
        if self.not_followed > 0 {
            let n = self.not_followed;
            let children = counted(n, "child was", "children were");
            say(
                true,
                format!(
                    "{children} not followed: {} processes were at the same time",
                    count(MAX_PLANS.into())
                ),
            );
        }
        if let Some(text) = self.unseen() {
            say(false, text);
        }
        if let Some(text) = self.estimated() {
            say(true, text);
        }
        if let Some(text) = self.seldom() {
            say(false, text);
        }
        if self.contradictions > 0 {
            let n = counted(self.contradictions, "time", "times");
            say(true, format!("{n} two ways to name a thread disagreed"));
        }
        for (warning, text) in self.of_tasks() {
            say(warning, text);
        }
        if let Some(text) = self.of_native() {
            say(false, text);
        }
        if self.moved > 0 {
            let text = format!(
                "{} of {} ({}) gave no frames: the thread ran on each time it was read",
                count(self.moved),
                counted(self.looks, "look", "looks"),
                percent(self.moved, self.looks),
            );
            say(false, text);
        }
        if let Some(text) = self.cost() {
            say(false, text);
        }
        remarks
    }

    /// That the kernel let fewer ticks through than was asked for.
    fn held_back(&self) -> Option<String> {
        let max = self.max_rate_hz?;
        Some(format!(
            "{} of ticks came late, and count with the next that came: \
             kernel.perf_event_max_sample_rate was {max}, too low for {} a second: type {}, or \
             lower --rate",
            percent(self.late_ticks, self.ticks),
            count(self.rate_hz.into()),
            throttle::what_to_type(),
        ))
    }

    /// The time of threads that ended between two ticks or looks.
    fn unseen(&self) -> Option<String> {
        let time = seconds(DurationNs(self.unsampled.on_cpu_ns));
        match self.unsampled.threads {
            // Nobody counts threads from outside; only the process's clock tells of them.
            0 if self.unsampled.on_cpu_ns > self.period_ns => Some(format!(
                "{time} on a CPU went to threads that ended between two looks"
            )),
            0 => None,
            n => {
                let in_all = if n == 1 { "" } else { " in all" };
                let n = counted(n, "thread", "threads");
                let mut text = format!("{n} of {time}{in_all} ended between two ticks");
                if self.unsampled.processes > 0 {
                    let n = counted(self.unsampled.processes, "process", "processes");
                    text += &format!(", and so did {n}, too short for a sample");
                }
                Some(text)
            }
        }
    }

    /// That frames are estimated, why, and what would make them exact.
    fn estimated(&self) -> Option<String> {
        let n = self.frames_from.estimated;
        let of_proc = self.engine == "proc";
        if n == 0 && !of_proc {
            return None;
        }
        let mut text = if n == 0 {
            "no sample was read while its thread ran, so no frames are estimated".to_owned()
        } else {
            format!(
                "{} of samples ({}) were read while the thread ran: their frames are estimated",
                percent(n, self.samples),
                ticks(n),
            )
        };
        if of_proc {
            text += if n == 0 {
                ", though there is no eBPF"
            } else {
                ", since there is no eBPF"
            };
            text += &match &self.why_not_bpf {
                Some(why) => format!(": {why}"),
                None => String::from(" (`--engine bpf` reads them exactly)"),
            };
        }
        Some(text)
    }

    /// That there were fewer rounds of looks than was asked for.
    fn seldom(&self) -> Option<String> {
        /// One in ten may be late without a word.
        const ENOUGH: f64 = 0.9;
        let rounds = self.rounds? as f64;
        let wanted = self.duration_s * f64::from(self.rate_hz);
        (wanted >= 10.0 && rounds < wanted * ENOUGH).then(|| {
            format!(
                "looked {:.1} times a second instead of {}: there are many threads, or the \
                 machine is busy; the times are exact all the same",
                rounds / self.duration_s,
                self.rate_hz,
            )
        })
    }

    fn cost(&self) -> Option<String> {
        let mut parts = Vec::new();
        if let Some(ns) = self.profiler.cpu_ns {
            parts.push(format!("{} of CPU", seconds(DurationNs(ns))));
        }
        if let Some(ns) = self.profiler.bpf_ns {
            parts.push(format!(
                "about {} in its kernel programs",
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
    counted(n, "tick", "ticks")
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
    fn off_the_cpu_looks_are_counted_and_times_are_held_against_the_modes_own() {
        let check = |mode: Mode, sentence: &str| {
            let mut ledger = ledger(10, 28, &[("ring_full", 2)]);
            ledger.looks = 20;
            ledger.mode = mode.key().to_owned();
            ledger.threads = vec![ThreadAccount {
                sampled_runnable_ns: 15_000_000,
                sampled_blocked_ns: 26_900_000_000,
                runnable_ns: Some(20_000_000),
                blocked_ns: Some(26_970_000_000),
                wall_ns: Some(30_000_000_000),
                ..thread(3_000_000_000, Some(3_010_000_000))
            }];
            let books = "10 ticks + 20 looks = 28 samples + 2 lost (ring_full 2)";
            assert_eq!(ledger.sentence(), format!("{books} · {sentence}"));
        };
        check(
            Mode::Wall,
            "sampled 29.92 s of 30.00 s the threads lived (99.7 %) · on CPU 3.01 s + runnable \
             0.02 s + blocked 26.97 s = 30.00 s of 30.00 s lived",
        );
        check(
            Mode::OffCpu,
            "sampled 26.92 s of 26.99 s off the CPU the scheduler counted (99.7 %)",
        );
        check(
            Mode::Gil,
            "sampled 3.00 s of 3.01 s on a CPU the scheduler counted (99.7 %)",
        );
    }

    #[test]
    fn ticks_that_the_kernel_held_back_are_a_doubt_that_says_what_to_type() {
        let mut ledger = ledger(1_000, 1_000, &[]);
        ledger.rate_hz = 999;
        ledger.late_ticks = 495;
        let held_back = |ledger: &Ledger| ledger.remarks().first().cloned();
        // Late by themselves, as when a host takes the machine away.
        assert_eq!(held_back(&ledger), None);
        ledger.max_rate_hz = Some(500);
        let remark = held_back(&ledger).expect("a remark");
        assert!(remark.warning);
        assert_eq!(
            remark.text,
            "49.5 % of ticks came late, and count with the next that came: \
             kernel.perf_event_max_sample_rate was 500, too low for 999 a second: type `sudo \
             sysctl kernel.perf_event_max_sample_rate=100000`, or lower --rate"
        );
    }

    #[test]
    fn one_is_not_several() {
        let mut ledger = Ledger {
            events_lost: 1,
            not_followed: 1,
            contradictions: 1,
            ..Ledger::default()
        };
        ledger.unsampled.threads = 1;
        ledger.unsampled.on_cpu_ns = 1_750_000;
        ledger.unsampled.processes = 1;
        let said: Vec<String> = ledger.remarks().into_iter().map(|it| it.text).collect();
        for expected in [
            "1 child was not followed: ",
            "1 thread of 1.75 ms ended between two ticks, and so did 1 process, too short",
            "1 time two ways to name a thread disagreed",
        ] {
            let any = said.iter().any(|text| text.starts_with(expected));
            assert!(any, "{expected}: {said:?}");
        }
    }

    #[test]
    fn doubts_come_before_descriptions() {
        let mut ledger = ledger(10, 4, &[("ring_full", 4)]);
        ledger.frames_from.estimated = 1;
        ledger.looks = 3_456;
        ledger.samples += 3_456;
        ledger.moved = 12;
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
            remarks[3].text,
            "12 of 3,456 looks (0.3 %) gave no frames: the thread ran on each time it was read"
        );
        assert_eq!(
            remarks[4].text,
            "the profiler took 0.12 s of CPU, 23.5 MB of memory"
        );
    }
}
