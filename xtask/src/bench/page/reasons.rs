//! Why a peer is better where it is: found by looking, and shown only where one is.

use super::verdict;
use crate::bench::compared::{Comparison, Measure};

/// Of one measure, of the peers whose names begin so, on the workloads whose names contain that.
type Reason = (Measure, &'static str, &'static str, &'static str);

const REASONS: &[Reason] = &[
    (
        Measure::Cut,
        "",
        "",
        "ours keeps 512 frames of a stack, both its ends, unless `--max-depth` says more; peers keep all.",
    ),
    (
        Measure::Memory,
        "",
        "",
        "more than half of ours is heap that its start leaves: the kernel's type information (5.5 MB), which \
         is taken apart to find the kernel's fields; a quarter is the ring and the threads' accounts, which \
         it shares with the kernel. Codes and stacks of the program are little of it, and it does not grow \
         with threads or depth.",
    ),
    (
        Measure::First,
        "",
        "",
        "before its first tick ours reads the kernel's type information, and the kernel verifies five \
         programs, the tick's longest; a tool that reads memory from outside begins at once.",
    ),
    (
        Measure::Gaps,
        "",
        "",
        "ours is uneven on purpose: each CPU's rate is drawn anew every 200 ms, 5 to 20 % off the mean, so \
         that a program in step with the clock is told right (`--no-jitter` leaves it out).",
    ),
];

/// The sentences that a comparison calls for.
pub(super) fn of(comparison: &Comparison, measure: Measure) -> Vec<&'static str> {
    let applies = |(of, peer, workload, _): &&Reason| {
        *of == measure
            && verdict::is_lost(comparison, measure, |tool, name| {
                tool.starts_with(peer) && name.contains(workload)
            })
    };
    REASONS.iter().filter(applies).map(|it| it.3).collect()
}
