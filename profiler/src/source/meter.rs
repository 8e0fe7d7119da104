//! What the kernel programs cost, by the kernel's own clock on them.
//!
//! That clock reads the time twice for each run of each eBPF program of the machine, which for the
//! shortest of ours is as much as they take themselves. So it runs now and then for a moment, and
//! what it counted is scaled up, unless the administrator lets it run anyway
//! (`kernel.bpf_stats_enabled`).

use std::{fs, os::fd::OwnedFd};

use crate::words::{DurationNs, MonotonicNs};

/// How long the clock runs at a time, and how long it rests between.
const RUNS: DurationNs = DurationNs(100_000_000);
const RESTS: DurationNs = DurationNs(1_900_000_000);

const ALWAYS: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// What the programs themselves cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramCost {
    /// Nanoseconds in the tick program.
    pub tick_ns: u64,
    /// Nanoseconds in all programs.
    pub all_ns: u64,
    /// Runs of all programs.
    pub all_runs: u64,
    /// The time in which they were counted; the other numbers are scaled up to the whole run.
    pub counted: DurationNs,
}

impl ProgramCost {
    fn since(self, before: Self) -> Self {
        Self {
            tick_ns: self.tick_ns.saturating_sub(before.tick_ns),
            all_ns: self.all_ns.saturating_sub(before.all_ns),
            all_runs: self.all_runs.saturating_sub(before.all_runs),
            counted: DurationNs(0),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            tick_ns: self.tick_ns.saturating_add(other.tick_ns),
            all_ns: self.all_ns.saturating_add(other.all_ns),
            all_runs: self.all_runs.saturating_add(other.all_runs),
            counted: DurationNs(self.counted.0.saturating_add(other.counted.0)),
        }
    }
}

/// Turns the kernel's clock on and off, and keeps what it counted.
#[derive(Debug)]
pub(super) struct Meter {
    /// While open, the kernel counts the programs' run time.
    clock: Option<OwnedFd>,
    always: bool,
    began: MonotonicNs,
    turned: MonotonicNs,
    before: ProgramCost,
    counted: ProgramCost,
}

impl Meter {
    /// The clock runs from now on, before there are programs.
    pub(super) fn start(now: MonotonicNs) -> Self {
        let always = fs::read_to_string(ALWAYS).is_ok_and(|text| text.trim() == "1");
        Self {
            clock: clock(),
            always,
            began: now,
            turned: now,
            before: ProgramCost::default(),
            counted: ProgramCost::default(),
        }
    }

    /// Turn it over when it is time to; `read` tells what the kernel has counted.
    pub(super) fn turn(&mut self, now: MonotonicNs, read: impl FnOnce() -> ProgramCost) {
        let since = now.0.saturating_sub(self.turned.0);
        match &self.clock {
            Some(_) if self.always || since < RUNS.0 => {}
            None if since < RESTS.0 => {}
            Some(_) => {
                self.keep(now, read());
                self.clock = None;
            }
            None => {
                self.before = read();
                self.clock = clock();
                self.turned = now;
            }
        }
    }

    fn keep(&mut self, now: MonotonicNs, read: ProgramCost) {
        let mut fresh = read.since(self.before);
        fresh.counted = DurationNs(now.0.saturating_sub(self.turned.0));
        self.counted = self.counted.plus(fresh);
        self.turned = now;
    }

    /// All the programs cost up to now; none where the kernel does not count.
    pub(super) fn cost(
        &self,
        now: MonotonicNs,
        read: impl FnOnce() -> ProgramCost,
    ) -> Option<ProgramCost> {
        let mut counted = self.counted;
        if self.clock.is_some() {
            let mut fresh = read().since(self.before);
            fresh.counted = DurationNs(now.0.saturating_sub(self.turned.0));
            counted = counted.plus(fresh);
        }
        let all = now.0.saturating_sub(self.began.0);
        scaled(counted, DurationNs(all))
    }
}

fn clock() -> Option<OwnedFd> {
    aya::sys::enable_stats(aya::sys::Stats::RunTime).ok()
}

/// What was counted in a part of the time, scaled up to all of it.
fn scaled(counted: ProgramCost, all: DurationNs) -> Option<ProgramCost> {
    if counted.counted.0 == 0 {
        return None;
    }
    let factor = all.0.max(counted.counted.0) as f64 / counted.counted.0 as f64;
    let scale = |number: u64| (number as f64 * factor) as u64;
    Some(ProgramCost {
        tick_ns: scale(counted.tick_ns),
        all_ns: scale(counted.all_ns),
        all_runs: scale(counted.all_runs),
        counted: counted.counted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_stands_for_the_whole() {
        let counted = ProgramCost {
            tick_ns: 10,
            all_ns: 30,
            all_runs: 3,
            counted: DurationNs(100),
        };
        let cases = [
            (100, Some((10, 30, 3))),
            (1_000, Some((100, 300, 30))),
            // No run is shorter than what was counted of it.
            (50, Some((10, 30, 3))),
        ];
        for (all, expected) in cases {
            let cost = scaled(counted, DurationNs(all));
            let numbers = cost.map(|cost| (cost.tick_ns, cost.all_ns, cost.all_runs));
            assert_eq!(numbers, expected, "{all}");
        }
        assert_eq!(scaled(ProgramCost::default(), DurationNs(100)), None);
    }
}
