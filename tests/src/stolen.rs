//! Time that a host took from this machine: it passes on every clock but the threads' own, and
//! no profiler in the machine can tell it from work.

use std::fs;

/// Seconds stolen from all CPUs since the machine began (`steal` of `/proc/stat`, in hundredths);
/// 0 where the kernel does not say.
pub fn stolen_s() -> f64 {
    const STEAL: usize = 8;
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    let field = line.split_ascii_whitespace().nth(STEAL);
    field
        .and_then(|ticks| ticks.parse::<f64>().ok())
        .unwrap_or(0.0)
        / 100.0
}
