//! Native frames where several interpreters are in one process: rung 3.

use anyhow::{Context, Result, ensure};
use tests::on_each;
use tests::profiler::Running;
use tests::pythons::Python;
use tests::rung::Rung;
use tests::target::Target;

/// To 3.11 a thread shows the frames of its first interpreter alone, and the evaluators of all are
/// on its C stack: nothing native is claimed, and the ledger says why. From 3.12 on it shows those
/// that it runs.
fn frames_are_no_others(python: &Python) -> Result<()> {
    let mut target = Target::start(python, "sub_interpreters.py", &[])?;
    target.tell("go")?;
    target.expect("running")?;
    let options = ["--native", "-r", "499", "-d", "1"];
    let profile = Running::in_detail(target.pid(), &options)?
        .finish()?
        .success()?
        .profile()?;
    profile.ledger.balances()?;
    let native = profile.ledger.native.as_ref().context("no account")?;
    let (mut shown, mut all) = (0, 0);
    for entry in &profile.entries {
        let is_in = |kind: &str| profile.stack(entry).any(|frame| frame.kind == kind);
        if is_in("python") {
            all += entry.ticks;
            shown += if is_in("native") { entry.ticks } else { 0 };
        }
    }
    let several = native.reasons.get("several_interpreters").copied();
    let is_right = match python.minor() {
        (3, ..=11) => shown == 0 && several >= Some(all),
        _ => several.is_none(),
    };
    ensure!(
        is_right && all > 20,
        "{shown} of {all} samples show native frames: {native:?}"
    );
    Ok(())
}
on_each! {
    Rung::Kernel, frames_are_no_others;
    no_interpreters_evaluator_is_taken_for_anothers_on_3_8: 8;
    no_interpreters_evaluator_is_taken_for_anothers_on_3_9: 9;
    no_interpreters_evaluator_is_taken_for_anothers_on_3_10: 10;
    no_interpreters_evaluator_is_taken_for_anothers_on_3_11: 11;
    no_interpreters_evaluator_is_taken_for_anothers_on_3_12: 12;
    no_interpreters_evaluator_is_taken_for_anothers_on_3_14: 14;
}
