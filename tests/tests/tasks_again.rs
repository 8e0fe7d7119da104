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
    bytes: Cell<usize>,
}

impl Counted<'_> {
    fn count(&self, calls: usize, bytes: usize) {
        self.calls.set(self.calls.get() + calls);
        self.bytes.set(self.bytes.get() + bytes);
    }
}

/// What a snapshot took.
#[derive(Debug)]
struct Cost {
    calls: usize,
    bytes: usize,
}

impl Memory for Counted<'_> {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        self.count(1, buf.len());
        self.memory.read(addr, buf)
    }

    fn read_many(&self, pieces: &mut [Piece<'_>]) {
        // So many pieces go into one call.
        let bytes = pieces.iter().map(|piece| piece.buf.len()).sum();
        self.count(pieces.len().div_ceil(1024), bytes);
        self.memory.read_many(pieces);
    }
}

fn shoot(
    reader: &mut TaskReader,
    runtime: &Runtime,
    attached: &Attached,
) -> Result<(Arc<Snapshot>, Cost)> {
    let memory = Counted {
        memory: &attached.memory,
        calls: Cell::new(0),
        bytes: Cell::new(0),
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
    let (calls, bytes) = (memory.calls.get(), memory.bytes.get());
    Ok((snapshot, Cost { calls, bytes }))
}

fn what_has_not_changed_is_not_walked_again(python: &Python) -> Result<()> {
    let mut target = Target::start(python, "many_tasks.py", &[&TASKS.to_string()])?;
    let attached = Attached::open(Pid(target.pid().as_raw().cast_unsigned()))?;
    let runtime = attached.discover()?;
    let table = attached.asyncio_table(&runtime);
    let mut reader = TaskReader::new(&runtime, table.as_ref());
    // The loop may still be on its way to rest.
    let started = Instant::now();
    let (_, cost) = shoot(&mut reader, &runtime, &attached)?;
    // They lie side by side, so that no call is made for each.
    ensure!(cost.calls < TASKS / 4, "{cost:?} for {TASKS} tasks");
    let (first, again, cost) = loop {
        let (first, _) = shoot(&mut reader, &runtime, &attached)?;
        let (again, cost) = shoot(&mut reader, &runtime, &attached)?;
        if first.unchanged as usize == TASKS + 1 {
            break (first, again, cost);
        }
        ensure!(
            started.elapsed() < PATIENCE,
            "it never rests: {}",
            first.unchanged
        );
    };
    ensure!(again.unchanged as usize == TASKS + 1, "{}", again.unchanged);
    ensure!(first.tasks == again.tasks, "unchanged ones are others");
    let most = Cost {
        calls: TASKS / 25,
        bytes: TASKS * 4096,
    };
    let is_cheap = |cost: &Cost| cost.calls < most.calls && cost.bytes < most.bytes;
    ensure!(is_cheap(&cost), "{cost:?} for {TASKS} tasks");
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
        let (now, turn) = shoot(&mut reader, &runtime, &attached)?;
        ensure!(is_cheap(&turn), "{turn:?} for one task of {TASKS}");
        // Those that look at what the loop itself has changed are read again.
        let same = now.unchanged as usize;
        ensure!(same >= TASKS - TASKS / 20, "only {same} are unchanged");
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
