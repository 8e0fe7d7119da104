//! Greenlets, gevent's too: those that are suspended, each with its own stack, and which one runs.
//!
//! A greenlet is an object of C++ behind an object of Python (greenlet 2.0 and later). The places of
//! its first fields never changed but with the size of an exception's state; of what comes behind
//! them nothing is believed that does not prove itself. A suspended greenlet keeps its topmost frame,
//! from which the chain leads to its first function; a running one's is its thread's. Which
//! thread that is, tells the stack of exceptions that a suspended one has put away: it ends in the
//! thread's state. Not here: where they are found (`search`).

mod search;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::fmt;

use profiler_common::plan::Plan;
use rustc_hash::{FxHashMap, FxHashSet};

use self::search::{Classes, FLAGS, HEADER};
use super::kinds::Shape;
use super::reader::Eyes;
use super::{Greenlet, Leaf, LoopKind, RunningLoop, Task, TaskKind, TaskName, TaskStatus, Unread};
use crate::cpython::objects::word_at;
use crate::cpython::{ObjectError, Runtime, ThreadState, plan_of_frames};
use crate::pystack::{Chain, ChainEnd, Walker};
use crate::target::Memory as _;
use crate::words::{
    CoroutineAddr, FrameAddr, InterpreterAddr, RemoteAddr, TaskAddr, ThreadStateAddr,
};

/// `stack_stop` of a thread's main greenlet.
const MAIN: u64 = u64::MAX;
/// What is read of the C++ object: in all versions it reaches so far.
const BYTES: usize = 176;
/// Most parents of one that has not begun, most entries of a stack of exceptions.
const MAX_PARENTS: u32 = 16;
const MAX_EXCEPTIONS: u32 = 64;

/// Where the C++ object has its fields (`src/greenlet/TGreenlet.hpp`).
#[derive(Clone, Copy, Debug)]
struct Fields {
    /// The object of Python.
    object: usize,
    /// `_PyErr_StackItem *`.
    exc_info: usize,
    start: usize,
    stop: usize,
    /// A frame object.
    top_frame: usize,
    /// Where `UserGreenlet` may have its main greenlet: it comes behind what has changed often.
    main: &'static [usize],
}

impl Fields {
    const fn of(runtime: &Runtime) -> Self {
        // An entry of the stack of exceptions has four words to 3.10, then two.
        let (stack, main): (usize, &'static [usize]) = if runtime.version().is_at_least(11) {
            (56, &[168, 176, 184, 192, 200])
        } else {
            (72, &[152, 160, 168])
        };
        Self {
            object: 8,
            exc_info: 16,
            start: stack,
            stop: stack + 8,
            top_frame: stack + 48,
            main,
        }
    }
}

/// What is known of the greenlets of a process.
pub(super) struct Greenlets {
    fields: Fields,
    /// None where frames cannot be walked.
    plan: Option<Plan>,
    walker: RefCell<Walker>,
    /// Interpreters that have the module.
    importers: FxHashSet<InterpreterAddr>,
    /// All lists are to be gone through at the next search.
    everywhere: bool,
    classes: Classes,
    /// Those that were found and were not over when they were last looked at.
    known: FxHashSet<TaskAddr>,
    /// Where the last one had its main greenlet.
    main: Cell<Option<usize>>,
    /// The threads of main greenlets, as they were found last.
    threads: FxHashMap<RemoteAddr, ThreadStateAddr>,
}

impl fmt::Debug for Greenlets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Greenlets").finish_non_exhaustive()
    }
}

/// What became of one.
pub(super) enum Found {
    Task(Box<Task>),
    /// A main greenlet that runs: it is its thread.
    Thread,
    /// It is finished, or is none any more.
    Over,
}

/// The C++ object.
struct Own {
    addr: RemoteAddr,
    exc_info: RemoteAddr,
    start: u64,
    stop: u64,
    top_frame: RemoteAddr,
}

impl Own {
    const fn is_main(&self) -> bool {
        self.stop == MAIN
    }

    const fn is_over(&self) -> bool {
        self.stop != 0 && self.start == 0
    }

    /// It has put its stack of exceptions away. Its topmost frame does not tell: one that is in
    /// nothing but C has none.
    const fn is_suspended(&self) -> bool {
        self.stop != 0 && self.start != 0 && self.exc_info.0 != 0
    }
}

impl Greenlets {
    pub(super) fn new(runtime: &Runtime) -> Self {
        Self {
            fields: Fields::of(runtime),
            plan: plan_of_frames(runtime.layout(), runtime.version()),
            walker: RefCell::default(),
            importers: FxHashSet::default(),
            everywhere: false,
            classes: Classes::default(),
            known: FxHashSet::default(),
            main: Cell::new(None),
            threads: FxHashMap::default(),
        }
    }

