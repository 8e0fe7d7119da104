//! Snapshots of all tasks, one after the other; what has not changed since the last one is not
//! walked again.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::chain::Awaits;
use super::greenlets::{Found, Greenlets};
use super::kinds::Kinds;
use super::places::{Listed, Places};
use super::sheet::{Note, Sheet};
use super::{RunningLoop, Snapshot, Task, TaskKind};
use crate::cpython::{
    AsyncioTable, CpythonError, Layout, ObjectError, Objects, Runtime, ThreadState,
};
use crate::target::Memory;
use crate::words::{InterpreterAddr, RemoteAddr, TaskAddr};

/// Tasks whose pages are brought at once.
const BATCH: usize = 4096;
/// What is read of a task, of a coroutine and its frame, about.
const TASK_BYTES: u32 = 192;
const COROUTINE_BYTES: u32 = 256;

/// What reading objects of one snapshot takes.
pub(super) struct Eyes<'a> {
    pub(super) memory: &'a Sheet<'a>,
    pub(super) layout: &'a Layout,
    pub(super) kinds: &'a Kinds,
    /// Types, which belong to no task.
    pub(super) types: Objects<'a>,
    pub(super) awaits: Awaits,
    /// Ints are as in 3.12 and later.
    pub(super) tagged_ints: bool,
}

impl Eyes<'_> {
    pub(super) fn objects(&self) -> Objects<'_> {
        Objects {
            memory: self.memory,
            layout: self.layout,
        }
    }
}

/// What is known of a task, and what was read to know it.
#[derive(Debug)]
struct Known {
    /// None: it is finished.
    task: Option<Arc<Task>>,
    note: Note,
}

/// Reads the tasks of one process.
#[derive(Debug)]
pub struct TaskReader {
    layout: Layout,
    awaits: Awaits,
    tagged_ints: bool,
    /// Where each interpreter's module keeps its tasks.
    places: FxHashMap<InterpreterAddr, Places>,
    known: FxHashMap<TaskAddr, Known>,
    greenlets: Greenlets,
    /// Greenlets were looked for since the last snapshot, and what kept that from being whole.
    has_looked: bool,
    broken: Vec<ObjectError>,
}

impl TaskReader {
    /// A reader by the measured layout, and by the table that the target's own `_asyncio` carries
    /// (3.14+), where it was found.
    #[must_use]
    pub fn new(runtime: &Runtime, table: Option<&AsyncioTable>) -> Self {
        let mut layout = *runtime.layout();
        if let Some(table) = table {
            table.overlay(&mut layout);
        }
        Self {
            layout,
            awaits: Awaits::of(runtime.version()),
            tagged_ints: runtime.version().is_at_least(12),
            places: FxHashMap::default(),
            known: FxHashMap::default(),
            greenlets: Greenlets::new(runtime),
            has_looked: false,
            broken: Vec::new(),
        }
    }

    /// Looks for greenlets among all objects, which takes long if there are many. Snapshots look
    /// among the newest alone, but for the first one that meets any.
    ///
    /// # Errors
    /// When the lists of interpreters and threads could not be read.
    pub fn look_everywhere(
        &mut self,
        runtime: &Runtime,
        memory: &dyn Memory,
    ) -> Result<(), CpythonError> {
        self.greenlets.look_everywhere();
        let threads = runtime.thread_states(memory)?;
        let interpreters = self.find(runtime, memory)?;
        self.broken = self.find_greenlets(runtime, memory, &interpreters, &threads);
        Ok(())
    }

    /// The loops that run, without the tasks: whose threads a snapshot depends on.
    ///
    /// # Errors
    /// When the lists of interpreters and threads could not be read.
    pub fn loops(
        &mut self,
        runtime: &Runtime,
        memory: &dyn Memory,
    ) -> Result<Vec<RunningLoop>, CpythonError> {
        let threads = runtime.thread_states(memory)?;
        let interpreters = self.find(runtime, memory)?;
        let mut broken = self.find_greenlets(runtime, memory, &interpreters, &threads);
        self.broken.append(&mut broken);
        self.has_looked = true;
        let (sheet, kinds) = (Sheet::new(memory), Kinds::default());
        Ok(self.running(&self.eyes(memory, &sheet, &kinds), &threads))
    }

