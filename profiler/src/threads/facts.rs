//! What the ladder is given: one look at a process, as values.

use crate::target::{Maps, TaskFacts};
use crate::words::{InnerTid, Pid, PthreadId, RemoteAddr, StartTime, ThreadStateAddr, Tid};

/// One thread of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadFacts {
    /// Its id.
    pub tid: Tid,
    /// When it started: with the id, who it is for good.
    pub started: StartTime,
    /// Its id as it sees it itself.
    pub inner: Option<InnerTid>,
    /// Its name.
    pub name: String,
    /// Its user stack pointer, from a tick or while it is inside the kernel.
    pub stack_pointer: Option<RemoteAddr>,
}

impl ThreadFacts {
    /// The facts of a task, with a stack pointer if one is known.
    #[must_use]
    pub fn new(task: &TaskFacts, stack_pointer: Option<RemoteAddr>) -> Self {
        Self {
            tid: task.tid,
            started: task.started,
            inner: task.inner,
            name: task.name.clone(),
            stack_pointer,
        }
    }
}

/// One Python thread state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateFacts {
    /// Where it is.
    pub state: ThreadStateAddr,
    /// Its `thread_id`: the thread that made it. 0 while it is not bound to one.
    pub pthread_id: PthreadId,
    /// Its `native_thread_id` (3.11+); 0 is taken for none.
    pub native_id: Option<InnerTid>,
}

/// Whose stacks are scanned (rungs 4 and 5): it takes some pages of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScanWhom {
    /// Those that no stronger rung has named.
    #[default]
    Unmatched,
    /// Everyone with a known stack pointer, to cross-check the stronger rungs.
    Everyone,
}

/// One look at a process. Read the states first and the threads after them: then the thread of
/// every state that still lives is among them.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// The process.
    pub pid: Pid,
    /// Where its first stack begins, by its `stat`.
    pub start_stack: Option<RemoteAddr>,
    /// Its mappings.
    pub maps: &'a Maps,
    /// Its threads.
    pub threads: &'a [ThreadFacts],
    /// Its Python thread states. Several may share a pthread id, since a thread has one for each
    /// interpreter it has entered: then the last of them counts.
    pub states: &'a [StateFacts],
    /// Whose stacks to scan.
    pub scan: ScanWhom,
}
