//! The tasks of `dump --tasks`: a tree of who awaits whom, then each task with its stack.

use std::collections::BTreeMap;
use std::io::{self, Write};

use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Value, json};

use super::{frame_json, print_frames};
use crate::{
    export::printable,
    pipeline::{Seen, SeenTask, SeenTasks},
    sample::FramesFrom,
    tasks::{Awaited, Leaf, TaskKind, TaskName, TaskStatus},
    words::{TaskAddr, Tid},
};

/// Deepest level of the tree that is still indented.
const MAX_INDENT: usize = 24;
/// Most awaiters of one task that are named beside the one it stands under.
const MAX_NAMED: usize = 4;

/// The tasks in the order in which they are shown, and how to find one.
struct Tree<'a> {
    tasks: Vec<&'a SeenTask>,
    places: FxHashMap<TaskAddr, usize>,
    names: FxHashMap<Tid, &'a str>,
}

/// A line of the tree.
struct Line {
    task: usize,
    depth: usize,
}

impl<'a> Tree<'a> {
    fn new(seen: &'a SeenTasks, threads: &'a [Seen]) -> Self {
        let mut tasks: Vec<&SeenTask> = seen.tasks.iter().collect();
        tasks.sort_by_cached_key(|seen| (in_order(&seen.task.name), seen.task.addr));
        let places = tasks.iter().enumerate();
        Self {
            places: places.map(|(at, seen)| (seen.task.addr, at)).collect(),
            tasks,
            names: threads
                .iter()
                .map(|thread| (thread.tid, &*thread.name))
                .collect(),
        }
    }

    /// The tasks that await one, as far as they are there.
    fn awaiters(&self, seen: &SeenTask) -> Vec<usize> {
        let all = seen.task.awaited_by.iter();
        let mut found: Vec<usize> = all.filter_map(|it| self.places.get(it).copied()).collect();
        found.sort_unstable();
        found
    }

    /// Each task once: below the first that awaits it. Of a circle the first one begins.
    fn lines(&self) -> Vec<Line> {
        let mut below: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut roots = Vec::new();
        for (at, seen) in self.tasks.iter().enumerate() {
            match self.awaiters(seen).first() {
                Some(awaiter) => below.entry(*awaiter).or_default().push(at),
                None => roots.push(at),
            }
        }
        let mut lines = Vec::with_capacity(self.tasks.len());
        let mut shown = FxHashSet::default();
        // Whoever is in a circle hangs on no root.
        for first in roots.into_iter().chain(0..self.tasks.len()) {
            let mut left = vec![Line {
                task: first,
                depth: 0,
            }];
            while let Some(line) = left.pop() {
                if !shown.insert(line.task) {
                    continue;
                }
                let children = below.get(&line.task);
                left.extend(children.into_iter().flatten().rev().map(|task| Line {
                    task: *task,
                    depth: line.depth + 1,
                }));
                lines.push(line);
            }
        }
        lines
    }

    fn name(&self, task: TaskAddr) -> Option<String> {
        let seen = self.tasks.get(*self.places.get(&task)?)?;
        Some(named(&seen.task.name))
    }

    fn thread(&self, seen: &SeenTask) -> String {
        let Some(tid) = seen.thread else {
            let words = match seen.task.kind {
                TaskKind::Asyncio => "no thread runs its loop",
                TaskKind::Greenlet(_) => "its thread is not known",
            };
            return words.to_owned();
        };
        let name = self.names.get(&tid).copied().unwrap_or_default();
        format!("Thread {tid} \"{}\"", printable(name))
    }

