//! Snapshots of all tasks, one after the other; what has not changed since the last one is not
//! walked again.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::chain::Awaits;
use super::greenlets::{Found, Greenlets};
use super::kinds::Kinds;
use super::known::{Bundle, Known, KnownTasks};
use super::pages::Pages;
use super::places::{Listed, Places};
use super::sheet::Sheet;
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

/// Tasks that are listed, and what is known of them.
enum Before {
    /// Nothing of theirs has changed.
    Bundle(Bundle),
    Known(Known),
    New(TaskAddr),
}

impl Before {
    const fn known(&self) -> Option<&Known> {
        match self {
            Self::Known(known) => Some(known),
            Self::Bundle(_) | Self::New(_) => None,
        }
    }

    const fn new_one(&self) -> Option<TaskAddr> {
        match self {
            Self::New(addr) => Some(*addr),
            Self::Bundle(_) | Self::Known(_) => None,
        }
    }
}

/// Reads the tasks of one process.
#[derive(Debug)]
pub struct TaskReader {
    layout: Layout,
    awaits: Awaits,
    tagged_ints: bool,
    /// Where each interpreter's module keeps its tasks.
    places: FxHashMap<InterpreterAddr, Places>,
    known: KnownTasks,
    /// What they were read from.
    pages: Pages,
    last: Option<Arc<Snapshot>>,
    greenlets: Greenlets,
    known_greenlets: KnownTasks,
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
            known: KnownTasks::default(),
            pages: Pages::default(),
            last: None,
            greenlets: Greenlets::new(runtime),
            known_greenlets: KnownTasks::default(),
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
    ) -> Result<Arc<Snapshot>, CpythonError> {
        self.snapshot_since(runtime, memory, &|_| false)
    }

    /// All tasks now, where the caller can prove of a loop that its thread has not run since the
    /// snapshot before was begun: of its tasks nothing is read, and nothing at all if that is so of
    /// every loop, of which there is at least one. A loop that has come to run since is then seen
    /// with the next snapshot that reads.
    ///
    /// # Errors
    /// As [`Self::snapshot`].
    pub fn snapshot_since(
        &mut self,
        runtime: &Runtime,
        memory: &dyn Memory,
        has_rested: &dyn Fn(&RunningLoop) -> bool,
    ) -> Result<Arc<Snapshot>, CpythonError> {
        let last = self.last.take();
        let loops = last.iter().flat_map(|last| &last.loops);
        let rested: FxHashSet<RemoteAddr> = loops
            .filter(|running| has_rested(running))
            .map(|running| running.event_loop)
            .collect();
        if let Some(last) = last
            && !rested.is_empty()
            && rested.len() == last.loops.len()
            && last.unreadable.is_empty()
            && !self.has_looked
        {
            let snapshot = if last.unchanged == last.tasks.len() as u64 {
                last
            } else {
                let mut same = Arc::unwrap_or_clone(last);
                same.unchanged = same.tasks.len() as u64;
                Arc::new(same)
            };
            self.last = Some(Arc::clone(&snapshot));
            return Ok(snapshot);
        }
        let snapshot = Arc::new(self.read(runtime, memory, &rested)?);
        self.last = Some(Arc::clone(&snapshot));
        Ok(snapshot)
    }

    fn read(
        &mut self,
        runtime: &Runtime,
        memory: &dyn Memory,
        rested: &FxHashSet<RemoteAddr>,
    ) -> Result<Snapshot, CpythonError> {
        let interpreters = self.find(runtime, memory)?;
        let threads = runtime.thread_states(memory)?;
        if !std::mem::take(&mut self.has_looked) {
            let mut broken = self.find_greenlets(runtime, memory, &interpreters, &threads);
            self.broken.append(&mut broken);
        }
        let mut broken_lists = std::mem::take(&mut self.broken);
        let kinds = Kinds::default();
        let mut known_greenlets = std::mem::take(&mut self.known_greenlets);
        let mut known = std::mem::take(&mut self.known);
        let sheet = Sheet::over(memory, std::mem::take(&mut self.pages));
        let eyes = self.eyes(memory, &sheet, &kinds);
        let is_at_rest = |known: &Known| {
            !rested.is_empty() && {
                let task = known.task.as_ref();
                task.is_some_and(|task| rested.contains(&task.event_loop))
            }
        };
        if rested.is_empty() {
            sheet.fetch_all_again();
        } else {
            // A list of tasks leads from one to the next, so bring those that were in it.
            let listed = known.iter().map(|it| (it.addr.into(), TASK_BYTES));
            let read = known.iter().filter(|it| !is_at_rest(it));
            sheet.fetch(listed.chain(read.flat_map(|it| it.note.places())));
        }
        let mut listed = Listed::with_capacity(known.len());
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
        let mut kept = KnownTasks::default();
        snapshot.tasks.reserve(listed.tasks.len());
        let mut rest = &*listed.tasks;
        while !rest.is_empty() {
            let mut batch = Vec::new();
            while batch.len() < BATCH
                && let Some((addr, behind)) = rest.split_first()
            {
                let bundle = (rested.is_empty() && !sheet.has_overflowed())
                    .then(|| known.take_bundle(rest, |bundle| sheet.has_stayed(bundle)))
                    .flatten();
                if let Some(bundle) = bundle {
                    rest = rest.get(bundle.len()..).unwrap_or_default();
                    batch.push(Before::Bundle(bundle));
                } else {
                    rest = behind;
                    batch.push(known.take(*addr).map_or(Before::New(*addr), Before::Known));
                }
            }
            if sheet.has_overflowed() {
                let one_by_one = batch.iter().filter_map(Before::known);
                let read = one_by_one.filter(|it| !is_at_rest(it));
                sheet.fetch(read.flat_map(|it| it.note.places()));
            }
            eyes.bring_new(&batch.iter().filter_map(Before::new_one).collect::<Vec<_>>());
            for before in batch {
                let addr = match before {
                    Before::Bundle(bundle) => {
                        snapshot.unchanged += bundle.len() as u64;
                        let tasks = bundle.iter().filter_map(|it| it.task.clone());
                        snapshot.tasks.extend(tasks);
                        kept.push_bundle(bundle);
                        continue;
                    }
                    Before::Known(mut known) => {
                        let rests = is_at_rest(&known);
                        if rests {
                            sheet.keep(&mut known.note);
                        }
                        if rests || sheet.agrees(&mut known.note) {
                            snapshot.unchanged += 1;
                            snapshot.tasks.extend(known.task.clone());
                            kept.push(known);
                            continue;
                        }
                        known.addr
                    }
                    Before::New(addr) => addr,
                };
                sheet.begin_note();
                let read = eyes.task(addr);
                let note = sheet.end_note();
                match read {
                    Ok(task) => {
                        let task = task.map(Arc::new);
                        snapshot.tasks.extend(task.clone());
                        if let Some(note) = note {
                            kept.push(Known { addr, task, note });
                        }
                    }
                    Err(why) => snapshot.unreadable.push((addr, why)),
                }
            }
        }
        kept.finish();
        let mut kept_greenlets = KnownTasks::default();
        let mut over = Vec::new();
        for batch in self.greenlets.known().chunks(BATCH) {
            let before = batch.iter().map(|addr| known_greenlets.take(*addr));
            let before: Vec<Option<Known>> = before.collect();
            let noted = before.iter().flatten();
            let places = noted.flat_map(|known| known.note.places());
            let itself = batch.iter().map(|addr| ((*addr).into(), TASK_BYTES));
            sheet.fetch(places.chain(itself));
            for (addr, before) in batch.iter().zip(before) {
                if let Some(mut before) = before
                    && sheet.agrees(&mut before.note)
                {
                    snapshot.unchanged += u64::from(before.task.is_some());
                    snapshot.tasks.extend(before.task.clone());
                    kept_greenlets.push(before);
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
                if let Some(note) = note {
                    kept_greenlets.push(Known {
                        addr: *addr,
                        task,
                        note,
                    });
                }
            }
        }
        for greenlet in over {
            self.greenlets.forget(greenlet);
        }
        kept_greenlets.finish();
        self.known = kept;
        self.known_greenlets = kept_greenlets;
        self.pages = sheet.end();
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
    /// Brings what tasks that are not known yet are likely to need: themselves and their coroutines.
    fn bring_new(&self, tasks: &[TaskAddr]) {
        let tasks = || tasks.iter().map(|task| RemoteAddr::from(*task));
        self.memory.fetch(tasks().map(|task| (task, TASK_BYTES)));
        let field = u64::from(self.layout.task.coro);
        let coroutines = tasks().filter_map(|task| {
            let coroutine = self.memory.pointer(task.plus(field));
            Some((coroutine.ok()?, COROUTINE_BYTES))
        });
        self.memory
            .fetch(coroutines.collect::<Vec<_>>().into_iter());
    }
}
