//! The stacks of tasks: what each awaits at the leaf, its name at the root, and above that, where it
//! is asked for, the tasks that wait for it.
//!
//! A task that runs has its frames from its thread's stack, without those of the loop below it: so
//! the samples of a task that runs and of one that waits begin with the same frame.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::Shot;
use crate::{
    pipeline::{
        session::{Kit, member::Member, plans::Python, task_books},
        settings::Tasks,
        stacks,
    },
    pystack::{Chain, PyFrame},
    stack::{Frame, StackId},
    target::Memory,
    tasks::{LoopKind, Task, TaskKind, TaskStatus},
    words::{CodeAddr, CoroutineAddr, RemoteAddr, TaskAddr},
};

/// Most tasks that wait for one another in one stack.
const MAX_AWAITERS: usize = 64;

/// The frames of tasks that run, leaf first.
#[derive(Default)]
struct OnThreads {
    by_coroutine: FxHashMap<CoroutineAddr, Chain>,
    /// Of greenlets, by the main greenlet of their thread: all that the thread has.
    by_main: FxHashMap<RemoteAddr, Chain>,
}

/// The stack of a task, as it was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub(super) stack: StackId,
    /// Its frames are on its thread's stack.
    pub(super) runs: bool,
    /// It has a name.
    pub(super) is_named: bool,
}

impl OnThreads {
    fn of(&self, task: &Task) -> Option<&Chain> {
        match (task.greenlet(), task.status) {
            (None, _) => self.by_coroutine.get(&task.coro),
            (Some(_), TaskStatus::Running) => self.by_main.get(&task.event_loop),
            (Some(_), _) => None,
        }
    }
}

impl Member {
    /// The stack of each task of a snapshot, in its order.
    pub(super) fn stacks_of_tasks(&mut self, kit: &mut Kit, shot: &Shot) -> Vec<Made> {
        let memory = self.hold.memory();
        let Some(python) = &mut self.python else {
            return Vec::new();
        };
        let view = kit.settings.tasks.unwrap_or(Tasks::Flat);
        let tasks = &shot.snapshot.tasks;
        let coroutines = tasks.iter().map(|task| task.coro).collect();
        let on_threads = on_threads(kit, python, memory, shot, &coroutines);
        let by_addr: FxHashMap<TaskAddr, Arc<Task>> = match view {
            Tasks::Flat => FxHashMap::default(),
            Tasks::Tree => {
                let all = tasks.iter();
                all.map(|task| (task.addr, Arc::clone(task))).collect()
            }
        };
        let mut before = std::mem::take(&mut self.tasks.stacks);
        let mut made = Vec::with_capacity(tasks.len());
        let mut changed: Vec<CodeAddr> = Vec::new();
        // Names that were read of codes are held against the target afterwards; what was another's
        // is made anew.
        for attempt in 0..2 {
            made.clear();
            for task in tasks {
                if attempt == 0
                    && view == Tasks::Flat
                    && task.status != TaskStatus::Running
                    && on_threads.of(task).is_none()
                    && let Some((same, made_before)) = before.get(&task.addr)
                    && Arc::ptr_eq(same, task)
                {
                    made.push(*made_before);
                    continue;
                }
                let mut frames = Vec::new();
                let parts = match view {
                    Tasks::Flat => vec![Arc::clone(task)],
                    Tasks::Tree => with_awaiters(task, &by_addr, &mut frames),
                };
                let mut all = Vec::new();
                let mut is_named = true;
                for (place, part) in parts.iter().enumerate() {
                    let own = on_threads.of(part);
                    let (named, has_name) = frames_of(python, memory, part, own, &changed);
                    all.extend(named);
                    is_named &= place > 0 || has_name;
                }
                all.append(&mut frames);
                let builder = &mut kit.tasks.builder;
                let ids: Vec<_> = all.into_iter().map(|it| builder.frame(it)).collect();
                made.push(Made {
                    stack: builder.stack(&ids),
                    runs: on_threads.of(task).is_some(),
                    is_named,
                });
            }
            changed = python.stacks.compare(memory);
            if changed.is_empty() {
                break;
            }
        }
        python.stacks.settle(&changed);
        before.clear();
        if view == Tasks::Flat {
            let tasks = tasks.iter().zip(&made);
            before.extend(tasks.map(|(task, made)| (task.addr, (Arc::clone(task), *made))));
        }
        self.tasks.stacks = before;
        made
    }
}

