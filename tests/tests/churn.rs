//! A thousand threads a second are born and end: each tick belongs to the thread that it met, or to
//! nobody, and never to another. The truth is what each thread did, by its own account.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use tests::folded;
use tests::profile::{Entry, Profile};
use tests::profiler::Running;
use tests::pythons::{self, Python};
use tests::rung::{self, Rung};
use tests::target::Target;

/// The kind of work in a function's or a thread's name.
fn kind(name: &str, prefix: &str) -> Option<i64> {
    name.strip_prefix(prefix)?.parse().ok()
}

/// The kind of work that a stack shows.
fn shown(profile: &Profile, entry: &Entry) -> Option<i64> {
    let mut frames = profile.stack(entry);
    frames.find_map(|frame| kind(folded::name(&frame.label), "kind_"))
}

fn ticks_belong_to_whom_they_met(python: &Python, mode: &str) -> Result<()> {
    let mut target = Target::start(python, "thread_churn.py", &[])?;
    let arguments = ["--mode", mode, "-r", "999", "-d", "2s"];
    let mut profiler = Running::in_detail(target.pid(), &arguments)?;
    profiler.attached()?;
    target.tell("go")?;
    target.expect("running")?;
    let profile = profiler.finish()?.success()?.profile()?;
    target.tell("stop")?;
    let done = target.expect("done")?;
    let told: Vec<(i64, i64)> = serde_json::from_value(done["told"].clone())?;
    let truth: BTreeMap<i64, i64> = told.into_iter().collect();

    let (mut met, mut named) = (0, 0);
    for entry in &profile.entries {
        let Some(shown) = shown(&profile, entry) else {
            continue;
        };
        let thread = profile.threads.get(entry.thread).context("no thread")?;
        met += entry.ticks;
        ensure!(
            truth.get(&thread.tid) == Some(&shown),
            "a stack of kind {shown} on thread {thread:?}, {entry:?}"
        );
        // A name can be unknown, not another's.
        if let Some(called) = kind(&thread.name, "kind-") {
            ensure!(called == shown, "kind {shown} is called {thread:?}");
            named += entry.ticks;
        }
    }
    let ledger = &profile.ledger;
    println!(
        "{}, {mode}: {} threads a second, {met} samples of them, {named} with their names, {} of {} \
         ticks lost",
        python.label,
        truth.len() as f64 / done["seconds"].as_f64().unwrap_or(f64::NAN),
        ledger.lost(),
        ledger.ticks,
    );
    ensure!(
        ledger.contradictions == 0,
        "{} contradictions: {ledger:?}",
        ledger.contradictions
    );
    // On a machine that is busy otherwise few threads are born, and more after the profiler's end.
    let seconds = done["seconds"].as_f64().context("how long")?;
    let born = truth.len() as f64 * (ledger.duration_s / seconds).min(1.0);
    ensure!(
        met as f64 * 4.0 > born,
        "too few to judge: {met} of {born}, {ledger:?}"
    );
    Ok(())
}

fn on(mode: &str) -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    for python in pythons::required() {
        ticks_belong_to_whom_they_met(python, mode).context(python.label.clone())?;
    }
    Ok(())
}

#[test]
fn each_tick_belongs_to_the_short_lived_thread_that_it_met() -> Result<()> {
    on("cpu")
}

#[test]
fn each_look_belongs_to_the_short_lived_thread_that_it_met() -> Result<()> {
    on("wall")
}