    /// All tasks now. It holds together if no loop's thread ran meanwhile, which the caller has to
    /// prove.
    ///
    /// # Errors
    /// When the lists of interpreters and threads could not be read.
    pub fn snapshot(
        &mut self,
        runtime: &Runtime,
        memory: &dyn Memory,
    ) -> Result<Snapshot, CpythonError> {
        let interpreters = self.find(runtime, memory)?;
        let threads = runtime.thread_states(memory)?;
        if !std::mem::take(&mut self.has_looked) {
            let mut broken = self.find_greenlets(runtime, memory, &interpreters, &threads);
            self.broken.append(&mut broken);
        }
        let mut broken_lists = std::mem::take(&mut self.broken);
        let (sheet, kinds) = (Sheet::new(memory), Kinds::default());
        let mut known = std::mem::take(&mut self.known);
        let eyes = self.eyes(memory, &sheet, &kinds);
        // A list of tasks leads from one to the next, so bring those that were in it.
        sheet.fetch(known.keys().map(|task| ((*task).into(), TASK_BYTES)));
        let mut listed = Listed::default();
        for interpreter in interpreters {
            let own = threads.iter().filter(|it| it.interpreter == interpreter);
            for head in eyes.heads(interpreter, own.map(|it| it.addr)) {
                eyes.list_links(head, &mut listed);
            }
            let places = self.places.get(&interpreter);
            for list in places.iter().flat_map(|places| &places.lists) {
                eyes.list_set(*list, &mut listed);
            }
        }
        broken_lists.append(&mut listed.broken);
        let mut snapshot = Snapshot {
            loops: self.running(&eyes, &threads),
            left_out: listed.left_out,
            broken_lists,
            ..Snapshot::default()
        };
        let mut kept = FxHashMap::default();
        for batch in listed.tasks.chunks(BATCH) {
            eyes.bring(batch, &known);
            for addr in batch {
                let before = known.remove(addr);
                if let Some(before) = before.filter(|it| sheet.agrees(&it.note)) {
                    snapshot.unchanged += 1;
                    snapshot.tasks.extend(before.task.clone());
                    kept.insert(*addr, before);
                    continue;
                }
                sheet.begin_note();
                let read = eyes.task(*addr);
                let note = sheet.end_note();
                match read {
                    Ok(task) => {
                        let task = task.map(Arc::new);
                        snapshot.tasks.extend(task.clone());
                        kept.extend(note.map(|note| (*addr, Known { task, note })));
                    }
                    Err(why) => snapshot.unreadable.push((*addr, why)),
                }
            }
        }
        let mut over = Vec::new();
        for batch in self.greenlets.known().chunks(BATCH) {
            let noted = batch.iter().filter_map(|addr| known.get(addr));
            let places = noted.flat_map(|known| known.note.places().iter().copied());
            let itself = batch.iter().map(|addr| ((*addr).into(), TASK_BYTES));
            sheet.fetch(places.chain(itself));
            for addr in batch {
                let before = known.remove(addr);
                if let Some(before) = before.filter(|it| sheet.agrees(&it.note)) {
                    snapshot.unchanged += u64::from(before.task.is_some());
                    snapshot.tasks.extend(before.task.clone());
                    kept.insert(*addr, before);
                    continue;
                }
                sheet.begin_note();
                let read = eyes.greenlet(&self.greenlets, *addr);
                let note = sheet.end_note();
                let task = match read {
                    Ok(Found::Task(task)) => Some(Arc::from(task)),
                    Ok(Found::Thread) => None,
                    Ok(Found::Over) => {
                        over.push(*addr);
                        continue;
                    }
                    Err(why) => {
                        snapshot.unreadable.push((*addr, why));
                        over.push(*addr);
                        continue;
                    }
                };
                snapshot.tasks.extend(task.clone());
                kept.extend(note.map(|note| (*addr, Known { task, note })));
            }
        }
        for greenlet in over {
            self.greenlets.forget(greenlet);
        }
        self.known = kept;
        Ok(snapshot)
    }