    /// What it awaits, in words.
    fn awaits(&self, seen: &SeenTask) -> String {
        match (&seen.task.waits_for, &seen.task.leaf) {
            // What is shown is not where it waits.
            (_, Leaf::TooDeep) => "deeper than is followed".to_owned(),
            (Some(awaited), _) | (None, Leaf::Awaits(awaited)) => {
                let task = awaited.task.and_then(|task| self.name(task));
                match task {
                    Some(name) => format!("for task {name}"),
                    None => format!("for a {}", printable(short(awaited))),
                }
            }
            (None, Leaf::Coroutine) => String::new(),
            (None, Leaf::Unreadable(_)) => "for what could not be read".to_owned(),
            (None, Leaf::Cycle) => "in a circle of coroutines".to_owned(),
        }
    }

    /// How far it has come, what it awaits, and how that is known.
    fn doing(&self, seen: &SeenTask) -> String {
        let mut words = match seen.task.greenlet() {
            Some(greenlet) if !greenlet.has_begun => "not begun".to_owned(),
            Some(_) if seen.task.status == TaskStatus::Waiting => "suspended".to_owned(),
            _ => seen.task.status.key().to_owned(),
        };
        if seen.task.status == TaskStatus::Waiting {
            let awaits = self.awaits(seen);
            words += if awaits.is_empty() { "" } else { " " };
            words += &awaits;
        }
        if !seen.exact {
            words += " · estimated: its thread ran";
        }
        words
    }
}

/// `Task-2` before `Task-10`, and both before what has another name.
fn in_order(name: &TaskName) -> (u8, u64, String) {
    match name {
        TaskName::Numbered(number) => (0, *number, String::new()),
        TaskName::Given(name) => {
            let number = name.strip_prefix("Task-").and_then(|it| it.parse().ok());
            number.map_or_else(
                || (1, 0, name.to_string()),
                |number| (0, number, String::new()),
            )
        }
        TaskName::Unknown => (2, 0, String::new()),
    }
}

fn named(name: &TaskName) -> String {
    match name {
        TaskName::Unknown => "without a name".to_owned(),
        name => format!("\"{}\"", printable(&name.to_string())),
    }
}

/// A type without its module.
fn short(awaited: &Awaited) -> &str {
    awaited.class.rsplit('.').next().unwrap_or(&awaited.class)
}

/// What it began with.
fn coroutine(seen: &SeenTask) -> String {
    match (seen.frames.last(), seen.task.greenlet()) {
        (Some(frame), _) => printable(&frame.function).into_owned(),
        (None, Some(greenlet)) => format!("[{}]", printable(&greenlet.class)),
        (None, None) => "[no coroutine to be seen]".to_owned(),
    }
}

/// The word that its stack stands under.
fn heading(seen: &SeenTask) -> &'static str {
    match seen.task.greenlet() {
        None => "Task",
        Some(greenlet) if greenlet.is_main => "Main greenlet",
        Some(_) => "Greenlet",
    }
}

