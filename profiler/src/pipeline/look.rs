//! One look: every thread of a process now, its state, and its frames.
//!
//! No kernel program takes part. A thread that sleeps is exact all the same: the scheduler's own
//! count of its arrivals on a CPU is read before and after the walk. A thread that runs is walked
//! as it runs, and its frames are an estimate.

use crate::{
    cpython::{self, Attachment, Runtime, ThreadState, Wishes, thread_names},
    native::{LiveSymbols, Symbols as _},
    pystack::{Chain, Resolver, Walker},
    sample::{Activity, FramesFrom, Gil, Wait},
    stack::Frame,
    target::{Asleep, InKernel, SchedulerMark, TaskFacts, TaskState},
    threads::{Look, Registry, Rung, ScanWhom, StateFacts, ThreadFacts},
    words::{MonotonicNs, PthreadId, Tid},
};

use super::{
    attach::{AttachError, Attached},
    stacks,
};

/// How often a thread that moved is walked again.
const ATTEMPTS: usize = 4;
/// Most frames of a stack.
const MAX_FRAMES: u32 = 512;

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
    /// The system call it is blocked in.
    pub syscall: Option<u32>,
    /// The kernel function it waits in, where that is shown.
    pub waits_in: Option<String>,
    /// The GIL.
    pub gil: Gil,
    /// Whether it could run Python code, where that is told.
    pub attachment: Option<Attachment>,
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
}

/// Look at all threads of `attached`.
///
/// # Errors
/// When there is no interpreter to be read.
pub fn look(attached: &Attached) -> Result<View, AttachError> {
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
    let wishes = Wishes {
        since: MonotonicNs(0),
        flags: 0,
        max_frames: MAX_FRAMES,
    };
    let mut eye = Eye {
        attached,
        runtime: &runtime,
        no_gil: runtime.runs_with_gil(memory) == Ok(false),
        plan: cpython::plan(&runtime, memory, wishes),
        walker: Walker::default(),
        resolver: Resolver::new(&runtime),
        symbols: LiveSymbols::default(),
    };
    let mut seen = Vec::with_capacity(tasks.len());
    for task in &tasks {
        let found = registry.by_tid(task.tid);
        let mut thread = eye.see(task, found.map(|found| found.state));
        if let Some(found) = found {
            thread.python = true;
            thread.pthread_id = Some(found.pthread_id);
            thread.matched_by.clone_from(&found.matched_by);
            if let Some(name) = names.get(&found.pthread_id) {
                thread.name.clone_from(name);
            }
        }
        seen.push(thread);
    }
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
    })
}

fn state_facts(state: &ThreadState) -> StateFacts {
    StateFacts {
        state: state.addr,
        pthread_id: state.pthread_id,
        native_id: state.native_thread_id,
    }
}

/// What a look needs for each thread.
struct Eye<'a> {
    attached: &'a Attached,
    runtime: &'a Runtime,
    no_gil: bool,
    plan: Option<profiler_common::plan::Plan>,
    walker: Walker,
    resolver: Resolver,
    symbols: LiveSymbols,
}

impl Eye<'_> {
    fn see(&mut self, task: &TaskFacts, state: Option<crate::words::ThreadStateAddr>) -> Seen {
        let mut attempts = 0;
        let (asleep, chain, read, from) = loop {
            attempts += 1;
            let asleep = match self.attached.process.mark(task.tid) {
                Ok(Asleep::Yes(mark)) => Some(mark),
                _ => None,
            };
            let chain = state.and_then(|state| {
                let plan = self.plan.as_ref()?;
                stacks::walk_now(&mut self.walker, &self.attached.memory, plan, state)
            });
            // Read with the frames, so that the same proof holds for it.
            let read = state.map(|state| {
                let memory = &self.attached.memory;
                self.runtime.thread_state_at(memory, state).ok()
            });
            let exact = asleep.as_ref().is_some_and(SchedulerMark::still_holds);
            let from = match (&chain, exact) {
                (None, _) => FramesFrom::None,
                (Some(_), true) => FramesFrom::User,
                (Some(_), false) => FramesFrom::Estimated,
            };
            // A thread that runs will not come out better by asking again.
            if exact || asleep.is_none() || attempts == ATTEMPTS {
                break (asleep, chain, read, from);
            }
        };
        let exact = from != FramesFrom::Estimated;
        let place = asleep.map(|mark| *mark.place());
        Seen {
            tid: task.tid,
            name: task.name.clone(),
            pthread_id: None,
            python: false,
            activity: activity(task.state, place.is_some(), exact),
            state: task.state,
            syscall: match place {
                Some(InKernel::Blocked { syscall, .. }) => syscall,
                _ => None,
            },
            waits_in: self.attached.process.waits_in(task.tid).ok().flatten(),
            gil: match read {
                Some(state) => state.map_or(Gil::Unknown, |state| state.gil),
                None if self.no_gil => Gil::NoGil,
                None => Gil::Neither,
            },
            attachment: read.flatten().and_then(|state| state.attachment),
            frames: self.frames(chain.as_ref(), place),
            frames_from: from,
            matched_by: Vec::new(),
        }
    }

    fn frames(&mut self, chain: Option<&Chain>, place: Option<InKernel>) -> Vec<Frame> {
        if let Some(chain) = chain {
            let frames = self.resolver.frames(&self.attached.memory, chain);
            return frames
                .iter()
                .map(|frame| stacks::frame_of(frame, &[]))
                .collect();
        }
        match place {
            Some(InKernel::Blocked { pc, .. }) => {
                let pid = self.attached.process.pid();
                vec![stacks::native_frame(&self.symbols.name(pid, pc))]
            }
            _ => Vec::new(),
        }
    }
}

fn activity(state: TaskState, asleep: bool, exact: bool) -> Activity {
    match state {
        _ if asleep && exact => Activity::Blocked(Wait::Unknown),
        TaskState::Stopped | TaskState::Idle => Activity::Blocked(Wait::Stopped),
        TaskState::Ended | TaskState::Other(_) => Activity::Unknown,
        // It was seen asleep and did not stay so, or it slept when it was counted and runs now.
        // Whether it is on a CPU or waits for one, no file tells.
        TaskState::Running | TaskState::Sleeping | TaskState::Waiting => Activity::OnCpu,
    }
}
