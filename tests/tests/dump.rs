//! What `dump` says that threads wait for, on every interpreter. The truth is what each thread of
//! the target does.

use std::time::{Duration, Instant};

use ::profiler::sys::monotonic;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use serde::Deserialize;
use serde_json::Value;
use tests::profiler;
use tests::pythons::{self, Python, WITH_GIL};
use tests::rung::{self, Rung};
use tests::stolen::stolen_s;
use tests::target::Target;

const PATIENCE: Duration = Duration::from_secs(60);
/// How far a time may be beside the truth: on a busy machine the clock's readings are as slow.
const SLACK_NS: u64 = 30_000_000;

/// A thread of the target by its own account: its id, its name, what it waits for, and when it
/// began, on `CLOCK_MONOTONIC`.
#[derive(Deserialize)]
struct Waits(u32, String, String, u64);

/// One dump, between two readings of the clock.
struct Dump {
    before_ns: u64,
    after_ns: u64,
    value: Value,
}

impl Dump {
    fn of(target: &Target) -> Result<Self> {
        let before_ns = monotonic().0;
        let pid = target.pid().to_string();
        let finished = profiler::run(&["dump", "--json", "--pid", &pid])?.success()?;
        Ok(Self {
            before_ns,
            after_ns: monotonic().0,
            value: serde_json::from_str(&finished.stdout)?,
        })
    }

    /// Once the threads are where they are to stay.
    fn once(target: &Target, settled: impl Fn(&Self) -> bool) -> Result<Self> {
        let started = Instant::now();
        loop {
            let dump = Self::of(target)?;
            if settled(&dump) {
                return Ok(dump);
            }
            ensure!(started.elapsed() < PATIENCE, "never: {:#}", dump.value);
        }
    }

    fn threads(&self) -> impl Iterator<Item = &Value> {
        self.value["threads"].as_array().into_iter().flatten()
    }

    fn thread(&self, name: &str) -> Result<&Value> {
        let mut named = self.threads().filter(|thread| thread["name"] == name);
        named.next().with_context(|| format!("no `{name}`"))
    }

    fn is(&self, name: &str, key: &str, value: &str) -> bool {
        self.thread(name).is_ok_and(|thread| thread[key] == value)
    }
}

/// Each thread is blocked in what it says, and for as long as it can have been.
fn check_reasons(target: &Target, gil: &str) -> Result<()> {
    let said: Vec<Waits> = serde_json::from_value(target.ready()["threads"].clone())?;
    let blocked = |dump: &Dump| {
        let mut names = said.iter();
        names.all(|Waits(_, name, ..)| dump.is(name, "state", "blocked"))
    };
    let stolen = stolen_s();
    let settled = Dump::once(target, blocked)?;
    let later = |dump: &Dump| dump.before_ns > settled.after_ns + 300_000_000;
    let dump = Dump::once(target, later)?;
    let stolen_ns = ((stolen_s() - stolen) * 1e9) as u64;
    for Waits(tid, name, reason, since) in &said {
        let thread = dump.thread(name)?;
        ensure!(thread["tid"] == *tid, "{thread:#}");
        ensure!(thread["reason"] == **reason, "not {reason}: {thread:#}");
        ensure!(thread["state"] == "blocked", "{thread:#}");
        ensure!(thread["gil"] == *gil, "{thread:#}");
        ensure!(thread["gil_behind"] == Value::Null, "{thread:#}");
        ensure!(thread["gc"] == "idle", "{thread:#}");
        ensure!(thread["handling"] == "nothing", "{thread:#}");
        ensure!(thread["frames_from"] == "user", "{thread:#}");
        let Some(blocked) = thread["blocked_ns"].as_u64() else {
            // Moved to another CPU while it slept, or this kernel has no such file.
            let sched = std::fs::read_to_string(format!("/proc/{}/task/{tid}/sched", target.pid()));
            let line = sched.iter().flat_map(|text| text.lines());
            let mut dated = line.filter(|line| line.starts_with("se.exec_start"));
            let unknown = dated.all(|line| line.ends_with(" 0.000000"));
            ensure!(unknown, "{thread:#}");
            continue;
        };
        let most = dump.after_ns - since + SLACK_NS;
        let least = (dump.before_ns - settled.after_ns).saturating_sub(SLACK_NS + stolen_ns);
        ensure!(
            (least..most).contains(&blocked),
            "{least} to {most}: {thread:#}"
        );
    }
    Ok(())
}

