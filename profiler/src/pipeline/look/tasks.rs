//! The asyncio tasks and the greenlets of a process at one look.
//!
//! A task changes only while its loop's thread runs. So the scheduler's proof for that thread (see
//! [`super::eye`]) is one for all its tasks: they are read again a few times if it ran, and are an
//! estimate if it never rests.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    cpython::{CpythonError, ObjectError, Runtime},
    pipeline::{attach::Attached, stacks},
    pystack::{PyFrame, Resolver},
    stack::Frame,
    target::{Presence, SchedulerMark},
    tasks::{LoopKind, Snapshot, Task, TaskReader, Unread},
    words::{RemoteAddr, TaskAddr, ThreadStateAddr, Tid},
};

/// How often tasks of a loop that runs are read.
const ATTEMPTS: usize = 6;

/// One task.
#[derive(Clone, Debug)]
pub struct SeenTask {
    /// What was read of it.
    pub task: Arc<Task>,
    /// Its coroutines, or a greenlet's stack, leaf first.
    pub frames: Vec<Frame>,
    /// The thread in which its loop runs, if it does, or in which it switches.
    pub thread: Option<Tid>,
    /// Its loop's thread did not run while it was read.
    pub exact: bool,
}

/// All tasks.
#[derive(Debug, Default)]
pub struct SeenTasks {
    /// Those that are not finished.
    pub tasks: Vec<SeenTask>,
    /// Those that could not be read.
    pub unreadable: Vec<(TaskAddr, Unread)>,
    /// How many there were beyond what is read at most.
    pub left_out: u64,
    /// What kept a list of them from being read whole.
    pub broken_lists: Vec<ObjectError>,
    /// How many loops run.
    pub loops: usize,
    /// In how many threads greenlets switch.
    pub switching: usize,
}

/// A snapshot, and the loops whose threads may have run meanwhile.
struct Shot {
    snapshot: Arc<Snapshot>,
    restless: FxHashSet<RemoteAddr>,
}

/// Look at all tasks; `owners` says which thread a thread state is of.
pub(super) fn look(
    attached: &Attached,
    runtime: &Runtime,
    owners: &FxHashMap<ThreadStateAddr, Tid>,
) -> Result<SeenTasks, CpythonError> {
    let table = attached.asyncio_table(runtime);
    let mut reader = TaskReader::new(runtime, table.as_ref());
    let mut shot = shoot(&mut reader, attached, runtime, owners)?;
    for _ in 1..ATTEMPTS {
        if shot.restless.is_empty() {
            break;
        }
        shot = shoot(&mut reader, attached, runtime, owners)?;
    }
    let Shot { snapshot, restless } = shot;
    let loops = snapshot.by_loop();
    let mut resolver = Resolver::new(runtime);
    let frames: Vec<Vec<PyFrame>> = snapshot
        .tasks
        .iter()
        .map(|task| resolver.frames(&attached.memory, &task.chain()))
        .collect();
    let changed = resolver.revalidate(&attached.memory);
    let changed: Vec<_> = changed.into_iter().map(|code| code.addr).collect();
    let tasks = snapshot.tasks.iter().zip(frames).map(|(task, frames)| {
        let thread = loops.get(&task.event_loop);
        SeenTask {
            task: Arc::clone(task),
            frames: frames
                .iter()
                .map(|frame| stacks::frame_of(frame, &changed))
                .collect(),
            thread: thread.and_then(|running| owners.get(&running.state).copied()),
            exact: !restless.contains(&task.event_loop),
        }
    });
    let of_kind = |kind| {
        let loops = snapshot.loops.iter();
        loops.filter(|running| running.kind == kind).count()
    };
    Ok(SeenTasks {
        tasks: tasks.collect(),
        unreadable: snapshot.unreadable.clone(),
        left_out: snapshot.left_out,
        broken_lists: snapshot.broken_lists.clone(),
        loops: of_kind(LoopKind::Asyncio),
        switching: of_kind(LoopKind::Greenlets),
    })
}

fn shoot(
    reader: &mut TaskReader,
    attached: &Attached,
    runtime: &Runtime,
    owners: &FxHashMap<ThreadStateAddr, Tid>,
) -> Result<Shot, CpythonError> {
    let memory = &attached.memory;
    let before = reader.loops(runtime, memory)?;
    let marks: FxHashMap<RemoteAddr, SchedulerMark> = before
        .iter()
        .filter_map(|running| {
            let tid = *owners.get(&running.state)?;
            match attached.process.presence(tid) {
                Ok(Presence::Off(off)) => Some((running.event_loop, off.mark)),
                _ => None,
            }
        })
        .collect();
    let snapshot = reader.snapshot(runtime, memory)?;
    // One that has come to run, or has ended, ran in between.
    let after = reader.loops(runtime, memory)?;
    let involved = before.iter().chain(&snapshot.loops).chain(&after);
    let restless = involved
        .map(|running| running.event_loop)
        .filter(|event_loop| {
            let mark = marks.get(event_loop);
            !mark.is_some_and(SchedulerMark::still_holds)
        })
        .collect();
    Ok(Shot { snapshot, restless })
}
