//! Which task ran at a tick: the one whose coroutine is on the thread's stack, the innermost where
//! one has started another eagerly; else which greenlet (`switched`).
//!
//! The kernel's walk tells which coroutines those are; whose they are is in the last snapshot of all
//! tasks, which is taken anew when a tick has none that is known. Tasks are born and die in between,
//! and their memory is another's then: a name is given only to a tick that came after the task was
//! first seen, and if it is the task's still at the end of the batch. Else the coroutine's name
//! stands for it, which the stack itself tells: a task's coroutine is one that asyncio has called.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    PART,
    stack::{frames_of, name_of, root_frame, with_awaiters},
    switched::Switched,
};
use crate::{
    pipeline::{
        session::{Kit, member::Member, plans::Python, task_books},
        settings::Tasks,
        stacks::ChainId,
    },
    pystack::{Chain, PyFrame},
    sample::Mode,
    stack::FrameId,
    sys,
    target::Memory,
    tasks::{Snapshot, Task},
    wire::Tick,
    words::{CoroutineAddr, MonotonicNs, TaskAddr},
};

/// All tasks are read no more often than this.
const PAUSE: u64 = 20_000_000;

/// The tasks of a process by their coroutines, and its greenlets.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) greenlets: Switched,
    by_coroutine: FxHashMap<CoroutineAddr, Seen>,
    by_addr: FxHashMap<TaskAddr, Arc<Task>>,
    /// No sooner are they read again.
    again: MonotonicNs,
}

#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) task: Arc<Task>,
    /// Since when it was there, at the latest.
    pub(super) since: MonotonicNs,
}

/// What ran at a tick.
pub(in super::super) struct Ran {
    /// The task's own frames.
    pub(in super::super) chain: Chain,
    /// What stands below them: its name, and those that wait for it.
    pub(in super::super) root: Vec<FrameId>,
    /// The task, if its name is to be asked for again at the end of the batch.
    pub(in super::super) named: Option<Arc<Task>>,
}

impl Names {
    /// All tasks were read, and that was over at `now`.
    fn learn(&mut self, snapshot: &Snapshot, now: MonotonicNs) {
        let mut before = std::mem::take(&mut self.by_coroutine);
        self.by_addr.clear();
        for task in &snapshot.tasks {
            if task.greenlet().is_some() {
                continue;
            }
            let was = before.remove(&task.coro);
            let was = was.filter(|was| was.task.addr == task.addr && was.task.name == task.name);
            let since = was.map_or(now, |was| was.since);
            let task = Arc::clone(task);
            self.by_addr.insert(task.addr, Arc::clone(&task));
            self.by_coroutine.insert(task.coro, Seen { task, since });
        }
    }

    /// The innermost coroutine of a chain that is a task's, by its frame, and the task if it is known.
    fn innermost(
        &self,
        python: &mut Python,
        memory: &dyn Memory,
        chain: &Chain,
    ) -> Option<(usize, Option<Seen>)> {
        let generators = &chain.generators;
        let mut innermost = generators.iter().enumerate();
        let noted = innermost.find_map(|(place, generator)| {
            if let Some(seen) = self.by_coroutine.get(&generator.coroutine) {
                return Some((generator.frame, Some(seen.clone())));
            }
            // One that another coroutine awaits is no task's.
            let caller = generator.frame + 1;
            if generators
                .get(place + 1)
                .is_some_and(|it| it.frame == caller)
            {
                return None;
            }
            let caller = frame_at(python, memory, chain, caller);
            let begun = caller.as_ref().is_some_and(makes_tasks_run);
            begun.then_some((generator.frame, None))
        });
        // Of those that were not noted any more, the frames still tell which asyncio has called.
        noted.or_else(|| {
            let first = generators.last().filter(|_| chain.generators_missing > 0)?;
            let depth = chain.frames.len() + chain.missing as usize;
            let mut is_asyncios = |frame: usize| {
                let frame = frame_at(python, memory, chain, frame);
                frame.as_ref().is_some_and(makes_tasks_run)
            };
            let mut frames = first.frame + 1..depth;
            let frame = frames.find(|frame| is_asyncios(frame + 1) && !is_asyncios(*frame))?;
            Some((frame, None))
        })
    }
}

impl Member {
    /// Reads all tasks, so that those that run can be named.
    pub(in super::super) fn learn_tasks(&mut self, kit: &mut Kit) {
        self.look_everywhere();
        let began = sys::thread_cpu();
        self.ready_reader(sys::monotonic());
        let (Some(python), Some(reader)) = (&self.python, &mut self.tasks.reader) else {
            return;
        };
        let snapshot = reader.snapshot(&python.runtime, self.hold.memory());
        let now = sys::monotonic();
        if let Ok(snapshot) = snapshot {
            kit.tasks.read(&snapshot);
            self.tasks.names.learn(&snapshot, now);
            self.learn_greenlets(kit, &snapshot, now);
        }
        let took = sys::thread_cpu().0.saturating_sub(began.0);
        let pause = took.saturating_mul(PART - 1).max(PAUSE);
        self.tasks.names.again = MonotonicNs(now.0.saturating_add(pause));
    }