/// The one that never lets go is seen to hold the GIL, and another to wait behind it.
fn check_gil(target: &mut Target) -> Result<()> {
    target.tell("keep")?;
    let waits =
        |dump: &Dump| dump.is("loser", "reason", "gil") && dump.is("keeper", "gil", "holds");
    let dump = Dump::once(target, waits)?;
    let (loser, keeper) = (dump.thread("loser")?, dump.thread("keeper")?);
    let runs = keeper["state"] == "on_cpu" || keeper["state"] == "runnable";
    ensure!(runs, "{keeper:#}");
    ensure!(loser["state"] == "blocked", "{loser:#}");
    ensure!(loser["gil"] == "waits", "{loser:#}");
    ensure!(loser["syscall"] == "futex", "{loser:#}");
    ensure!(loser["gil_behind"]["name"] == "keeper", "{loser:#}");
    ensure!(loser["gil_behind"]["tid"] == keeper["tid"], "{loser:#}");
    ensure!(dump.is("acquire", "reason", "lock"), "{:#}", dump.value);
    let pid = target.pid().to_string();
    let behind = format!(
        "waits for the GIL behind Thread {} \"keeper\"",
        keeper["tid"]
    );
    let started = Instant::now();
    // A thread that waits for the GIL wakes up for a moment at each of its intervals.
    while !profiler::run(&["dump", "--pid", &pid])?
        .success()?
        .stdout
        .contains(&behind)
    {
        ensure!(started.elapsed() < PATIENCE, "never `{behind}`");
    }
    Ok(())
}

/// A stopped process waits for nothing but to go on.
fn check_stopped(target: &Target) -> Result<()> {
    kill(target.pid(), Signal::SIGSTOP)?;
    let all = |dump: &Dump| dump.threads().all(|thread| thread["reason"] == "stopped");
    Dump::once(target, all)?;
    Ok(())
}

fn check_collector(python: &Python) -> Result<()> {
    let mut target = Target::start(python, "blocked_threads.py", &[])?;
    target.tell("go")?;
    target.tell("collect")?;
    let dump = Dump::once(&target, |dump| dump.is("collector", "gc", "collecting"))?;
    let collector = dump.thread("collector")?;
    let (holds, elsewhere) = if python.free_threaded {
        // Only of the one that has stopped the others it is known that it collects.
        ("no_gil", ["idle", "unknown"])
    } else {
        ("holds", ["idle", "idle"])
    };
    ensure!(collector["gil"] == holds, "{collector:#}");
    ensure!(
        collector["frames"][0]["function"] == "<GC>",
        "{collector:#}"
    );
    ensure!(collector["frames"][0]["kind"] == "gc", "{collector:#}");
    // Of one that can run and may hold the GIL by now, nobody knows.
    let others = dump
        .threads()
        .filter(|thread| thread["name"] != "collector");
    for thread in others.filter(|thread| thread["state"] == "blocked") {
        let gc = thread["gc"].as_str().unwrap_or_default();
        ensure!(elsewhere.contains(&gc), "{thread:#}");
    }
    Ok(())
}

fn check_exceptions(python: &Python) -> Result<()> {
    let target = Target::start(python, "exceptions.py", &[])?;
    let said: Vec<(u64, u64, String, bool)> =
        serde_json::from_value(target.ready()["threads"].clone())?;
    let dump = Dump::of(&target)?;
    for (tid, _, name, handles) in said {
        let thread = dump.threads().find(|thread| thread["tid"] == tid);
        let thread = thread.with_context(|| format!("no thread {tid}"))?;
        let expected = if handles { "exception" } else { "nothing" };
        ensure!(thread["handling"] == expected, "{name}: {thread:#}");
    }
    Ok(())
}

fn on_every_python(check: impl Fn(&Python) -> Result<()>) -> Result<()> {
    if !rung::reached(Rung::Live) {
        return Ok(());
    }
    for python in pythons::required() {
        check(python).with_context(|| format!("on {}", python.label))?;
    }
    Ok(())
}

#[test]
fn a_dump_says_what_each_thread_waits_for_and_how_long() -> Result<()> {
    on_every_python(|python| {
        let mut target = Target::start(python, "blocked_threads.py", &[])?;
        if python.free_threaded {
            check_reasons(&target, "no_gil")?;
            target = Target::start(&python.with(&WITH_GIL), "blocked_threads.py", &[])?;
        }
        check_reasons(&target, "neither")?;
        target.tell("go")?;
        target.expect("running")?;
        check_gil(&mut target)?;
        check_stopped(&target)
    })
}

#[test]
fn a_dump_shows_the_collector_on_the_thread_that_collects() -> Result<()> {
    on_every_python(check_collector)
}

#[test]
fn a_dump_says_who_handles_an_exception() -> Result<()> {
    on_every_python(check_exceptions)
}
