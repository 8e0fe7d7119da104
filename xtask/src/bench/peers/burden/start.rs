//! How soon a tool sees the target.

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};
use tests::target::Target;

use super::phase;
use crate::bench::measure;
use crate::bench::peers::{RATE, Stand, number};
use crate::bench::tool::Tool;

/// From the tool's start to the first phase that it has seen, in milliseconds.
pub(super) fn first_sample(stand: &Stand<'_>, tool: Tool) -> Result<f64> {
    let mut target = Target::start(stand.python, "phases.py", &["6"])?;
    let step_ns = number(target.ready(), "step_ns")?;
    target.tell("go")?;
    let begun = number(&target.expect("running")?, "begin_ns")?;
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    let launched = now.tv_sec() as f64 * 1e9 + now.tv_nsec() as f64;
    let watching = tool.start(stand.python, target.pid(), RATE)?;
    // A tool may say that it begins before it does.
    measure::wait(0.3);
    let taken = watching.stop()?;
    let phases = taken.folded.stacks.iter();
    let first = phases.filter_map(phase).min();
    let first = first.context("it has seen none")?;
    // The phase's middle is the best guess.
    let seen = begun + (f64::from(first) + 0.5) * step_ns;
    Ok((seen - launched).max(0.0) / 1e6)
}
