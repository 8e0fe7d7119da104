//! Names that the program gave its threads: `threading._active`, read from outside.
//!
//! Best effort: what cannot be read just has no name. Threads that `threading` never saw are
//! not there.

use rustc_hash::FxHashMap;

use super::objects::Objects;
use super::runtime::Runtime;
use crate::target::Memory;
use crate::words::{InterpreterAddr, PthreadId, RemoteAddr};

/// Most entries of dicts that are looked at for all names together: a thread has some fifteen
/// attributes, and each table by itself may be said to be long.
const MAX_ENTRIES: usize = 1 << 20;

/// The names of the threads that Python started, in all interpreters.
#[must_use]
pub fn thread_names(runtime: &Runtime, memory: &dyn Memory) -> FxHashMap<PthreadId, String> {
    thread_names_of(runtime, memory, &|_| true)
}

/// The same for the threads that are `wanted` alone: a name costs a dozen reads, and a process
/// may have thousands of threads of which few ever run.
#[must_use]
pub fn thread_names_of(
    runtime: &Runtime,
    memory: &dyn Memory,
    wanted: &dyn Fn(PthreadId) -> bool,
) -> FxHashMap<PthreadId, String> {
    let mut search = Search {
        runtime,
        objects: runtime.objects(memory),
        wanted,
        left: MAX_ENTRIES,
        names: FxHashMap::default(),
    };
    for interpreter in runtime.interpreters(memory).unwrap_or_default() {
        // The main interpreter comes last and has the last word on a thread that several use.
        search.names_of(interpreter);
    }
    search.names
}

type Entries = Vec<(RemoteAddr, RemoteAddr)>;

struct Search<'a> {
    runtime: &'a Runtime,
    objects: Objects<'a>,
    wanted: &'a dyn Fn(PthreadId) -> bool,
    /// Entries that may still be looked at.
    left: usize,
    names: FxHashMap<PthreadId, String>,
}

impl Search<'_> {
    fn names_of(&mut self, interpreter: InterpreterAddr) -> Option<()> {
        let objects = self.objects;
        let tagged = self.runtime.version().is_at_least(12);
        let modules = self.runtime.layout().interp.modules;
        let modules = RemoteAddr::from(interpreter).plus(modules.into());
        let modules = objects.memory.pointer(modules).ok()?;
        let threading = self.entry(modules, "threading")?;
        let variables = objects.module_dict(threading).ok()?;
        let active = self.entry(variables, "_active")?;
        let threads = objects.dict_entries(active).ok()?;
        for (ident, thread) in self.spend(threads)? {
            let Ok(ident) = objects.small_int(ident, tagged).map(PthreadId) else {
                continue;
            };
            if !(self.wanted)(ident) {
                continue;
            }
            let attributes = objects.attribute_entries(thread).unwrap_or_default();
            let attributes = self.spend(attributes)?;
            let name = objects.pick(&attributes, "_name");
            if let Some(name) = name.and_then(|name| objects.string(name).ok()) {
                self.names.insert(ident, name);
            }
        }
        Some(())
    }

    fn entry(&mut self, dict: RemoteAddr, name: &str) -> Option<RemoteAddr> {
        let entries = self.objects.dict_entries(dict).ok()?;
        let entries = self.spend(entries)?;
        self.objects.pick(&entries, name)
    }

    /// The entries, if they are still to be looked at.
    fn spend(&mut self, entries: Entries) -> Option<Entries> {
        // One more, since an empty table has cost its reads as well.
        self.left = self.left.checked_sub(entries.len() + 1)?;
        Some(entries)
    }
}
