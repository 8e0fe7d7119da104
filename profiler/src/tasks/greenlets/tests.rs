//! Greenlets as they are and as a hostile target makes them, in memory written with labels.

use super::*;
use crate::cpython::Layout;
use crate::cpython::fake::Fake;
use crate::tasks::{Snapshot, TaskReader};

/// A 3.12 that has imported greenlet, each object of the collector's first list under a label.
struct World {
    fake: Fake,
    layout: Layout,
    runtime: Runtime,
    listed: Vec<String>,
}

/// Where in the objects' labels the objects are: the collector's header is before them.
const OBJECT: u32 = HEADER as u32;
/// Fields of the C++ object.
const START: u32 = 56;
const STOP: u32 = 64;
const TOP_FRAME: u32 = 104;
const MAIN_GREENLET: u32 = 168;

impl World {
    fn new() -> Self {
        let (mut fake, layout, found) = Fake::python_3_12();
        fake.dict(
            "modules",
            &layout,
            &[("sys", "sys"), ("greenlet", "module")],
        );
        fake.word("thread", layout.asyncio.thread_dict, 0);
        let runtime = Runtime::attach(found, &fake).expect("a runtime");
        let mut world = Self {
            fake,
            layout,
            runtime,
            listed: Vec::new(),
        };
        for list in 0..3 {
            let head = world.head(list);
            let here = world.fake.at("interp").plus(head.into()).0;
            world.fake.word("interp", head, here);
            world.fake.word("interp", head + 8, here);
        }
        world.main("main");
        world
    }

    fn head(&self, list: u32) -> u32 {
        let gc = self.layout.gc;
        let collecting = self.layout.interp.gc_collecting.expect("3.9 or later");
        collecting - gc.collecting + gc.generations + gc.generation_size * list
    }

    /// Puts an object at the end of the first list.
    fn track(&mut self, label: &str) {
        self.listed.push(label.to_owned());
        let head = self.head(0);
        let here = self.fake.at("interp").plus(head.into()).0;
        let nodes: Vec<u64> = self.listed.iter().map(|it| self.fake.at(it).0).collect();
        let ring: Vec<u64> = [here].into_iter().chain(nodes).chain([here]).collect();
        self.fake.word("interp", head, ring[1]);
        self.fake.word("interp", head + 8, ring[ring.len() - 2]);
        for (index, label) in self.listed.iter().enumerate() {
            self.fake.word(label, 0, ring[index + 2]);
            self.fake.word(label, 8, ring[index]);
        }
    }

    fn object(&mut self, label: &str, name: &str) {
        let class = format!("type {name}");
        self.fake
            .class(&class, &self.layout, name)
            .word(&class, self.layout.class.base, 0)
            .point(label, OBJECT + self.layout.object.ob_type, &class);
    }

    /// A greenlet whose C++ object is at `LABEL, C++`.
    fn greenlet(&mut self, label: &str, stop: u64) {
        self.object(label, "greenlet.greenlet");
        let (inner, size) = (format!("{label}, C++"), self.layout.object.size);
        self.fake.word(label, OBJECT + size + 8, 0);
        self.fake.point(label, OBJECT + size + 16, &inner);
        let addr = self.addr(label).0;
        self.fake
            .put(&inner, 0, &[0; BYTES])
            .word(&inner, 8, addr)
            .word(&inner, START, 0x7000)
            .word(&inner, STOP, stop);
        let main = self.addr("main").0;
        self.fake.word(&inner, MAIN_GREENLET, main);
        self.track(label);
    }

    fn main(&mut self, label: &str) {
        self.greenlet(label, MAIN);
    }

    /// A suspended one with these frames, leaf first.
    fn suspended(&mut self, label: &str, frames: &[&str]) {
        self.greenlet(label, 0x7F00);
        self.suspend(label, frames);
    }

    fn suspend(&mut self, label: &str, frames: &[&str]) {
        let (inner, top) = (format!("{label}, C++"), format!("{label}, top"));
        let state = self.layout.tstate.exc_state.expect("a stack of exceptions");
        let state = self.fake.at("thread").plus(state.into()).0;
        self.fake.word(&inner, 16, state);
        self.fake.point(&inner, TOP_FRAME, &top);
        let of_object = self.layout.frame.of_object.expect("3.11 or later");
        self.fake.point(&top, of_object, frames[0]);
        let fields = self.layout.frame;
        for (index, frame) in frames.iter().enumerate() {
            self.fake
                .point(frame, fields.code, &format!("code {frame}"))
                .word(frame, fields.instr, 0x100)
                .put(frame, fields.owner.unwrap_or(0), &[0; 8]);
            match frames.get(index + 1) {
                Some(caller) => self.fake.point(frame, fields.previous, caller),
                None => self.fake.word(frame, fields.previous, 0),
            };
        }
    }

    fn addr(&mut self, label: &str) -> TaskAddr {
        TaskAddr(self.fake.at(label).plus(HEADER).0)
    }

    fn snapshot(&self) -> std::sync::Arc<Snapshot> {
        let mut reader = TaskReader::new(&self.runtime, None);
        reader
            .snapshot(&self.runtime, &self.fake)
            .expect("a snapshot")
    }

    fn statuses(&self) -> Vec<TaskStatus> {
        let snapshot = self.snapshot();
        snapshot.tasks.iter().map(|task| task.status).collect()
    }
}

