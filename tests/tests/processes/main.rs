//! Many processes in one run: rung 3, root and eBPF.
//!
//! Every process that works says itself what CPU time it took, and each kind of work has a name of
//! its own, so that nobody's samples can pass for another's.

mod modes;

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use tests::folded::Folded;
use tests::ledger::{Ledger, Process};
use tests::profiler::{Finished, Running};
use tests::pythons::{self, Python};
use tests::rung::{self, Rung};
use tests::stolen::stolen_s;
use tests::target::Target;

const FAST: [&str; 3] = ["--subprocesses", "-r", "999"];

/// How far a process's time by its own clock may be from the scheduler's: it says it a little
/// before its end, and the kernel takes it down after that.
const SHARE: f64 = 0.05;
const END_S: f64 = 0.02;

fn any() -> Option<&'static Python> {
    rung::reached(Rung::Kernel).then(pythons::any).flatten()
}

/// What a process of a family says of itself.
#[derive(Clone, Debug, Deserialize)]
struct Worker {
    pid: i64,
    role: String,
    cpu_s: f64,
}

fn scheduled_s(process: &Process) -> Result<f64> {
    let ns = process
        .scheduler_ns
        .with_context(|| format!("no scheduler's account: {process:?}"))?;
    Ok(ns as f64 / 1e9)
}

/// The row of each worker. Of several with one id, their order is that of their lives.
fn rows<'a>(ledger: &'a Ledger, family: &[Worker]) -> Result<Vec<&'a Process>> {
    let mut taken: BTreeMap<i64, usize> = BTreeMap::new();
    let row = |worker: &Worker| {
        let before = taken.entry(worker.pid).or_default();
        let mut with_id = ledger.processes.iter().filter(|it| it.pid == worker.pid);
        let row = with_id.nth(*before);
        *before += 1;
        row.with_context(|| format!("no row for {worker:?}: {:?}", ledger.processes))
    };
    family.iter().map(row).collect()
}

fn check_family(
    python: &Python,
    finished: &Finished,
    family: &[Worker],
    stolen_s: f64,
) -> Result<()> {
    let ledger = finished.ledger()?;
    ledger.balances()?;
    let folded = finished.folded()?;
    for (worker, row) in family.iter().zip(rows(&ledger, family)?) {
        let scheduled = scheduled_s(row)?;
        let told = format!("{worker:?}, scheduler {scheduled:.3} s, {stolen_s} s stolen: {row:?}");
        let most = worker.cpu_s * SHARE + END_S + stolen_s;
        ensure!((scheduled - worker.cpu_s).abs() <= most, "{told}");
        let sampled = row.sampled_ns as f64 / 1e9;
        ensure!(
            (sampled - scheduled).abs() <= scheduled * SHARE + END_S,
            "{told}"
        );
        ensure!(row.python == python.release, "{told}");
        ensure!(row.ended_by.as_deref() == Some("exit 0"), "{told}");
        let parent = row.parent.context("its parent was not seen")?;
        ensure!(
            ledger.processes.iter().any(|other| other.pid == parent),
            "nobody is {parent}: {told}"
        );
        let named = folded.with(&worker.role) as f64 / 999.0;
        ensure!(named >= 0.3, "{named:.3} s in `{}`: {told}", worker.role);
    }
    Ok(())
}

fn watch(python: &Python, way: &str, arguments: &[&str]) -> Result<(Finished, Vec<Worker>, f64)> {
    let mut target = Target::start(python, "family.py", &[way])?;
    let mut profiler = Running::in_detail(target.pid(), arguments)?;
    profiler.attached()?;
    let stolen = stolen_s();
    target.tell("go")?;
    let mut said = target.expect("done")?;
    let stolen = stolen_s() - stolen;
    let family = serde_json::from_value(said["family"].take()).context("the family")?;
    Ok((profiler.finish()?.success()?, family, stolen))
}

