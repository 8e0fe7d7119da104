//! Tasks as they are and as a hostile target makes them, in memory written with labels.

use super::*;
use crate::cpython::fake::Fake;
use crate::cpython::{Layout, Runtime};

/// The state byte of a suspended frame of 3.12.
const SUSPENDED: u8 = 255;
/// `RESUME` behind an await.
const AWAITS: [u8; 2] = [151, 3];

/// A 3.12 with a set of tasks, each object under a label.
struct World {
    fake: Fake,
    layout: Layout,
    runtime: Runtime,
    tasks: Vec<String>,
}

impl World {
    fn new() -> Self {
        let (mut fake, layout, found) = Fake::python_3_12();
        let modules = [("sys", "sys"), ("asyncio.tasks", "asyncio.tasks")];
        fake.dict("modules", &layout, &modules);
        fake.point("asyncio.tasks", layout.object.size, "variables");
        fake.dict(
            "variables",
            &layout,
            &[
                ("_scheduled_tasks", "scheduled"),
                ("_current_tasks", "current"),
            ],
        );
        fake.dict("current", &layout, &[]);
        fake.dict("thread dict", &layout, &[]);
        fake.point("thread", layout.asyncio.thread_dict, "thread dict");
        let runtime = Runtime::attach(found, &fake).expect("a runtime");
        let mut world = Self {
            fake,
            layout,
            runtime,
            tasks: Vec::new(),
        };
        world.of_type("scheduled", "set");
        world.list_tasks();
        world
    }

    fn of_type(&mut self, label: &str, name: &str) {
        let class = format!("type {name}");
        self.fake
            .class(&class, &self.layout, name)
            .word(&class, self.layout.class.base, 0)
            .point(label, self.layout.object.ob_type, &class);
    }

    fn list_tasks(&mut self) {
        let fields = self.layout.containers;
        let slots = (self.tasks.len() as u64 + 1).next_power_of_two();
        self.fake.word("scheduled", fields.set_mask, slots - 1);
        self.fake.point("scheduled", fields.set_table, "table");
        self.fake.put("table", 0, &vec![0; 16 * slots as usize]);
        for (index, task) in self.tasks.iter().enumerate() {
            self.fake.point("table", 16 * index as u32, task);
            self.fake.word("table", 16 * index as u32 + 8, 7);
        }
    }

    /// A pending task without a name.
    fn task(&mut self, label: &str, coroutine: &str) {
        self.of_type(label, "_asyncio.Task");
        let fields = self.layout.task;
        for field in [
            fields.event_loop,
            fields.callback0,
            fields.callbacks,
            fields.state,
            fields.fut_waiter,
            fields.name,
        ] {
            self.fake.word(label, field, 0);
        }
        self.fake.point(label, fields.coro, coroutine);
        self.tasks.push(label.to_owned());
        self.list_tasks();
    }

    /// A suspended coroutine; its code is at `code LABEL`.
    fn coroutine(&mut self, label: &str, awaits: Option<&str>) {
        self.of_type(label, "coroutine");
        let generator = self.layout.generator;
        let frame = generator.frame;
        let state = generator.state.expect("3.11 or later");
        let (code, bytecode) = (format!("code {label}"), format!("bytecode {label}"));
        self.fake
            .put(label, state, &[SUSPENDED])
            .point(label, frame + self.layout.frame.code, &code)
            .point(label, frame + self.layout.frame.instr, &bytecode)
            .int(label, frame + generator.stack_depth.expect("a depth"), 1);
        let locals = frame + generator.localsplus.expect("locals");
        match awaits {
            Some(awaits) => {
                self.fake.put(&bytecode, 2, &AWAITS);
                self.fake.point(label, locals, awaits);
            }
            None => {
                self.fake.put(&bytecode, 2, &[0, 0]);
                self.fake.word(label, locals, 0);
            }
        }
    }

