//! A program that does nothing but go on and off a CPU: what each switch costs.

use anyhow::{Context, Result};
use tests::profiler::Running;
use tests::target::Target;

use super::cost::BpfStats;
use super::report::Report;
use super::slowdown::{Clock, Rounds, Side, Work, paired};
use super::{Setting, measure};

/// How much longer it may take.
const SLOWER: f64 = 1.03;

pub(super) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let kinds: [&[&str]; 3] = [&["threads"], &["processes"], &["threads", "one_cpu"]];
    for kind in kinds {
        let name = kind.join(" ");
        for mode in ["cpu", "wall"] {
            each(setting, kind, mode, report).with_context(|| format!("{mode}, {name}"))?;
        }
        let sides = [
            Side::Nobody,
            // A second time nobody: what this machine cannot tell apart.
            Side::Nobody,
            Side::Ours("cpu", 99, SLOWER),
            Side::Ours("wall", 99, SLOWER),
            Side::Ours("wall", 999, SLOWER),
        ];
        let work = Work {
            script: "pipe_ping_pong.py",
            arguments: kind,
            case: format!("pipe, {name}"),
            judged_by: Clock::Wall,
            rounds: Rounds::many(setting),
        };
        let _off = BpfStats::switch(false)?;
        paired(setting, &sides, &work, report)?;
    }
    Ok(())
}

/// The kernel programs' time for each of their runs; nearly all of those are switches.
fn each(setting: &Setting, kind: &[&str], mode: &str, report: &mut Report) -> Result<()> {
    let mut target = Target::start(setting.python()?, "pipe_ping_pong.py", kind)?;
    let mut costs = Vec::new();
    for _ in 0..setting.pick(2, 5) {
        let mut profiler = Running::on(target.pid(), &["--mode", mode])?;
        profiler.attached()?;
        target.tell("50000")?;
        target.expect("work")?;
        let ledger = profiler.stop()?.ledger()?;
        let cost = &ledger.profiler;
        let (all, tick) = cost.bpf_ns.zip(cost.tick_ns).context("no times")?;
        let runs = cost.bpf_runs.context("no runs")?;
        costs.push((all - tick) as f64 / runs.max(1) as f64);
    }
    let case = format!("pipe, {}, {mode}", kind.join(" "));
    let cost = measure::median(&costs);
    report.plain(&case, "kernel programs but the tick, a run", cost, "ns");
    Ok(())
}