fn family(python: &Python, way: &str, size: usize) -> Result<()> {
    let (finished, family, stolen) = watch(python, way, &FAST)?;
    ensure!(family.len() == size, "{family:?}");
    check_family(python, &finished, &family, stolen)
        .with_context(|| format!("`{way}` on {}", python.label))
}

#[test]
fn workers_that_were_there_and_come_later_are_followed_on_every_version() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    for python in pythons::required() {
        family(python, "prefork", 4)?;
    }
    Ok(())
}

#[test]
fn multiprocessing_is_followed_by_fork_and_by_spawn_on_every_version() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    for python in pythons::required() {
        family(python, "spawn", 2)?;
    }
    Ok(())
}

#[test]
fn a_python_behind_a_shell_is_followed() -> Result<()> {
    any().map_or(Ok(()), |python| family(python, "chain", 1))
}

#[test]
fn a_child_whose_parent_ended_is_followed() -> Result<()> {
    any().map_or(Ok(()), |python| family(python, "orphan", 1))
}

#[test]
fn a_child_of_a_thread_is_followed() -> Result<()> {
    any().map_or(Ok(()), |python| family(python, "thread_fork", 1))
}

#[test]
fn an_id_that_comes_again_is_another_process() -> Result<()> {
    any().map_or(Ok(()), |python| family(python, "reuse", 2))
}

#[test]
fn a_thread_that_replaced_the_program_keeps_its_account() -> Result<()> {
    let Some(python) = any() else {
        return Ok(());
    };
    let (finished, family, stolen) = watch(python, "thread_exec", &FAST)?;
    let [worker] = family.as_slice() else {
        anyhow::bail!("{family:?}");
    };
    let ledger = finished.ledger()?;
    ledger.balances()?;
    let [row] = rows(&ledger, &family)?[..] else {
        anyhow::bail!("no row");
    };
    // Its clock is the process's, which goes on at an exec: both threads of the first program are
    // in it.
    let scheduled = scheduled_s(row)?;
    let most = worker.cpu_s * SHARE + END_S + stolen;
    ensure!(
        (scheduled - worker.cpu_s).abs() <= most,
        "{worker:?} {row:?}"
    );
    let threads: Vec<_> = ledger
        .threads
        .iter()
        .filter(|it| it.pid == row.pid)
        .collect();
    // The first thread has ended in the exec; the other one has its id since.
    ensure!(threads.len() == 2, "{threads:?}");
    for thread in &threads {
        let (sampled, scheduled) = (thread.sampled_s(), thread.scheduler_s()?);
        ensure!(
            (sampled - scheduled).abs() <= scheduled * SHARE + END_S,
            "{thread:?}"
        );
        ensure!(thread.tid == row.pid, "{thread:?}");
    }
    let folded = finished.folded()?;
    for role in ["first", "second", "third"] {
        ensure!(folded.with(role) > 0, "`{role}` has no sample");
    }
    Ok(())
}

#[derive(Debug, Deserialize)]
struct Child {
    pid: i64,
    kind: String,
    cpu_s: f64,
}

