//! `kill -USR1` writes what was collected so far: books that balance, as at the end, and the end is as
//! if nobody had asked.

use anyhow::{Context, Result, ensure};
use tests::ledger::Thread;
use tests::profile::Profile;
use tests::profiler::Running;
use tests::pythons::any;
use tests::rung::{self, Rung};
use tests::target::Target;

/// How far the samples of a thread that lived for so long may be from that.
const ONE_PERCENT: f64 = 0.01;
const LONG_S: f64 = 1.0;

fn holds_together(profile: &Profile) -> Result<()> {
    profile.ledger.balances()?;
    for thread in &profile.ledger.threads {
        let Some(wall) = thread.wall_s().filter(|wall| *wall >= LONG_S) else {
            continue;
        };
        let sampled = thread.all_sampled_s();
        ensure!(
            (sampled / wall - 1.0).abs() <= ONE_PERCENT,
            "{sampled:.3} s of samples, {wall:.3} s lived: {thread:?}"
        );
    }
    Ok(())
}

fn seconds(profile: &Profile) -> f64 {
    let threads = profile.ledger.threads.iter();
    threads.map(Thread::all_sampled_s).sum()
}

#[test]
fn what_was_collected_so_far_holds_together_and_changes_nothing() -> Result<()> {
    let Some(python) = rung::reached(Rung::Kernel).then(any).flatten() else {
        return Ok(());
    };
    let origin = ("origin.py", &["8", "2", "4000000", "8"][..]);
    let turns = ("task_time.py", &["turns", "4"][..]);
    let cases = [
        (origin, &["--mode", "cpu", "-r", "499"][..]),
        (origin, &["--mode", "wall"]),
        (origin, &["--mode", "offcpu"]),
        (turns, &["--mode", "cpu", "--tasks"]),
        (turns, &["--mode", "wall", "--tasks"]),
    ];
    for ((script, arguments), options) in cases {
        let mut target = Target::start(python, script, arguments)?;
        let mut profiler = Running::in_detail(target.pid(), options)?;
        profiler.attached()?;
        target.tell("go")?;
        let mut before = 0.0;
        for _ in 0..3 {
            let so_far = profiler.so_far()?;
            holds_together(&so_far).with_context(|| format!("so far, {options:?}"))?;
            let sum = seconds(&so_far);
            ensure!(sum >= before, "{sum} s after {before} s, {options:?}");
            before = sum;
        }
        target.expect("done")?;
        let end = profiler.stop()?.profile()?;
        target.tell("end")?;
        holds_together(&end).with_context(|| format!("at the end, {options:?}"))?;
        ensure!(seconds(&end) > before, "{options:?}");
        if let Some(tasks) = &end.ledger.tasks {
            let ticks: u64 = end.entries.iter().map(|entry| entry.ticks).sum();
            ensure!(tasks.samples <= ticks && tasks.samples > 0, "{tasks:?}");
        }
    }
    Ok(())
}