#[test]
fn a_suspended_greenlet_has_its_stack_and_its_thread() {
    let mut world = World::new();
    world.suspended("one", &["leaf", "first"]);
    let snapshot = world.snapshot();
    let [task] = &*snapshot.tasks else {
        panic!("{snapshot:?}")
    };
    let codes = ["code leaf", "code first"].map(|code| world.fake.at(code).0);
    let chain = task.chain();
    let found: Vec<u64> = chain.frames.iter().map(|frame| frame.code).collect();
    assert_eq!(found, codes);
    let greenlet = task.greenlet().expect("a greenlet");
    assert_eq!(
        greenlet.chain.root.map(|root| root.0),
        Some(world.fake.at("first").0)
    );
    assert_eq!(task.status, TaskStatus::Waiting);
    let [thread] = &*snapshot.loops else {
        panic!("{snapshot:?}")
    };
    assert_eq!(thread.kind, LoopKind::Greenlets);
    assert_eq!(thread.state.0, world.fake.at("thread").0);
    assert_eq!(task.event_loop, thread.event_loop);
    assert_eq!(thread.event_loop.0, world.addr("main").0);
}

#[test]
fn how_far_a_greenlet_has_come_is_told_by_its_stacks() {
    let check = |start: u64, stop: u64, exceptions: u64, statuses: &[TaskStatus]| {
        let mut world = World::new();
        world.greenlet("one", stop);
        world.fake.word("one, C++", START, start);
        world.fake.word("one, C++", 16, exceptions);
        assert_eq!(
            world.statuses(),
            statuses,
            "{start:#x} {stop:#x} {exceptions:#x}"
        );
    };
    check(0, 0, 0, &[TaskStatus::Runnable]);
    check(0, 0x7F00, 0, &[]);
    check(0x7000, 0x7F00, 0, &[TaskStatus::Running]);
    // In C alone: it has no topmost frame.
    check(0x7000, 0x7F00, 8, &[TaskStatus::Waiting]);
    // The main one that runs is its thread.
    check(1, MAIN, 0, &[]);
}

#[test]
fn what_was_never_begun_and_is_not_tracked_is_gone() {
    let mut world = World::new();
    world.greenlet("one", 0);
    let mut reader = TaskReader::new(&world.runtime, None);
    let mut shoot = |world: &World| {
        let snapshot = reader.snapshot(&world.runtime, &world.fake);
        snapshot.expect("a snapshot").tasks.len()
    };
    assert_eq!(shoot(&world), 1);
    world.listed.clear();
    world.track("main");
    world.fake.word("one", 0, 0).word("one", 8, 0);
    assert_eq!(shoot(&world), 0);
}

#[test]
fn greenlets_that_are_none_are_told_and_hide_nothing() {
    let mut world = World::new();
    world.suspended("good", &["leaf"]);
    for label in ["null", "odd", "unmapped", "another's"] {
        world.suspended(label, &["leaf"]);
    }
    let place = OBJECT + world.layout.object.size + 16;
    world.fake.word("null", place, 0);
    world.fake.word("odd", place, 0x1001);
    world.fake.unmap("unmapped, C++");
    world.fake.word("another's, C++", 8, 0x4242_0000);
    let snapshot = world.snapshot();
    let good = world.addr("good");
    let found: Vec<_> = snapshot.tasks.iter().map(|task| task.addr).collect();
    assert_eq!(found, [good]);
    assert_eq!(snapshot.unreadable.len(), 4, "{:?}", snapshot.unreadable);
}

#[test]
fn lists_that_are_none_are_told() {
    let mut world = World::new();
    world.suspended("one", &["leaf"]);
    let one = world.fake.at("one").0;
    for (next, broken) in [(0, 1), (one, 1), (7 << 32, 1), (u64::MAX - 7, 1)] {
        world.fake.word("one", 0, next);
        let snapshot = world.snapshot();
        assert_eq!(snapshot.broken_lists.len(), broken, "{next:#x}");
        assert_eq!(snapshot.tasks.len(), 1, "{next:#x}");
    }
}

#[test]
fn frames_and_parents_in_circles_come_to_an_end() {
    let mut world = World::new();
    world.suspended("one", &["a", "b"]);
    world.fake.point("b", world.layout.frame.previous, "a");
    let snapshot = world.snapshot();
    let chain = snapshot.tasks.first().map(|task| task.chain().end);
    assert_eq!(chain, Some(ChainEnd::Cycle));

    let mut world = World::new();
    for label in ["one", "other"] {
        world.greenlet(label, 0);
    }
    for (label, parent) in [("one", "other"), ("other", "one")] {
        let parent = world.addr(parent).0;
        world
            .fake
            .word(&format!("{label}, C++"), MAIN_GREENLET, parent);
    }
    let snapshot = world.snapshot();
    let mains: Vec<_> = snapshot
        .tasks
        .iter()
        .map(|task| task.event_loop.0)
        .collect();
    assert_eq!(mains, [0, 0]);
}

#[test]
fn exceptions_in_a_circle_lead_to_no_thread() {
    let mut world = World::new();
    world.suspended("one", &["leaf"]);
    world
        .fake
        .point("item", world.layout.exc_item.previous, "item");
    world.fake.point("one, C++", 16, "item");
    let snapshot = world.snapshot();
    assert_eq!((snapshot.tasks.len(), snapshot.loops.len()), (1, 0));
}
