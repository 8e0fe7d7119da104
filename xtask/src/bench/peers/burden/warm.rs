//! What a sample costs without the tool's start: a short run taken from a long one.

use anyhow::{Result, ensure};
use tests::target::Target;

use crate::bench::peers::{RATE, Stand};
use crate::bench::tool::Tool;
use crate::bench::{Setting, measure};

/// The CPU milliseconds of 1,000 samples, the start taken off.
pub(super) fn each(setting: &Setting, stand: &Stand<'_>, tool: Tool, depth: &str) -> Result<f64> {
    let mut target = Target::start(stand.python, "spin.py", &[depth])?;
    target.tell("go")?;
    target.expect("running")?;
    let run = |seconds: f64| -> Result<(f64, f64)> {
        let watching = tool.start(stand.python, target.pid(), RATE)?;
        measure::wait(seconds);
        let cost = watching.cost()?;
        Ok((cost.cpu_s, watching.stop()?.samples as f64))
    };
    let (short_s, few) = run(0.5)?;
    let (long_s, many) = run(setting.pick(2.0, 5.0))?;
    ensure!(
        many > few,
        "{many} samples in a long run, {few} in a short one"
    );
    let spent = long_s - short_s;
    ensure!(
        spent > 0.0,
        "a long run cost less than a short one: the machine is too noisy"
    );
    Ok(1e6 * spent / (many - few))
}
