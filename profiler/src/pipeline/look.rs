//! One look: every thread of a process now, its state, and its frames.
//!
//! No kernel program takes part. A thread that is off the CPU is exact all the same: the
//! scheduler's own count of its arrivals on a CPU is read before and after the walk. A thread
//! that runs is walked as it runs, and its frames are an estimate.

use rustc_hash::FxHashMap;

use crate::{
    cpython::{Attachment, Runtime, ThreadState, thread_names},
    sample::{Activity, FramesFrom, Gc, Gil, Handling},
    stack::Frame,
    target::{InKernel, TaskState},
    threads::{Look, Registry, Rung, ScanWhom, StateFacts, ThreadFacts},
    words::{DurationNs, PthreadId, ThreadStateAddr, Tid},
};

use super::attach::{AttachError, Attached};
use eye::Eye;

mod eye;
mod tasks;

pub use tasks::{SeenTask, SeenTasks};

/// What one thread was doing.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The thread.
    pub tid: Tid,
    /// Its name, Python's when it has one.
    pub name: String,
    /// Its pthread id, for a thread that runs Python.
    pub pthread_id: Option<PthreadId>,
    /// Whether it has a Python thread state.
    pub python: bool,
    /// What it was doing.
    pub activity: Activity,
    /// The state that the kernel names.
    pub state: TaskState,
    /// For how long it has been blocked, less what a host has taken from its CPU meanwhile. None
    /// if it is not blocked, and where the kernel does not say.
    pub blocked: Option<DurationNs>,
    /// The system call it is blocked in.
    pub syscall: Option<u32>,
    /// The kernel function it waits in, where that is shown.
    pub waits_in: Option<String>,
    /// The GIL.
    pub gil: Gil,
    /// Whether it could run Python code, where that is told.
    pub attachment: Option<Attachment>,
    /// The thread that holds the GIL it waits for: its id and name.
    pub behind: Option<(Tid, String)>,
    /// The collector.
    pub gc: Gc,
    /// The exception.
    pub handling: Handling,
    /// Leaf first.
    pub frames: Vec<Frame>,
    /// How they were read.
    pub frames_from: FramesFrom,
    /// How thread and thread state were tied together.
    pub matched_by: Vec<Rung>,
}

/// A process at one look.
#[derive(Debug)]
pub struct View {
    /// Its interpreter.
    pub runtime: Runtime,
    /// Whether its main interpreter was collecting garbage.
    pub collecting: Option<bool>,
    /// Its threads, oldest first.
    pub threads: Vec<Seen>,
    /// How often two ways to name a thread disagreed.
    pub contradictions: u64,
    /// Its asyncio tasks and greenlets, if they were asked for.
    pub tasks: Option<SeenTasks>,
}

/// Look at all threads of `attached`, and at all asyncio tasks and greenlets if they are wanted.
///
/// # Errors
/// When there is no interpreter to be read.
pub fn look(attached: &Attached, with_tasks: bool) -> Result<View, AttachError> {
    let runtime = attached.discover()?;
    let of_python = |error| AttachError::Python {
        pid: attached.process.pid(),
        error,
    };
    let memory = &attached.memory;
    let tasks = attached.process.all_tasks()?;
    let maps = attached.process.maps()?;
    let states = runtime.thread_states(memory).map_err(of_python)?;
    let facts: Vec<StateFacts> = states.iter().map(state_facts).collect();
    let threads: Vec<ThreadFacts> = tasks
        .iter()
        .map(|task| {
            let place = attached
                .process
                .in_kernel(task.tid)
                .unwrap_or(InKernel::Running);
            ThreadFacts::new(task, place.stack_pointer())
        })
        .collect();
    let main = tasks
        .iter()
        .find(|task| task.tid.0 == attached.process.pid().0);
    let mut registry = Registry::new();
    let look = Look {
        pid: attached.process.pid(),
        start_stack: main.and_then(|task| task.start_stack),
        maps: &maps,
        threads: &threads,
        states: &facts,
        scan: ScanWhom::Everyone,
    };
    registry.look(&look, memory);
    let names = thread_names(&runtime, memory);
    let mut eye = Eye::new(attached, &runtime).map_err(of_python)?;
    let mut behind = Vec::new();
    let mut seen = Vec::with_capacity(tasks.len());
    for task in &tasks {
        let found = registry.by_tid(task.tid);
        let (mut thread, holder) = eye.see(task, found.map(|found| found.state));
        behind.push(holder);
        if let Some(found) = found {
            thread.pthread_id = Some(found.pthread_id);
            thread.matched_by.clone_from(&found.matched_by);
            let is_first = task.tid.0 == attached.process.pid().0;
            let name = names.get(&found.pthread_id);
            if let Some(name) = name.and_then(|name| name.of(task.inner, is_first)) {
                thread.name = name.to_owned();
            }
        }
        seen.push(thread);
    }
    let mut owners: FxHashMap<ThreadStateAddr, Tid> = FxHashMap::default();
    for found in registry.matches() {
        let states = found.other_states.iter().chain([&found.state]);
        owners.extend(states.map(|state| (*state, found.tid)));
    }
    let known: FxHashMap<Tid, String> = seen.iter().map(|it| (it.tid, it.name.clone())).collect();
    for (thread, holder) in seen.iter_mut().zip(behind) {
        let tid = holder.and_then(|holder| owners.get(&holder));
        thread.behind = tid.and_then(|tid| Some((*tid, known.get(tid)?.clone())));
    }
    let tasks = with_tasks
        .then(|| tasks::look(attached, &runtime, &owners))
        .transpose()
        .map_err(of_python)?;
    let main_interpreter = runtime
        .interpreters(memory)
        .ok()
        .and_then(|all| all.last().copied());
    let collecting = main_interpreter.and_then(|it| runtime.collecting(memory, it).ok());
    Ok(View {
        runtime,
        collecting,
        threads: seen,
        contradictions: registry.contradictions(),
        tasks,
    })
}

fn state_facts(state: &ThreadState) -> StateFacts {
    StateFacts {
        state: state.addr,
        pthread_id: state.pthread_id,
        native_id: state.native_thread_id,
    }
}
