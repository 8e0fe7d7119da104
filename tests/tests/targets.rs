//! The ground truth itself: every target runs on every interpreter and says what it is to say.

use anyhow::{Context, Result, ensure};
use tests::pythons::{self, Python};
use tests::rung::{self, Rung};
use tests::target::Target;

fn check(python: &Python, script: &str, arguments: &[&str]) -> Result<()> {
    let mut target = Target::start(python, script, arguments)?;
    target.tell("go")?;
    target.expect("running")?;
    target.tell("stop")?;
    for account in target.done()? {
        ensure!(account.tid > 0 && account.ident > 0, "{account:?}");
        ensure!(
            account.cpu_s.is_finite() && account.stat_s.is_finite(),
            "{account:?}"
        );
    }
    for (caller, callee) in target.pairs() {
        ensure!(caller != callee, "{caller} calls itself");
    }
    Ok(())
}

fn all_of(python: &Python) -> Result<()> {
    check(python, "short_calls.py", &["4"]).context("short_calls")?;
    check(python, "spin.py", &["1"]).context("spin at 1")?;
    check(python, "spin.py", &["2000"]).context("spin at 2000")?;
    check(python, "sleepers.py", &["100"]).context("sleepers")?;
    check(python, "two_spinners.py", &[]).context("two_spinners")?;
    check(python, "generators.py", &[]).context("generators")?;
    check(python, "gil_waiters.py", &[]).context("gil_waiters")?;
    check(python, "exceptions.py", &[]).context("exceptions")?;
    check(python, "busy_threads.py", &["3"]).context("busy_threads")?;
    check(python, "c_call.py", &[]).context("c_call")?;
    check(python, "named_after_work.py", &[]).context("named_after_work")?;
    check(python, "main_thread_exits.py", &[]).context("main_thread_exits")?;
    check(python, "sub_interpreters.py", &[]).context("sub_interpreters")?;
    check(python, "without_sys.py", &[]).context("without_sys")?;

    let mut origin = Target::start(python, "origin.py", &["1", "0", "1000", "1"])?;
    origin.tell("go")?;
    let names: Vec<String> = origin.done()?.into_iter().map(|it| it.name).collect();
    ensure!(names == ["main", "compress", "half_sleep"], "{names:?}");

    let mut work = Target::start(python, "count_work.py", &["20"])?;
    work.tell("10")?;
    let digest = work.expect("work")?["digest"].clone();
    ensure!(digest == 1_360_668_137_u64, "the digest is {digest}");

    let mut gaps = Target::start_gap_meter(python)?;
    gaps.tell("0.01")?;
    let wall = gaps.expect("gaps")?["wall_ns"].as_u64();
    ensure!(wall >= Some(10_000_000), "it looked for {wall:?} ns");
    Ok(())
}

#[test]
fn every_target_runs_on_every_interpreter() -> Result<()> {
    if !rung::reached(Rung::Live) {
        return Ok(());
    }
    for python in pythons::required() {
        all_of(python).with_context(|| format!("on {}", python.label))?;
    }
    Ok(())
}
