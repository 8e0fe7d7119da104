//! The same in the modes that are not `cpu`.

use anyhow::{Context, Result, ensure};
use tests::profile::Entry;

use super::{END_S, SHARE, any, rows, watch};

#[test]
fn in_wall_mode_every_process_lives_its_whole_life() -> Result<()> {
    let Some(python) = any() else {
        return Ok(());
    };
    let (finished, family, _) = watch(python, "prefork", &["--subprocesses", "-m", "wall"])?;
    let ledger = finished.ledger()?;
    ledger.balances()?;
    for row in rows(&ledger, &family)? {
        let threads = ledger.threads.iter().filter(|it| it.pid == row.pid);
        let (mut lived, mut sampled, mut counted) = (0, 0, 0);
        for thread in threads {
            lived += thread.wall_ns.context("no life")?;
            sampled += thread.sampled_ns + thread.sampled_runnable_ns + thread.sampled_blocked_ns;
            let off = thread
                .runnable_ns
                .zip(thread.blocked_ns)
                .context("no account")?;
            counted += thread.scheduler_ns.context("no account")? + off.0 + off.1;
        }
        let close = |ns: u64| ns.abs_diff(lived) as f64 <= SHARE * lived as f64 + 20e6;
        ensure!(
            close(counted) && close(sampled),
            "{lived} {sampled} {counted}: {row:?}"
        );
    }
    Ok(())
}

#[test]
fn in_offcpu_mode_children_say_what_they_waited_for() -> Result<()> {
    let Some(python) = any() else {
        return Ok(());
    };
    let (finished, family, _) = watch(python, "prefork", &["--subprocesses", "-m", "offcpu"])?;
    let ledger = finished.ledger()?;
    ledger.balances()?;
    let profile = finished.profile()?;
    for worker in &family {
        let thread = ledger.thread(worker.pid).context("no such thread")?;
        let counted = thread.runnable_ns.zip(thread.blocked_ns);
        let counted = counted.map(|(runnable, blocked)| (runnable + blocked) as f64 / 1e9);
        let counted = counted.context("no account")?;
        let told = format!("{counted} s off the CPU: {worker:?} {thread:?}");
        let kept = profile.seconds(worker.pid, |_| true);
        ensure!((kept - counted).abs() <= counted * SHARE + END_S, "{told}");
        let on_cpu = profile.seconds(worker.pid, |entry| entry.state == "on_cpu");
        ensure!(on_cpu == 0.0, "{on_cpu} s on a CPU: {told}");
        // All but the last were there when the run began, and waited for the word.
        let waits =
            |entry: &Entry| entry.is_blocked_in("io_pipe") && profile.is_in(entry, "prefork");
        let waited = profile.seconds(worker.pid, waits);
        let blocked = thread.blocked_ns.context("no account")? as f64 / 1e9;
        let all = (waited - blocked).abs() <= blocked * SHARE + END_S;
        let none = waited == 0.0;
        ensure!(
            if worker.role == "late" { none } else { all },
            "{waited} s: {told}"
        );
    }
    Ok(())
}

#[test]
fn in_gil_mode_each_child_holds_its_own() -> Result<()> {
    let Some(python) = any() else {
        return Ok(());
    };
    let arguments = ["--subprocesses", "-m", "gil", "-r", "999"];
    let (finished, family, stolen) = watch(python, "prefork", &arguments)?;
    finished.ledger()?.balances()?;
    let profile = finished.profile()?;
    for worker in &family {
        let holds = |entry: &Entry| entry.state == "on_cpu" && entry.gil == "holds";
        let held = profile.seconds(worker.pid, holds);
        let most = worker.cpu_s * SHARE + END_S + stolen;
        ensure!((held - worker.cpu_s).abs() <= most, "{held} s: {worker:?}");
        let waited = profile.seconds(worker.pid, |entry| entry.gil == "waits");
        ensure!(waited == 0.0, "{waited} s behind nobody: {worker:?}");
    }
    Ok(())
}