    /// Which task ran at a tick; none when the thread was in its loop, or runs none.
    pub(in super::super) fn ran(&mut self, kit: &mut Kit, tick: &Tick) -> Option<Ran> {
        let view = kit.settings.tasks?;
        if self.python.is_none() || tick.frame_count() == 0 || kit.settings.mode != Mode::Cpu {
            return None;
        }
        let chain = Chain::from_record(
            &tick.frames().collect::<Vec<_>>(),
            tick.depth,
            tick.leaf_frames,
            tick.walk_end,
        )
        .with_notes(tick.generators(), tick.generators_missing, tick.root);
        if chain.generators.is_empty() && chain.root.is_none() {
            return None;
        }
        let memory = self.hold.memory();
        let names = &self.tasks.names;
        let mut found = names.innermost(self.python.as_mut()?, memory, &chain);
        let now = sys::monotonic();
        if !matches!(found, Some((_, Some(_))))
            && now >= self.tasks.names.again
            && self.tasks.names.greenlets.wants(&chain, now)
        {
            self.learn_tasks(kit);
            let memory = self.hold.memory();
            let names = &self.tasks.names;
            found = names.innermost(self.python.as_mut()?, memory, &chain);
            self.tasks.names.greenlets.met(tick, now);
        }
        if found.is_none()
            && let Some(ran) = self.greenlet_ran(kit, tick, &chain)
        {
            return Some(ran);
        }
        let memory = self.hold.memory();
        let python = self.python.as_mut()?;
        let (frame, seen) = found?;
        let mut coroutine = name_of(frame_at(python, memory, &chain, frame).as_ref());
        let chain = chain.part(0, frame);
        let Some(Seen { task, since }) = seen else {
            kit.tasks.ran(tick.periods, true);
            return Some(Ran {
                chain,
                root: vec![kit.builder.frame(root_frame(coroutine))],
                named: None,
            });
        };
        if coroutine.is_none() {
            // Its frame was left out of the middle of a deep stack.
            let own = task.frames.last().map_or(&[][..], std::slice::from_ref);
            coroutine = name_of(python.stacks.coroutines(memory, own).last());
        }
        let in_time = tick.time >= since;
        let given = task_books::given_name(&task);
        kit.tasks.ran(tick.periods, given.is_some() && !in_time);
        let given = given.filter(|_| in_time);
        let has_name = given.is_some();
        let name = given.map(str::to_owned).or(coroutine);
        let mut root = vec![kit.builder.frame(root_frame(name))];
        if view == Tasks::Tree {
            let mut ends = Vec::new();
            let parts = with_awaiters(&task, &self.tasks.names.by_addr, &mut ends);
            for part in parts.iter().skip(1) {
                let (frames, _) = frames_of(python, memory, part, None, &[]);
                root.extend(frames.into_iter().map(|it| kit.builder.frame(it)));
            }
            root.extend(ends.into_iter().map(|it| kit.builder.frame(it)));
        }
        Some(Ran {
            chain,
            root,
            named: has_name.then_some(task),
        })
    }

    /// Those of the tasks that ran in this batch that may have been others.
    pub(in super::super) fn doubtful(
        &self,
        named: impl Iterator<Item = Arc<Task>>,
    ) -> FxHashSet<TaskAddr> {
        let mut asked: FxHashMap<TaskAddr, bool> = FxHashMap::default();
        let memory = self.hold.memory();
        for task in named {
            asked.entry(task.addr).or_insert_with(|| {
                let reader = self.tasks.reader.as_ref();
                reader.is_some_and(|reader| reader.has_its_name(memory, &task))
            });
        }
        let doubtful = asked.into_iter().filter(|(_, still)| !still);
        doubtful.map(|(task, _)| task).collect()
    }
}

impl Python {
    /// The same stack below the name of its coroutine.
    pub(in super::super) fn by_coroutine(
        &mut self,
        kit: &mut Kit,
        memory: &dyn Memory,
        id: ChainId,
    ) -> ChainId {
        let chain = self.stacks.chain(id).clone();
        let name = name_of(last_of(self, memory, &chain).as_ref());
        let root = kit.builder.frame(root_frame(name));
        self.stacks
            .with_root(memory, &mut kit.builder, id, vec![root])
    }
}

/// The frame with an index from the leaf; none when it was left out.
fn frame_at(
    python: &mut Python,
    memory: &dyn Memory,
    chain: &Chain,
    index: usize,
) -> Option<PyFrame> {
    python
        .stacks
        .name(memory, &chain.part(index, index))
        .pop()
        .filter(|_| chain.place(index).is_some())
}

/// The last frame of a chain.
pub(super) fn last_of(python: &mut Python, memory: &dyn Memory, chain: &Chain) -> Option<PyFrame> {
    let depth = chain.frames.len() + chain.missing as usize;
    frame_at(python, memory, chain, depth.checked_sub(1)?)
}

/// Whether a frame is one of asyncio's that make a task run: `Handle._run`, a pure-Python task's
/// step, what starts one eagerly, and where the loop is of C, what has started that.
fn makes_tasks_run(frame: &PyFrame) -> bool {
    const FILES: [&str; 5] = [
        "asyncio/events.py",
        "asyncio/tasks.py",
        "asyncio/base_events.py",
        "asyncio/runners.py",
        "uvloop/__init__.py",
    ];
    match frame {
        PyFrame::Known { code, .. } => FILES.iter().any(|file| code.file.ends_with(file)),
        _ => false,
    }
}
