//! Every tool on the same programs, whose truth is known: how true each is, what it costs, and what
//! it does to the target.
//!
//! The tools take turns on each program, in an order that is turned each round. One that cannot run
//! here is named with the reason; so is one that fails on a program.

mod burden;
mod workloads;

pub(super) use burden::NOBODY;

use anyhow::{Context, Result, ensure};
use tests::pythons::Python;
use tests::target::Target;

use super::compared::{Conditions, Measure, Ran};
use super::report::Report;
use super::tool::{TOOLS, Tool, Watched};
use super::{Setting, measure};
use crate::setup::COMPARED;
use workloads::{End, Facts, Workload};

/// Samples a second that every tool is asked for.
const RATE: u32 = 1000;

/// One interpreter, and the tools that can watch it.
struct Stand<'a> {
    python: &'a Python,
    tools: Vec<Tool>,
}

pub(super) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    report.comparison.conditions = Conditions::here(setting.quick);
    report.comparison.rate_hz = RATE;
    // All of them would take a day.
    let is_meant = |python: &&Python| setting.by_name || COMPARED.contains(&&*python.series());
    let chosen: Vec<&Python> = setting.pythons.iter().filter(is_meant).collect();
    ensure!(
        !chosen.is_empty(),
        "there is no interpreter of {COMPARED:?}"
    );
    let releases = chosen
        .iter()
        .map(|python| format!("CPython {}", python.label));
    let parties = releases.chain(
        crate::setup::PEERS
            .iter()
            .map(|(_, it)| it.replace("==", " ")),
    );
    report.comparison.conditions.parties = parties.collect();
    let seconds = setting.pick(1.0, 2.0);
    for python in chosen {
        let stand = Stand {
            python,
            tools: present(python, report),
        };
        let mut all = workloads::all(seconds, setting.quick);
        all.retain(|workload| setting.wants(workload.name));
        for workload in all {
            if let Err(error) = workload.packages(python) {
                report.left_out(python, workload.name, &format!("{error:#}"));
                continue;
            }
            in_turn(&stand.tools, setting.pick(1, 3), |tool, round| {
                let outcome = compared(&stand, &workload, tool, round, seconds, report);
                if let Err(error) = outcome {
                    report.beaten(tool, python, workload.name, &error);
                }
            });
        }
        burden::run(setting, &stand, report);
    }
    Ok(())
}

/// The tools that see a busy loop of that interpreter.
fn present(python: &Python, report: &mut Report) -> Vec<Tool> {
    let mut present = Vec::new();
    for tool in TOOLS {
        let tried = tried(python, *tool);
        if tried.is_ok() {
            present.push(*tool);
        }
        report.ran(Ran {
            tool: tool.name(),
            python: python.series(),
            claim: tool.claim(),
            ours: tool.is_ours(),
            missing: tried.err().map(|error| format!("{error:#}")),
        });
    }
    present
}

fn tried(python: &Python, tool: Tool) -> Result<()> {
    let mut target = Target::start(python, "spin.py", &["2"])?;
    target.tell("go")?;
    target.expect("running")?;
    let watching = tool.start(python, target.pid(), RATE)?;
    measure::wait(0.5);
    let taken = watching.stop()?;
    ensure!(
        taken.folded.with("leaf") > 0,
        "it does not see what runs: {:?}",
        taken.folded.stacks.first()
    );
    Ok(())
}

/// Each of them once a round, in an order that is turned each round.
fn in_turn<T: Copy>(of: &[T], rounds: usize, mut with: impl FnMut(T, usize)) {
    for round in 0..rounds {
        for step in 0..of.len() {
            let turn = if round % 2 == 0 {
                step
            } else {
                of.len() - 1 - step
            };
            with(of[turn], round);
        }
    }
}

/// One tool on one program.
fn compared(
    stand: &Stand<'_>,
    workload: &Workload,
    tool: Tool,
    round: usize,
    seconds: f64,
    report: &mut Report,
) -> Result<()> {
    let quarter = (round % 4).to_string();
    let packages = workload.packages(stand.python)?;
    let first = packages.iter().chain(&workload.arguments);
    let mut arguments: Vec<&str> = first.map(String::as_str).collect();
    if workload.by_quarters {
        arguments.push(&quarter);
    }
    let mut target = Target::start(stand.python, workload.script, &arguments)?;
    let watching = tool.start_on(stand.python, target.pid(), RATE, workload.watched)?;
    let before = watching.cost()?;
    target.tell("go")?;
    if workload.end != End::Itself {
        target.expect("running")?;
    }
    if workload.end == End::Told {
        measure::wait(seconds);
        target.tell("stop")?;
    }
    let done = target.expect("done")?;
    let after = watching.cost()?;
    let taken = watching.stop()?;
    let facts = Facts::of(workload, &done)?;
    let mut add = |measure, value| {
        report.compared(measure, workload.name, stand.python, &tool.name(), value);
    };
    let claim = tool.claim();
    if let Some(error) = facts.error(workload, &taken, claim) {
        add(Measure::Error, error);
    }
    if let Some(impossible) = workloads::impossible(workload, &taken, &target) {
        add(Measure::Impossible, impossible);
    }
    if let Some(cut) = workloads::cut(workload, &taken) {
        add(Measure::Cut, cut);
    }
    add(Measure::Got, facts.got(&taken, claim));
    if workload.watched == Watched::Children {
        // Some tools are as many processes themselves, and not all samples are the children's.
        return Ok(());
    }
    let spent = after.cpu_s - before.cpu_s;
    let samples = taken.samples as f64;
    ensure!(samples > 0.0, "it has no samples");
    add(Measure::Cpu, 1e3 * spent / (samples / 1e3));
    add(Measure::Memory, after.rss_bytes / 1e6);
    Ok(())
}

/// A number of a target's line.
fn number(line: &serde_json::Value, key: &str) -> Result<f64> {
    line[key].as_f64().with_context(|| format!("no `{key}`"))
}