    /// At the next search all objects are gone through.
    pub(super) fn look_everywhere(&mut self) {
        self.everywhere = true;
    }

    /// Whether the program has greenlets at all.
    pub(super) fn are_there(&self) -> bool {
        !self.importers.is_empty()
    }

    /// Those that are known, in a fixed order.
    pub(super) fn known(&self) -> Vec<TaskAddr> {
        let mut known: Vec<TaskAddr> = self.known.iter().copied().collect();
        known.sort_unstable();
        known
    }

    pub(super) fn forget(&mut self, greenlet: TaskAddr) {
        self.known.remove(&greenlet);
    }

    /// The threads in which greenlets switch, as far as is known.
    pub(super) fn running(&self, states: &[ThreadState]) -> Vec<RunningLoop> {
        let mut running: Vec<RunningLoop> = self
            .threads
            .iter()
            .filter_map(|(main, state)| {
                let state = states.iter().find(|it| it.addr == *state)?;
                Some(RunningLoop {
                    kind: LoopKind::Greenlets,
                    event_loop: *main,
                    state: state.addr,
                    pthread_id: state.pthread_id,
                    interpreter: state.interpreter,
                    current: None,
                })
            })
            .collect();
        running.sort_unstable_by_key(|it| it.event_loop);
        running
    }

    /// Finds the thread of each main greenlet anew, by those that are suspended.
    pub(super) fn find_threads(&mut self, eyes: &Eyes<'_>, states: &[ThreadState]) {
        let Some(exc_state) = eyes.layout.tstate.exc_state else {
            return;
        };
        let ends: FxHashMap<RemoteAddr, ThreadStateAddr> = states
            .iter()
            .map(|it| (RemoteAddr::from(it.addr).plus(exc_state.into()), it.addr))
            .collect();
        let mut threads = FxHashMap::default();
        for greenlet in &self.known {
            let Ok(Some(own)) = eyes.own_greenlet(self, *greenlet) else {
                continue;
            };
            if !own.is_suspended() {
                continue;
            }
            let Some(main) = eyes.main_of(self, *greenlet, &own, 0) else {
                continue;
            };
            if threads.contains_key(&main) {
                continue;
            }
            if let Some(state) = eyes.state_of(own.exc_info, &ends) {
                threads.insert(main, state);
            }
        }
        self.threads = threads;
    }
}

