//! What the profiler costs, where that can be said without a clock: its memory, and what it
//! keeps of a process with a thousand threads.

use anyhow::{Context, Result, ensure};
use tests::profiler::Running;
use tests::pythons;
use tests::rung::{self, Rung};
use tests::target::Target;

/// The largest resident memory that is allowed. The build for tests has five megabytes of code more
/// than the one that is used, of which the bench asks for forty in all.
const MOST_RSS: u64 = 45 << 20;

/// The work by a second target that a run lasts.
const A_WHILE: &str = "100000";

#[test]
fn a_run_stays_small() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    for python in pythons::required() {
        let mut target = Target::start(python, "spin.py", &["20"])?;
        target.tell("go")?;
        target.expect("running")?;
        let profiler = Running::on(target.pid(), &["-r", "999", "-d", "2s"])?;
        let ledger = profiler.finish()?.success()?.ledger()?;
        ensure!(ledger.samples > 0, "no samples: {ledger:?}");
        let rss = ledger.profiler.rss_bytes.context("no resident memory")?;
        ensure!(rss <= MOST_RSS, "on {}: {rss} bytes resident", python.label);
    }
    Ok(())
}

#[test]
fn a_thousand_sleepers_have_no_samples() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(python) = pythons::any() else {
        return Ok(());
    };
    let mut target = Target::start(python, "sleepers.py", &["1000"])?;
    target.tell("go")?;
    target.expect("running")?;
    let mut profiler = Running::on(target.pid(), &["-r", "999"])?;
    profiler.attached()?;
    let mut clock = Target::start(python, "count_work.py", &["1"])?;
    clock.tell(A_WHILE)?;
    clock.expect("work")?;
    let ledger = profiler.stop()?.ledger()?;
    target.tell("stop")?;
    let accounts = target.done()?;
    let busy = accounts.first().context("the busy thread's account")?.tid;

    let of_busy = ledger.thread(busy).map_or(0, |thread| thread.samples);
    ensure!(
        of_busy > 0 && of_busy == ledger.samples,
        "{of_busy} of {} samples are the busy thread's",
        ledger.samples
    );
    let kept = ledger.threads.len();
    ensure!(kept <= 10, "the ledger holds {kept} threads");
    Ok(())
}