    /// A future's iterator, and the future that `task` waits for.
    fn future(&mut self, label: &str, task: &str) {
        let iterator = format!("iterator {label}");
        self.of_type(&iterator, "_asyncio.FutureIter");
        self.fake.point(&iterator, self.layout.object.size, label);
        self.of_type(label, "_asyncio.Future");
        let fields = self.layout.task;
        for field in [fields.callback0, fields.callbacks, fields.state] {
            self.fake.word(label, field, 0);
        }
        self.fake.point(task, fields.fut_waiter, label);
    }

    fn reader(&self) -> TaskReader {
        TaskReader::new(&self.runtime, None)
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        let mut reader = self.reader();
        reader
            .snapshot(&self.runtime, &self.fake)
            .expect("a snapshot")
    }

    fn codes(&mut self, labels: &[&str]) -> Vec<u64> {
        let codes = labels.iter();
        codes
            .map(|label| self.fake.at(&format!("code {label}")).0)
            .collect()
    }
}

fn codes_of(task: &Task) -> Vec<u64> {
    task.frames.iter().map(|frame| frame.code).collect()
}

#[test]
fn a_chain_goes_from_the_task_to_what_it_waits_for() {
    let mut world = World::new();
    world.task("task", "outer");
    world.coroutine("outer", Some("wrapper"));
    world.of_type("wrapper", "coroutine_wrapper");
    let size = world.layout.object.size;
    world.fake.point("wrapper", size, "inner");
    world.coroutine("inner", Some("iterator future"));
    world.future("future", "task");
    let future = world.fake.at("future");
    let snapshot = world.snapshot();
    let [task] = &*snapshot.tasks else {
        panic!("{snapshot:?}")
    };
    assert_eq!(codes_of(task), world.codes(&["inner", "outer"]));
    assert_eq!(task.status, TaskStatus::Waiting);
    let waits_for = task.waits_for.as_ref().expect("a future");
    assert_eq!(
        (waits_for.addr, &*waits_for.class, waits_for.task),
        (future, "_asyncio.Future", None)
    );
    assert_eq!(task.leaf, Leaf::Awaits(waits_for.clone()));
}

#[test]
fn once_its_future_is_done_a_task_has_its_turn() {
    let mut world = World::new();
    world.task("task", "coroutine");
    world.coroutine("coroutine", Some("iterator future"));
    world.future("future", "task");
    let state = world.layout.task.state;
    world.fake.int("future", state, 2);
    let snapshot = world.snapshot();
    let status = snapshot.tasks.first().map(|task| task.status);
    assert_eq!(status, Some(TaskStatus::Runnable));
    world.fake.int("task", state, 2);
    assert!(world.snapshot().tasks.is_empty(), "it is finished");
}

#[test]
fn coroutines_in_a_circle_are_gone_round_once() {
    let mut world = World::new();
    world.task("task", "a");
    world.coroutine("a", Some("b"));
    world.coroutine("b", Some("a"));
    let snapshot = world.snapshot();
    let task = snapshot.tasks.first().expect("the task");
    assert_eq!(codes_of(task), world.codes(&["b", "a"]));
    assert_eq!(task.leaf, Leaf::Cycle);
}

#[test]
fn a_chain_without_end_is_cut() {
    let mut world = World::new();
    world.task("task", "0");
    for index in 0..MAX_CHAIN + 10 {
        world.coroutine(&index.to_string(), Some(&(index + 1).to_string()));
    }
    let snapshot = world.snapshot();
    let task = snapshot.tasks.first().expect("the task");
    assert_eq!(task.frames.len(), MAX_CHAIN);
    assert_eq!(task.leaf, Leaf::TooDeep);
}