#[test]
fn fifty_children_of_300_ms_a_second_are_named_and_have_their_shares() -> Result<()> {
    let Some(python) = any() else {
        return Ok(());
    };
    let mut target = Target::start(python, "children.py", &["150", "50", "0.3", "0.02"])?;
    let mut profiler = Running::on(target.pid(), &["--subprocesses", "-r", "1999"])?;
    profiler.attached()?;
    target.tell("warm up")?;
    target.expect("running")?;
    let stolen = stolen_s();
    target.tell("go")?;
    let mut said = target.expect("done")?;
    let stolen = stolen_s() - stolen;
    target.tell("end")?;
    let children: Vec<Child> = serde_json::from_value(said["children"].take())?;
    let finished = profiler.finish()?.success()?;
    let ledger = finished.ledger()?;
    ledger.balances()?;
    ensure!(children.len() == 150, "{} children", children.len());
    // Those of the warm-up and their parent are there too.
    ensure!(ledger.processes.len() == 153, "{:?}", ledger.processes);
    let mut own = BTreeMap::<&str, f64>::new();
    let mut sampled = BTreeMap::<&str, f64>::new();
    for child in &children {
        let row = ledger.processes.iter().find(|it| it.pid == child.pid);
        let row = row.with_context(|| format!("no row for {child:?}"))?;
        ensure!(row.samples > 0 || row.seen == "too_short", "{row:?}");
        // Its clock stops a little before its end.
        let most = child.cpu_s * SHARE + END_S / 2.0 + stolen;
        ensure!(
            (scheduled_s(row)? - child.cpu_s).abs() <= most,
            "{child:?} {row:?}"
        );
        *own.entry(&child.kind).or_default() += child.cpu_s;
        *sampled.entry(&child.kind).or_default() += row.sampled_ns as f64 / 1e9;
    }
    let share = |of: &BTreeMap<&str, f64>| of["heavy"] / (of["heavy"] + of["light"]);
    let told = format!("own clocks {own:?}, sampled {sampled:?}, {stolen} s stolen");
    ensure!((share(&own) - share(&sampled)).abs() <= SHARE, "{told}");
    let all = |of: &BTreeMap<&str, f64>| of.values().sum::<f64>();
    // What children do after their last word is sampled too.
    let late = children.len() as f64 * 0.002 + stolen;
    ensure!(
        (all(&own) - all(&sampled)).abs() <= SHARE * all(&own) + late,
        "{told}"
    );
    named(&finished.folded()?)
}

/// Whether what ran is named although many processes were over before anybody looked.
fn named(folded: &Folded) -> Result<()> {
    let work = folded.with("light") + folded.with("heavy");
    let unnamed = |label: &str| label.starts_with("[unreadable: its code object");
    let lost: u64 = folded
        .stacks
        .iter()
        .filter(|stack| stack.frames.iter().any(|frame| unnamed(frame)))
        .map(|stack| stack.count)
        .sum();
    ensure!(
        lost as f64 <= 0.02 * work as f64,
        "{lost} samples have unnamed frames, and {work} are of known work"
    );
    Ok(())
}

#[test]
fn several_processes_are_profiled_until_the_last_has_ended() -> Result<()> {
    let Some(python) = any() else {
        return Ok(());
    };
    let mut one = Target::start(python, "count_work.py", &["1"])?;
    let mut two = Target::start(python, "count_work.py", &["1"])?;
    let other = two.pid().to_string();
    let arguments = ["--pid", &other, "-r", "999", "--split", "-o"];
    let files = tempfile::tempdir()?;
    let split = files.path().join("part.json");
    let split = split.to_string_lossy();
    let arguments: Vec<&str> = arguments.into_iter().chain([&*split]).collect();
    let mut profiler = Running::on(one.pid(), &arguments)?;
    profiler.attached()?;
    for target in [&mut one, &mut two] {
        target.tell("40000")?;
        target.expect("work")?;
    }
    one.kill()?;
    two.tell("20000")?;
    two.expect("work")?;
    two.kill()?;
    let finished = profiler.finish()?.success()?;
    let ledger = finished.ledger()?;
    ledger.balances()?;
    let pids = [one.pid(), two.pid()].map(|pid| i64::from(pid.as_raw()));
    for (row, pid) in ledger.processes.iter().zip(pids) {
        ensure!(row.pid == pid, "{:?}", ledger.processes);
        ensure!(row.ended_by.as_deref() == Some("signal 9"), "{row:?}");
        ensure!(row.samples > 50, "{row:?}");
        let path = files.path().join(format!("part.{pid}.json"));
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let part: serde_json::Value = serde_json::from_str(&text)?;
        ensure!(part["meta"]["pid"] == pid, "{}", part["meta"]);
        ensure!(part["meta"]["ticks"] == row.samples, "{}", part["meta"]);
        ensure!(
            part["processes"].as_array().map(Vec::len) == Some(1),
            "{text}"
        );
        ensure!(
            part["ledger"]["ticks"] == part["ledger"]["samples"],
            "{text}"
        );
    }
    Ok(())
}