/// The frames of a task, leaf first, and its name; whether it has one.
pub(super) fn frames_of(
    python: &mut Python,
    memory: &dyn Memory,
    task: &Task,
    on_thread: Option<&Chain>,
    changed: &[CodeAddr],
) -> (Vec<Frame>, bool) {
    let frames = match (on_thread, &task.kind) {
        (Some(chain), _) => python.stacks.name(memory, chain),
        (None, TaskKind::Asyncio) => python.stacks.coroutines(memory, &task.frames),
        (None, TaskKind::Greenlet(_)) => python.stacks.name(memory, &task.chain()),
    };
    let label = label(task, frames.last());
    let is_named = label.is_some();
    let mut named: Vec<Frame> = frames
        .iter()
        .map(|frame| stacks::frame_of(frame, changed))
        .collect();
    if let Some(reason) = unread_leaf(task).filter(|_| on_thread.is_none()) {
        named.insert(0, Frame::unreadable(reason));
    }
    named.push(root_frame(label));
    (named, is_named)
}

/// Why a task has neither its own name nor its coroutine's.
pub(super) const NO_NAME: &str = "its coroutine has no name that could be read";

/// The frame that a task's stack stands on.
pub(super) fn root_frame(name: Option<String>) -> Frame {
    name.map_or_else(
        || Frame::unreadable_task(NO_NAME),
        |name| Frame::task(&name),
    )
}

/// The name of a function, if that is known.
pub(super) fn name_of(frame: Option<&PyFrame>) -> Option<String> {
    match frame? {
        PyFrame::Known { code, .. } => Some(code.name.to_string()),
        _ => None,
    }
}

fn unread_leaf(task: &Task) -> Option<&'static str> {
    use crate::tasks::Leaf;
    if task.status == TaskStatus::Running {
        return Some("what it runs was not found on its thread's stack");
    }
    match task.leaf {
        Leaf::Coroutine | Leaf::Awaits(_) => None,
        Leaf::Unreadable(_) => Some("what it awaits could not be read"),
        Leaf::Cycle => Some("its coroutines await each other in a circle"),
        Leaf::TooDeep => Some("it awaits deeper than is followed"),
    }
}

/// What a task is called in a profile: by its program, else by its coroutine, or a greenlet's first
/// function, so that tasks that do the same are one.
fn label(task: &Task, coroutine: Option<&PyFrame>) -> Option<String> {
    if let Some(name) = task_books::given_name(task) {
        return Some(name.to_owned());
    }
    if let (Some(greenlet), None) = (task.greenlet(), coroutine) {
        // It is in nothing but C, or has not begun.
        return Some(greenlet.class.to_string());
    }
    name_of(coroutine)
}

/// A task, and root-ward the one that waits for it, and so on. Where several wait, that is said, and
/// none of them is gone on with: the task counts once.
pub(super) fn with_awaiters(
    task: &Arc<Task>,
    by_addr: &FxHashMap<TaskAddr, Arc<Task>>,
    at_root: &mut Vec<Frame>,
) -> Vec<Arc<Task>> {
    let mut parts = vec![Arc::clone(task)];
    let mut seen: FxHashSet<TaskAddr> = FxHashSet::from_iter([task.addr]);
    while let Some(last) = parts.last() {
        let next = match last.awaited_by.as_slice() {
            [] => break,
            [one] => by_addr.get(one),
            several => {
                let words = format!("[awaited by {} tasks]", several.len());
                at_root.push(Frame::words(crate::stack::FrameKind::Task, words));
                break;
            }
        };
        let Some(next) = next else { break };
        if !seen.insert(next.addr) || parts.len() == MAX_AWAITERS {
            let words = "[tasks that await each other]";
            at_root.push(Frame::words(crate::stack::FrameKind::Task, words));
            break;
        }
        parts.push(Arc::clone(next));
    }
    parts
}

/// The frames of all tasks that are on the loops' threads: of each those above its coroutine's, down
/// to the next task's that it has started eagerly.
fn on_threads(
    kit: &mut Kit,
    python: &Python,
    memory: &dyn Memory,
    shot: &Shot,
    tasks: &FxHashSet<CoroutineAddr>,
) -> OnThreads {
    let mut all = OnThreads::default();
    for (main, thread) in &shot.threads {
        let walked = stacks::walk_now(&mut kit.walker, memory, &python.plan, thread.state);
        let Some(chain) = walked else { continue };
        if thread.kind == LoopKind::Greenlets {
            // It may have switched meanwhile, and then the chain is another's.
            if shot.restless.contains(main) {
                continue;
            }
            all.by_main.insert(*main, chain.without_notes());
            continue;
        }
        let mut first = 0;
        let of_tasks = chain.generators.iter();
        for generator in of_tasks.filter(|it| tasks.contains(&it.coroutine)) {
            let part = chain.part(first, generator.frame);
            all.by_coroutine.insert(generator.coroutine, part);
            first = generator.frame + 1;
        }
    }
    all
}
