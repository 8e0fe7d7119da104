//! What interpreter a process runs: where its runtime is, which version, how its structures are
//! laid out, and what can be read from it in one go.
//!
//! A CPython version is a table here, not a fork of the code. Not here: which kernel thread is
//! which ([`crate::threads`]) and what the frames mean ([`crate::pystack`]).

pub mod attachment;
mod current;
pub mod dicts;
pub mod error;
#[cfg(test)]
pub(crate) mod fake;
pub mod find;
pub mod gil;
pub mod handling;
pub mod layout;
pub mod objects;
pub mod plan;
pub mod runtime;
pub mod thread_names;
pub mod version;

pub use attachment::Attachment;
pub use current::current_state;
pub use dicts::KnownKeys;
pub use error::CpythonError;
pub use find::{MappedFile, OpenImage, ReadSeek, asyncio_table};
pub use gil::GilLock;
pub use handling::{HandlingPlan, StateNow};
pub use layout::Layout;
pub use layout::asyncio_table::AsyncioTable;
pub use objects::{ObjectError, Objects};
#[cfg(test)]
pub(crate) use plan::walk_plan;
pub use plan::{Wishes, plan, plan_of_frames, plan_without_python};
pub use runtime::{Runtime, ThreadState};
pub use thread_names::{ThreadName, thread_names, thread_names_of};
pub use version::{Build, Version};

use crate::target::Memory;

/// Finds the interpreter of a process and attaches to it.
///
/// Of several runtimes in one process (a program and a plugin that brought its own), the one with
/// the most threads is taken, and the others are named in [`Runtime::others`].
///
/// # Errors
/// When there is none, with everything that was looked at; else why the likeliest one cannot be
/// profiled.
pub fn discover(
    files: &[MappedFile],
    images: &dyn OpenImage,
    memory: &dyn Memory,
) -> Result<Runtime, CpythonError> {
    let mut attached: Option<Runtime> = None;
    let mut failure = None;
    let search = find::search(files, images, memory, |found| {
        match (Runtime::attach(found.clone(), memory), attached.take()) {
            (Ok(one), Some(other)) => attached = Some(larger(one, other, memory)),
            (Ok(runtime), None) => attached = Some(runtime),
            (Err(error), before) => {
                attached = before;
                failure.get_or_insert(error);
            }
        }
        attached.is_some()
    });
    if let Some(runtime) = attached {
        return Ok(runtime);
    }
    Err(match (failure, search.before_runtime) {
        (Some(error), _) => error,
        (None, Some(image)) => CpythonError::TooOld {
            image,
            version: None,
        },
        (None, None) => match search.not_running {
            Some((image, version)) => CpythonError::NotInitialised { image, version },
            None => CpythonError::NotFound(search.tried),
        },
    })
}

/// The one with more threads, which notes the other.
fn larger(new: Runtime, known: Runtime, memory: &dyn Memory) -> Runtime {
    let threads = |runtime: &Runtime| runtime.thread_states(memory).map_or(0, |all| all.len());
    let (mut larger, other) = if threads(&new) > threads(&known) {
        (new, known)
    } else {
        (known, new)
    };
    larger.add_other(other);
    larger
}
