//! Builds without the GIL: several threads on CPUs at once, and what stands in the GIL's place.
//!
//! What holds for every version is held by the other tests, on these builds too.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tests::ledger::Ledger;
use tests::profiler::{self, Running};
use tests::pythons::{self, Python, WITH_GIL};
use tests::rung::{self, Rung};
use tests::target::Target;

const THREADS: usize = 8;
/// Each thread's CPU time, so that their samples are a thousand and more.
const EACH_S: &str = "0.8";
const ONE_POINT: f64 = 0.01;
const PATIENCE: Duration = Duration::from_secs(60);

/// Samples of threads that had the same CPU time are as many for each.
fn shares_are_equal(python: &Python) -> Result<Ledger> {
    let arguments = [&THREADS.to_string(), EACH_S];
    let mut target = Target::start(python, "equal_spinners.py", &arguments)?;
    let mut profiler = Running::on(target.pid(), &["-r", "1999", "--walk", "kernel"])?;
    profiler.attached()?;
    target.tell("go")?;
    target.expect("running")?;
    let accounts = target.done()?;
    let finished = profiler.stop()?;
    let ledger = finished.ledger()?;
    let torn = finished.folded()?.torn(&target.pairs());
    ensure!(torn.impossible == 0, "impossible stacks: {torn:?}");

    let all_cpu: f64 = accounts.iter().map(|account| account.cpu_s).sum();
    let sampled = |tid| ledger.thread(tid).map_or(0, |thread| thread.samples) as f64;
    let all_sampled: f64 = accounts.iter().map(|account| sampled(account.tid)).sum();
    ensure!(all_sampled > 0.0, "no samples: {ledger:?}");
    for account in &accounts {
        let share = sampled(account.tid) / all_sampled;
        let truth = account.cpu_s / all_cpu;
        let told = format!("thread {} has {share:.4}, not {truth:.4}", account.tid);
        ensure!((share - truth).abs() < ONE_POINT, "{told}");
        let equal = 1.0 / THREADS as f64;
        ensure!((share - equal).abs() < ONE_POINT, "{told}");
    }
    ensure!(ledger.build == "free-threaded", "it is {}", ledger.build);
    Ok(ledger)
}

fn gil(ledger: &Ledger, key: &str) -> u64 {
    ledger.gil.get(key).copied().unwrap_or(0)
}

fn on_free_threaded(rung: Rung, test: impl Fn(&Python) -> Result<()>) -> Result<()> {
    if !rung::reached(rung) {
        return Ok(());
    }
    for python in pythons::free_threaded() {
        test(python).with_context(|| format!("on {}", python.label))?;
    }
    Ok(())
}

#[test]
fn eight_threads_that_spin_at_once_have_equal_shares_and_no_gil() -> Result<()> {
    on_free_threaded(Rung::Kernel, |python| {
        let ledger = shares_are_equal(python)?;
        let without = gil(&ledger, "no_gil");
        ensure!(
            without == ledger.samples,
            "of {} samples {:?}",
            ledger.samples,
            ledger.gil
        );
        Ok(())
    })
}

#[test]
fn a_gil_that_was_switched_on_is_held_and_waited_for() -> Result<()> {
    on_free_threaded(Rung::Kernel, |python| {
        let ledger = shares_are_equal(&python.with(&WITH_GIL))?;
        ensure!(gil(&ledger, "no_gil") == 0, "{:?}", ledger.gil);
        let holds = gil(&ledger, "holds");
        ensure!(
            holds * 10 > ledger.samples * 8,
            "of {} samples {:?}",
            ledger.samples,
            ledger.gil
        );
        Ok(())
    })
}

/// Other threads run beside the collector, but for while it stops them.
#[test]
fn a_collection_is_told_of_the_thread_that_collects_and_of_no_other() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    for python in pythons::required() {
        let mut target = Target::start(python, "collect_beside.py", &[])?;
        let mut profiler = Running::on(target.pid(), &["-r", "999", "-d", "2s"])?;
        profiler.attached()?;
        target.tell("go")?;
        target.expect("running")?;
        let finished = profiler.finish()?.success()?;
        target.tell("stop")?;
        target.done()?;
        let folded = finished.folded()?;
        let collecting = |function: &str| -> u64 {
            let stacks = folded.stacks.iter().filter(|stack| {
                let names = || stack.frames.iter().map(|frame| tests::folded::name(frame));
                names().any(|name| name == function) && names().next_back() == Some("<GC>")
            });
            stacks.map(|stack| stack.count).sum()
        };
        let (of_one, of_other) = (collecting("collect"), collecting("compute"));
        let all = folded.with("collect");
        ensure!(
            of_one * 10 > all * 8 && of_other == 0,
            "on {}: {of_one} of {all} samples collect, and {of_other} of the other thread's",
            python.label
        );
    }
    Ok(())
}

/// `--mode gil` of a program that has none, and what it says instead of a profile.
#[test]
fn a_profile_of_the_gil_says_why_it_is_empty() -> Result<()> {
    on_free_threaded(Rung::Kernel, |python| {
        let mut target = Target::start(python, "two_spinners.py", &[])?;
        target.tell("go")?;
        target.expect("running")?;
        let pid = target.pid().to_string();
        let arguments = ["run", "--mode", "gil", "-d", "1s", "--pid", &pid];
        let finished = profiler::run(&arguments)?.success()?;
        for (told, word) in [
            (&finished.stderr, "runs without a GIL"),
            (&finished.stdout, "a free-threaded build, which has none"),
        ] {
            ensure!(told.contains(word), "no `{word}` in: {told}");
        }
        target.tell("stop")?;
        target.done()?;
        Ok(())
    })
}

/// A look at a process whose threads are all blocked.
fn dump(python: &Python) -> Result<Value> {
    let target = Target::start(python, "sleepers.py", &["3"])?;
    let pid = target.pid().to_string();
    let started = Instant::now();
    while !all_block(&pid)? {
        ensure!(started.elapsed() < PATIENCE, "its threads never block");
        std::thread::yield_now();
    }
    let output = profiler::run(&["dump", "--json", "--pid", &pid])?.success()?;
    serde_json::from_str(&output.stdout).context("the dump is not JSON")
}

fn all_block(pid: &str) -> Result<bool> {
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let syscall = std::fs::read_to_string(task?.path().join("syscall"))?;
        if syscall.starts_with("running") {
            return Ok(false);
        }
    }
    Ok(true)
}

#[test]
fn a_look_says_that_there_is_no_gil_and_who_is_attached() -> Result<()> {
    let states = |dump: &Value, key: &str| -> Vec<String> {
        let threads = dump["threads"].as_array().into_iter().flatten();
        let state = |thread: &Value| thread[key].as_str().unwrap_or("none").to_owned();
        threads.map(state).collect()
    };
    on_free_threaded(Rung::Live, |python| {
        let seen = dump(python)?;
        ensure!(seen["build"] == "free-threaded", "{seen}");
        let gil = states(&seen, "gil");
        ensure!(
            !gil.is_empty() && gil.iter().all(|it| it == "no_gil"),
            "{seen}"
        );
        let attachment = states(&seen, "attachment");
        ensure!(attachment.iter().all(|it| it == "detached"), "{seen}");
        let seen = dump(&python.with(&WITH_GIL))?;
        let gil = states(&seen, "gil");
        ensure!(gil.iter().all(|it| it == "neither"), "{seen}");
        Ok(())
    })
}
