//! Snapshots of many tasks one after the other: what stays as it is costs a few calls of the kernel's,
//! and is not walked again.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use profiler::cpython::Runtime;
use profiler::pipeline::Attached;
use profiler::target::{Memory, Piece, ReadError};
use profiler::tasks::{Snapshot, TaskReader, TaskStatus};
use profiler::words::{Pid, RemoteAddr};
use tests::on_each;
use tests::pythons::Python;
use tests::rung::Rung;
use tests::target::Target;

const TASKS: usize = 2000;
const PATIENCE: Duration = Duration::from_secs(60);

/// A memory, and how often it was asked.
struct Counted<'a> {
    memory: &'a dyn Memory,
    calls: Cell<usize>,
}

impl Memory for Counted<'_> {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        self.calls.set(self.calls.get() + 1);
        self.memory.read(addr, buf)
    }

    fn read_many(&self, pieces: &mut [Piece<'_>]) {
        // So many pieces go into one call.
        self.calls
            .set(self.calls.get() + pieces.len().div_ceil(1024));
        self.memory.read_many(pieces);
    }
}

fn shoot(
    reader: &mut TaskReader,
    runtime: &Runtime,
    attached: &Attached,
) -> Result<(Arc<Snapshot>, usize)> {
    let memory = Counted {
        memory: &attached.memory,
        calls: Cell::new(0),
    };
    let snapshot = reader.snapshot(runtime, &memory)?;
    ensure!(
        snapshot.broken_lists.is_empty(),
        "{:?}",
        snapshot.broken_lists
    );
    // One that runs meanwhile may not be readable.
    let all = snapshot.tasks.len() + snapshot.unreadable.len();
    ensure!(all == TASKS + 1, "{all} tasks");
    Ok((snapshot, memory.calls.get()))
}

fn what_has_not_changed_is_not_walked_again(python: &Python) -> Result<()> {
    let mut target = Target::start(python, "many_tasks.py", &[&TASKS.to_string()])?;
    let attached = Attached::open(Pid(target.pid().as_raw().cast_unsigned()))?;
    let runtime = attached.discover()?;
    let table = attached.asyncio_table(&runtime);
    let mut reader = TaskReader::new(&runtime, table.as_ref());
    // The loop may still be on its way to rest.
    let started = Instant::now();
    let (first, again, calls) = loop {
        let (first, _) = shoot(&mut reader, &runtime, &attached)?;
        let (again, calls) = shoot(&mut reader, &runtime, &attached)?;
        if first.unchanged as usize == TASKS + 1 {
            break (first, again, calls);
        }
        ensure!(
            started.elapsed() < PATIENCE,
            "it never rests: {}",
            first.unchanged
        );
    };
    ensure!(again.unchanged as usize == TASKS + 1, "{}", again.unchanged);
    ensure!(first.tasks == again.tasks, "unchanged ones are others");
    ensure!(calls < TASKS / 8, "{calls} calls for {TASKS} tasks");
    let waiting = |snapshot: &Snapshot| {
        let tasks = snapshot.tasks.iter();
        tasks
            .filter(|task| task.status == TaskStatus::Waiting)
            .count()
    };
    ensure!(waiting(&again) == TASKS + 1, "{} wait", waiting(&again));

    let frames = |snapshot: &Snapshot| {
        let mut tasks = snapshot.tasks.iter();
        let task = tasks.find(|task| task.name.to_string() == "turns");
        task.map(|task| task.frames.clone())
    };
    target.tell("go")?;
    target.expect("running")?;
    target.tell("turn")?;
    let before = frames(&again).context("the one that takes turns")?;
    let started = Instant::now();
    loop {
        let (now, _) = shoot(&mut reader, &runtime, &attached)?;
        let others = now
            .tasks
            .iter()
            .filter(|task| !again.tasks.contains(task))
            .count();
        ensure!(
            others <= 1,
            "{others} tasks are others though one took a turn"
        );
        let moved = |now: Vec<_>| now.len() == before.len() && now.last() != before.last();
        if frames(&now).is_some_and(moved) {
            break;
        }
        ensure!(started.elapsed() < PATIENCE, "it has not moved: {now:#?}");
    }
    target.tell("stop")?;
    target.done().map(|_| ())
}

on_each! {
    Rung::Live, what_has_not_changed_is_not_walked_again;
    what_has_not_changed_is_not_walked_again_on_3_8: 8;
    what_has_not_changed_is_not_walked_again_on_3_9: 9;
    what_has_not_changed_is_not_walked_again_on_3_10: 10;
    what_has_not_changed_is_not_walked_again_on_3_11: 11;
    what_has_not_changed_is_not_walked_again_on_3_12: 12;
    what_has_not_changed_is_not_walked_again_on_3_13: 13;
    what_has_not_changed_is_not_walked_again_on_3_14: 14;
    what_has_not_changed_is_not_walked_again_on_3_15: 15;
}
