//! The ladder at the tick: rung 3, root and eBPF.
//!
//! Every thread of a target runs often, so each has ticks. All rungs that apply to a version must
//! name it, and as the thread that it says it is itself. `ladder.rs` holds the same of threads
//! that sleep, without the kernel programs.

use anyhow::{Context, Result, ensure};
use tests::ledger::{Ledger, Thread};
use tests::profiler::Running;
use tests::pythons::{self, Python};
use tests::rung::{self, Rung};
use tests::target::{Account, Target};

/// Long enough for the rarest of fifty threads to have a tick.
const OFTEN: [&str; 4] = ["-r", "499", "-d", "2"];
/// So rarely that most threads have none.
const RARELY: [&str; 4] = ["-r", "1", "-d", "2"];

/// The rungs that apply, strongest first.
fn rungs(python: &Python, is_main: bool) -> Vec<&'static str> {
    let mut rungs = vec!["tls_base"];
    if python.minor() >= (3, 11) {
        rungs.push("native_thread_id");
    }
    rungs.push("control_block");
    // The first thread's control block is not on its stack; it is the one that is left over.
    rungs.push(if is_main { "main_thread" } else { "stack_scan" });
    rungs
}

fn watch(python: &Python, threads: usize, how: &[&str; 4]) -> Result<(Ledger, Vec<Account>)> {
    let mut target = Target::start(python, "busy_threads.py", &[&threads.to_string()])?;
    target.tell("go")?;
    target.expect("running")?;
    let profiler = Running::on(target.pid(), how)?;
    let finished = profiler.finish()?.success()?;
    target.tell("stop")?;
    Ok((finished.ledger()?, target.done()?))
}

fn is_who_it_says(python: &Python, thread: &Thread, account: &Account) -> Result<()> {
    ensure!(thread.python, "it is not known as Python's");
    ensure!(
        thread.pthread_id == Some(account.ident),
        "its pthread id is {}, not {:?}",
        account.ident,
        thread.pthread_id
    );
    let mut expected = rungs(python, account.name == "main");
    if thread.samples == 0 && thread.matched_by.len() < expected.len() {
        // Without a tick its stack pointer is known only while it is blocked, and it may run.
        expected.pop();
    }
    ensure!(
        thread.matched_by == expected,
        "it is named by {:?}, not by {expected:?}",
        thread.matched_by
    );
    Ok(())
}

fn check(python: &Python, threads: usize, how: &[&str; 4]) -> Result<()> {
    let (ledger, accounts) = watch(python, threads, how)?;
    let unsampled = ledger.threads.iter().any(|thread| thread.samples == 0);
    ensure!(*how == RARELY || !unsampled, "a thread has no samples");
    ensure!(accounts.len() == threads, "{} accounts", accounts.len());
    for account in &accounts {
        let thread = ledger
            .thread(account.tid)
            .with_context(|| format!("no thread {} in {:?}", account.tid, ledger.threads))?;
        is_who_it_says(python, thread, account)
            .with_context(|| format!("thread {} `{}`", account.tid, account.name))?;
    }
    let python_threads = ledger.threads.iter().filter(|thread| thread.python).count();
    ensure!(
        python_threads == threads,
        "{python_threads} threads are Python's, not {threads}"
    );
    ensure!(
        ledger.contradictions == 0,
        "{} contradictions",
        ledger.contradictions
    );
    Ok(())
}

/// Regression: a thread that a look met before it had ever run, and that no tick met later, stayed
/// the kernel's, without Python's name for it.
fn is_named_although_it_slept_at_once(python: &Python) -> Result<()> {
    let mut target = Target::start(python, "asleep_from_birth.py", &[])?;
    let arguments = ["--mode", "wall", "-r", "999"];
    let mut profiler = Running::in_detail(target.pid(), &arguments)?;
    profiler.attached()?;
    target.tell("go")?;
    let told = target.expect("running")?["told"].take();
    let told: Vec<(i64, String)> = serde_json::from_value(told)?;
    let ledger = profiler.stop()?.ledger()?;
    target.tell("stop")?;
    target.done()?;
    for (tid, name) in told {
        let thread = ledger.thread(tid);
        let thread = thread.with_context(|| format!("no thread {tid}"))?;
        ensure!(
            thread.python && thread.pthread_id.is_some() && thread.name.as_ref() == Some(&name),
            "`{name}` is {thread:?}"
        );
    }
    Ok(())
}

fn on_every_python(threads: usize, how: &[&str; 4]) -> Result<()> {
    each(|python| check(python, threads, how))
}

fn each(check: impl Fn(&Python) -> Result<()>) -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let mut failures = Vec::new();
    for python in pythons::required() {
        if let Err(error) = check(python) {
            failures.push(format!("on {}: {error:#}", python.label));
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

#[test]
fn one_busy_thread_is_named_by_every_rung() -> Result<()> {
    on_every_python(1, &OFTEN)
}

#[test]
fn three_busy_threads_are_named_by_every_rung() -> Result<()> {
    on_every_python(3, &OFTEN)
}

#[test]
fn fifty_busy_threads_are_named_by_every_rung() -> Result<()> {
    on_every_python(50, &OFTEN)
}

#[test]
fn threads_that_no_tick_found_are_named_all_the_same() -> Result<()> {
    on_every_python(3, &RARELY)
}

#[test]
fn a_thread_that_sleeps_from_its_birth_on_is_named() -> Result<()> {
    each(is_named_although_it_slept_at_once)
}
