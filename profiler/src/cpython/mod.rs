//! What interpreter a process runs: where its runtime is, which version, how its structures are
//! laid out, and what can be read from it in one go.
//!
//! A CPython version is a table here, not a fork of the code. Not here: which kernel thread is
//! which ([`crate::threads`]) and what the frames mean ([`crate::pystack`]).

pub mod attachment;
pub mod dicts;
pub mod error;
#[cfg(test)]
pub(crate) mod fake;
pub mod find;
pub mod layout;
pub mod objects;
pub mod plan;
pub mod runtime;
pub mod thread_names;
pub mod version;

pub use attachment::Attachment;
pub use error::CpythonError;
pub use find::{MappedFile, OpenImage, ReadSeek};
pub use layout::Layout;
pub use objects::{ObjectError, Objects};
pub use plan::{Wishes, plan, plan_without_python};
pub use runtime::{Runtime, ThreadState};
pub use thread_names::{thread_names, thread_names_of};
pub use version::{Build, Version};

use crate::target::Memory;

/// Finds the interpreter of a process and attaches to it.
///
/// Of several runtimes in one process (a program and a plugin that brought its own), the first
/// one that runs is taken.
///
/// # Errors
/// When there is none, with everything that was looked at; else why the likeliest one cannot be
/// profiled.
pub fn discover(
    files: &[MappedFile],
    images: &dyn OpenImage,
    memory: &dyn Memory,
) -> Result<Runtime, CpythonError> {
    let mut attached = None;
    let mut failure = None;
    let search = find::search(files, images, memory, |found| {
        match Runtime::attach(found.clone(), memory) {
            Ok(runtime) => attached = Some(runtime),
            Err(error) => {
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
        (None, None) => CpythonError::NotFound(search.tried),
    })
}
