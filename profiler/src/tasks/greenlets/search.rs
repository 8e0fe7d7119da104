//! Finding greenlets: nothing lists them but the collector, among all other objects.
//!
//! Where they were found is remembered. All of the collector's lists are gone through when the
//! caller says so, for they can be long; the newest objects, which are at the end of the first
//! list, at every snapshot. Builds without a GIL have no such lists.

use rustc_hash::FxHashMap;

use super::Greenlets;
use crate::cpython::objects::word_at;
use crate::cpython::{Build, Layout, ObjectError, Objects, Runtime};
use crate::tasks::MAX_TASKS;
use crate::tasks::kinds::{Kinds, Shape};
use crate::tasks::sheet::Sheet;
use crate::words::{InterpreterAddr, RemoteAddr, TaskAddr};

/// Size of the header that the collector puts before an object (3.8+).
pub(super) const HEADER: u64 = 16;
/// Bits of its two words that are flags. One more would be too many: within 3.13 there are heads at
/// odd multiples of four.
pub(super) const FLAGS: u64 = 3;
/// The lists of an interpreter.
const LISTS: u64 = 3;
/// Most objects of one list that are looked at.
const MAX_OBJECTS: usize = 1 << 23;
/// Most of the newest.
const MAX_NEWEST: usize = 1 << 13;
/// Most types that are remembered.
const MAX_TYPES: usize = 1 << 14;

/// What is known of types: whether their instances are greenlets.
#[derive(Debug, Default)]
pub(super) struct Classes(FxHashMap<RemoteAddr, bool>);

/// Which way, and how far, a list is gone through.
#[derive(Clone, Copy, Debug)]
enum Extent {
    /// From the newest on.
    Newest,
    All,
}

impl Greenlets {
    /// Looks for greenlets in the interpreters whose programs have imported their module.
    pub(in crate::tasks) fn search(
        &mut self,
        runtime: &Runtime,
        objects: Objects<'_>,
        interpreters: &[InterpreterAddr],
    ) -> Vec<ObjectError> {
        if runtime.build() != Build::Default || self.plan.is_none() {
            return Vec::new();
        }
        self.importers.retain(|known| interpreters.contains(known));
        for interpreter in interpreters {
            if !self.importers.contains(interpreter) && imported(objects, *interpreter) {
                self.importers.insert(*interpreter);
                self.everywhere = true;
            }
        }
        if self.importers.is_empty() {
            return Vec::new();
        }
        let extent = if std::mem::take(&mut self.everywhere) {
            self.classes.0.clear();
            Extent::All
        } else {
            Extent::Newest
        };
        let sheet = Sheet::new(objects.memory);
        let (kinds, mut broken) = (Kinds::default(), Vec::new());
        let on_sheet = Objects {
            memory: &sheet,
            layout: objects.layout,
        };
        for interpreter in self.importers.clone() {
            let lists = match extent {
                Extent::All => LISTS,
                Extent::Newest => 1,
            };
            for head in heads(runtime, on_sheet, interpreter).take(lists as usize) {
                let outcome = self.go_through(objects, on_sheet, &kinds, head, extent);
                // While objects are collected the newest cannot be found.
                if let (Err(error), Extent::All) = (outcome, extent) {
                    broken.push(error);
                }
            }
        }
        broken
    }

    fn go_through(
        &mut self,
        types: Objects<'_>,
        objects: Objects<'_>,
        kinds: &Kinds,
        head: RemoteAddr,
        extent: Extent,
    ) -> Result<(), ObjectError> {
        let (most, link) = match extent {
            Extent::Newest => (MAX_NEWEST, 8),
            Extent::All => (MAX_OBJECTS, 0),
        };
        let type_at = HEADER as usize + objects.layout.object.ob_type as usize;
        let no_list = |addr| ObjectError::WrongType {
            addr,
            expected: "list of the collector",
        };
        let mut at = RemoteAddr(objects.memory.u64(head.plus(link))? & !FLAGS);
        // Where it was at the last power of two: who comes there again goes round in a circle.
        let (mut steps, mut mark) = (0_usize, at);
        while at != head {
            if at == RemoteAddr(0) || !at.0.is_multiple_of(4) {
                return Err(no_list(at));
            }
            let mut block = [0; 64];
            let block = block.get_mut(..type_at + 8).ok_or(no_list(at))?;
            objects.memory.read(at, block)?;
            let class = RemoteAddr(word_at(block, type_at).unwrap_or(0));
            if self.is_greenlets(types, objects, kinds, class, at) && self.known.len() < MAX_TASKS {
                self.known.insert(TaskAddr(at.plus(HEADER).0));
            }
            at = RemoteAddr(word_at(block, link as usize).unwrap_or(0) & !FLAGS);
            steps += 1;
            if steps == most {
                return Ok(());
            }
            if at == mark {
                return Err(no_list(at));
            }
            if steps.is_power_of_two() {
                mark = at;
            }
        }
        Ok(())
    }

    fn is_greenlets(
        &mut self,
        types: Objects<'_>,
        objects: Objects<'_>,
        kinds: &Kinds,
        class: RemoteAddr,
        node: RemoteAddr,
    ) -> bool {
        if let Some(known) = self.classes.0.get(&class) {
            return *known;
        }
        let kind = kinds.of(objects, types, node.plus(HEADER));
        let is_greenlet = kind.is_ok_and(|kind| kind.shape == Shape::Greenlet);
        if self.classes.0.len() < MAX_TYPES {
            self.classes.0.insert(class, is_greenlet);
        }
        is_greenlet
    }
}

/// Whether the program has imported the module.
fn imported(objects: Objects<'_>, interpreter: InterpreterAddr) -> bool {
    let modules = RemoteAddr::from(interpreter).plus(objects.layout.interp.modules.into());
    let modules = objects.memory.pointer(modules).ok();
    let module = modules.and_then(|dict| objects.dict_get(dict, "greenlet").ok());
    module.flatten().is_some()
}

/// The heads of an interpreter's lists, the youngest first.
fn heads(
    runtime: &Runtime,
    objects: Objects<'_>,
    interpreter: InterpreterAddr,
) -> impl Iterator<Item = RemoteAddr> {
    let Layout { gc, interp, .. } = objects.layout;
    let collecting = match (interp.gc_collecting, objects.layout.runtime.gc_collecting) {
        (Some(field), _) => Some(RemoteAddr::from(interpreter).plus(field.into())),
        (None, Some(field)) => Some(runtime.found().runtime.plus(field.into())),
        (None, None) => None,
    };
    let first = collecting.map(|at| {
        let state = RemoteAddr(at.0.wrapping_sub(gc.collecting.into()));
        state.plus(gc.generations.into())
    });
    let size = u64::from(gc.generation_size);
    first
        .into_iter()
        .flat_map(move |first| (0..LISTS).map(move |index| first.plus(size * index)))
}
