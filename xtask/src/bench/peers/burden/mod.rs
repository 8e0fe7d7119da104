//! What the tools do to the target, what they cost and how soon, how fast and how evenly they see
//! it, on programs made for one question each. A file is a kind of measure.

mod gaps;
mod growth;
mod rates;
mod slowdown;
mod start;
mod stolen;
mod warm;

use anyhow::Result;
use tests::folded::{Stack, name};

use super::{RATE, Stand, in_turn};
use crate::bench::Setting;
use crate::bench::compared::Measure;
use crate::bench::report::Report;
use crate::bench::tool::Tool;

/// The side on which nobody watches.
pub(in crate::bench) const NOBODY: &str = "nobody";

/// A usual rate, beside that of the other measures.
const USUAL: u32 = 100;

/// One that few keep.
const FAST: u32 = 10_000;

pub(super) fn run(setting: &Setting, stand: &Stand<'_>, report: &mut Report) {
    for rate in [RATE, USUAL] {
        if setting.wants("slowdown") {
            let outcome = slowdown::run(setting, stand, rate, report);
            keep("slowdown", outcome, report);
        }
    }
    if setting.wants("stolen") {
        let outcome = stolen::run(setting, stand, report);
        keep("time stolen", outcome, report);
    }
    if setting.wants("warm") {
        let depths: &[&str] = setting.pick(&["20"], &["20", "100"]);
        for depth in depths {
            let workload = format!("{depth} deep, warm");
            in_turn(&stand.tools, setting.pick(1, 3), |tool, _| {
                let outcome = warm::each(setting, stand, tool, depth);
                took(stand, tool, Measure::Cpu, &workload, outcome, report);
            });
        }
    }
    if setting.wants("start") {
        in_turn(&stand.tools, setting.pick(3, 7), |tool, _| {
            let outcome = start::first_sample(stand, tool);
            took(stand, tool, Measure::First, "start", outcome, report);
        });
    }
    if setting.wants("rates") {
        rates::run(setting, stand, report);
    }
    if setting.wants("gaps") {
        for rate in [RATE, FAST] {
            let workload = format!("{rate} Hz");
            in_turn(&stand.tools, setting.pick(1, 5), |tool, _| {
                let outcome = gaps::spread(setting, stand, tool, rate);
                took(stand, tool, Measure::Gaps, &workload, outcome, report);
            });
        }
    }
    if setting.wants("growth") {
        growth::run(setting, stand, report);
    }
}

fn keep(what: &'static str, outcome: Result<()>, report: &mut Report) {
    if let Err(error) = outcome {
        report.failed(&error.context(what));
    }
}

/// A tool's value, or that it failed.
fn took(
    stand: &Stand<'_>,
    tool: Tool,
    measure: Measure,
    workload: &str,
    outcome: Result<f64>,
    report: &mut Report,
) {
    match outcome {
        Ok(value) => report.compared(measure, workload, stand.python, &tool.name(), value),
        Err(error) => report.beaten(tool, stand.python, workload, &error),
    }
}

/// Nobody twice, as what the machine cannot tell apart, and each tool.
fn sides(stand: &Stand<'_>) -> Vec<Option<Tool>> {
    let tools = stand.tools.iter().copied().map(Some);
    [None, None].into_iter().chain(tools).collect()
}

/// Which of the functions of `phases.py` a stack is of: the program is in it for one step of the
/// clock, and never again.
fn phase(stack: &Stack) -> Option<u32> {
    let mut names = stack.frames.iter().map(|frame| name(frame));
    names.find_map(|name| name.strip_prefix("at_")?.parse().ok())
}