#[test]
fn what_cannot_be_read_is_told_and_hides_nothing_else() {
    let mut world = World::new();
    for label in ["good", "no coroutine", "gone", "other"] {
        world.task(label, "coroutine");
    }
    world.coroutine("coroutine", None);
    let coro = world.layout.task.coro;
    world.fake.point("no coroutine", coro, "nothing");
    world.fake.unmap("gone");
    world.of_type("other", "NoneOfThese");
    let class = "type NoneOfThese";
    world.fake.word(class, world.layout.class.flags, 0);
    world.fake.word(class, world.layout.class.dictoffset, 0);
    let snapshot = world.snapshot();
    let good = TaskAddr(world.fake.at("good").0);
    let found: Vec<_> = snapshot.tasks.iter().map(|task| task.addr).collect();
    assert_eq!(found, [good]);
    assert_eq!(snapshot.unreadable.len(), 3, "{:?}", snapshot.unreadable);

    // Of one whose own coroutine is there, only the rest of the chain is missing.
    world.fake.point("no coroutine", coro, "half");
    world.coroutine("half", Some("nowhere"));
    let snapshot = world.snapshot();
    let half = TaskAddr(world.fake.at("no coroutine").0);
    let half = snapshot.tasks.iter().find(|task| task.addr == half);
    let half = half.expect("it is there");
    assert_eq!(codes_of(half), world.codes(&["half"]));
    assert!(matches!(half.leaf, Leaf::Unreadable(_)), "{half:?}");
}

#[test]
fn a_set_that_lies_of_its_size_is_told() {
    let mut world = World::new();
    world.task("task", "coroutine");
    world.coroutine("coroutine", None);
    let mask = world.layout.containers.set_mask;
    for size in [u64::MAX, 1 << 40, 1 << 20, 1000] {
        world.fake.word("scheduled", mask, size);
        let snapshot = world.snapshot();
        assert_eq!(snapshot.broken_lists.len(), 1, "{size}");
        assert!(snapshot.tasks.is_empty(), "{size}");
    }
}

#[test]
fn only_what_has_changed_is_read_again() {
    let mut world = World::new();
    for label in ["stays", "moves"] {
        let coroutine = format!("of {label}");
        world.task(label, &coroutine);
        world.coroutine(&coroutine, None);
    }
    let mut reader = world.reader();
    let mut shoot = |world: &World| {
        reader
            .snapshot(&world.runtime, &world.fake)
            .expect("a snapshot")
    };
    assert_eq!(shoot(&world).unchanged, 0);
    let before = shoot(&world);
    assert_eq!((before.unchanged, before.tasks.len()), (2, 2));
    world.coroutine("of moves", Some("inner"));
    world.coroutine("inner", None);
    let after = shoot(&world);
    assert_eq!((after.unchanged, after.tasks.len()), (1, 2));
    assert_eq!(
        codes_of(&after.tasks[1]),
        world.codes(&["inner", "of moves"])
    );
    assert!(Arc::ptr_eq(&before.tasks[0], &after.tasks[0]));
}

