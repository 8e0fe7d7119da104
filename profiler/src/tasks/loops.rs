//! Which event loop runs in which thread, and which task it says it runs.
//!
//! From 3.13 on a thread's state has the loop, from 3.14 on the task too. Before, the loop is in the
//! dict of the thread's state, and the task in a dict of `asyncio.tasks`.

use rustc_hash::FxHashMap;

use super::reader::Eyes;
use super::{LoopKind, RunningLoop};
use crate::cpython::{ObjectError, ThreadState};
use crate::target::Memory as _;
use crate::words::{RemoteAddr, TaskAddr};

/// The key of the loop in a thread's dict.
const KEY: &str = "__asyncio_running_event_loop__";
/// How the type's name ends of what holds the loop there, to 3.11.
const HOLDER: &str = "RunningLoopHolder";

impl Eyes<'_> {
    /// The loop that runs in a thread.
    pub(super) fn running_loop(
        &self,
        thread: &ThreadState,
        current: &FxHashMap<RemoteAddr, TaskAddr>,
    ) -> Option<RunningLoop> {
        let event_loop = self.loop_of(thread).ok()?.filter(|it| it.0 != 0)?;
        let state = RemoteAddr::from(thread.addr);
        let task = self.layout.asyncio.running_task.map(|field| {
            let task = self.memory.pointer(state.plus(field.into()));
            task.ok().filter(|task| task.0 != 0)
        });
        let current = match task {
            Some(task) => task.map(|task| TaskAddr(task.0)),
            None => current.get(&event_loop).copied(),
        };
        Some(RunningLoop {
            kind: LoopKind::Asyncio,
            event_loop,
            state: thread.addr,
            pthread_id: thread.pthread_id,
            interpreter: thread.interpreter,
            current,
        })
    }

    fn loop_of(&self, thread: &ThreadState) -> Result<Option<RemoteAddr>, ObjectError> {
        let fields = &self.layout.asyncio;
        let state = RemoteAddr::from(thread.addr);
        if let Some(field) = fields.running_loop {
            return Ok(Some(self.memory.pointer(state.plus(field.into()))?));
        }
        let dict = self.memory.pointer(state.plus(fields.thread_dict.into()))?;
        if dict == RemoteAddr(0) {
            return Ok(None);
        }
        let Some(found) = self.objects().dict_get(dict, KEY)? else {
            return Ok(None);
        };
        match &*self.kind(found)?.name {
            name if name.ends_with(HOLDER) => self.first_word(found).map(Some),
            "NoneType" => Ok(None),
            _ => Ok(Some(found)),
        }
    }

    /// Loops and their current tasks, by the dict of `asyncio.tasks`.
    pub(super) fn current_tasks(&self, dict: RemoteAddr) -> FxHashMap<RemoteAddr, TaskAddr> {
        let entries = self.objects().dict_entries(dict).unwrap_or_default();
        let entries = entries.into_iter();
        entries.map(|(it, task)| (it, TaskAddr(task.0))).collect()
    }
}
