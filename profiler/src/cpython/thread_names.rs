//! Names that the program gave its threads: `threading._active`, read from outside.
//!
//! Best effort: what cannot be read just has no name. Threads that `threading` never saw are
//! not there.

use rustc_hash::FxHashMap;

use super::runtime::Runtime;
use crate::target::Memory;
use crate::words::{InterpreterAddr, PthreadId, RemoteAddr};

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
    let mut names = FxHashMap::default();
    for interpreter in runtime.interpreters(memory).unwrap_or_default() {
        // The main interpreter comes last and has the last word on a thread that several use.
        names_of(runtime, memory, interpreter, wanted, &mut names);
    }
    names
}

fn names_of(
    runtime: &Runtime,
    memory: &dyn Memory,
    interpreter: InterpreterAddr,
    wanted: &dyn Fn(PthreadId) -> bool,
    names: &mut FxHashMap<PthreadId, String>,
) -> Option<()> {
    let objects = runtime.objects(memory);
    let tagged = runtime.version().is_at_least(12);
    let modules = RemoteAddr::from(interpreter).plus(runtime.layout().interp.modules.into());
    let modules = memory.pointer(modules).ok()?;
    let threading = objects.dict_get(modules, "threading").ok()??;
    let variables = objects.module_dict(threading).ok()?;
    let active = objects.dict_get(variables, "_active").ok()??;
    for (ident, thread) in objects.dict_entries(active).ok()? {
        let Ok(ident) = objects.small_int(ident, tagged).map(PthreadId) else {
            continue;
        };
        if !wanted(ident) {
            continue;
        }
        let name = objects.attribute(thread, "_name").ok().flatten();
        if let Some(name) = name.and_then(|name| objects.string(name).ok()) {
            names.insert(ident, name);
        }
    }
    Some(())
}
