//! What kind of object something is, by its type: how a task, a coroutine, a callback is read.
//!
//! Types are few and objects many, so each type is read once for a snapshot.

use std::cell::RefCell;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::cpython::{ObjectError, Objects};
use crate::words::RemoteAddr;

/// Most bases of a type that are gone through.
const MAX_BASES: usize = 32;
/// Most types that are read for a snapshot; a program has hundreds of them.
const MAX_TYPES: usize = 1 << 14;

/// How objects of a type are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A coroutine, a generator, an asynchronous generator: a frame of its own.
    Generator,
    /// What awaits the object that its first word points to.
    Wrapper,
    /// `_asyncio.FutureIter`: the first word is the future.
    FutureIter,
    /// `_asyncio.Task`, or derived from it.
    NativeTask,
    /// `_asyncio.Future`, or derived from it.
    NativeFuture,
    /// `Task` of `asyncio.tasks`, or derived from it.
    PythonTask,
    /// `Future` of `asyncio.futures`, or derived from it.
    PythonFuture,
    /// A method of a Python class, bound to an object.
    Method,
    /// One of C, bound to an object.
    Builtin,
    /// A function of Python.
    Function,
    /// `functools.partial`.
    Partial,
    /// What wakes a task up (to 3.9): the first word is the task.
    Wakeup,
    /// `greenlet.greenlet`, or derived from it.
    Greenlet,
    Int,
    Str,
    None,
    Set,
    Other,
}

impl Shape {
    /// Whether it is a task.
    pub(super) const fn is_task(self) -> bool {
        matches!(self, Self::NativeTask | Self::PythonTask)
    }

    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "coroutine" | "generator" | "async_generator" => Self::Generator,
            "coroutine_wrapper"
            | "async_generator_asend"
            | "async_generator_athrow"
            | "anext_awaitable" => Self::Wrapper,
            "_asyncio.FutureIter" => Self::FutureIter,
            "_asyncio.Task" => Self::NativeTask,
            "_asyncio.Future" => Self::NativeFuture,
            "Task" => Self::PythonTask,
            "Future" => Self::PythonFuture,
            "method" => Self::Method,
            "builtin_function_or_method" => Self::Builtin,
            "function" => Self::Function,
            "functools.partial" => Self::Partial,
            "TaskWakeupMethWrapper" => Self::Wakeup,
            "greenlet.greenlet" => Self::Greenlet,
            "int" => Self::Int,
            "str" => Self::Str,
            "NoneType" => Self::None,
            "set" => Self::Set,
            _ => return None,
        })
    }
}

/// A type.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    pub(super) name: Arc<str>,
    pub(super) shape: Shape,
}

/// The types that were met.
#[derive(Debug, Default)]
pub(super) struct Kinds(RefCell<FxHashMap<RemoteAddr, Kind>>);

impl Kinds {
    /// The kind of an object. The object is read by `objects`, its type by `types`, so that the
    /// note of what was read for one task holds no types.
    pub(super) fn of(
        &self,
        objects: Objects<'_>,
        types: Objects<'_>,
        object: RemoteAddr,
    ) -> Result<Kind, ObjectError> {
        if object == RemoteAddr(0) {
            return Err(ObjectError::Null);
        }
        let class = objects.type_of(object)?;
        if let Some(kind) = self.0.borrow().get(&class) {
            return Ok(kind.clone());
        }
        if self.0.borrow().len() == MAX_TYPES {
            return Err(ObjectError::TooLong {
                addr: class,
                length: MAX_TYPES as u64 + 1,
                cap: MAX_TYPES as u64,
            });
        }
        let kind = kind(types, class)?;
        self.0.borrow_mut().insert(class, kind.clone());
        Ok(kind)
    }
}

fn kind(types: Objects<'_>, class: RemoteAddr) -> Result<Kind, ObjectError> {
    let name: Arc<str> = types.name_of_type(class)?.into();
    let mut shape = Shape::of(&name);
    let mut base = class;
    for _ in 0..MAX_BASES {
        if shape.is_some() {
            break;
        }
        base = types
            .memory
            .pointer(base.plus(types.layout.class.base.into()))?;
        if base == RemoteAddr(0) {
            break;
        }
        // Whoever derives from a task or a future of asyncio is one, or from a greenlet.
        shape = Shape::of(&types.name_of_type(base)?).filter(|shape| {
            matches!(
                shape,
                Shape::NativeTask
                    | Shape::NativeFuture
                    | Shape::PythonTask
                    | Shape::PythonFuture
                    | Shape::Greenlet
            )
        });
    }
    let shape = shape.unwrap_or(Shape::Other);
    Ok(Kind { name, shape })
}
