//! What a sample costs once the tool has been at it for a second: no start is in it.

use std::time::Instant;

use anyhow::{Result, ensure};
use tests::target::Target;

use crate::bench::peers::{RATE, Stand};
use crate::bench::tool::Tool;
use crate::bench::{Setting, measure};

/// The CPU milliseconds of 1,000 samples.
pub(super) fn each(setting: &Setting, stand: &Stand<'_>, tool: Tool, depth: &str) -> Result<f64> {
    let mut target = Target::start(stand.python, "spin.py", &[depth])?;
    target.tell("go")?;
    target.expect("running")?;
    let watching = tool.start(stand.python, target.pid(), RATE)?;
    let begun = Instant::now();
    measure::wait(1.0);
    let (before, from) = (watching.cost()?, Instant::now());
    measure::wait(setting.pick(2.0, 5.0));
    let (after, window) = (watching.cost()?, from.elapsed());
    let whole = begun.elapsed();
    let samples = watching.stop()?.samples as f64;
    ensure!(samples > 0.0, "it has no samples");
    // One thread that never rests: a tool has as many of it in each second.
    let meanwhile = samples * window.as_secs_f64() / whole.as_secs_f64();
    Ok(1e6 * (after.cpu_s - before.cpu_s) / meanwhile)
}
