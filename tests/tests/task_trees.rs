//! `run --tasks=tree` of tasks that rest: each is in the profile for as long as all others, with the
//! frames that its program knows, on top of those that await it. Tasks of every kind, of two loops.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use tests::on_each;
use tests::profile::{Entry, Frame, Profile};
use tests::profiler::Running;
use tests::pythons::{self, Python};
use tests::rung::{self, Rung, leave_out};
use tests::target::Target;

/// A task by its target's own account: it is said of each field in `tasks.py`.
#[derive(Debug, Deserialize)]
struct Told {
    name: String,
    chain: Vec<(String, u64)>,
    state: String,
    awaited_by: Vec<String>,
    tid: i64,
}

/// A task as a profile has it: its frames and what is below them, leaf first, and its time.
struct Shown<'a> {
    frames: Vec<&'a Frame>,
    below: Vec<&'a Frame>,
    tid: i64,
    seconds: f64,
}

/// All samples of a task, if they are all alike.
fn shown<'a>(profile: &'a Profile, name: &str) -> Result<Shown<'a>> {
    let label = format!("[task {name}]");
    let mut found: Option<Shown<'a>> = None;
    for entry in &profile.entries {
        let stack: Vec<&Frame> = profile.stack(entry).collect();
        let own = stack.iter().position(|frame| frame.kind == "task");
        let own = own.filter(|place| stack[*place].label == label);
        let Some(own) = own else { continue };
        let frames = stack[..own].to_vec();
        let seconds = entry.weight_s();
        match &mut found {
            None => {
                found = Some(Shown {
                    frames,
                    below: stack[own + 1..].to_vec(),
                    tid: profile.threads[entry.thread].tid,
                    seconds,
                });
            }
            Some(shown) => {
                let same = |a: &[&Frame], b: &[&Frame]| {
                    a.iter()
                        .map(|it| &it.label)
                        .eq(b.iter().map(|it| &it.label))
                };
                ensure!(
                    same(&shown.frames, &frames) && same(&shown.below, &stack[own + 1..]),
                    "it has another stack at another time"
                );
                shown.seconds += seconds;
            }
        }
    }
    found.context("it is not there")
}

fn function(frame: &Frame) -> &str {
    frame.label.split(" (").next().unwrap_or_default()
}

fn check_kind(python: &Python, arguments: &[&str]) -> Result<()> {
    let mut target = Target::start(python, "tasks.py", arguments)?;
    let told: Vec<Told> = serde_json::from_value(target.ready()["tasks"].clone())?;
    let options = ["--tasks=tree", "--mode", "wall", "-d", "1"];
    let profile = Running::in_detail(target.pid(), &options)?
        .finish()?
        .success()?
        .profile()?;
    let tasks = profile.ledger.tasks.as_ref().context("no tasks")?;
    ensure!(
        tasks.estimated * 4 < tasks.samples && tasks.unreadable.is_empty() && tasks.unchanged > 0,
        "{tasks:?}"
    );
    let of_one = profile.entries.iter().map(Entry::weight_s).sum::<f64>() / told.len() as f64;
    ensure!(
        of_one > 0.5 * profile.ledger.duration_s,
        "each has {of_one} s: {tasks:?}"
    );
    for truth in told.iter().filter(|it| !it.name.starts_with("Task-")) {
        check(&profile, truth, of_one).with_context(|| format!("{truth:?}"))?;
    }
    target.tell("go")?;
    target.expect("running")?;
    target.tell("stop")?;
    target.done().map(|_| ())
}

fn check(profile: &Profile, truth: &Told, of_one: f64) -> Result<()> {
    let shown = shown(profile, &truth.name)?;
    ensure!(
        (shown.seconds - of_one).abs() < 0.02 * of_one,
        "{} s, the others have {of_one} s",
        shown.seconds
    );
    ensure!(shown.tid == truth.tid, "its loop's thread is {}", shown.tid);
    if truth.state != "running" {
        let frames: Vec<&str> = shown.frames.iter().map(|frame| function(frame)).collect();
        let chain: Vec<&str> = truth.chain.iter().map(|(name, _)| &**name).collect();
        ensure!(frames == chain, "its frames are {frames:?}");
    }
    let mut below = shown.below.iter().filter(|frame| frame.kind == "task");
    let below = below.next().map(|frame| &*frame.label);
    let expected = match truth.awaited_by.as_slice() {
        [] => None,
        // A task of Python's goes by the name that its program gave it.
        [one] if one.starts_with("Task-") => return Ok(()),
        [one] => Some(format!("[task {one}]")),
        several => Some(format!("[awaited by {} tasks]", several.len())),
    };
    ensure!(below == expected.as_deref(), "below it is {below:?}");
    Ok(())
}

fn tasks_stand_on_those_that_await_them(python: &Python) -> Result<()> {
    let eager = (python.minor() >= (3, 12)).then_some("eager");
    for kind in ["c", "python"].into_iter().chain(eager) {
        check_kind(python, &[kind]).with_context(|| format!("tasks of kind `{kind}`"))?;
    }
    Ok(())
}

on_each! {
    Rung::Kernel, tasks_stand_on_those_that_await_them;
    tasks_stand_on_those_that_await_them_on_3_8: 8;
    tasks_stand_on_those_that_await_them_on_3_9: 9;
    tasks_stand_on_those_that_await_them_on_3_10: 10;
    tasks_stand_on_those_that_await_them_on_3_11: 11;
    tasks_stand_on_those_that_await_them_on_3_12: 12;
    tasks_stand_on_those_that_await_them_on_3_13: 13;
    tasks_stand_on_those_that_await_them_on_3_14: 14;
    tasks_stand_on_those_that_await_them_on_3_15: 15;
}

#[test]
fn tasks_of_uvloop_stand_on_those_that_await_them() -> Result<()> {
    let Some(python) = rung::reached(Rung::Kernel).then(pythons::any).flatten() else {
        return Ok(());
    };
    let Some(packages) = pythons::packages(python, "uvloop") else {
        leave_out("there is no uvloop: run `cargo xtask setup`");
        return Ok(());
    };
    check_kind(python, &["uvloop", &packages])
}
