//! Why a peer is better where it is: found by looking, and shown only where one is.

use super::verdict;
use crate::bench::compared::{Comparison, Measure};

/// Why a peer can be better.
struct Reason {
    measure: Measure,
    /// In which of the measure's rows.
    row: fn(&str) -> bool,
    words: &'static str,
}

/// Where none is known.
const UNKNOWN: &str = "not known; the rounds are few, and chance is in them.";

const REASONS: &[Reason] = &[
    Reason {
        measure: Measure::Error,
        row: |row| row.ends_with("0 threads"),
        words: "where all threads live equally long, whoever counts each of them once a round is right by \
                that alone; ours gives each the time that the scheduler has counted for it, and what no \
                look has met to no function.",
    },
    Reason {
        measure: Measure::Error,
        row: |row| row == "in step with the clock",
        words: "what keeps ours from the step is that the rate is drawn anew every 200 ms; a run of a \
                second has five draws, and its error falls with their number. A peer is late by chance, \
                which is as good as jitter on a machine that is busy, and none on one that is not.",
    },
    Reason {
        measure: Measure::Cut,
        row: |_| true,
        words: "ours keeps 1,024 frames of a stack, of both its ends, unless `--max-depth` says more; peers \
                keep all.",
    },
    Reason {
        measure: Measure::Got,
        row: |row| row == "threads of a millisecond",
        words: "in `wall` mode, of a thread that lives less than a period, what it did after its one \
                sample is put under `[between two samples]`, and those that nothing met are in the \
                ledger as `unsampled`: neither is given to a function.",
    },
    Reason {
        measure: Measure::Cpu,
        row: |row| row.contains("threads") || row.ends_with("asleep"),
        words: "who a thread is, ours finds out once, in one or two tenths of a millisecond for each, \
                and a short run pays for all of them; of threads that live a millisecond nearly every \
                sample is of a new one, and each of their births and ends wakes the profiler.",
    },
    Reason {
        measure: Measure::Cpu,
        row: |row| !row.ends_with("warm"),
        words: "rows that are not `warm` have a run's first second in them, in which ours reads every name \
                for the first time and compares what it knows with the program every 10 ms; then every \
                100 ms.",
    },
    Reason {
        measure: Measure::Memory,
        row: |_| true,
        words: "more than half of ours is heap that its start leaves: the kernel's type information \
                (5.5 MB) is taken apart to find the kernel's fields. A quarter is the ring and the threads' \
                accounts, which it shares with the kernel.",
    },
    Reason {
        measure: Measure::First,
        row: |_| true,
        words: "before its first tick ours reads the kernel's type information, and the kernel verifies \
                its programs; a tool that reads memory from outside begins at once.",
    },
    Reason {
        measure: Measure::Slowdown,
        row: |_| true,
        words: INTERRUPTS,
    },
    Reason {
        measure: Measure::Stolen,
        row: |_| true,
        words: INTERRUPTS,
    },
    Reason {
        measure: Measure::Gaps,
        row: |_| true,
        words: "ours is uneven on purpose: the rate is drawn anew every 200 ms, 1 to 2 % off its mean at 1,000 a \
                second and up to 12 % at 100, so that a program in step with the clock is told right (`--no-jitter` leaves it out).",
    },
];

const INTERRUPTS: &str = "ours interrupts the CPU on which the program runs, some microseconds for each \
                          sample; a tool that reads memory from another CPU and does not stop the program \
                          takes nothing from it as long as a CPU is free.";

/// The sentences that a comparison calls for.
pub(super) fn of(comparison: &Comparison, measure: Measure) -> Vec<&'static str> {
    let is_lost = |row: fn(&str) -> bool| verdict::is_lost(comparison, measure, row);
    let applies = |it: &&Reason| it.measure == measure && is_lost(it.row);
    let found: Vec<&str> = REASONS.iter().filter(applies).map(|it| it.words).collect();
    match found.is_empty() && is_lost(|_| true) {
        true => vec![UNKNOWN],
        false => found,
    }
}
