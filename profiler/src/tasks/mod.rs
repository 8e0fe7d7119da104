//! The asyncio tasks and the greenlets of a process, read from outside: those that run on no thread
//! at the moment as well, each task with its chain of awaits, what the chain ends in, and who awaits
//! it, each greenlet with its stack.
//!
//! A task is a table here as everything of CPython's is: C tasks and pure-Python ones, of every
//! loop, thread and interpreter. Nothing is left out in silence: a task that could not be read is
//! named with the reason. Whether what was read belongs together (the loop's thread did not run
//! meanwhile) is for the caller to prove. Not here: frames' names ([`crate::pystack`]), and threads.

mod awaiters;
mod chain;
mod greenlets;
mod kinds;
mod known;
mod loops;
mod note;
mod pages;
mod places;
mod reader;
mod sheet;
mod task;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use profiler_common::walk::RawFrame;
use rustc_hash::FxHashMap;

pub use reader::TaskReader;

use crate::cpython::ObjectError;
use crate::pystack::{Chain, ChainEnd};
use crate::words::{
    CoroutineAddr, InterpreterAddr, PthreadId, RemoteAddr, TaskAddr, ThreadStateAddr,
};

/// Most tasks of one snapshot; what is beyond is counted.
pub const MAX_TASKS: usize = 1 << 17;
/// Most coroutines of one chain of awaits.
pub const MAX_CHAIN: usize = 1024;

/// What a task is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TaskName {
    /// By its program.
    Given(Box<str>),
    /// `Task-N`, which 3.12 and later only write out when somebody asks.
    Numbered(u64),
    /// It has none, or none that could be read.
    Unknown,
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(name) => f.write_str(name),
            Self::Numbered(number) => write!(f, "Task-{number}"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// How far a task has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskStatus {
    /// Its coroutine is on a thread's stack.
    Running,
    /// It waits for its turn in the loop.
    Runnable,
    /// It waits for a future.
    Waiting,
    /// Its coroutine is none that can be looked into.
    Unknown,
}

impl TaskStatus {
    /// The word for it in files.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Runnable => "runnable",
            Self::Waiting => "waiting",
            Self::Unknown => "unknown",
        }
    }
}

/// Something that is awaited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// Where it is.
    pub addr: RemoteAddr,
    /// The name of its type.
    pub class: Arc<str>,
    /// The task that it is, if it is one.
    pub task: Option<TaskAddr>,
}

/// Why a chain of awaits has no further coroutine at its leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// The innermost coroutine awaits nothing: it has not begun, runs, or has yielded by itself.
    Coroutine,
    /// It awaits this, which is no coroutine.
    Awaits(Awaited),
    /// What it awaits could not be read.
    Unreadable(ObjectError),
    /// The coroutines await each other in a circle.
    Cycle,
    /// There are more than [`MAX_CHAIN`].
    TooDeep,
}

/// What a greenlet has that a task of asyncio has not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greenlet {
    /// The name of its type.
    pub class: Arc<str>,
    /// It is its thread's main greenlet, which is there from the beginning.
    pub is_main: bool,
    /// It was switched to at least once.
    pub has_begun: bool,
    /// Its own stack while it is suspended.
    pub chain: Chain,
}

/// Of what kind a task is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// A task of asyncio.
    Asyncio,
    /// A greenlet, gevent's too.
    Greenlet(Greenlet),
}

/// One task that is not finished, or one greenlet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Of what kind it is.
    pub kind: TaskKind,
    /// Where it is.
    pub addr: TaskAddr,
    /// Its coroutine; a greenlet has none.
    pub coro: CoroutineAddr,
    /// What it is called.
    pub name: TaskName,
    /// How far it has come.
    pub status: TaskStatus,
    /// The coroutines that await each other, leaf first: the last one is the task's own. Of a task
    /// that runs there is its own alone; the others are on the thread's stack.
    pub frames: Vec<RawFrame>,
    /// What the frames end in.
    pub leaf: Leaf,
    /// The future or task that it waits for.
    pub waits_for: Option<Awaited>,
    /// Its event loop; of a greenlet the main greenlet of its thread, if that is known.
    pub event_loop: RemoteAddr,
    /// The tasks that wait for it, itself or by way of a `gather`, a `TaskGroup` and the like.
    pub awaited_by: Vec<TaskAddr>,
}

impl Task {
    /// What a greenlet has.
    #[must_use]
    pub const fn greenlet(&self) -> Option<&Greenlet> {
        match &self.kind {
            TaskKind::Asyncio => None,
            TaskKind::Greenlet(greenlet) => Some(greenlet),
        }
    }

    /// Its frames as a chain, leaf first.
    #[must_use]
    pub fn chain(&self) -> Chain {
        match &self.kind {
            TaskKind::Asyncio => Chain {
                cut_at: self.frames.len(),
                frames: self.frames.clone(),
                ..Chain::empty(ChainEnd::Complete)
            },
            TaskKind::Greenlet(greenlet) => greenlet.chain.clone().without_notes(),
        }
    }
}

/// Why a task could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// An object of it.
    Object(ObjectError),
    /// It is no task, or lacks what a task has.
    NoTask,
    /// It is a greenlet, and not as those of greenlet 2.0 and later are.
    OtherGreenlet,
}

const OTHER_GREENLET: &str = "it is a greenlet of a version that is not known";

impl Unread {
    /// The kind of reason without its addresses, so that many of one kind are one.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Object(ObjectError::Read(_)) => "its memory was gone",
            Self::Object(ObjectError::Null) => "a null pointer where an object belongs",
            Self::Object(_) => "an object of it is another one",
            Self::NoTask => "what was listed is no task",
            Self::OtherGreenlet => OTHER_GREENLET,
        }
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(error) => error.fmt(f),
            Self::NoTask => f.write_str("what was listed is no task"),
            Self::OtherGreenlet => f.write_str(OTHER_GREENLET),
        }
    }
}

/// What a thread has its tasks from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopKind {
    /// An event loop of asyncio.
    Asyncio,
    /// Greenlets that switch to each other.
    Greenlets,
}

/// An event loop that runs in a thread, or the greenlets that do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningLoop {
    /// Which of them.
    pub kind: LoopKind,
    /// The loop, or the thread's main greenlet.
    pub event_loop: RemoteAddr,
    /// The thread's state.
    pub state: ThreadStateAddr,
    /// The thread.
    pub pthread_id: PthreadId,
    /// The interpreter.
    pub interpreter: InterpreterAddr,
    /// The task that the loop says it is running.
    pub current: Option<TaskAddr>,
}

/// All tasks at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Those that are not finished, in the order in which they were found.
    pub tasks: Vec<Arc<Task>>,
    /// Those that could not be read.
    pub unreadable: Vec<(TaskAddr, Unread)>,
    /// How many there were beyond [`MAX_TASKS`], at least.
    pub left_out: u64,
    /// What kept a list of tasks from being read whole.
    pub broken_lists: Vec<ObjectError>,
    /// The loops that run.
    pub loops: Vec<RunningLoop>,
    /// How many tasks were found unchanged and not walked again.
    pub unchanged: u64,
}

impl Snapshot {
    /// The loops that run, by their addresses.
    #[must_use]
    pub fn by_loop(&self) -> FxHashMap<RemoteAddr, RunningLoop> {
        let all = self.loops.iter();
        all.map(|running| (running.event_loop, *running)).collect()
    }
}
