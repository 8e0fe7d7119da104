//! Either side may die at any moment: the target does not notice, the profile is written.

use std::os::unix::process::ExitStatusExt;

use anyhow::{Result, ensure};
use tests::profiler::Running;
use tests::pythons::{self, Python};
use tests::rung::{self, Rung};
use tests::target::Target;

/// The digest that a target comes to after so many rounds, with nobody watching.
fn undisturbed(python: &Python, rounds: u32) -> Result<u64> {
    let mut target = Target::start(python, "count_work.py", &["20"])?;
    let mut digest = 0;
    for _ in 0..rounds {
        target.tell("500")?;
        digest = target.expect("work")?["digest"].as_u64().unwrap_or(0);
    }
    Ok(digest)
}

fn nobody_holds(target: &Target) -> Result<()> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", target.pid()))?;
    ensure!(
        status.lines().any(|line| line == "TracerPid:\t0"),
        "the target is traced: {status}"
    );
    ensure!(
        !status.contains("State:\tT"),
        "the target is stopped: {status}"
    );
    Ok(())
}

#[test]
fn killing_the_profiler_leaves_the_target_undisturbed() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(python) = pythons::any() else {
        return Ok(());
    };
    let expected = undisturbed(python, 10)?;
    let mut target = Target::start(python, "count_work.py", &["20"])?;
    let mut digest = 0;
    // Killed before it is attached, as soon as it is, and in the midst of the target's work.
    for round in 0..10 {
        let mut profiler = Running::on(target.pid(), &["-r", "999"])?;
        if round % 3 > 0 {
            profiler.attached()?;
        }
        target.tell("500")?;
        if round % 3 == 1 {
            profiler.kill()?;
            digest = target.expect("work")?["digest"].as_u64().unwrap_or(0);
        } else {
            digest = target.expect("work")?["digest"].as_u64().unwrap_or(0);
            profiler.kill()?;
        }
        nobody_holds(&target)?;
    }
    ensure!(
        digest == expected,
        "the target came to {digest}, not {expected}"
    );
    Ok(())
}

#[test]
fn killing_the_target_leaves_a_profile_and_a_clear_end() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(python) = pythons::any() else {
        return Ok(());
    };
    let mut target = Target::start(python, "count_work.py", &["20"])?;
    let mut profiler = Running::on(target.pid(), &["-r", "999"])?;
    profiler.attached()?;
    target.tell("20000")?;
    target.expect("work")?;
    target.kill()?;
    let finished = profiler.finish()?;
    ensure!(finished.status.code() == Some(0), "{finished:?}");
    ensure!(finished.folded()?.with("units") > 100, "{finished:?}");
    ensure!(finished.ledger()?.samples > 100, "{finished:?}");
    let said = finished.stderr.to_lowercase();
    ensure!(
        ["ended", "exited", "gone"]
            .iter()
            .any(|word| said.contains(word)),
        "nothing is said of the target's end: {said}"
    );
    Ok(())
}

#[test]
fn ctrl_c_writes_everything_and_succeeds() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(python) = pythons::any() else {
        return Ok(());
    };
    let mut target = Target::start(python, "count_work.py", &["20"])?;
    let mut profiler = Running::on(target.pid(), &["-r", "999"])?;
    profiler.attached()?;
    target.tell("20000")?;
    target.expect("work")?;
    profiler.interrupt()?;
    let finished = profiler.finish()?;
    ensure!(finished.status.signal().is_none(), "{finished:?}");
    ensure!(finished.status.code() == Some(0), "{finished:?}");
    let ledger = finished.ledger()?;
    let folded = finished.folded()?;
    ensure!(
        folded.total() == ledger.samples,
        "folded lines sum to {}, samples are {}",
        folded.total(),
        ledger.samples
    );
    Ok(())
}
