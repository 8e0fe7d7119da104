//! Processes that do what few do: several interpreters, no first thread, no `sys`.

use anyhow::{Context, Result, bail, ensure};
use tests::profiler::Running;
use tests::pythons;
use tests::rung::{self, Rung};
use tests::target::Target;

use crate::{
    Way, dumped, functions, is_profiled, on_every_python, with_all_rights, with_few_rights,
};

#[test]
fn several_interpreters_with_a_gil_each_are_all_profiled() -> Result<()> {
    on_every_python(|python| {
        if python.minor() < (3, 12) {
            return Ok(());
        }
        let mut target = Target::start(python, "sub_interpreters.py", &[])?;
        target.tell("go")?;
        target.expect("running")?;
        let pid = target.pid().to_string();
        let names = ["first", "second", "third"];
        wait_until(|| {
            let dump = dumped(&pid, with_all_rights)?;
            let inner = |name: &&str| {
                let functions = functions(&dump, name).unwrap_or_default();
                functions.contains(&format!("inner_{name}"))
            };
            Ok(names.iter().all(inner))
        })?;
        if !rung::must_run(Rung::Kernel) {
            return Ok(());
        }
        let finished = Running::on(target.pid(), &["-r", "499", "-d", "1s"])?;
        let folded = finished.finish()?.success()?.folded()?;
        let all = folded.total();
        let each = ["inner_first", "inner_second"].map(|name| folded.with(name));
        ensure!(
            each.iter().all(|with| *with > 0) && (each[0] + each[1]) * 100 >= all * 95,
            "they have {each:?} of {all} samples"
        );
        // Regression: a thread off the CPU had the frames of the interpreter it was in first.
        let options = ["-m", "wall", "-r", "199", "-d", "1s", "--threads"];
        let finished = Running::on(target.pid(), &options)?.finish()?.success()?;
        for name in names {
            let (mut inner, mut all) = (0, 0);
            for stack in &finished.folded()?.stacks {
                let is_its = stack.frames.first().is_some_and(|thread| {
                    let called = thread.split_once(" (").map(|it| it.0);
                    called == Some(name)
                });
                let is_in = |function: &str| {
                    let mut frames = stack.frames.iter();
                    frames.any(|frame| frame.starts_with(&format!("{function} (")))
                };
                all += if is_its { stack.count } else { 0 };
                inner += if is_its && is_in(&format!("inner_{name}")) {
                    stack.count
                } else {
                    0
                };
            }
            ensure!(inner * 10 >= all * 9, "{name}: {inner} of {all} ns");
        }
        Ok(())
    })
}

/// Asked again until it is so, and not for ever.
fn wait_until(mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let started = std::time::Instant::now();
    while !is_so()? {
        if started.elapsed().as_secs() > 60 {
            bail!("it never came to be");
        }
    }
    Ok(())
}

#[test]
fn a_process_whose_first_thread_has_ended_is_alive() -> Result<()> {
    on_every_python(|python| {
        let mut target = Target::start(python, "main_thread_exits.py", &[])?;
        target.tell("go")?;
        target.expect("running")?;
        let pid = target.pid().to_string();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        ensure!(stat.contains(") Z "), "its first thread lives: {stat}");
        for way in [with_all_rights as Way, with_few_rights] {
            // It has said that the other may spin; where there is no GIL, neither waits for that.
            wait_until(|| {
                let dump = dumped(&pid, way)?;
                let is_in = |thread: &str, function: &str| -> Result<bool> {
                    Ok(functions(&dump, thread)?.contains(&function.to_owned()))
                };
                Ok(is_in("spin_when_told", "spin")? && is_in("read", "read")?)
            })?;
        }
        is_profiled(target.pid(), "spin")?;
        target.tell("stop")?;
        target.done()?;
        Ok(())
    })
}

/// Regression: the search for the interpreter waited for ever for a page of shared memory.
#[test]
fn memory_whose_pages_never_come_is_not_waited_for() -> Result<()> {
    on_every_python(|python| {
        let mut target = Target::start(python, "absent_pages.py", &[])?;
        if target.ready()["absent"] != true {
            rung::leave_out("this machine has no memory whose pages another brings");
            return Ok(());
        }
        let dump = dumped(&target.pid().to_string(), with_all_rights)?;
        ensure!(!functions(&dump, "MainThread")?.is_empty(), "{dump}");
        target.tell("go")?;
        target.done()?;
        Ok(())
    })
}

/// And it is over when its last thread is: the profile is written, and says so.
#[test]
fn the_end_of_a_process_whose_first_thread_has_ended_is_seen() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(python) = pythons::any() else {
        return Ok(());
    };
    let mut target = Target::start(python, "main_thread_exits.py", &[])?;
    let mut running = Running::on(target.pid(), &["-r", "499"])?;
    running.attached()?;
    target.tell("go")?;
    target.expect("running")?;
    target.tell("stop")?;
    target.done()?;
    let finished = running.finish()?.success()?;
    ensure!(finished.stderr.contains("the target ended"), "{finished:?}");
    Ok(())
}

#[test]
fn a_program_without_sys_among_its_modules_is_no_other() -> Result<()> {
    on_every_python(|python| {
        let mut target = Target::start(python, "without_sys.py", &[])?;
        target.tell("go")?;
        target.expect("running")?;
        let dump = dumped(&target.pid().to_string(), with_all_rights)?;
        let threads = dump["threads"].as_array().context("threads")?;
        let spins = threads.iter().any(|thread| {
            let frames = thread["frames"].as_array().into_iter().flatten();
            frames.clone().any(|frame| frame["function"] == "spin")
        });
        ensure!(spins, "{dump}");
        is_profiled(target.pid(), "spin")
    })
}
