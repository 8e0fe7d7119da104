//! The origin's program: two threads' shares of the samples against their CPU clocks.

use anyhow::{Context, Result};
use tests::folded::Folded;
use tests::profiler::Running;
use tests::pythons::Python;
use tests::target::{Account, Target};

use super::Setting;
use super::report::{Bound, Report};
use super::tool::{PY_SPY_GIL, PY_SPY_NONBLOCKING};

/// So many samples that their number itself does not err by a point.
const FINE: u32 = 999;

/// The usual rate: a tenth of the samples, and about three times the error.
const USUAL: u32 = 99;

pub(super) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    for python in &setting.pythons {
        let rounds = setting.pick("5", "20");
        let sleep = setting.pick("0.5", "3");
        for rate in [FINE, USUAL] {
            if let Err(error) = ours(python, rounds, sleep, rate, report) {
                report.failed(&error.context(format!("profiler on {}", python.label)));
            }
        }
        if let Err(error) = from_outside(python, rounds, sleep, report) {
            let what = format!("profiler --engine proc on {}", python.label);
            report.failed(&error.context(what));
        }
        for spy in [PY_SPY_NONBLOCKING, PY_SPY_GIL] {
            let outcome = (|| {
                let mut target = start(python, rounds, sleep)?;
                let spying = spy.start(python, target.pid(), USUAL)?;
                target.tell("go")?;
                let accounts = target.done()?;
                Ok((spying.stop()?.folded, accounts))
            })();
            match outcome {
                Ok((folded, accounts)) => {
                    let points = error_in_points(&folded, &accounts);
                    report.plain(
                        &python.label,
                        &format!("{}: error", spy.name()),
                        points,
                        "points",
                    );
                }
                Err(error) => {
                    let error: anyhow::Error = error;
                    report.failed(&error.context(format!("{} on {}", spy.name(), python.label)));
                }
            }
        }
    }
    Ok(())
}

fn start(python: &Python, rounds: &str, sleep: &str) -> Result<Target> {
    Target::start(python, "origin.py", &[rounds, sleep, "10000000"])
}

fn ours(python: &Python, rounds: &str, sleep: &str, rate: u32, report: &mut Report) -> Result<()> {
    let mut target = start(python, rounds, sleep)?;
    let mut profiler = Running::on(target.pid(), &["-r", &rate.to_string()])?;
    profiler.attached()?;
    target.tell("go")?;
    let accounts = target.done()?;
    let finished = profiler.stop()?;
    let ledger = finished.ledger()?;
    let main = accounts.first().context("the main thread's account")?;
    let samples = ledger.thread(main.tid).map_or(0, |thread| thread.samples) as f64;
    let points = error_in_points(&finished.folded()?, &accounts);
    let case = python.label.as_str();
    if rate == FINE {
        let bound = Bound::AtMost(1.0);
        report.bounded(case, "profiler at 999 Hz: error", points, "points", bound);
        // It starts two threads and joins them; its clock says what that took.
        let cpu = main.cpu_s * 1e3;
        report.plain(
            case,
            "profiler at 999 Hz: idle main thread",
            samples,
            "samples",
        );
        report.plain(case, "the idle main thread's CPU time", cpu, "ms");
    } else {
        report.plain(case, "profiler at 99 Hz: error", points, "points");
        let bound = Bound::Exactly(0.0);
        report.bounded(
            case,
            "profiler at 99 Hz: idle main thread",
            samples,
            "samples",
            bound,
        );
    }
    Ok(())
}

/// Without eBPF, as py-spy without a pause: it looks and does not know.
fn from_outside(python: &Python, rounds: &str, sleep: &str, report: &mut Report) -> Result<()> {
    let mut target = start(python, rounds, sleep)?;
    let options = ["-r", &USUAL.to_string(), "--engine", "proc"];
    let mut profiler = Running::on(target.pid(), &options)?;
    profiler.attached()?;
    target.tell("go")?;
    let accounts = target.done()?;
    let finished = profiler.stop()?;
    let ledger = finished.ledger()?;
    let points = error_in_points(&finished.folded()?, &accounts);
    let case = python.label.as_str();
    let bound = Bound::AtMost(3.0);
    let figure = "profiler --engine proc at 99 Hz: error";
    report.bounded(case, figure, points, "points", bound);
    let cpu = ledger.profiler.cpu_ns.unwrap_or(0) as f64 / 1e9;
    let percent = 100.0 * cpu / ledger.duration_s;
    let figure = "profiler --engine proc: its own cost";
    report.plain(case, figure, percent, "% of a CPU");
    Ok(())
}

/// How far the share of the thread that compresses is from the truth, in percentage points.
fn error_in_points(folded: &Folded, accounts: &[Account]) -> f64 {
    let cpu = |name: &str| {
        let mut named = accounts.iter().filter(|account| account.name == name);
        named.next().map_or(f64::NAN, |account| account.cpu_s)
    };
    let share = |one: f64, other: f64| one / (one + other);
    let truth = share(cpu("compress"), cpu("half_sleep"));
    let sampled = share(
        folded.with("compress") as f64,
        folded.with("half_sleep") as f64,
    );
    100.0 * (sampled - truth).abs()
}
