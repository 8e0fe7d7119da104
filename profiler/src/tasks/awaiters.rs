//! Who awaits a task.
//!
//! From 3.14 on a task of C keeps which others of C do. Else it is in what is to be called when the task is done:
//! the method that wakes another task up, one of a `TaskGroup`, or a function of `gather`, `wait`
//! or `shield` that has a future of its own in a cell, for which somebody waits in turn.

use super::kinds::Shape;
use super::reader::Eyes;
use super::task::Own;
use crate::cpython::ObjectError;
use crate::target::Memory as _;
use crate::words::{RemoteAddr, TaskAddr};

/// Most awaiters of one task, callbacks of one future, cells of one function.
const MAX_AWAITERS: usize = 4096;
const MAX_CALLBACKS: u64 = 4096;
const MAX_CELLS: u64 = 32;
/// How many futures may stand between a task and the one that awaits it.
const MAX_BETWEEN: u32 = 4;

impl Eyes<'_> {
    /// The tasks that await a task or future. What of it cannot be read is left out, for a task
    /// whose awaiters are not known is a task all the same.
    pub(super) fn awaited_by(&self, own: &Own) -> Vec<TaskAddr> {
        let mut found = Vec::new();
        self.awaiters(own, MAX_BETWEEN, &mut found);
        found.sort_unstable();
        found.dedup();
        found
    }

    fn awaiters(&self, own: &Own, between: u32, found: &mut Vec<TaskAddr>) {
        let before = found.len();
        self.recorded(own, between, found);
        // If one of the two is of Python, asyncio keeps no record.
        if found.len() > before {
            return;
        }
        let mut callbacks = vec![own.callback0];
        callbacks.extend(self.callables(own.callbacks).unwrap_or_default());
        for callback in callbacks {
            if callback != RemoteAddr(0) {
                let _ = self.by_callback(callback, between, found);
            }
        }
    }

    /// 3.14+: one task or future, or a set of them.
    fn recorded(&self, own: &Own, between: u32, found: &mut Vec<TaskAddr>) {
        let all = match (own.awaited_by, own.awaited_by_is_set) {
            (RemoteAddr(0), _) => return,
            (set, true) => self.set_items(set, MAX_AWAITERS).unwrap_or_default(),
            (one, false) => vec![one],
        };
        for one in all {
            match self.kind(one) {
                Ok(kind) if kind.shape.is_task() => push(found, one),
                _ => {
                    let _ = self.by_future(one, between, found);
                }
            }
        }
    }

    /// The first items of the tuples of a list.
    fn callables(&self, list: RemoteAddr) -> Result<Vec<RemoteAddr>, ObjectError> {
        if list == RemoteAddr(0) {
            return Ok(Vec::new());
        }
        let fields = &self.layout.containers;
        let items = self.list_items(list, MAX_CALLBACKS)?;
        let first = |tuple: RemoteAddr| self.memory.pointer(tuple.plus(fields.tuple_items.into()));
        Ok(items.into_iter().filter_map(|it| first(it).ok()).collect())
    }

    fn by_callback(
        &self,
        callback: RemoteAddr,
        between: u32,
        found: &mut Vec<TaskAddr>,
    ) -> Result<(), ObjectError> {
        match self.kind(callback)?.shape {
            // `m_self` and `im_self` are the second words.
            Shape::Method | Shape::Builtin => {
                let bound = self.memory.pointer(self.second_word(callback))?;
                let kind = self.kind(bound)?;
                if kind.shape.is_task() {
                    push(found, bound);
                } else if &*kind.name == "TaskGroup" {
                    let objects = self.objects();
                    let attributes = objects.attribute_entries(bound)?;
                    if let Some(parent) = objects.pick(&attributes, "_parent_task") {
                        push(found, parent);
                    }
                }
                Ok(())
            }
            Shape::Function => {
                let closure = callback.plus(self.layout.containers.closure.into());
                let closure = self.memory.pointer(closure)?;
                if closure == RemoteAddr(0) {
                    return Ok(());
                }
                for cell in self.tuple(closure)? {
                    self.by_future(self.first_word(cell)?, between, found)?;
                }
                Ok(())
            }
            // `_release_waiter` of `wait_for` (to 3.11).
            Shape::Partial => {
                let arguments = self.memory.pointer(self.second_word(callback))?;
                for argument in self.tuple(arguments)? {
                    self.by_future(argument, between, found)?;
                }
                Ok(())
            }
            Shape::Wakeup => {
                push(found, self.first_word(callback)?);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A future that stands between is awaited by somebody in turn.
    fn by_future(
        &self,
        future: RemoteAddr,
        between: u32,
        found: &mut Vec<TaskAddr>,
    ) -> Result<(), ObjectError> {
        if future == RemoteAddr(0) {
            return Ok(());
        }
        let kind = self.kind(future)?;
        if let (Shape::NativeFuture | Shape::PythonFuture, 1..) = (kind.shape, between)
            && let Ok(own) = self.own(future, &kind)
        {
            self.awaiters(&own, between - 1, found);
        }
        Ok(())
    }

    fn second_word(&self, object: RemoteAddr) -> RemoteAddr {
        object.plus(u64::from(self.layout.object.size) + 8)
    }

    fn tuple(&self, tuple: RemoteAddr) -> Result<Vec<RemoteAddr>, ObjectError> {
        let size = tuple.plus(self.layout.object.size.into());
        let size = self.memory.u64(size)?.min(MAX_CELLS);
        let first = tuple.plus(self.layout.containers.tuple_items.into());
        let item = |index: u64| self.memory.pointer(first.plus(8 * index));
        Ok((0..size).map(item).collect::<Result<_, _>>()?)
    }
}

fn push(found: &mut Vec<TaskAddr>, task: RemoteAddr) {
    if found.len() < MAX_AWAITERS {
        found.push(TaskAddr(task.0));
    }
}
