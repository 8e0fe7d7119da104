//! How even the samples are in time: of a program whose function has another name in each step of
//! the clock, how unequal the steps are in their numbers of samples.

use std::collections::BTreeMap;

use ::tests::target::Target;
use anyhow::{Result, ensure};

use super::phase;
use crate::bench::peers::Stand;
use crate::bench::tool::Tool;
use crate::bench::{Setting, measure};

/// Steps below this number tell nothing.
const ENOUGH: usize = 100;

/// The standard deviation of the steps' numbers of samples, percent of their mean.
pub(super) fn spread(setting: &Setting, stand: &Stand<'_>, tool: Tool, rate: u32) -> Result<f64> {
    let seconds = setting.pick(1.0, 3.0);
    let mut target = Target::start(stand.python, "phases.py", &[&seconds.to_string()])?;
    let watching = tool.start(stand.python, target.pid(), rate)?;
    target.tell("go")?;
    target.expect("running")?;
    measure::wait(seconds);
    let taken = watching.stop()?;
    let mut steps: BTreeMap<u32, u64> = BTreeMap::new();
    for stack in &taken.by_number().stacks {
        if let Some(step) = phase(stack) {
            *steps.entry(step).or_default() += stack.count;
        }
    }
    // The first and the last that it saw may have been seen in part.
    let (first, last) = (steps.keys().min().copied(), steps.keys().max().copied());
    let whole = first.unwrap_or(0) + 1..last.unwrap_or(0);
    ensure!(whole.len() >= ENOUGH, "it saw {} steps", whole.len());
    let counts: Vec<f64> = whole
        .map(|step| steps.get(&step).copied().unwrap_or(0) as f64)
        .collect();
    Ok(100.0 * variation(&counts))
}

/// The standard deviation, of the mean.
fn variation(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean).powi(2));
    (squares.sum::<f64>() / count).sqrt() / mean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_steps_do_not_vary_and_empty_ones_do() {
        assert_eq!(variation(&[2.0, 2.0, 2.0]), 0.0);
        assert_eq!(variation(&[0.0, 4.0]), 1.0);
    }
}
