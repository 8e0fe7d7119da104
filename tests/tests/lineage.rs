//! Who is followed, from when and until when: rung 3, root and eBPF. No share of time is judged, so
//! these hold on a machine of any speed.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use tests::profiler::Running;
use tests::pythons::{self, Python};
use tests::rung::{self, Rung};
use tests::target::{self, Target};

const FAST: &[&str] = &["--subprocesses", "-r", "999"];

fn any() -> Option<&'static Python> {
    rung::reached(Rung::Kernel).then(pythons::any).flatten()
}

/// Every way in which a process comes, and how many rows it makes beside the first one's.
const WAYS: &[(&str, usize)] = &[
    ("prefork", 4),
    ("chain", 2),
    ("orphan", 2),
    ("thread_exec", 1),
    ("thread_fork", 1),
];

#[test]
fn every_child_has_a_row_with_its_parent_its_end_and_its_work() -> Result<()> {
    let Some(python) = any() else {
        return Ok(());
    };
    for (way, children) in WAYS {
        let mut target = Target::start(python, "family.py", &[way])?;
        let mut profiler = Running::on(target.pid(), FAST)?;
        profiler.attached()?;
        target.tell("go")?;
        target.expect("done")?;
        let finished = profiler.finish()?.success()?;
        let ledger = finished.ledger()?;
        ledger.balances().context(*way)?;
        let (root, rest) = ledger.processes.split_first().context("no process")?;
        ensure!(rest.len() == *children, "{way}: {:?}", ledger.processes);
        ensure!(root.parent.is_none(), "{way}: {root:?}");
        for row in rest {
            let known = |pid| ledger.processes.iter().any(|it| it.pid == pid);
            ensure!(row.parent.is_some_and(known), "{way}: {row:?}");
            ensure!(row.ended_by.as_deref() == Some("exit 0"), "{way}: {row:?}");
            ensure!(row.scheduler_ns > Some(0), "{way}: {row:?}");
        }
        let works = rest.iter().any(|row| row.samples > 100);
        ensure!(works, "{way}: {:?}", ledger.processes);
    }
    Ok(())
}

#[test]
fn the_run_ends_with_the_last_process_and_the_commands_own_status() -> Result<()> {
    let Some(python) = any() else {
        return Ok(());
    };
    let (_folder, script) = target::lay_out(python, "family.py")?;
    let family = target::command(python, &script, &["orphan"]);
    let check = |line: &str, arguments: &[&str], status: i32, processes: usize| -> Result<()> {
        let mut words = vec!["-c".to_owned(), line.to_owned(), "sh".to_owned()];
        words.push(family.get_program().to_string_lossy().into_owned());
        words.extend(
            family
                .get_args()
                .map(|it| it.to_string_lossy().into_owned()),
        );
        let mut command = Command::new("sh");
        command.args(words);
        let finished = Running::of(&command, arguments)?.finish()?;
        ensure!(
            finished.status.code() == Some(status),
            "{:?}: {}",
            finished.status,
            finished.stderr
        );
        let ledger = finished.ledger()?;
        ledger.balances()?;
        let ended = ledger.processes.iter().filter(|it| it.ended_s.is_some());
        ensure!(ended.count() == processes, "{:?}", ledger.processes);
        Ok(())
    };
    // The shell leaves its Python behind, which makes a child, which makes another.
    check(r#""$@" >/dev/null & exit 7"#, FAST, 7, 4)?;
    check(r#""$@" >/dev/null; exit 5"#, FAST, 5, 4)?;
    Ok(())
}

#[test]
fn children_are_nobody_where_they_are_not_asked_for() -> Result<()> {
    let Some(python) = any() else {
        return Ok(());
    };
    let mut target = Target::start(python, "family.py", &["prefork"])?;
    let mut profiler = Running::on(target.pid(), &["-r", "999"])?;
    profiler.attached()?;
    target.tell("go")?;
    target.expect("done")?;
    let finished = profiler.finish()?.success()?;
    let ledger = finished.ledger()?;
    ledger.balances()?;
    ensure!(ledger.processes.len() == 1, "{:?}", ledger.processes);
    for role in ["first", "second", "third", "late"] {
        ensure!(finished.folded()?.with(role) == 0, "`{role}` has samples");
    }
    Ok(())
}

#[test]
fn children_for_whom_there_is_no_room_are_counted() -> Result<()> {
    let Some(python) = any() else {
        return Ok(());
    };
    const ROOM: u64 = 1024;
    let count = ROOM + 100;
    let mut target = Target::start(python, "crowd.py", &[&count.to_string()])?;
    // No birth is to be lost, however slow the machine is.
    let options = ["--subprocesses", "-r", "49", "--ring-bytes", "16777216"];
    let mut profiler = Running::on(target.pid(), &options)?;
    profiler.attached()?;
    target.tell("go")?;
    target.expect("running")?;
    target.tell("end")?;
    target.expect("done")?;
    target.tell("end")?;
    let finished = profiler.finish()?.success()?;
    let ledger = finished.ledger()?;
    ledger.balances()?;
    ensure!(
        ledger.not_followed == count + 1 - ROOM,
        "{} not followed",
        ledger.not_followed
    );
    ensure!(
        ledger.processes.len() as u64 == ROOM,
        "{} processes: {}",
        ledger.processes.len(),
        finished.stderr
    );
    ensure!(
        finished.stderr.contains("101 children were not followed"),
        "{}",
        finished.stderr
    );
    Ok(())
}
