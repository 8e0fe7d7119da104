//! Greenlets and gevent: `dump --tasks` shows those that are suspended with their stacks, and
//! `run --tasks` gives each its own time. The truth is what the greenlets say of themselves.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;
use tests::on_each;
use tests::profile::Entry;
use tests::profiler::Running;
use tests::pythons::{self, Python};
use tests::rung::{Rung, leave_out};
use tests::target::Target;
use tests::tasks::{self, Told};

/// A greenlet by its target's own account, and as `dump --tasks --json` has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Greenlet {
    kind: String,
    name: Option<String>,
    state: String,
    /// Functions and lines, leaf first.
    chain: Vec<(String, u64)>,
    tid: u64,
}

/// Where the target finds greenlet and gevent; builds without a GIL have none that is read.
fn packages(python: &Python) -> Option<String> {
    if python.free_threaded {
        return None;
    }
    let found = pythons::packages(python, "gevent");
    if found.is_none() {
        let label = &python.label;
        leave_out(&format!(
            "there is no gevent for {label}: run `cargo xtask setup`"
        ));
    }
    found
}

fn dumped(target: &Target) -> Result<Vec<Greenlet>> {
    let tasks = tasks::at_rest(target)?;
    let read = |task: &Value| -> Result<Greenlet> {
        let text = |key: &str| task[key].as_str().map(str::to_owned);
        let frames = task["frames"].as_array().context("no frames")?;
        let frames = frames.iter().map(|frame| {
            let function = frame["function"].as_str().unwrap_or_default();
            (function.to_owned(), frame["line"].as_u64().unwrap_or(0))
        });
        Ok(Greenlet {
            kind: text("kind").context("of no kind")?,
            name: text("name"),
            state: text("state").context("in no state")?,
            chain: frames.collect(),
            tid: task["thread"]["tid"].as_u64().context("in no thread")?,
        })
    };
    tasks.iter().map(read).collect()
}

fn are_as_their_program_says(python: &Python) -> Result<()> {
    let Some(packages) = packages(python) else {
        return Ok(());
    };
    let mut target = Target::start(python, "greenlets.py", &[&packages, "still"])?;
    let mut told: Vec<Greenlet> = serde_json::from_value(target.ready()["greenlets"].clone())?;
    ensure!(told.len() == 10, "{told:?}");
    // In each thread one more tells; its stack is its thread's.
    let mut tids: Vec<u64> = told.iter().map(|one| one.tid).collect();
    tids.sort_unstable();
    tids.dedup();
    told.extend(tids.into_iter().map(|tid| Greenlet {
        kind: "greenlet".into(),
        name: None,
        state: "running".into(),
        chain: Vec::new(),
        tid,
    }));
    let mut shown = dumped(&target)?;
    told.sort();
    shown.sort();
    ensure!(
        told == shown,
        "it has {told:#?}, and these are shown: {shown:#?}"
    );
    target.tell("go")?;
    target.expect("running")?;
    target.tell("stop")?;
    target.done().map(|_| ())
}
on_each! {
    Rung::Live, are_as_their_program_says;
    greenlets_are_as_their_program_says_on_3_8: 8;
    greenlets_are_as_their_program_says_on_3_9: 9;
    greenlets_are_as_their_program_says_on_3_10: 10;
    greenlets_are_as_their_program_says_on_3_11: 11;
    greenlets_are_as_their_program_says_on_3_12: 12;
    greenlets_are_as_their_program_says_on_3_13: 13;
    greenlets_are_as_their_program_says_on_3_14: 14;
    greenlets_are_as_their_program_says_on_3_15: 15;
}

fn told(python: &Python, arguments: &[&str], options: &[&str]) -> Result<Told> {
    let told = tasks::told(python, "greenlets.py", arguments, options)?;
    told.has_one_root()?;
    Ok(told)
}

/// Each tick is of one greenlet or of none: together they are the thread's time.
fn is_conserved(told: &Told) -> Result<()> {
    let own = told.spent("all")?;
    let all = told.profile.seconds(told.tid()?, |_| true);
    ensure!(
        (all - own).abs() <= 0.02 * own + 0.02 + told.stolen_s,
        "{all:.3} s of samples, by its own clock {own:.3} s, {:.3} s stolen",
        told.stolen_s
    );
    Ok(())
}

/// What is sampled in a function below a greenlet's name is what its own clock says.
fn has_spent(told: &Told, name: &str, greenlet: Option<&str>, function: &str) -> Result<()> {
    let (own, spent) = (told.spent("all")?, told.spent(name)?);
    let sampled = told.profile.seconds(told.tid()?, |entry| {
        told.task(entry) == greenlet && told.profile.is_in(entry, function)
    });
    ensure!(
        (sampled - spent).abs() <= 0.05 * own + told.stolen_s,
        "{name}: {sampled:.3} s of samples, by its own clock {spent:.3} s of {own:.3} s"
    );
    Ok(())
}

