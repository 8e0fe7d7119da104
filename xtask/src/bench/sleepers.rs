//! Thousands of threads that sleep beside one that works: what all time costs, and that the time
//! on a CPU costs nothing more for them.

use anyhow::{Context, Result};
use tests::ledger::Ledger;
use tests::profiler::Running;
use tests::target::Target;

use super::report::{Bound, Report};
use super::{Setting, measure};

/// Sleepers, and how many percent of a CPU the profiler may take for all time at 99 Hz.
const CASES: &[(&str, Option<f64>)] = &[("0", None), ("1000", Some(2.0)), ("5000", Some(4.0))];

pub(super) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    for (sleepers, most) in CASES {
        let case = format!("{sleepers} sleepers beside one");
        let outcome = beside(setting, &case, sleepers, *most, report);
        if let Err(error) = outcome {
            report.failed(&error.context(case));
        }
    }
    Ok(())
}

fn beside(
    setting: &Setting,
    case: &str,
    sleepers: &str,
    most: Option<f64>,
    report: &mut Report,
) -> Result<()> {
    let mut target = Target::start(setting.python()?, "sleepers.py", &[sleepers])?;
    target.tell("go")?;
    target.expect("running")?;
    for mode in ["wall", "cpu"] {
        let (mut costs, mut shares, mut rss) = (Vec::new(), Vec::new(), 0);
        for _ in 0..setting.pick(1, 3) {
            // The first second, with the start and the first walk of everyone, is in both; so is
            // the end, with the writing of files.
            let short = profile(&target, mode, "1s")?;
            let long = profile(&target, mode, setting.pick("4s", "11s"))?;
            let seconds = long.duration_s - short.duration_s;
            costs.push((cost_s(&long)? - cost_s(&short)?) / seconds);
            shares.push(busy_share(&long));
            rss = rss.max(long.profiler.rss_bytes.unwrap_or(u64::MAX));
        }
        let cost = 100.0 * measure::median(&costs);
        let name = format!("{mode}: profiler, after a second");
        match most.filter(|_| mode == "wall") {
            Some(most) => report.bounded(case, &name, cost, "% of CPU", Bound::AtMost(most)),
            None => report.plain(case, &name, cost, "% of CPU"),
        }
        let share = 100.0 * measure::median(&shares);
        let name = format!("{mode}: busy thread, sampled on CPU");
        report.plain(case, &name, share, "% of its");
        report.plain(case, &format!("{mode}: resident"), rss as f64 / 1e6, "MB");
    }
    Ok(())
}

fn profile(target: &Target, mode: &str, duration: &str) -> Result<Ledger> {
    let arguments = ["--mode", mode, "-r", "99", "-d", duration];
    Running::on(target.pid(), &arguments)?
        .finish()?
        .success()?
        .ledger()
}

/// Its process and its kernel programs, seconds.
fn cost_s(ledger: &Ledger) -> Result<f64> {
    let cost = &ledger.profiler;
    let (process, kernel) = cost.cpu_ns.zip(cost.bpf_ns).context("no cost")?;
    Ok((process + kernel) as f64 / 1e9)
}

/// The samples of the thread that was most on a CPU against the scheduler's account of it.
fn busy_share(ledger: &Ledger) -> f64 {
    let busy = ledger.threads.iter().max_by_key(|it| it.scheduler_ns);
    busy.and_then(|it| Some(it.sampled_ns as f64 / it.scheduler_ns? as f64))
        .unwrap_or(f64::NAN)
}