/// Prints the tree, then the stacks.
pub(super) fn print(
    out: &mut dyn Write,
    seen: &SeenTasks,
    threads: &[Seen],
    (on, off): (&str, &str),
) -> io::Result<()> {
    let tree = Tree::new(seen, threads);
    let of = |status| {
        let all = seen.tasks.iter();
        all.filter(|it| it.task.status == status).count()
    };
    let plural = |count: usize, noun: &str| match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    };
    let greenlets = seen.tasks.iter().filter(|it| it.task.greenlet().is_some());
    let greenlets = greenlets.count();
    let of_asyncio = seen.tasks.len() - greenlets;
    write!(out, "\n{on}")?;
    if of_asyncio > 0 || greenlets == 0 {
        let loops = plural(seen.loops, "running loop");
        write!(out, "{} in {loops}", plural(of_asyncio, "task"))?;
    }
    if greenlets > 0 {
        let between = if of_asyncio > 0 { ", " } else { "" };
        let threads = plural(seen.switching, "thread");
        write!(
            out,
            "{between}{} in {threads}",
            plural(greenlets, "greenlet")
        )?;
    }
    write!(out, "{off}")?;
    for status in [
        TaskStatus::Running,
        TaskStatus::Runnable,
        TaskStatus::Waiting,
        TaskStatus::Unknown,
    ] {
        if of(status) > 0 {
            write!(out, " · {} {}", of(status), status.key())?;
        }
    }
    writeln!(out)?;
    let lines = tree.lines();
    for line in &lines {
        let Some(seen) = tree.tasks.get(line.task) else {
            continue;
        };
        let indent = 2 * line.depth.min(MAX_INDENT);
        write!(
            out,
            "  {:indent$}{} {}: {}",
            "",
            named(&seen.task.name),
            coroutine(seen),
            tree.doing(seen)
        )?;
        if let Some(leaf) = seen.frames.first() {
            write!(out, " in {}", printable(&leaf.to_string()))?;
        }
        let others = tree.awaiters(seen);
        if let [_, others @ ..] = &*others
            && !others.is_empty()
        {
            let names = others.iter().take(MAX_NAMED);
            let names = names.filter_map(|other| tree.tasks.get(*other));
            let names: Vec<String> = names.map(|other| named(&other.task.name)).collect();
            write!(out, " · also awaited by {}", names.join(", "))?;
            if others.len() > MAX_NAMED {
                write!(out, " and {} more", others.len() - MAX_NAMED)?;
            }
        }
        writeln!(out)?;
    }
    for line in &lines {
        let Some(seen) = tree.tasks.get(line.task) else {
            continue;
        };
        let (name, doing) = (named(&seen.task.name), tree.doing(seen));
        writeln!(
            out,
            "\n{on}{} {name}{off}: {doing} · {}",
            heading(seen),
            tree.thread(seen)
        )?;
        print_frames(out, &seen.frames)?;
        if seen.task.status == TaskStatus::Running {
            let words = match seen.task.kind {
                TaskKind::Asyncio => "the rest of its stack is its thread's",
                TaskKind::Greenlet(_) => "its stack is its thread's",
            };
            writeln!(out, "    ({words})")?;
        }
    }
    print_losses(out, seen)
}

fn print_losses(out: &mut dyn Write, seen: &SeenTasks) -> io::Result<()> {
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, why) in &seen.unreadable {
        *reasons.entry(why.kind()).or_default() += 1;
    }
    for (why, count) in reasons {
        writeln!(out, "\nwarning: {count} tasks could not be read: {why}")?;
    }
    if seen.left_out > 0 {
        writeln!(
            out,
            "\nwarning: at least {} more tasks were left out",
            seen.left_out
        )?;
    }
    for error in &seen.broken_lists {
        writeln!(
            out,
            "\nwarning: a list of tasks could not be read whole: {error}"
        )?;
    }
    Ok(())
}

/// All of it for programs.
pub(super) fn as_json(seen: &SeenTasks, threads: &[Seen]) -> Value {
    let tree = Tree::new(seen, threads);
    let unreadable = seen.unreadable.iter().map(|(task, why)| {
        json!({
            "address": task.0,
            "why": why.to_string(),
        })
    });
    json!({
        "loops": seen.loops,
        "left_out": seen.left_out,
        "broken_lists": seen.broken_lists.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "unreadable": unreadable.collect::<Vec<_>>(),
        "alive": tree.tasks.iter().map(|seen| task_json(&tree, seen)).collect::<Vec<_>>(),
    })
}