fn each_has_its_own(python: &Python) -> Result<()> {
    let Some(packages) = packages(python) else {
        return Ok(());
    };
    let arguments = [&*packages, "turns", "1.5"];
    let told = told(python, &arguments, &["--tasks", "-r", "997"])?;
    is_conserved(&told)?;
    has_spent(&told, "heavy", Some("heavy"), "of_heavy")?;
    has_spent(&told, "light", Some("light"), "of_light")?;
    // It is born and over in a moment: its first function's name stands for it.
    has_spent(&told, "passes", Some("passes"), "work")?;
    // The main greenlet is the thread.
    has_spent(&told, "main", None, "turns")?;
    for entry in told.profile.of(told.tid()?) {
        for (function, name) in [("of_heavy", "heavy"), ("of_light", "light")] {
            let of = told.task(entry);
            let is_right = of == Some(name) || of == Some("takes_turns");
            ensure!(
                is_right || !told.profile.is_in(entry, function),
                "{function} in {of:?}"
            );
        }
    }
    Ok(())
}
on_each! {
    Rung::Kernel, each_has_its_own;
    each_greenlet_has_its_own_time_on_3_8: 8;
    each_greenlet_has_its_own_time_on_3_9: 9;
    each_greenlet_has_its_own_time_on_3_10: 10;
    each_greenlet_has_its_own_time_on_3_11: 11;
    each_greenlet_has_its_own_time_on_3_12: 12;
    each_greenlet_has_its_own_time_on_3_13: 13;
    each_greenlet_has_its_own_time_on_3_14: 14;
    each_greenlet_has_its_own_time_on_3_15: 15;
}

fn a_server_is_conserved(python: &Python) -> Result<()> {
    let Some(packages) = packages(python) else {
        return Ok(());
    };
    let arguments = [&*packages, "server", "24", "1.5"];
    let told = told(python, &arguments, &["--tasks", "-r", "997"])?;
    is_conserved(&told)?;
    for name in ["serves 0", "serves 1", "serves 2"] {
        has_spent(&told, name, Some(name), "work")?;
    }
    Ok(())
}
on_each! {
    Rung::Kernel, a_server_is_conserved;
    a_gevent_servers_time_is_its_greenlets_on_3_8: 8;
    a_gevent_servers_time_is_its_greenlets_on_3_9: 9;
    a_gevent_servers_time_is_its_greenlets_on_3_10: 10;
    a_gevent_servers_time_is_its_greenlets_on_3_11: 11;
    a_gevent_servers_time_is_its_greenlets_on_3_12: 12;
    a_gevent_servers_time_is_its_greenlets_on_3_13: 13;
    a_gevent_servers_time_is_its_greenlets_on_3_14: 14;
    a_gevent_servers_time_is_its_greenlets_on_3_15: 15;
}

fn those_that_are_suspended_wait(python: &Python) -> Result<()> {
    let Some(packages) = packages(python) else {
        return Ok(());
    };
    let target = Target::start(python, "greenlets.py", &[&packages, "still"])?;
    let options = ["--tasks", "--mode", "wall", "-r", "97", "-d", "1s"];
    let profile = Running::in_detail(target.pid(), &options)?
        .finish()?
        .profile()?;
    let seconds = |label: &str, reason: Option<&str>| -> f64 {
        let entries = profile.entries.iter().filter(|entry| {
            let mut frames = profile.stack(entry);
            frames.any(|frame| frame.kind == "task" && frame.label == format!("[task {label}]"))
                && reason.is_none_or(|reason| entry.is_blocked_in(reason))
        });
        entries.map(Entry::weight_s).sum()
    };
    let all: f64 = profile.entries.iter().map(Entry::weight_s).sum();
    let each = all / 12.0;
    let tasks = profile.ledger.tasks.as_ref().context("no tasks")?;
    for (label, reason, number) in [
        ("named a", Some("await"), 1.0),
        ("named b", Some("await"), 1.0),
        ("first", Some("await"), 4.0),
        ("parks", Some("lock"), 2.0),
        ("greenlet.greenlet", None, 2.0),
    ] {
        let sampled = seconds(label, reason);
        ensure!(
            each > 0.0 && (sampled / each - number).abs() < 0.01,
            "{label}: {sampled} s of {all} s: {tasks:?}"
        );
    }
    Ok(())
}
on_each! {
    Rung::Kernel, those_that_are_suspended_wait;
    greenlets_that_are_suspended_are_there_on_3_8: 8;
    greenlets_that_are_suspended_are_there_on_3_9: 9;
    greenlets_that_are_suspended_are_there_on_3_10: 10;
    greenlets_that_are_suspended_are_there_on_3_11: 11;
    greenlets_that_are_suspended_are_there_on_3_12: 12;
    greenlets_that_are_suspended_are_there_on_3_13: 13;
    greenlets_that_are_suspended_are_there_on_3_14: 14;
    greenlets_that_are_suspended_are_there_on_3_15: 15;
}