    /// Looks for greenlets, and for the threads of those that are known.
    fn find_greenlets(
        &mut self,
        runtime: &Runtime,
        memory: &dyn Memory,
        interpreters: &[InterpreterAddr],
        threads: &[ThreadState],
    ) -> Vec<ObjectError> {
        let layout = self.layout;
        let objects = Objects {
            memory,
            layout: &layout,
        };
        let broken = self.greenlets.search(runtime, objects, interpreters);
        if self.greenlets.are_there() {
            let (sheet, kinds) = (Sheet::new(memory), Kinds::default());
            let eyes = Eyes {
                memory: &sheet,
                layout: &layout,
                kinds: &kinds,
                types: objects,
                awaits: self.awaits,
                tagged_ints: self.tagged_ints,
            };
            self.greenlets.find_threads(&eyes, threads);
        }
        broken
    }

    /// Whether a task that was read still stands where it stood, with its name, finished or not.
    #[must_use]
    pub fn has_its_name(&self, memory: &dyn Memory, task: &Task) -> bool {
        let (sheet, kinds) = (Sheet::new(memory), Kinds::default());
        let eyes = self.eyes(memory, &sheet, &kinds);
        match task.kind {
            TaskKind::Asyncio => eyes.name_of(task.addr).is_ok_and(|name| name == task.name),
            TaskKind::Greenlet(_) => {
                let name = eyes.living_name(&self.greenlets, task.addr);
                name.is_ok_and(|name| name.is_some_and(|name| name == task.name))
            }
        }
    }

    /// Whether a greenlet runs now.
    #[must_use]
    pub fn greenlet_runs(&self, memory: &dyn Memory, greenlet: &Task) -> bool {
        let (sheet, kinds) = (Sheet::new(memory), Kinds::default());
        let eyes = self.eyes(memory, &sheet, &kinds);
        eyes.greenlet_runs(&self.greenlets, greenlet.addr)
    }

    fn eyes<'a>(
        &'a self,
        memory: &'a dyn Memory,
        sheet: &'a Sheet<'a>,
        kinds: &'a Kinds,
    ) -> Eyes<'a> {
        Eyes {
            memory: sheet,
            layout: &self.layout,
            kinds,
            types: Objects {
                memory,
                layout: &self.layout,
            },
            awaits: self.awaits,
            tagged_ints: self.tagged_ints,
        }
    }

    /// Looks for the modules of interpreters that had none the last time.
    fn find(
        &mut self,
        runtime: &Runtime,
        memory: &dyn Memory,
    ) -> Result<Vec<InterpreterAddr>, CpythonError> {
        let interpreters = runtime.interpreters(memory)?;
        self.places.retain(|known, _| interpreters.contains(known));
        for interpreter in &interpreters {
            if !self.places.contains_key(interpreter) {
                let objects = Objects {
                    memory,
                    layout: &self.layout,
                };
                let places = Places::find(runtime, objects, *interpreter);
                self.places
                    .extend(places.map(|places| (*interpreter, places)));
            }
        }
        Ok(interpreters)
    }

    fn running(&self, eyes: &Eyes<'_>, threads: &[ThreadState]) -> Vec<RunningLoop> {
        let current = self.places.values().filter_map(|places| places.current);
        let current: FxHashMap<RemoteAddr, TaskAddr> =
            current.flat_map(|dict| eyes.current_tasks(dict)).collect();
        let running = threads.iter();
        running
            .filter_map(|thread| eyes.running_loop(thread, &current))
            .chain(self.greenlets.running(threads))
            .collect()
    }
}

impl Eyes<'_> {
    /// Brings what these tasks are likely to need: where they were read before, and of the others
    /// themselves and their coroutines.
    fn bring(&self, tasks: &[TaskAddr], known: &FxHashMap<TaskAddr, Known>) {
        let known_ones = tasks.iter().filter_map(|task| known.get(task));
        let places = known_ones.flat_map(|known| known.note.places().iter().copied());
        let new = || tasks.iter().filter(|task| !known.contains_key(task));
        let itself = new().map(|task| (RemoteAddr::from(*task), TASK_BYTES));
        self.memory.fetch(places.chain(itself));
        let field = u64::from(self.layout.task.coro);
        let coroutines = new().filter_map(|task| {
            let coroutine = self.memory.pointer(RemoteAddr::from(*task).plus(field));
            Some((coroutine.ok()?, COROUTINE_BYTES))
        });
        self.memory
            .fetch(coroutines.collect::<Vec<_>>().into_iter());
    }
}
