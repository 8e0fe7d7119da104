//! `run --tasks`: each task's time is its own, on the loop's thread by ticks and on the wall by
//! snapshots of all that are alive, and a task that runs has the root frame of the same that waits.

use anyhow::{Context, Result, ensure};
use tests::on_each;
use tests::pythons::{self, Python};
use tests::rung::{self, Rung};
use tests::tasks::{self, Told};

fn told(python: &Python, arguments: &[&str], options: &[&str]) -> Result<Told> {
    tasks::told(python, "task_time.py", arguments, options)
}

fn each_has_its_own(python: &Python) -> Result<()> {
    let told = told(python, &["turns", "4"], &["--tasks", "-r", "997"])?;
    told.has_one_root()?;
    let thread = told.tid()?;
    let own = told.spent("all")?;
    // What no task had is the loop's: together they are the thread's.
    let all = told.profile.seconds(thread, |_| true);
    ensure!(
        (all - own).abs() <= 0.01 * own + 0.05 + told.stolen_s,
        "{all:.3} s of samples, by its own clock {own:.3} s, {:.3} s stolen",
        told.stolen_s
    );
    for task in ["heavy", "light", "another"] {
        let spent = told.spent(task)?;
        let sampled = told.seconds_of(task);
        ensure!(
            (sampled - spent).abs() <= 0.04 * own + told.stolen_s,
            "{task}: {sampled:.3} s of samples, by its own clock {spent:.3} s of {own:.3} s"
        );
    }
    let tasks = told.profile.ledger.tasks.as_ref().context("no tasks")?;
    let mut seen = 0;
    for entry in &told.profile.entries {
        for (function, task) in [("of_heavy", "heavy"), ("of_light", "light")] {
            if !told.profile.is_in(entry, function) {
                continue;
            }
            let labels: Vec<_> = told.profile.stack(entry).map(|it| &*it.label).collect();
            if told.task(entry) == Some("takes_turns") {
                // It could not be asked for its name.
                ensure!(entry.ticks <= tasks.by_coroutine, "{labels:?}: {tasks:?}");
                continue;
            }
            // The function that only this task calls, below all that the task awaits.
            seen += entry.ticks;
            ensure!(told.task(entry) == Some(task), "{labels:?}");
            let has = |name: &str| told.profile.is_in(entry, name);
            ensure!(
                ["inner", "middle", "takes_turns"].into_iter().all(has),
                "{labels:?}"
            );
        }
    }
    ensure!(
        seen > 500 && tasks.by_coroutine < seen / 4,
        "{seen} samples: {tasks:?}"
    );
    Ok(())
}
on_each! {
    Rung::Kernel, each_has_its_own;
    each_task_has_its_own_time_on_3_8: 8;
    each_task_has_its_own_time_on_3_9: 9;
    each_task_has_its_own_time_on_3_10: 10;
    each_task_has_its_own_time_on_3_11: 11;
    each_task_has_its_own_time_on_3_12: 12;
    each_task_has_its_own_time_on_3_13: 13;
    each_task_has_its_own_time_on_3_14: 14;
    each_task_has_its_own_time_on_3_15: 15;
}

fn those_that_wait_are_there(python: &Python) -> Result<()> {
    const TASKS: f64 = 1024.0;
    let options = ["--tasks", "--mode", "wall", "-r", "97"];
    let told = told(python, &["queue", "1024", "3"], &options)?;
    told.has_one_root()?;
    let all = told.seconds(|_| true);
    let waiting = told.seconds(|entry| {
        told.task(entry) == Some("getter")
            && entry.is_blocked_in("await")
            && (told.profile.is_in(entry, "get") || told.profile.is_in(entry, "Queue.get"))
    });
    let share = waiting / all;
    ensure!(
        (share * (TASKS + 1.0) - TASKS).abs() <= 1.0,
        "{share:.6} of the time is in the queue: {:?}",
        told.profile.ledger
    );
    let busy = told.seconds(|entry| told.profile.is_in(entry, "producer"));
    let works = told.seconds(|entry| told.profile.is_in(entry, "work"));
    ensure!(busy > 0.0 && works > 0.25 * busy, "{works} of {busy}");
    Ok(())
}
on_each! {
    Rung::Kernel, those_that_wait_are_there;
    tasks_that_wait_are_there_on_3_8: 8;
    tasks_that_wait_are_there_on_3_9: 9;
    tasks_that_wait_are_there_on_3_10: 10;
    tasks_that_wait_are_there_on_3_11: 11;
    tasks_that_wait_are_there_on_3_12: 12;
    tasks_that_wait_are_there_on_3_13: 13;
    tasks_that_wait_are_there_on_3_14: 14;
    tasks_that_wait_are_there_on_3_15: 15;
}

