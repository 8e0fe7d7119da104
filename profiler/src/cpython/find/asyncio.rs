//! Where the module `_asyncio` keeps its table of offsets (3.14+): the section `.AsyncioDebug` of
//! its own file, or of the interpreter's where it is built in.
//!
//! Headers of sections are in no memory, so the file is opened. What the table says is read from
//! the memory.

use super::budget::Budget;
use super::image::{self, Depth};
use super::images::{self, Image};
use super::mapped::Metered;
use super::{MappedFile, OPENING, OpenImage};
use crate::cpython::layout::asyncio_table::{AsyncioTable, TABLE_BYTES};
use crate::cpython::runtime::Runtime;
use crate::target::Memory;
use crate::words::RemoteAddr;

/// The table of the module that a process has loaded; none before it has, and before 3.14.
pub fn asyncio_table(
    files: &[MappedFile],
    opener: &dyn OpenImage,
    memory: &dyn Memory,
    runtime: &Runtime,
) -> Option<AsyncioTable> {
    if !runtime.version().is_at_least(14) {
        return None;
    }
    let budget = Budget::default();
    let images = images::in_order(files);
    let is_module = |image: &&Image<'_>| {
        let name = image.path().rsplit('/').next().unwrap_or_default();
        name.starts_with("_asyncio.")
    };
    let holds_python = |image: &&Image<'_>| image.path() == runtime.found().image;
    let modules = images.iter().filter(is_module);
    let all = modules.chain(images.iter().filter(holds_python));
    all.filter(|image| !image.is_unlikely).find_map(|image| {
        if !budget.spend(OPENING) {
            return None;
        }
        let stream = opener.open(image.mappings.first()?).ok()?;
        let stream = Metered {
            stream,
            budget: &budget,
        };
        let facts = image::examine(Box::new(stream), &image.mappings, Depth::Names).ok()?;
        let at = facts.asyncio_section?.wrapping_add(facts.bias?);
        let mut bytes = [0; TABLE_BYTES];
        memory.read(RemoteAddr(at), &mut bytes).ok()?;
        AsyncioTable::decode(&bytes)
    })
}
