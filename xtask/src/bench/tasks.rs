//! Asyncio tasks: whether their time is told right, and what telling it costs.

use std::time::Instant;

use anyhow::{Context, Result};
use tests::profiler::Running;
use tests::pythons::{self, Python};
use tests::target::Target;
use tests::tasks::{self, Told};

use super::meter::Spent;
use super::report::{Bound, Report};
use super::{Setting, measure};

/// Percent of a CPU that ten thousand tasks that wait may cost.
const IDLE: f64 = 5.0;
/// How much longer a program may take that does nothing but make tasks.
const STORM: f64 = 1.02;

pub(super) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    for python in &setting.pythons {
        for (what, check) in [
            (
                "queue",
                queue as fn(&Setting, &Python, &mut Report) -> Result<()>,
            ),
            ("turns", turns),
        ] {
            if let Err(error) = check(setting, python, report) {
                report.failed(&error.context(format!("{what} on {}", python.label)));
            }
        }
    }
    for python in setting
        .pythons
        .iter()
        .filter(|python| !python.free_threaded)
    {
        if let Err(error) = gevent(setting, python, report) {
            report.failed(&error.context(format!("gevent on {}", python.label)));
        }
    }
    crowd(setting, report).context("a crowd that works")?;
    storm(setting, report).context("a storm")?;
    for moves in [false, true] {
        idle(setting, moves, report).context("tasks that wait")?;
    }
    Ok(())
}

fn told(python: &Python, arguments: &[&str], options: &[&str]) -> Result<Told> {
    tasks::told(python, "task_time.py", arguments, options)
}

/// 1,024 tasks that wait for one queue beside one that works: which share of all tasks' time is in
/// the queue, in tasks.
fn queue(setting: &Setting, python: &Python, report: &mut Report) -> Result<()> {
    let options = ["--tasks", "--mode", "wall", "-r", "99"];
    let told = told(python, &["queue", "1024", setting.pick("2", "8")], &options)?;
    let waiting = told
        .seconds(|entry| told.task(entry) == Some("getter") && told.profile.is_in(entry, "get"));
    let tasks = 1025.0 * waiting / told.seconds(|_| true);
    let case = format!("1,024 of 1,025 wait, {}", python.label);
    let off = (tasks - 1024.0).abs();
    report.bounded(
        &case,
        "shown in the queue, off by",
        off,
        "tasks",
        Bound::AtMost(1.0),
    );
    let tasks = told.profile.ledger.tasks.as_ref().context("no tasks")?;
    let share = 100.0 * tasks.estimated as f64 / tasks.samples.max(1) as f64;
    report.plain(&case, "read while the loop ran", share, "% of samples");
    Ok(())
}

/// Tasks that take turns: each one's share of the thread's time, and whether any sample is another's.
fn turns(setting: &Setting, python: &Python, report: &mut Report) -> Result<()> {
    let options = ["--tasks", "-r", "997"];
    let told = told(python, &["turns", setting.pick("2", "8")], &options)?;
    let all = told.spent("all")?;
    let mut worst: f64 = 0.0;
    for task in ["heavy", "light", "another"] {
        let sampled = told.seconds(|entry| told.task(entry) == Some(task));
        worst = worst.max((sampled - told.spent(task)?).abs() / all);
    }
    let case = format!("three by turns, {}", python.label);
    report.plain(&case, "the worst task is off by", 100.0 * worst, "points");
    let mut of_another = 0;
    for entry in &told.profile.entries {
        for (function, other) in [("of_heavy", "light"), ("of_light", "heavy")] {
            if told.profile.is_in(entry, function) && told.task(entry) == Some(other) {
                of_another += entry.ticks;
            }
        }
    }
    let bound = Bound::Exactly(0.0);
    report.bounded(
        &case,
        "given to another task",
        of_another as f64,
        "samples",
        bound,
    );
    Ok(())
}

/// A gevent server under load: its handlers' time by the names of their greenlets, and that of all
/// greenlets and none beside the thread's clock.
fn gevent(setting: &Setting, python: &Python, report: &mut Report) -> Result<()> {
    let packages = pythons::packages(python, "gevent").context("there is no gevent")?;
    let arguments = [&*packages, "server", "24", setting.pick("1.5", "6")];
    let options = ["--tasks", "-r", "997"];
    let told = tasks::told(python, "greenlets.py", &arguments, &options)?;
    let all = told.spent("all")?;
    let sum = told.profile.seconds(told.tid()?, |_| true);
    let case = format!("a gevent server, {}", python.label);
    let off = 100.0 * (sum / all - 1.0).abs();
    let bound = Bound::AtMost(2.0);
    report.bounded(
        &case,
        "all greenlets and none, off by",
        off,
        "% of the thread's",
        bound,
    );
    let mut worst: f64 = 0.0;
    for name in ["serves 0", "serves 1", "serves 2"] {
        let sampled = told
            .seconds(|entry| told.task(entry) == Some(name) && told.profile.is_in(entry, "work"));
        worst = worst.max((sampled - told.spent(name)?).abs() / all);
    }
    report.plain(
        &case,
        "the worst handler is off by",
        100.0 * worst,
        "points",
    );
    Ok(())
}