/// A task that is started eagerly runs inside the one that makes it, and its time is its own.
fn eager_ones_have_their_own(python: &Python) -> Result<()> {
    let told = told(python, &["eager", "3"], &["--tasks", "-r", "997"])?;
    let own = told.spent("all")?;
    for task in ["works_at_once", "eager"] {
        let (spent, sampled) = (told.spent(task)?, told.seconds_of(task));
        ensure!(
            (sampled - spent).abs() <= 0.05 * own + told.stolen_s,
            "{task}: {sampled:.3} s of samples, by its own clock {spent:.3} s of {own:.3} s"
        );
    }
    Ok(())
}

on_each! {
    Rung::Kernel, eager_ones_have_their_own;
    eager_tasks_have_their_own_time_on_3_12: 12;
    eager_tasks_have_their_own_time_on_3_13: 13;
    eager_tasks_have_their_own_time_on_3_14: 14;
    eager_tasks_have_their_own_time_on_3_15: 15;
}

/// Tasks that run by turns have the loop's whole time on the CPU; all of them, and the one that
/// waits, live all the while.
#[test]
fn a_crowd_that_works_has_the_loops_time() -> Result<()> {
    let Some(python) = rung::reached(Rung::Kernel).then(pythons::any).flatten() else {
        return Ok(());
    };
    const TASKS: f64 = 4096.0;
    let cpu = told(python, &["crowd", "4096", "4"], &["--tasks", "-r", "997"])?;
    let spent = cpu.spent("takes_turns")?;
    let sampled = cpu.seconds_of("takes_turns");
    let own = cpu.spent("all")?;
    ensure!(
        sampled >= spent - 0.02 * own - cpu.stolen_s && sampled <= own + 0.05 + cpu.stolen_s,
        "{sampled:.3} s of samples, by its own clock {spent:.3} s of {own:.3} s"
    );
    let wall = told(
        python,
        &["crowd", "4096", "4"],
        &["--tasks", "--mode", "wall"],
    )?;
    let working = wall.seconds_of("takes_turns");
    let waiting = wall.seconds_of("waiter");
    let share = working / (working + waiting);
    ensure!(
        (share - TASKS / (TASKS + 1.0)).abs() < 0.001,
        "{working} s and {waiting} s"
    );
    Ok(())
}

/// Tasks that come and go as fast as they can: all that was seen of them is accounted for, and what
/// was not is said.
#[test]
fn a_storm_of_tasks_is_accounted_for() -> Result<()> {
    let Some(python) = rung::reached(Rung::Kernel).then(pythons::any).flatten() else {
        return Ok(());
    };
    for mode in ["cpu", "wall"] {
        let options = ["--tasks", "--mode", mode];
        let told = told(python, &["storm", "65536", "3"], &options)?;
        let made = told.done["made"].as_u64().context("how many")?;
        ensure!(made >= 65536, "{}", told.done);
        told.profile.ledger.balances()?;
        let tasks = told.profile.ledger.tasks.as_ref().context("no tasks")?;
        let ticks: u64 = told.profile.entries.iter().map(|it| it.ticks).sum();
        if mode == "wall" {
            let told = tasks.running + tasks.runnable + tasks.waiting;
            let unread: u64 = tasks.unreadable.values().sum();
            ensure!(ticks == tasks.samples, "{ticks}: {tasks:?}");
            ensure!(told + unread <= tasks.samples, "{tasks:?}");
            // They live for less than a period: nearly all are seen by nobody, and that is said.
            ensure!(
                tasks.between_looks > made / 2 && tasks.between_looks <= made,
                "{made} made: {tasks:?}"
            );
        } else {
            ensure!(tasks.samples <= ticks, "{ticks}: {tasks:?}");
            let spent = told.spent("producer")?;
            let sampled = told.seconds_of("producer");
            let own = told.spent("all")?;
            ensure!(
                (sampled - spent).abs() <= 0.05 * own + told.stolen_s,
                "{sampled:.3} s of samples, by its own clock {spent:.3} s of {own:.3} s"
            );
        }
    }
    Ok(())
}