fn task_json(tree: &Tree<'_>, seen: &SeenTask) -> Value {
    let task = &seen.task;
    let awaited = |awaited: &Awaited| {
        json!({
            "address": awaited.addr.0,
            "type": &*awaited.class,
            "task": awaited.task.map(|task| task.0),
        })
    };
    let (leaf, awaits) = match &task.leaf {
        Leaf::Coroutine => ("coroutine", None),
        Leaf::Awaits(it) => ("awaits", Some(awaited(it))),
        Leaf::Unreadable(_) => ("unreadable", None),
        Leaf::Cycle => ("cycle", None),
        Leaf::TooDeep => ("too_deep", None),
    };
    let from = if seen.exact {
        FramesFrom::User
    } else {
        FramesFrom::Estimated
    };
    json!({
        "address": task.addr.0,
        "kind": match task.greenlet() {
            None => "asyncio",
            Some(greenlet) if greenlet.is_main => "main_greenlet",
            Some(_) => "greenlet",
        },
        "class": task.greenlet().map(|greenlet| &*greenlet.class),
        "name": match &task.name {
            TaskName::Unknown => None,
            name => Some(name.to_string()),
        },
        "coroutine": seen.frames.last().map(|frame| &*frame.function),
        "state": task.status.key(),
        "waits_for": task.waits_for.as_ref().map(awaited),
        "leaf": leaf,
        "awaits": awaits,
        "awaited_by": task.awaited_by.iter().map(|it| it.0).collect::<Vec<_>>(),
        "loop": task.event_loop.0,
        "thread": seen.thread.map(|tid| json!({
            "tid": tid.0,
            "name": tree.names.get(&tid),
        })),
        "frames_from": from.key(),
        "frames": seen.frames.iter().map(frame_json).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::stack::Frame;
    use crate::tasks::Task;
    use crate::words::{CoroutineAddr, RemoteAddr};

    fn task(addr: u64, name: &str, awaited_by: &[u64]) -> SeenTask {
        let future = Awaited {
            addr: RemoteAddr(7),
            class: "_asyncio.Future".into(),
            task: None,
        };
        let task = Task {
            kind: TaskKind::Asyncio,
            addr: TaskAddr(addr),
            coro: CoroutineAddr(addr + 1),
            name: TaskName::Given(name.into()),
            status: TaskStatus::Waiting,
            frames: Vec::new(),
            leaf: Leaf::Awaits(future.clone()),
            waits_for: Some(future),
            event_loop: RemoteAddr(1),
            awaited_by: awaited_by.iter().map(|it| TaskAddr(*it)).collect(),
        };
        SeenTask {
            task: Arc::new(task),
            frames: vec![Frame::python("f", "a.py", Some(1), Some(2))],
            thread: Some(Tid(4)),
            exact: true,
        }
    }

    fn tree(tasks: Vec<SeenTask>) -> String {
        let seen = SeenTasks {
            tasks,
            loops: 1,
            ..SeenTasks::default()
        };
        let mut out = Vec::new();
        print(&mut out, &seen, &[], ("", "")).expect("memory");
        let out = String::from_utf8(out).expect("UTF-8");
        let lines = out.lines().skip(2).take_while(|line| !line.is_empty());
        let lines = lines.map(|line| line.replace(" f: waiting for a Future in f (a.py:2)", ""));
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn each_task_stands_once_below_the_first_that_awaits_it() {
        let check = |tasks: Vec<SeenTask>, lines: &[&str]| {
            assert_eq!(tree(tasks), lines.join("\n"));
        };
        check(
            vec![
                task(10, "Task-10", &[]),
                task(20, "Task-2", &[10, 30]),
                task(30, "parent", &[]),
                task(40, "child", &[20]),
            ],
            &[
                "  \"Task-10\"",
                "    \"Task-2\" · also awaited by \"parent\"",
                "      \"child\"",
                "  \"parent\"",
            ],
        );
        // An awaiter that is not there is none.
        check(vec![task(10, "orphan", &[99])], &["  \"orphan\""]);
    }

    #[test]
    fn tasks_in_a_circle_are_all_shown() {
        let lines = tree(vec![
            task(10, "a", &[30]),
            task(20, "b", &[10]),
            task(30, "c", &[20]),
            task(40, "self", &[40]),
        ]);
        let expected = ["  \"a\"", "    \"b\"", "      \"c\"", "  \"self\""];
        assert_eq!(lines, expected.join("\n"));
    }
}