impl Eyes<'_> {
    /// The C++ object; none if there is no greenlet (any more).
    fn own_greenlet(
        &self,
        greenlets: &Greenlets,
        greenlet: TaskAddr,
    ) -> Result<Option<Own>, Unread> {
        let fields = &greenlets.fields;
        let object = RemoteAddr::from(greenlet);
        if self.kind(object)?.shape != Shape::Greenlet {
            return Ok(None);
        }
        // Behind the header: weak references, a dict, and this.
        let at = object.plus(u64::from(self.layout.object.size) + 16);
        let addr = self.memory.pointer(at)?;
        if addr.0 == 0 || !addr.0.is_multiple_of(8) {
            return Err(Unread::OtherGreenlet);
        }
        let mut block = [0; BYTES];
        self.memory
            .read(addr, &mut block)
            .map_err(ObjectError::from)?;
        let word = |offset: usize| word_at(&block, offset).unwrap_or(0);
        if word(fields.object) != greenlet.0 {
            return Err(Unread::OtherGreenlet);
        }
        Ok(Some(Own {
            addr,
            exc_info: RemoteAddr(word(fields.exc_info)),
            start: word(fields.start),
            stop: word(fields.stop),
            top_frame: RemoteAddr(word(fields.top_frame)),
        }))
    }

    /// A greenlet.
    pub(super) fn greenlet(
        &self,
        greenlets: &Greenlets,
        greenlet: TaskAddr,
    ) -> Result<Found, Unread> {
        let Some(own) = self.own_greenlet(greenlets, greenlet)? else {
            return Ok(Found::Over);
        };
        let has_begun = own.stop != 0;
        let status = match (has_begun, own.is_suspended()) {
            _ if own.is_over() => return Ok(Found::Over),
            (false, _) if self.is_tracked(greenlet)? => TaskStatus::Runnable,
            (false, _) => return Ok(Found::Over),
            (true, true) => TaskStatus::Waiting,
            (true, false) if own.is_main() => return Ok(Found::Thread),
            (true, false) => TaskStatus::Running,
        };
        let chain = match (status, &greenlets.plan) {
            (TaskStatus::Waiting, Some(plan)) if own.top_frame.0 != 0 => {
                let frame = match self.layout.frame.of_object {
                    Some(field) => self.memory.pointer(own.top_frame.plus(field.into()))?,
                    None => own.top_frame,
                };
                let mut walker = greenlets.walker.borrow_mut();
                walker.chain_from(self.memory, plan, FrameAddr(frame.0))
            }
            _ => Chain::empty(ChainEnd::NoFrame),
        };
        let main = self.main_of(greenlets, greenlet, &own, 0);
        Ok(Found::Task(Box::new(Task {
            kind: TaskKind::Greenlet(Greenlet {
                class: self.kind(greenlet.into())?.name,
                is_main: own.is_main(),
                has_begun,
                chain,
            }),
            addr: greenlet,
            coro: CoroutineAddr(0),
            name: self.name_of_greenlet(greenlet),
            status,
            frames: Vec::new(),
            leaf: Leaf::Coroutine,
            waits_for: None,
            event_loop: main.unwrap_or(RemoteAddr(0)),
            awaited_by: Vec::new(),
        })))
    }

    /// What it is called, if it has begun and is not over.
    pub(super) fn living_name(
        &self,
        greenlets: &Greenlets,
        greenlet: TaskAddr,
    ) -> Result<Option<TaskName>, Unread> {
        let own = self.own_greenlet(greenlets, greenlet)?;
        let lives = own.is_some_and(|own| own.stop != 0 && !own.is_over());
        Ok(lives.then(|| self.name_of_greenlet(greenlet)))
    }

    /// Whether it runs in its thread.
    pub(super) fn greenlet_runs(&self, greenlets: &Greenlets, greenlet: TaskAddr) -> bool {
        let own = self.own_greenlet(greenlets, greenlet).ok().flatten();
        own.is_some_and(|own| own.stop != 0 && !own.is_over() && !own.is_suspended())
    }

    /// Whether the collector knows it still: it forgets an object before its memory is given back.
    fn is_tracked(&self, greenlet: TaskAddr) -> Result<bool, ObjectError> {
        let node = RemoteAddr(greenlet.0.wrapping_sub(HEADER));
        let next = self.memory.u64(node)? & !FLAGS;
        let previous = self.memory.u64(node.plus(8))? & !FLAGS;
        Ok(next != 0 && previous != 0)
    }

    /// Its attribute `name`, which gevent's have too if their program gave them one.
    fn name_of_greenlet(&self, greenlet: TaskAddr) -> TaskName {
        let dict = RemoteAddr::from(greenlet).plus(u64::from(self.layout.object.size) + 8);
        let dict = self.memory.pointer(dict).unwrap_or(RemoteAddr(0));
        if dict == RemoteAddr(0) {
            return TaskName::Unknown;
        }
        let objects = self.objects();
        match objects.dict_get(dict, "name") {
            Ok(Some(name)) => self.task_name(name),
            _ => TaskName::Unknown,
        }
    }

    /// The main greenlet of its thread. Of one that has not begun it is the one of its parent.
    fn main_of(
        &self,
        greenlets: &Greenlets,
        greenlet: TaskAddr,
        own: &Own,
        parents: u32,
    ) -> Option<RemoteAddr> {
        if own.is_main() {
            return Some(greenlet.into());
        }
        let places = greenlets.main.get();
        let places = places
            .into_iter()
            .chain(greenlets.fields.main.iter().copied());
        let mut parent = None;
        for place in places {
            let Some((other, its)) = self.greenlet_at(greenlets, own, place) else {
                continue;
            };
            if its.is_main() {
                if own.stop != 0 {
                    greenlets.main.set(Some(place));
                }
                return Some(other.into());
            }
            parent = Some((other, its));
        }
        let (parent, its) = parent.filter(|_| parents < MAX_PARENTS)?;
        self.main_of(greenlets, parent, &its, parents + 1)
    }

    /// The greenlet that a field of another one refers to.
    fn greenlet_at(
        &self,
        greenlets: &Greenlets,
        own: &Own,
        place: usize,
    ) -> Option<(TaskAddr, Own)> {
        let other = self.memory.pointer(own.addr.plus(place as u64)).ok()?;
        if other.0 == 0 || !other.0.is_multiple_of(8) {
            return None;
        }
        let other = TaskAddr(other.0);
        let its = self.own_greenlet(greenlets, other).ok()??;
        Some((other, its))
    }

    /// The thread state in which a stack of exceptions ends.
    fn state_of(
        &self,
        exc_info: RemoteAddr,
        ends: &FxHashMap<RemoteAddr, ThreadStateAddr>,
    ) -> Option<ThreadStateAddr> {
        let mut at = exc_info;
        for _ in 0..MAX_EXCEPTIONS {
            if let Some(state) = ends.get(&at) {
                return Some(*state);
            }
            let previous = at.plus(self.layout.exc_item.previous.into());
            at = self.memory.pointer(previous).ok().filter(|it| it.0 != 0)?;
        }
        None
    }
}
