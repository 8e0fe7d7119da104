//! Threads that go on and off a CPU as fast as they can: how often a walk from user space is given
//! up, and that none of the others is a stack that never was.

use anyhow::Result;
use tests::profile::Entry;
use tests::profiler::Running;
use tests::pythons::Python;
use tests::target::Target;

use super::Setting;
use super::report::{Bound, Report};

const THREADS: &str = "20";

pub(super) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    for python in &setting.pythons {
        for rate in ["99", "999"] {
            if let Err(error) = switching(python, rate, setting.pick("2s", "10s"), report) {
                report.failed(&error.context(format!("{rate} Hz on {}", python.label)));
            }
        }
    }
    Ok(())
}

fn switching(python: &Python, rate: &str, duration: &str, report: &mut Report) -> Result<()> {
    let mut target = Target::start(python, "lock_ping_pong.py", &[THREADS])?;
    target.tell("go")?;
    target.expect("running")?;
    let arguments = ["--mode", "wall", "-r", rate, "-d", duration];
    let finished = Running::in_detail(target.pid(), &arguments)?.finish()?;
    let profile = finished.success()?.profile()?;
    let ledger = &profile.ledger;
    let case = format!("{}, {rate} Hz", python.label);
    report.plain(&case, "looks off the CPU", ledger.looks as f64, "");
    let moved = 100.0 * ledger.moved as f64 / ledger.looks.max(1) as f64;
    report.bounded(&case, "moved", moved, "%", Bound::AtMost(2.0));
    let time = |counts: fn(&Entry) -> bool| -> u64 {
        let counted = profile.entries.iter().filter(|entry| counts(entry));
        counted.map(|entry| entry.weight_ns).sum()
    };
    let unmet = time(|entry| entry.frames_from == "none");
    let unmet = 100.0 * unmet as f64 / time(|_| true).max(1) as f64;
    report.plain(&case, "time without a stack", unmet, "%");
    let exact = profile.folded(|entry| entry.frames_from != "estimated");
    let torn = exact.torn(&target.pairs());
    report.plain(&case, "stacks judged", torn.known as f64, "");
    let bound = Bound::Exactly(0.0);
    report.bounded(&case, "impossible", torn.impossible as f64, "", bound);
    Ok(())
}
