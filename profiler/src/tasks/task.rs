//! One task: what it says of itself, in C's structure or in the attributes of a Python object.

use super::kinds::{Kind, Shape};
use super::reader::Eyes;
use super::{Awaited, Task, TaskKind, TaskName, TaskStatus, Unread};
use crate::cpython::ObjectError;
use crate::cpython::objects::{int_at, word_at};
use crate::target::{Memory as _, ReadError};
use crate::words::{CoroutineAddr, RemoteAddr, TaskAddr};

/// Most bytes of a task of C.
const MAX_TASK: usize = 512;

/// A future or task as it says of itself, still without what its pointers lead to.
pub(super) struct Own {
    pub(super) pending: bool,
    pub(super) coro: RemoteAddr,
    pub(super) name: RemoteAddr,
    pub(super) fut_waiter: RemoteAddr,
    pub(super) event_loop: RemoteAddr,
    /// A callable, or null.
    pub(super) callback0: RemoteAddr,
    /// A list of tuples that begin with a callable, or null.
    pub(super) callbacks: RemoteAddr,
    /// A task, a set, or null.
    pub(super) awaited_by: RemoteAddr,
    pub(super) awaited_by_is_set: bool,
}

impl From<ObjectError> for Unread {
    fn from(error: ObjectError) -> Self {
        Self::Object(error)
    }
}

impl From<ReadError> for Unread {
    fn from(error: ReadError) -> Self {
        Self::Object(error.into())
    }
}

impl Eyes<'_> {
    /// A task; none when it is finished.
    pub(super) fn task(&self, addr: TaskAddr) -> Result<Option<Task>, Unread> {
        let kind = self.kind(addr.into())?;
        // A weak reference refers to None when its task is gone.
        if kind.shape == Shape::None {
            return Ok(None);
        }
        let own = self.own(addr.into(), &kind)?;
        if !own.pending {
            return Ok(None);
        }
        if own.coro == RemoteAddr(0) {
            return Err(Unread::NoTask);
        }
        let coro = CoroutineAddr(own.coro.0);
        let chained = self.chain(coro)?;
        let (waits_for, waits) = match own.fut_waiter {
            RemoteAddr(0) => (None, false),
            waiter => {
                let kind = self.kind(waiter)?;
                // Once it is done, the task has its turn.
                let pending = self.own(waiter, &kind).map(|future| future.pending);
                let waits = pending.unwrap_or(true);
                (waits.then(|| self.awaited(waiter, &kind)), waits)
            }
        };
        let status = match (chained.runs, waits, chained.is_known) {
            (true, _, _) => TaskStatus::Running,
            (false, true, _) => TaskStatus::Waiting,
            (false, false, true) => TaskStatus::Runnable,
            (false, false, false) => TaskStatus::Unknown,
        };
        Ok(Some(Task {
            kind: TaskKind::Asyncio,
            addr,
            coro,
            name: self.task_name(own.name),
            status,
            frames: chained.frames,
            leaf: chained.leaf,
            waits_for,
            event_loop: own.event_loop,
            awaited_by: self.awaited_by(&own),
        }))
    }

    /// What a task is called.
    pub(super) fn name_of(&self, addr: TaskAddr) -> Result<TaskName, Unread> {
        let kind = self.kind(addr.into())?;
        if !kind.shape.is_task() {
            return Err(Unread::NoTask);
        }
        let own = self.own(addr.into(), &kind)?;
        Ok(self.task_name(own.name))
    }

    pub(super) fn awaited(&self, addr: RemoteAddr, kind: &Kind) -> Awaited {
        Awaited {
            addr,
            class: kind.name.clone(),
            task: kind.shape.is_task().then_some(TaskAddr(addr.0)),
        }
    }

    /// What a future or a task says of itself.
    pub(super) fn own(&self, addr: RemoteAddr, kind: &Kind) -> Result<Own, Unread> {
        match kind.shape {
            Shape::NativeTask => Ok(self.native(addr, true)?),
            Shape::NativeFuture => Ok(self.native(addr, false)?),
            _ => self.python(addr),
        }
    }

    fn native(&self, addr: RemoteAddr, is_task: bool) -> Result<Own, ObjectError> {
        let fields = &self.layout.task;
        let of_future = [
            Some(fields.event_loop),
            Some(fields.callback0),
            Some(fields.callbacks),
            Some(fields.state),
            fields.awaited_by,
            fields.awaited_by_is_set,
        ];
        let of_task = [fields.fut_waiter, fields.coro, fields.name];
        let of_task = of_task.map(|field| is_task.then_some(field));
        let last = of_future.into_iter().chain(of_task).flatten().max();
        let bytes = last.unwrap_or(0) as usize + 8;
        let mut block = [0; MAX_TASK];
        let block = block.get_mut(..bytes).ok_or(ObjectError::TooLong {
            addr,
            length: bytes as u64,
            cap: MAX_TASK as u64,
        })?;
        self.memory.read(addr, block)?;
        let word = |offset: u32| RemoteAddr(word_at(block, offset as usize).unwrap_or(0));
        let of_task = |offset: u32| {
            if is_task { word(offset) } else { RemoteAddr(0) }
        };
        let is_set = fields.awaited_by_is_set;
        let is_set = is_set.and_then(|offset| block.get(offset as usize));
        Ok(Own {
            pending: int_at(block, fields.state as usize) == Some(0),
            coro: of_task(fields.coro),
            name: of_task(fields.name),
            fut_waiter: of_task(fields.fut_waiter),
            event_loop: word(fields.event_loop),
            callback0: word(fields.callback0),
            callbacks: word(fields.callbacks),
            awaited_by: fields.awaited_by.map_or(RemoteAddr(0), word),
            awaited_by_is_set: is_set.is_some_and(|byte| byte & 1 == 1),
        })
    }

    fn python(&self, addr: RemoteAddr) -> Result<Own, Unread> {
        let objects = self.objects();
        let attributes = objects.attribute_entries(addr)?;
        let value = |name: &str| -> Result<RemoteAddr, ObjectError> {
            let Some(value) = objects.pick(&attributes, name) else {
                return Ok(RemoteAddr(0));
            };
            // None stands for nothing, as null does in C.
            let is_none = self.kind(value)?.shape == Shape::None;
            Ok(if is_none { RemoteAddr(0) } else { value })
        };
        // A future's attributes need not be in its dict: nothing of it is then known.
        let state = match value("_state")? {
            RemoteAddr(0) => None,
            state => Some(objects.string(state)?),
        };
        let awaited_by = value("_Future__asyncio_awaited_by")?;
        Ok(Own {
            // It is an attribute of the class until it is done, in some versions.
            pending: state.is_none_or(|state| state == "PENDING"),
            coro: value("_coro")?,
            name: value("_name")?,
            fut_waiter: value("_fut_waiter")?,
            event_loop: value("_loop")?,
            callback0: RemoteAddr(0),
            callbacks: value("_callbacks")?,
            awaited_by,
            awaited_by_is_set: true,
        })
    }

    pub(super) fn task_name(&self, name: RemoteAddr) -> TaskName {
        let objects = self.objects();
        let shape = self.kind(name).map(|kind| kind.shape);
        let known = match shape {
            Ok(Shape::Str) => objects
                .string(name)
                .map(|name| TaskName::Given(name.into_boxed_str())),
            Ok(Shape::Int) => objects
                .small_int(name, self.tagged_ints)
                .map(TaskName::Numbered),
            _ => return TaskName::Unknown,
        };
        known.unwrap_or(TaskName::Unknown)
    }
}
