//! Which greenlet ran at a tick: the one whose first function's frame is at the root of the thread's
//! chain, for as long as it lives.
//!
//! Whose a frame is, is known of those that are suspended at a snapshot, and of the one that runs
//! meanwhile. A greenlet that no snapshot has met has its first function's name, which the chain
//! tells. A thread's main greenlet is the thread itself.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    ran::{Ran, Seen, last_of},
    stack::{name_of, root_frame},
};
use crate::{
    pipeline::session::{Kit, member::Member, task_books},
    pystack::{Chain, PyFrame},
    tasks::{LoopKind, Snapshot, Task, TaskStatus},
    wire::Tick,
    words::{DurationNs, FrameAddr, MonotonicNs, TaskAddr, ThreadStateAddr},
};

/// How soon it is asked again whose a frame is that was nobody's.
const AGAIN: DurationNs = DurationNs(1_000_000_000);
/// Most of these.
const MAX_STRANGERS: usize = 1 << 12;

/// The greenlets of a process by the frames of their first functions.
#[derive(Debug, Default)]
pub(in super::super) struct Switched {
    by_root: FxHashMap<FrameAddr, Seen>,
    /// The threads that have greenlets.
    states: FxHashSet<ThreadStateAddr>,
    /// Roots in other threads, and when they are asked for again.
    strangers: FxHashMap<FrameAddr, MonotonicNs>,
}

impl Switched {
    /// Whether a snapshot may tell more of a chain in which no task is known.
    pub(super) fn wants(&self, chain: &Chain, now: MonotonicNs) -> bool {
        let Some(root) = chain.root else {
            return !chain.generators.is_empty();
        };
        match self.by_root.get(&root) {
            Some(seen) => is_main(&seen.task) && !chain.generators.is_empty(),
            None => {
                let is_stranger = self.strangers.get(&root).is_some_and(|again| now < *again);
                !is_stranger || !chain.generators.is_empty()
            }
        }
    }

    /// A snapshot was taken for the sake of a tick.
    pub(super) fn met(&mut self, tick: &Tick, now: MonotonicNs) {
        let Some(root) = tick.root else { return };
        if self.by_root.contains_key(&root) || self.has(tick) {
            return;
        }
        if self.strangers.len() >= MAX_STRANGERS {
            self.strangers.clear();
        }
        let again = MonotonicNs(now.0.saturating_add(AGAIN.0));
        self.strangers.insert(root, again);
    }

    /// Whether the tick's thread has greenlets.
    fn has(&self, tick: &Tick) -> bool {
        let state = tick.thread_state;
        state.is_some_and(|(state, _)| self.states.contains(&state))
    }
}

impl Member {
    /// All greenlets were read, and that was over at `now`.
    pub(super) fn learn_greenlets(&mut self, kit: &mut Kit, snapshot: &Snapshot, now: MonotonicNs) {
        let memory = self.hold.memory();
        let (Some(python), Some(reader)) = (&self.python, &self.tasks.reader) else {
            return;
        };
        let threads = snapshot.by_loop();
        let mut roots: Vec<(FrameAddr, &Arc<Task>)> = Vec::new();
        for task in &snapshot.tasks {
            let Some(greenlet) = task.greenlet() else {
                continue;
            };
            if task.status != TaskStatus::Running {
                roots.extend(greenlet.chain.root.map(|root| (root, task)));
                continue;
            }
            let Some(thread) = threads.get(&task.event_loop) else {
                continue;
            };
            let chain = kit.walker.chain(memory, &python.plan, thread.state);
            // It may have switched to another one since.
            if reader.greenlet_runs(memory, task) {
                roots.extend(chain.root.map(|root| (root, task)));
            }
        }
        let known = &mut self.tasks.names.greenlets;
        let mut before = std::mem::take(&mut known.by_root);
        for (root, task) in roots {
            let was = before.remove(&root);
            let was = was.filter(|was| was.task.addr == task.addr && was.task.name == task.name);
            let since = was.map_or(now, |was| was.since);
            let task = Arc::clone(task);
            known.by_root.insert(root, Seen { task, since });
        }
        let switching = snapshot.loops.iter();
        let switching = switching.filter(|it| it.kind == LoopKind::Greenlets);
        known.states = switching.clone().map(|it| it.state).collect();
        // One that runs may have switched before its frames were read. Its first one stays.
        let mains = switching.map(|it| TaskAddr(it.event_loop.0));
        let alive = snapshot.tasks.iter().map(|task| task.addr);
        let alive: FxHashSet<TaskAddr> = alive.chain(mains).collect();
        for (root, seen) in before {
            if alive.contains(&seen.task.addr) {
                known.by_root.entry(root).or_insert(seen);
            }
        }
    }

    /// The greenlet that ran at a tick; none when the thread has none, or its main greenlet ran.
    pub(super) fn greenlet_ran(
        &mut self,
        kit: &mut Kit,
        tick: &Tick,
        chain: &Chain,
    ) -> Option<Ran> {
        let known = &self.tasks.names.greenlets;
        let seen = chain
            .root
            .and_then(|root| known.by_root.get(&root))
            .cloned();
        if seen.is_none() && !known.has(tick) {
            return None;
        }
        let python = self.python.as_mut()?;
        let chain = chain.clone().without_notes();
        let memory = self.hold.memory();
        let first = last_of(python, memory, &chain);
        let is_thread = match &seen {
            Some(seen) => is_main(&seen.task),
            None => first.as_ref().is_none_or(begins_a_thread),
        };
        if is_thread {
            return None;
        }
        let known_as_nobody = seen.is_none();
        // It is surely this one from when it was first seen on.
        let in_time = seen.as_ref().is_some_and(|seen| tick.time >= seen.since);
        let named = seen.map(|seen| seen.task);
        let named = named.filter(|task| task_books::given_name(task).is_some());
        let by_function = !in_time && (named.is_some() || known_as_nobody);
        kit.tasks.ran(tick.periods, by_function);
        let named = named.filter(|_| in_time);
        let given = named.as_deref().and_then(task_books::given_name);
        let name = given.map(str::to_owned).or_else(|| name_of(first.as_ref()));
        let root = vec![kit.builder.frame(root_frame(name))];
        Some(Ran { chain, root, named })
    }
}

fn is_main(task: &Task) -> bool {
    task.greenlet().is_some_and(|greenlet| greenlet.is_main)
}

/// Whether a thread begins with this function, or a program, or the chain does not say with what.
fn begins_a_thread(first: &PyFrame) -> bool {
    match first {
        PyFrame::Known { code, .. } => {
            &*code.name == "<module>"
                || (code.file.ends_with("threading.py") && code.name.ends_with("_bootstrap"))
        }
        _ => true,
    }
}