/// 4,096 tasks that work by turns, and one that waits.
fn crowd(setting: &Setting, report: &mut Report) -> Result<()> {
    let python = setting.python()?;
    let arguments = ["crowd", "4096", setting.pick("3", "10")];
    let cpu = told(python, &arguments, &["--tasks", "-r", "997"])?;
    let spent = cpu.spent("takes_turns")?;
    let sampled = cpu.seconds(|entry| cpu.task(entry) == Some("takes_turns"));
    let all = cpu.spent("all")?;
    let case = "4,096 work, one waits";
    let points = 100.0 * (sampled - spent) / all;
    report.plain(case, "cpu: the tasks' time is off by", points, "points");
    let sum = 100.0 * cpu.seconds(|_| true) / all;
    report.plain(case, "cpu: samples of all", sum, "% of the thread's");
    let wall = told(python, &arguments, &["--tasks", "--mode", "wall"])?;
    let works = wall.seconds(|entry| wall.task(entry) == Some("takes_turns"));
    let share = 100.0 * works / wall.seconds(|_| true);
    report.plain(case, "wall: in those that work", share, "% of samples");
    Ok(())
}

/// Tasks made as fast as they can be: how much longer 65,536 of them take.
fn storm(setting: &Setting, report: &mut Report) -> Result<()> {
    let python = setting.python()?;
    let sides = [None, None, Some("cpu"), Some("wall")];
    let case = "65,536 short tasks beside one that works";
    let mut ledgers = Vec::new();
    let ratios = measure::ratios(&sides, setting.pick(3, 9), |mode| {
        let mut target = Target::start(python, "task_time.py", &["storm", "65536", "0"])?;
        let options = |mode| ["--tasks", "--mode", mode];
        let profiler = mode.map(|mode| Running::on(target.pid(), &options(mode)));
        let mut profiler = profiler.transpose()?;
        if let Some(profiler) = &mut profiler {
            profiler.attached()?;
        }
        let began = Instant::now();
        target.tell("go")?;
        let done = target.expect("done")?;
        let took = began.elapsed().as_secs_f64();
        let made = done["made"].as_f64().context("how many")?;
        if let Some(profiler) = profiler {
            ledgers.push((made, profiler.stop()?.ledger()?));
        }
        target.tell("end")?;
        Ok(took / made)
    })?;
    for (mode, ratios) in sides.iter().zip(&ratios).skip(1) {
        let name = mode.map_or("nobody".to_owned(), |mode| format!("profiler, {mode}"));
        let ratio = measure::median(ratios);
        match mode {
            Some(_) => report.bounded(case, &name, ratio, "×", Bound::AtMost(STORM)),
            None => report.plain(case, &name, ratio, "×"),
        }
        report.plain(
            case,
            &format!("{name}: spread"),
            measure::spread(ratios),
            "×",
        );
    }
    for (made, ledger) in ledgers
        .iter()
        .filter(|(_, ledger)| ledger.mode == "wall")
        .take(1)
    {
        let tasks = ledger.tasks.as_ref().context("no tasks")?;
        let unread: u64 = tasks.unreadable.values().sum();
        let all = tasks.samples.max(1) as f64;
        report.plain(
            case,
            "wall: unreadable",
            100.0 * unread as f64 / all,
            "% of samples",
        );
        let unseen = 100.0 * tasks.between_looks as f64 / made;
        report.plain(
            case,
            "wall: born and over between two looks",
            unseen,
            "% of tasks",
        );
    }
    Ok(())
}

/// 10,000 tasks that wait, alone or beside one that takes its turn a hundred times a second.
fn idle(setting: &Setting, moves: bool, report: &mut Report) -> Result<()> {
    let python = setting.python()?;
    let mut target = Target::start(python, "many_tasks.py", &["10000"])?;
    target.tell("go")?;
    target.expect("running")?;
    let mut costs = Vec::new();
    for _ in 0..setting.pick(1, 5) {
        let options = ["--tasks", "--mode", "wall", "-r", "99"];
        let mut profiler = Running::on(target.pid(), &options)?;
        profiler.attached()?;
        measure::wait(2.0);
        let (before, began) = (Spent::by(profiler.pid())?, Instant::now());
        let seconds = setting.pick(3.0, 10.0);
        while began.elapsed().as_secs_f64() < seconds {
            if moves {
                target.tell("turn")?;
            }
            measure::wait(0.01);
        }
        let took = began.elapsed().as_secs_f64();
        costs.push(100.0 * Spent::by(profiler.pid())?.since(before, took)?);
        profiler.stop()?;
    }
    target.tell("end")?;
    let case = if moves {
        "10,000 wait, one takes turns"
    } else {
        "10,000 wait"
    };
    let cost = measure::median(&costs);
    report.bounded(case, "profiler", cost, "% of CPU", Bound::AtMost(IDLE));
    Ok(())
}
