//! Short calls with known callers: how many samples show an impossible stack.

use anyhow::{Context, Result};
use tests::folded::Torn;
use tests::profiler::Running;
use tests::pythons::Python;
use tests::target::Target;

use super::report::{Bound, Report};
use super::tool::PY_SPY_NONBLOCKING;
use super::{Setting, measure};

const RATE: u32 = 999;

pub(super) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let samples = setting.pick(3_000, 100_000);
    for python in &setting.pythons {
        let case = python.label.as_str();
        let outcome =
            kernel(python, samples, report).and_then(|()| user(python, samples.min(5_000), report));
        if let Err(error) = outcome {
            report.failed(&error.context(format!("profiler on {case}")));
        }
        let spy = PY_SPY_NONBLOCKING;
        match spied(python, setting.pick(2.0, 5.0)) {
            Ok(torn) => {
                let share = 100.0 * torn.impossible as f64 / torn.known.max(1) as f64;
                report.plain(case, &format!("{}: impossible", spy.name()), share, "%");
            }
            Err(error) => report.failed(&error.context(format!("{} on {case}", spy.name()))),
        }
    }
    Ok(())
}

fn start(python: &Python) -> Result<Target> {
    Target::start(python, "short_calls.py", &["4"])
}

/// Runs until there are so many samples.
fn kernel(python: &Python, wanted: u64, report: &mut Report) -> Result<()> {
    let mut target = start(python)?;
    let (mut all, mut samples, mut not_kernel) = (Torn::default(), 0, 0);
    target.tell("go")?;
    target.expect("running")?;
    while samples < wanted {
        // In the kernel alone: there is no estimate for a torn stack to hide behind.
        let finished = profile(&target, &["-d", "20s", "--walk", "kernel"])?;
        let ledger = finished.ledger()?;
        let torn = finished.folded()?.torn(&target.pairs());
        anyhow::ensure!(ledger.samples > 0, "no samples: {ledger:?}");
        samples += ledger.samples;
        not_kernel += ledger.samples - ledger.from("kernel");
        all.known += torn.known;
        all.impossible += torn.impossible;
    }
    let case = python.label.as_str();
    report.plain(case, "kernel walk: samples", samples as f64, "");
    let impossible = all.impossible as f64;
    let bound = Bound::Exactly(0.0);
    report.bounded(
        case,
        "kernel walk: impossible",
        impossible,
        "samples",
        bound,
    );
    let share = not_kernel as f64 / samples as f64;
    report.bounded(
        case,
        "not read in the kernel",
        share,
        "",
        Bound::AtMost(0.001),
    );
    let known = all.known as f64 / samples as f64;
    report.plain(case, "samples that show the known calls", known, "");
    Ok(())
}

/// The same program read from user space, to show why that is called estimated.
fn user(python: &Python, wanted: u64, report: &mut Report) -> Result<()> {
    let mut target = start(python)?;
    target.tell("go")?;
    target.expect("running")?;
    let duration = format!("{}s", wanted.div_ceil(u64::from(RATE)));
    let finished = profile(&target, &["-d", &duration, "--walk", "user"])?;
    let torn = finished.folded()?.torn(&target.pairs());
    let ledger = finished.ledger()?;
    let case = python.label.as_str();
    let share = 100.0 * torn.impossible as f64 / torn.samples.max(1) as f64;
    report.plain(case, "--walk user: impossible", share, "%");
    let estimated = 100.0 * ledger.from("estimated") as f64 / ledger.samples.max(1) as f64;
    report.plain(case, "--walk user: labelled estimated", estimated, "%");
    Ok(())
}

fn profile(target: &Target, arguments: &[&str]) -> Result<tests::profiler::Finished> {
    let rate = RATE.to_string();
    let arguments = [&["-r", &rate], arguments].concat();
    Running::on(target.pid(), &arguments)?
        .finish()?
        .success()
        .context("short calls")
}

fn spied(python: &Python, seconds: f64) -> Result<Torn> {
    let mut target = start(python)?;
    target.tell("go")?;
    target.expect("running")?;
    let spying = PY_SPY_NONBLOCKING.start(python, target.pid(), 1000)?;
    measure::wait(seconds);
    Ok(spying.stop()?.folded.torn(&target.pairs()))
}
