//! The scheduler's task clock: what it dates a thread's runs with, and how that clock stands now.
//!
//! Each CPU has one of its own (`rq_clock_task()`). It stands still while the host of a virtual
//! machine has taken the CPU away and, where the kernel accounts for them, during interrupts; so
//! two CPUs' clocks drift apart by seconds a day, and only points of one CPU's can be compared.

use std::fs;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use super::clock::monotonic;
use crate::words::{Cpu, MonotonicNs, TaskClock};

/// A CPU's task clock at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskClockReading {
    /// When.
    pub at: MonotonicNs,
    /// What it showed then, give or take the time the reading took: some ten microseconds.
    pub clock: TaskClock,
}

/// `se.exec_start` of a thread's `sched` file: while it runs, where its CPU's task clock stood when
/// its time was last counted; while it does not, where it stood when it left the CPU. None where
/// there is no such line, and for a thread that has just changed its CPU.
#[must_use]
pub fn exec_start(sched: &str) -> Option<TaskClock> {
    let line = sched
        .lines()
        .find(|line| line.starts_with("se.exec_start"))?;
    let (millis, nanos) = line.rsplit_once(':')?.1.trim().split_once('.')?;
    if nanos.len() != 6 {
        return None;
    }
    let millis = millis.parse::<u64>().ok()?.checked_mul(1_000_000)?;
    let clock = millis.checked_add(nanos.parse().ok()?)?;
    (clock != 0).then_some(TaskClock(clock))
}

/// How the task clock of `cpu` stands, by a thread of our own that goes there to look. None where
/// this program may not run on that CPU, or the kernel shows no `sched` files.
#[must_use]
pub fn task_clock(cpu: Cpu) -> Option<TaskClockReading> {
    // A thread made for it: the caller stays where it is allowed to be.
    let visitor = std::thread::Builder::new().spawn(move || look_on(cpu));
    visitor.ok()?.join().ok()?
}

fn look_on(cpu: Cpu) -> Option<TaskClockReading> {
    /// The shortest of so many readings is taken.
    const READINGS: usize = 3;
    let this = Pid::from_raw(0);
    let allowed = sched_getaffinity(this).ok()?;
    let number = usize::try_from(cpu.0).ok()?;
    if !allowed.is_set(number).ok()? {
        return None;
    }
    let mut alone = CpuSet::new();
    alone.set(number).ok()?;
    sched_setaffinity(this, &alone).ok()?;
    let readings = (0..READINGS).filter_map(|_| {
        let before = monotonic().0;
        // It makes the scheduler count this thread's time up to now.
        clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok()?;
        let clock = exec_start(&fs::read_to_string("/proc/thread-self/sched").ok()?)?;
        let took = monotonic().0.saturating_sub(before);
        let at = MonotonicNs(before + took / 2);
        Some((took, TaskClockReading { at, clock }))
    });
    readings.min_by_key(|(took, _)| *took).map(|(_, it)| it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sched_file_is_read_or_refused() {
        let check = |text: &str, expected: Option<u64>| {
            assert_eq!(exec_start(text), expected.map(TaskClock), "{text:?}");
        };
        check(
            "python (7, #threads: 1)\n-----\nse.exec_start        :      12763414.030432\n\
             se.vruntime          :      5.1\n",
            Some(12_763_414_030_432),
        );
        check("se.exec_start : 0.000007", Some(7));
        check("se.exec_start : 0.000000", None);
        check("se.exec_start : 1.5", None);
        check("se.exec_start : 1", None);
        check("se.exec_start : -1.000000", None);
        check("se.exec_start : 99999999999999999999.000000", None);
        check("se.exec_start", None);
        check("", None);
    }

    #[test]
    fn a_task_clock_goes_on_and_a_cpu_that_is_not_has_none() {
        if let Some(first) = task_clock(Cpu(0)) {
            let second = task_clock(Cpu(0)).expect("as a moment ago");
            assert!(second.clock >= first.clock);
        }
        assert_eq!(task_clock(Cpu(u32::MAX)), None);
    }
}
