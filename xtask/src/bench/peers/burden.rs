//! What the tools do to the target, how soon they see it, and what a sample costs without their
//! start: counted work, a native loop that looks at the clock, a function of its own name for each
//! two milliseconds, and a short run beside a long one.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use nix::time::{ClockId, clock_gettime};
use tests::target::Target;

use super::{RATE, Stand, in_turn, number};
use crate::bench::compared::Measure;
use crate::bench::cost::BpfStats;
use crate::bench::report::Report;
use crate::bench::slowdown::calibrated;
use crate::bench::tool::Tool;
use crate::bench::{Setting, measure};

/// The side on which nobody watches.
pub(in crate::bench) const NOBODY: &str = "nobody";

/// A usual rate, beside that of the other measures.
const USUAL: u32 = 100;

pub(super) fn run(setting: &Setting, stand: &Stand<'_>, report: &mut Report) {
    for rate in [RATE, USUAL] {
        if setting.wants("slowdown") {
            let outcome = slowdown(setting, stand, rate, report);
            keep("slowdown", outcome, report);
        }
    }
    if setting.wants("stolen") {
        let outcome = stolen(setting, stand, report);
        keep("time stolen", outcome, report);
    }
    if setting.wants("warm") {
        let depths: &[&str] = setting.pick(&["20"], &["20", "100"]);
        for depth in depths {
            let workload = format!("{depth} deep, warm");
            in_turn(&stand.tools, setting.pick(1, 3), |tool, _| {
                let outcome = warm(setting, stand, tool, depth);
                took(stand, tool, Measure::Cpu, &workload, outcome, report);
            });
        }
    }
    if setting.wants("start") {
        in_turn(&stand.tools, setting.pick(3, 7), |tool, _| {
            let outcome = first_sample(stand, tool);
            took(stand, tool, Measure::First, "start", outcome, report);
        });
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

fn slowdown(setting: &Setting, stand: &Stand<'_>, rate: u32, report: &mut Report) -> Result<()> {
    // Its clock on our programs would be ours to pay.
    let _stats = BpfStats::switch(false)?;
    let mut target = Target::start(stand.python, "count_work.py", &["20"])?;
    let units = calibrated(&mut target, setting.pick(0.4, 1.0))?;
    let sides = sides(stand);
    let mut cpu = Vec::new();
    let wall = measure::ratios(&sides, setting.pick(4, 9), |side| {
        let watching = match side {
            Some(tool) => Some(tool.start(stand.python, target.pid(), rate)?),
            None => None,
        };
        target.tell(&units)?;
        let took = target.expect("work")?;
        if let Some(watching) = watching {
            watching.stop()?;
        }
        cpu.push(number(&took, "cpu_s")?);
        number(&took, "wall_s")
    })?;
    // The same runs by the thread's own clock, brought back into the order of the sides.
    let mut again = cpu.into_iter();
    let cpu = measure::ratios(&sides, wall[0].len(), |_| {
        again.next().context("a run is missing")
    })?;
    for (clock, ratios) in [("wall", wall), ("CPU", cpu)] {
        let workload = format!("{rate} Hz, {clock}");
        for (side, ratios) in sides.iter().zip(&ratios).skip(1) {
            let name = side.map_or(NOBODY.to_owned(), Tool::name);
            for ratio in ratios {
                let percent = 100.0 * (ratio - 1.0);
                report.compared(Measure::Slowdown, &workload, stand.python, &name, percent);
            }
        }
    }
    Ok(())
}

/// The gaps that a native loop sees in its own time.
fn stolen(setting: &Setting, stand: &Stand<'_>, report: &mut Report) -> Result<()> {
    let _stats = BpfStats::switch(false)?;
    let mut target = Target::start_gap_meter(stand.python)?;
    let seconds = setting.pick("0.5", "2");
    let mut gaps = |side: Option<Tool>| -> Result<f64> {
        let watching = match side {
            Some(tool) => Some(tool.start(stand.python, target.pid(), RATE)?),
            None => None,
        };
        target.tell(seconds)?;
        let gaps = target.expect("gaps")?;
        if let Some(watching) = watching {
            watching.stop()?;
        }
        let gone = number(&gaps, "short_ns")? + number(&gaps, "long_ns")?;
        Ok(gone / 1e3 / (number(&gaps, "wall_ns")? / 1e9))
    };
    let sides = &sides(stand)[1..];
    let mut failed = None;
    in_turn(sides, setting.pick(3, 7), |side, _| {
        let name = side.map_or(NOBODY.to_owned(), Tool::name);
        match gaps(side) {
            Ok(us) => report.compared(Measure::Stolen, "native loop", stand.python, &name, us),
            Err(error) => failed = Some(error.context(name)),
        }
    });
    failed.map_or(Ok(()), Err)
}

/// The CPU milliseconds of 1,000 samples, the start taken off.
fn warm(setting: &Setting, stand: &Stand<'_>, tool: Tool, depth: &str) -> Result<f64> {
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

/// From the tool's start to the first phase that it has seen, in milliseconds.
fn first_sample(stand: &Stand<'_>, tool: Tool) -> Result<f64> {
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
    let mut phases = BTreeMap::new();
    for stack in &taken.folded.stacks {
        let names = stack.frames.iter().map(|frame| tests::folded::name(frame));
        let phase = names.filter_map(|name| name.strip_prefix("at_")?.parse::<u32>().ok());
        phases.extend(phase.map(|phase| (phase, ())));
    }
    let (first, ()) = phases.first_key_value().context("it has seen none")?;
    // The phase's middle is the best guess.
    let seen = begun + (f64::from(*first) + 0.5) * step_ns;
    Ok((seen - launched).max(0.0) / 1e6)
}
