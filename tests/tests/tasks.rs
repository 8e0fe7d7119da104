//! What `dump --tasks` says of asyncio tasks, on every interpreter. The truth is what the target says
//! of them itself: it goes from coroutine to coroutine by their own attributes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use tests::on_each;
use tests::pythons::{self, Python};
use tests::rung::{self, Rung, leave_out};
use tests::target::Target;
use tests::tasks::at_rest;

/// A task by its target's own account: it is said of each field in `tasks.py`.
#[derive(Debug, Deserialize)]
struct Told {
    name: String,
    coroutine: String,
    chain: Vec<(String, u64)>,
    state: String,
    awaited_by: Vec<String>,
    tid: u64,
}

/// A task as `dump --tasks --json` has it.
#[derive(Debug, Deserialize)]
struct Dumped {
    address: u64,
    name: Option<String>,
    coroutine: Option<String>,
    state: String,
    awaited_by: Vec<u64>,
    thread: Option<Thread>,
    frames: Vec<Frame>,
}

#[derive(Debug, Deserialize)]
struct Thread {
    tid: u64,
}

#[derive(Debug, Deserialize)]
struct Frame {
    function: String,
    line: Option<u64>,
}

fn check_kind(python: &Python, arguments: &[&str]) -> Result<()> {
    let mut target = Target::start(python, "tasks.py", arguments)?;
    let told: Vec<Told> = serde_json::from_value(target.ready()["tasks"].clone())?;
    ensure!(told.len() > 10, "{told:?}");
    let tasks = at_rest(&target)?.into_iter().map(serde_json::from_value);
    let tasks = tasks.collect::<Result<Vec<Dumped>, _>>()?;
    let names: BTreeMap<u64, &str> = tasks
        .iter()
        .map(|task| (task.address, task.name.as_deref().unwrap_or_default()))
        .collect();
    let said: BTreeSet<&str> = told.iter().map(|task| &*task.name).collect();
    let seen: BTreeSet<&str> = names.values().copied().collect();
    ensure!(
        said == seen,
        "it has {said:?}, and these are shown: {seen:?}"
    );
    ensure!(tasks.len() == told.len(), "one is shown twice: {names:?}");
    for truth in &told {
        let mut named = tasks
            .iter()
            .filter(|it| it.name.as_ref() == Some(&truth.name));
        let task = named.next().context("it is there")?;
        check_task(task, truth, &names).with_context(|| format!("{truth:?}\n{task:?}"))?;
    }
    target.tell("go")?;
    target.expect("running")?;
    target.tell("stop")?;
    target.done().map(|_| ())
}

fn check_task(task: &Dumped, truth: &Told, names: &BTreeMap<u64, &str>) -> Result<()> {
    ensure!(task.state == truth.state, "its state");
    ensure!(
        task.coroutine.as_ref() == Some(&truth.coroutine),
        "its coroutine"
    );
    ensure!(
        task.thread.as_ref().map(|it| it.tid) == Some(truth.tid),
        "its loop's thread"
    );
    let mut awaited_by: Vec<&str> = task
        .awaited_by
        .iter()
        .filter_map(|awaiter| names.get(awaiter).copied())
        .collect();
    awaited_by.sort_unstable();
    ensure!(
        awaited_by == truth.awaited_by,
        "who awaits it: {awaited_by:?}"
    );
    let chain: Vec<(String, u64)> = task
        .frames
        .iter()
        .map(|frame| (frame.function.clone(), frame.line.unwrap_or(0)))
        .collect();
    // The frames of one that runs are its thread's, but for its own.
    let skip = match &*truth.state {
        "running" => truth.chain.len().saturating_sub(1),
        _ => 0,
    };
    ensure!(chain[..] == truth.chain[skip..], "its frames");
    Ok(())
}

fn tasks_are_as_their_program_says(python: &Python) -> Result<()> {
    let eager = (python.minor() >= (3, 12)).then_some("eager");
    for kind in ["c", "python"].into_iter().chain(eager) {
        check_kind(python, &[kind]).with_context(|| format!("tasks of kind `{kind}`"))?;
    }
    Ok(())
}

on_each! {
    Rung::Live, tasks_are_as_their_program_says;
    tasks_are_as_their_program_says_on_3_8: 8;
    tasks_are_as_their_program_says_on_3_9: 9;
    tasks_are_as_their_program_says_on_3_10: 10;
    tasks_are_as_their_program_says_on_3_11: 11;
    tasks_are_as_their_program_says_on_3_12: 12;
    tasks_are_as_their_program_says_on_3_13: 13;
    tasks_are_as_their_program_says_on_3_14: 14;
    tasks_are_as_their_program_says_on_3_15: 15;
}

#[test]
fn tasks_of_uvloop_are_as_their_program_says() -> Result<()> {
    if !rung::reached(Rung::Live) {
        return Ok(());
    }
    let Some(python) = pythons::any() else {
        return Ok(());
    };
    let Some(packages) = pythons::packages(python, "uvloop") else {
        leave_out("there is no uvloop: run `cargo xtask setup`");
        return Ok(());
    };
    check_kind(python, &["uvloop", &packages])
}
