//! The books balance: samples against the scheduler's account, and both against `/proc`'s.

use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use tests::ledger::Ledger;
use tests::profiler::Running;
use tests::pythons::{self, Python};
use tests::rung::{self, Rung};
use tests::stolen::stolen_s;
use tests::target::{Account, Target};

/// How far two accounts of one thread's time may be apart.
const ONE_PERCENT: f64 = 0.01;

/// A thread with this much time on a CPU has enough samples to be judged by the percent.
const BUSY_S: f64 = 0.5;

/// `/proc` counts in hundredths of a second, and once for each of two numbers.
const STAT_STEP_S: f64 = 0.02;

fn keep(python: &Python, script: &str, arguments: &[&str]) -> Result<(Ledger, Vec<Account>)> {
    let mut target = Target::start(python, script, arguments)?;
    let mut profiler = Running::on(target.pid(), &["-r", "1999"])?;
    profiler.attached()?;
    target.tell("go")?;
    if script == "origin.py" {
        let accounts = target.done()?;
        return Ok((profiler.stop()?.ledger()?, accounts));
    }
    target.expect("running")?;
    // A second target is the clock: it works for a known while.
    let mut clock = Target::start(python, "count_work.py", &["1"])?;
    clock.tell("100000")?;
    clock.expect("work")?;
    target.tell("stop")?;
    let accounts = target.done()?;
    Ok((profiler.stop()?.ledger()?, accounts))
}

fn check(python: &Python, script: &str, arguments: &[&str]) -> Result<()> {
    let stolen = stolen_s();
    let (ledger, accounts) = keep(python, script, arguments)?;
    let stolen = stolen_s() - stolen;
    ensure!(
        ledger.ticks == ledger.samples + ledger.lost(),
        "ticks {} are not samples {} and losses {:?}",
        ledger.ticks,
        ledger.samples,
        ledger.losses
    );
    let from: u64 = ledger.frames_from.values().sum();
    ensure!(
        from == ledger.samples,
        "frames_from sums to {from}: {ledger:?}"
    );
    let gil: u64 = ledger.gil.values().sum();
    ensure!(gil == ledger.samples, "gil sums to {gil}: {ledger:?}");
    let of_threads: u64 = ledger.threads.iter().map(|thread| thread.samples).sum();
    ensure!(
        of_threads == ledger.samples,
        "the threads' samples sum to {of_threads}: {ledger:?}"
    );
    // These reasons are faults of the profiler, never of the machine or the target.
    for fault in ["unaccounted", "malformed", "unknown_process"] {
        let lost = ledger.losses.get(fault).copied().unwrap_or(0);
        ensure!(lost == 0, "{lost} ticks are lost as `{fault}`: {ledger:?}");
    }
    let mut checked = 0;
    for account in accounts.iter().filter(|account| account.cpu_s > BUSY_S) {
        checked += 1;
        let thread = ledger
            .thread(account.tid)
            .with_context(|| format!("no thread {} in {ledger:?}", account.tid))?;
        let sampled = thread.sampled_s();
        let scheduled = thread.scheduler_s()?;
        let told = format!(
            "`{}`: sampled {sampled:.3} s, scheduler {scheduled:.3} s, own clock {:.3} s, /proc {:.3} s, {stolen} s stolen",
            account.name, account.cpu_s, account.stat_s
        );
        ensure!((sampled / scheduled - 1.0).abs() <= ONE_PERCENT, "{told}");
        ensure!(
            (scheduled - account.cpu_s).abs() <= account.cpu_s * ONE_PERCENT + stolen,
            "{told}"
        );
        let most = account.stat_s * ONE_PERCENT + STAT_STEP_S + stolen;
        ensure!((sampled - account.stat_s).abs() <= most, "{told}");
        ensure!(thread.python, "{told}: not known as a Python thread");
        ensure!(
            thread.pthread_id == Some(account.ident),
            "{told}: its pthread id is {}, not {:?}",
            account.ident,
            thread.pthread_id
        );
    }
    ensure!(
        checked > 0,
        "no thread was busy for {BUSY_S} s, so none was checked: {accounts:?}"
    );
    Ok(())
}

fn on(script: &str, arguments: &[&str]) -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    // A second profiler's interrupts are in the scheduler's account and not in the thread's own
    // clock. Between processes the runner sees to it.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for python in pythons::required() {
        check(python, script, arguments)
            .with_context(|| format!("`{script}` on {}", python.label))?;
    }
    Ok(())
}

#[test]
fn the_books_of_one_busy_thread_balance() -> Result<()> {
    on("spin.py", &["20"])
}

#[test]
fn the_books_of_two_threads_that_share_the_gil_balance() -> Result<()> {
    on("two_spinners.py", &[])
}

#[test]
fn the_books_of_deep_recursion_balance() -> Result<()> {
    on("spin.py", &["1000"])
}

#[test]
fn the_books_of_a_busy_thread_among_sleepers_balance() -> Result<()> {
    on("sleepers.py", &["200"])
}

#[test]
fn the_books_of_threads_that_end_while_they_are_watched_balance() -> Result<()> {
    on("origin.py", &["6", "0.2", "10000000"])
}