#[test]
fn tasks_that_come_go_and_change_are_seen_among_many() {
    let mut world = World::new();
    let make = |world: &mut World, number: u32| {
        let coroutine = format!("of {number}");
        world.task(&number.to_string(), &coroutine);
        world.coroutine(&coroutine, None);
    };
    for number in 0..150 {
        make(&mut world, number);
    }
    let mut reader = world.reader();
    // What happens, and how many are then as they were.
    type Happens<'a> = &'a dyn Fn(&mut World);
    let steps: [(Happens<'_>, u64); 14] = [
        (&|_| {}, 0),
        (&|_| {}, 150),
        (&|world| world.coroutine("of 70", Some("of 1")), 149),
        (&|world| world.coroutine("of 1", Some("of 2")), 148),
        (&|world| drop(world.tasks.remove(10)), 149),
        (&|_| {}, 149),
        (&|world| drop(world.tasks.drain(64..128)), 85),
        (&|world| make(world, 200), 85),
        (&|world| world.tasks.rotate_right(1), 86),
        (&|world| world.tasks.reverse(), 86),
        (
            &|world| {
                world.fake.int("5", world.layout.task.state, 1);
            },
            85,
        ),
        (&|world| world.tasks.swap(20, 60), 86),
        (&|world| world.tasks.clear(), 0),
        (&|world| make(world, 201), 0),
    ];
    for (number, (happens, unchanged)) in steps.into_iter().enumerate() {
        happens(&mut world);
        world.list_tasks();
        world.fake.fill_pages();
        let shot = reader.snapshot(&world.runtime, &world.fake);
        let shot = shot.expect("a snapshot");
        assert!(shot.tasks == world.snapshot().tasks, "{number}");
        assert_eq!(shot.unchanged, unchanged, "{number}");
    }
}

#[test]
fn a_list_that_is_none_is_told() {
    let (mut fake, layout, found) = Fake::python_3_14t();
    fake.dict("modules", &layout, &[("sys", "sys")]);
    let runtime = Runtime::attach(found, &fake).expect("a runtime");
    let mut reader = TaskReader::new(&runtime, None);
    let layout = *runtime.layout();
    let of_thread = layout.asyncio.thread_tasks.expect("3.14 or later");
    let of_interpreter = layout.asyncio.interp_tasks.expect("3.14 or later");
    let running = layout.asyncio.running_loop.expect("3.13 or later");
    let node = layout.task.node.expect("3.14 or later");
    fake.word("thread", running, 0);
    fake.word("interp", of_interpreter, 0);
    let head = fake.at("thread").0 + u64::from(of_thread);
    let at = |fake: &mut Fake, label: &str| fake.at(label).0 + u64::from(node);
    let [a, b] = ["a", "b"].map(|label| at(&mut fake, label));
    let mut check = |first: u64, links: [[u64; 2]; 2], found: usize, broken: usize| {
        fake.word("thread", of_thread, first);
        for (label, [next, before]) in ["a", "b"].into_iter().zip(links) {
            fake.word(label, node, next).word(label, node + 8, before);
        }
        let snapshot = reader.snapshot(&runtime, &fake).expect("a snapshot");
        // The objects themselves are nothing.
        assert_eq!(snapshot.unreadable.len(), found, "{links:x?}");
        assert_eq!(snapshot.broken_lists.len(), broken, "{links:x?}");
    };
    check(0, [[0; 2]; 2], 0, 0);
    check(head, [[0; 2]; 2], 0, 0);
    check(a, [[b, head], [head, a]], 2, 0);
    check(a, [[a, head], [0; 2]], 1, 1);
    check(a, [[b, head], [a, a]], 2, 1);
    check(a, [[b, head], [head, 0]], 1, 1);
    check(a, [[1 << 63, head], [0; 2]], 1, 1);
    check(7, [[0; 2]; 2], 0, 1);
}

#[test]
fn of_loops_that_have_rested_nothing_is_read() {
    let mut world = World::new();
    let key = "__asyncio_running_event_loop__";
    world
        .fake
        .dict("thread dict", &world.layout, &[(key, "loop")]);
    world.of_type("loop", "Loop");
    let event_loop = world.layout.task.event_loop;
    for (label, runs_in) in [("of it", "loop"), ("of another", "other loop")] {
        world.task(label, "coroutine");
        world.fake.point(label, event_loop, runs_in);
    }
    world.coroutine("coroutine", None);
    let mut reader = world.reader();
    let mut shoot = |world: &World, rested: bool| {
        reader
            .snapshot_since(&world.runtime, &world.fake, &|_| rested)
            .expect("a snapshot")
    };
    let first = shoot(&world, true);
    assert_eq!((first.unchanged, first.tasks.len()), (0, 2));
    assert_eq!(first.loops.len(), 1);
    let whole = world.fake.clone();
    for label in ["of it", "of another", "scheduled", "thread", "interp"] {
        world.fake.unmap(label);
    }
    let same = shoot(&world, true);
    assert_eq!((same.unchanged, &same.tasks), (2, &first.tasks));
    assert!(Arc::ptr_eq(&same, &shoot(&world, true)));

    // One runs, the other does not run at all: all is read.
    world.fake = whole;
    world.coroutine("coroutine", Some("inner"));
    world.coroutine("inner", None);
    let after = shoot(&world, false);
    let frames = after.tasks.iter().map(|task| task.frames.len());
    assert_eq!(frames.collect::<Vec<_>>(), [2, 2]);
}
