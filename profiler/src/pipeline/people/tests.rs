//! Threads that come, go and come again under the same ids, as the events of a run tell of them.

mod reuse;

use std::collections::BTreeMap;

use super::*;
use crate::{
    aggregate::ProfileMeta,
    target::{Backing, Mapping, Perms, ReadError, ReadErrorKind, TaskState},
    words::{MonotonicNs, StartTime},
};

const PID: u32 = 100;
const FIRST_STACK: u64 = 0x7ffd_0000_0000;
const FIRST: PthreadId = PthreadId(0x7f90_0000_0740);
const STACK_BYTES: u64 = 0x4000;

/// Where the control block of the other thread on stack `number` is, at its top.
fn block(number: u64) -> PthreadId {
    PthreadId(0x7f00_0000_0000 + number * 0x10_0000 + 0x3700)
}

/// A process made of the threads that it has now; memory is words, and zeroes within a mapping.
#[derive(Default)]
struct Fake {
    tasks: BTreeMap<Tid, TaskFacts>,
    words: BTreeMap<u64, u64>,
    /// Where blocked threads are.
    blocked: BTreeMap<Tid, RemoteAddr>,
}

impl Fake {
    fn begin(&mut self, tid: u32, started: u64, id: PthreadId) {
        let task = TaskFacts {
            tid: Tid(tid),
            started: StartTime(started),
            inner: Some(InnerTid(tid)),
            name: format!("kernel's {tid}"),
            state: TaskState::Running,
            cpu: DurationNs(0),
            start_stack: Some(RemoteAddr(FIRST_STACK + 0x3800)),
            is_kernels: false,
        };
        self.tasks.insert(Tid(tid), task);
        self.words.insert(id.0, id.0);
        self.words.insert(id.0 + 0x10, id.0);
        self.words.insert(id.0 + 0x2d0, tid.into());
    }

    /// The stack and its block stay mapped, for the C library keeps them for the next thread.
    fn end(&mut self, tid: u32, id: PthreadId) {
        self.tasks.remove(&Tid(tid));
        self.words.insert(id.0 + 0x2d0, 0);
    }

    fn mapping(start: u64) -> Mapping {
        Mapping {
            start: RemoteAddr(start),
            end: RemoteAddr(start + STACK_BYTES),
            perms: Perms::default(),
            offset: 0,
            dev: (0, 0),
            inode: 0,
            backing: Backing::Anonymous,
        }
    }
}

impl Memory for Fake {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        let maps = self.maps().unwrap_or_default();
        let bytes = buf.len();
        if maps.at(addr).is_none() || maps.at(addr.plus(bytes as u64 - 1)).is_none() {
            let kind = ReadErrorKind::Unmapped;
            return Err(ReadError { addr, bytes, kind });
        }
        for (at, byte) in (addr.0..).zip(buf) {
            let word = self.words.get(&(at & !7)).copied().unwrap_or(0);
            *byte = word.to_le_bytes()[(at % 8) as usize];
        }
        Ok(())
    }
}

impl Witness for Fake {
    fn pid(&self) -> Pid {
        Pid(PID)
    }

    fn task(&self, tid: Tid, _: MonotonicNs) -> Option<TaskFacts> {
        self.tasks.get(&tid).cloned()
    }

    fn stack_pointer(&self, tid: Tid) -> Option<RemoteAddr> {
        self.blocked.get(&tid).copied()
    }

    fn maps(&self) -> Option<Maps> {
        let others = (1..=4).map(|number| block(number).0 & !0xfff);
        let all = others.map(|top| top + 0x1000 - STACK_BYTES);
        let all = all.chain([FIRST.0 & !0xfff, FIRST_STACK]);
        Some(Maps::new(all.map(Self::mapping).collect()))
    }

    fn memory(&self) -> &dyn Memory {
        self
    }
}

const BEFORE: MonotonicNs = MonotonicNs(1);
const NOW: MonotonicNs = MonotonicNs(2);

/// The times of a thread that never waited.
fn ran(ns: u64) -> Times {
    Times {
        on_cpu: DurationNs(ns),
        ..Times::default()
    }
}

/// An interpreter without native ids (to 3.10) that calls threads by their pthread ids.
struct Old;

impl PythonWitness for Old {
    fn native_id(&self, _: &dyn Memory, _: ThreadStateAddr) -> Option<InnerTid> {
        None
    }

    fn names(
        &self,
        _: &dyn Memory,
        wanted: &dyn Fn(PthreadId) -> bool,
    ) -> FxHashMap<PthreadId, ThreadName> {
        let ids = (1..=4).map(block).chain([FIRST]);
        let ids = ids.filter(|id| wanted(*id));
        let named = |id| ThreadName {
            name: format!("Python's {id}"),
            native_id: None,
        };
        ids.map(|id| (id, named(id))).collect()
    }
}

fn builder() -> ProfileBuilder {
    ProfileBuilder::new(ProfileMeta {
        whose: crate::aggregate::Whose::Threads,
        pid: Pid(PID),
        command: String::new(),
        python: String::new(),
        build: String::new(),
        mode: crate::sample::Mode::Cpu,
        engine: String::new(),
        rate_hz: 99,
        period: DurationNs(1),
        clock: String::new(),
        host: String::new(),
        started_at: std::time::SystemTime::UNIX_EPOCH,
        start: MonotonicNs(0),
    })
}

/// A run: who was seen, in what order.
struct Run {
    process: Fake,
    people: People,
    builder: ProfileBuilder,
}

impl Run {
    fn new() -> Self {
        Self {
            process: Fake::default(),
            people: People::default(),
            builder: builder(),
        }
    }

    fn tick(&mut self, tid: u32, id: PthreadId) -> u32 {
        let sp = if id == FIRST {
            FIRST_STACK + 0x2000
        } else {
            id.0 - 0x800
        };
        self.meet(tid, id, Some(RemoteAddr(sp)))
    }

    fn meet(&mut self, tid: u32, id: PthreadId, sp: Option<RemoteAddr>) -> u32 {
        self.meet_at(tid, id, sp, BEFORE)
    }

    fn meet_at(&mut self, tid: u32, id: PthreadId, sp: Option<RemoteAddr>, at: MonotonicNs) -> u32 {
        let state = Some(id).filter(|id| id.0 != 0);
        let state = state.map(|id| ThreadStateAddr(id.0 + 1));
        let index = self.people.index(
            &self.process,
            &mut self.builder,
            Stranger {
                tid: Tid(tid),
                sp,
                tls_base: id,
                state,
                at,
                is_counted: true,
                opened: None,
            },
        );
        index.0
    }

    fn look(&mut self) {
        self.people.look(&self.process, &Old, &mut self.builder);
    }

    fn matched_by(&self, index: u32) -> &[Rung] {
        &self.people.everyone()[index as usize].matched_by
    }

    fn names(self) -> Vec<String> {
        let end = MonotonicNs(1);
        let ledger = self.builder.ledger(end);
        let profile = self.builder.close(end, ledger);
        let threads = profile.threads().iter();
        threads.map(|thread| thread.name.clone()).collect()
    }
}

use Rung::{ControlBlock, MainThread, StackScan, TlsBase};

#[test]
fn a_thread_id_that_comes_again_is_somebody_else() {
    let mut run = Run::new();
    run.process.begin(PID, 1, FIRST);
    run.process.begin(101, 5, block(1));
    assert_eq!(run.tick(101, block(1)), 0);
    run.look();
    // It runs on for a moment after its end was told.
    run.people.leave(Tid(101), ran(70), NOW);
    assert_eq!(run.tick(101, block(1)), 0);
    run.process.end(101, block(1));
    // The same id and the same stack, but another thread.
    run.process.begin(101, 9, block(1));
    run.people.make_room(Tid(101), NOW);
    assert!(!run.people.knows(Tid(101)));
    assert_eq!(run.tick(101, block(1)), 1);
    run.look();
    assert_eq!(run.matched_by(1), [TlsBase, ControlBlock, StackScan]);
    let ended: Vec<_> = run.people.everyone().iter().map(|p| p.ended).collect();
    assert_eq!(ended, [Some((ran(70), NOW)), None]);
    assert_eq!(run.people.contradictions(), 0);
}

#[test]
fn a_thread_that_was_met_before_its_birth_was_told_is_no_other() {
    let mut run = Run::new();
    run.process.begin(101, 5, block(1));
    assert_eq!(run.tick(101, block(1)), 0);
    run.people.make_room(Tid(101), BEFORE);
    assert_eq!(run.tick(101, block(1)), 0);
    assert_eq!(run.people.everyone()[0].born, Some(BEFORE));
}

#[test]
fn a_thread_that_ended_is_not_looked_at_and_keeps_what_is_known() {
    let mut run = Run::new();
    run.process.begin(101, 5, block(1));
    run.tick(101, block(1));
    run.look();
    run.people.leave(Tid(101), ran(70), NOW);
    run.process.end(101, block(1));
    run.process.begin(102, 6, block(2));
    run.tick(102, block(2));
    run.look();
    assert_eq!(run.matched_by(0), [TlsBase, ControlBlock, StackScan]);
    assert_eq!(run.matched_by(1), [TlsBase, ControlBlock, StackScan]);
    let named = |number| format!("Python's {}", block(number));
    assert_eq!(run.names(), [named(1), named(2)]);
}

#[test]
fn the_first_thread_is_the_one_left_over_although_others_have_ended() {
    let mut run = Run::new();
    run.process.begin(PID, 1, FIRST);
    for number in 1..=3 {
        let tid = 100 + number as u32;
        run.process.begin(tid, 5, block(number));
        run.tick(tid, block(number));
        run.look();
        run.people.leave(Tid(tid), ran(1), NOW);
        run.process.end(tid, block(number));
    }
    assert_eq!(run.tick(PID, FIRST), 3);
    run.look();
    assert_eq!(run.matched_by(3), [TlsBase, ControlBlock, MainThread]);
    assert_eq!(run.people.states.len(), 1);
}

#[test]
fn the_first_stack_stays_the_first_ones_when_others_come_later() {
    let mut run = Run::new();
    run.process.begin(PID, 1, FIRST);
    run.process.begin(101, 5, block(1));
    // As if the first thread kept the other's block address at that very place of its stack.
    run.tick(PID, FIRST);
    run.look();
    run.tick(101, block(1));
    run.look();
    assert_eq!(run.matched_by(0), [TlsBase, ControlBlock, MainThread]);
    assert_eq!(run.matched_by(1), [TlsBase, ControlBlock, StackScan]);
    assert_eq!(
        run.people.start_stack,
        Some(RemoteAddr(FIRST_STACK + 0x3800))
    );
}

/// Regression: in a pid namespace such ticks were of a `thread 0` that lived as long as the run.
#[test]
fn ticks_of_threads_that_gave_their_id_back_are_of_threads_at_their_end() {
    let mut run = Run::new();
    run.tick(0, block(1));
    assert_eq!(run.people.everyone()[0].tid, NO_ID);
    assert_eq!(run.names(), ["threads at their end"]);
}

#[test]
fn a_thread_without_a_tick_is_found_where_the_kernel_says_it_blocks() {
    let mut run = Run::new();
    run.process.begin(101, 5, block(1));
    run.process.begin(102, 5, block(2));
    let place = RemoteAddr(block(1).0 - 0x400);
    run.process.blocked.insert(Tid(101), place);
    run.meet(101, block(1), None);
    run.meet(102, block(2), None);
    run.look();
    assert_eq!(run.matched_by(0), [TlsBase, ControlBlock, StackScan]);
    assert_eq!(run.matched_by(1), [TlsBase, ControlBlock]);
}

#[test]
fn another_program_in_the_same_process_begins_anew() {
    let mut run = Run::new();
    run.process.begin(PID, 1, FIRST);
    run.tick(PID, FIRST);
    run.look();
    run.people.forget_python();
    assert!(run.people.states.is_empty());
    assert_eq!(run.people.start_stack, None);
    // It is the same thread of the kernel, but not of Python, and its stacks lie elsewhere.
    run.process.end(PID, FIRST);
    run.process.begin(PID, 1, block(4));
    assert_eq!(run.tick(PID, block(4)), 0);
    run.look();
    let person = &run.people.everyone()[0];
    assert_eq!(person.pthread_id, Some(block(4)));
    assert_eq!(person.matched_by, [TlsBase, ControlBlock, StackScan]);
    assert_eq!(run.names(), [format!("Python's {}", block(4))]);
}

#[test]
fn a_thread_that_replaced_the_program_is_the_first_from_then_on() {
    let mut run = Run::new();
    run.process.begin(PID, 1, FIRST);
    run.process.begin(101, 5, block(1));
    assert_eq!(run.tick(PID, FIRST), 0);
    assert_eq!(run.tick(101, block(1)), 1);
    run.look();
    // The kernel ends the first one, then tells of the other's exec.
    run.people.leave(Tid(PID), ran(70), NOW);
    run.people.take_over(&mut run.builder, Tid(101), Tid(PID));
    run.people.rename_all(&mut run.builder, "new");
    run.people.forget_python();
    assert!(!run.people.knows(Tid(101)));
    // The last word of the one that was first comes late and is not the other's.
    assert!(run.people.is_of_former(Tid(PID)));
    run.process.end(PID, FIRST);
    run.process.end(101, block(1));
    run.process.begin(PID, 1, block(2));
    assert_eq!(run.tick(PID, block(2)), 1);
    run.look();
    run.people.leave(Tid(PID), ran(90), NOW);
    assert!(!run.people.is_of_former(Tid(PID)));
    let tids: Vec<_> = run.people.everyone().iter().map(|p| p.tid).collect();
    assert_eq!(tids, [Tid(PID), Tid(PID)]);
    let ended: Vec<_> = run.people.everyone().iter().map(|p| p.ended).collect();
    assert_eq!(ended, [Some((ran(70), NOW)), Some((ran(90), NOW))]);
    assert_eq!(run.names()[1], format!("Python's {}", block(2)));
}

/// Regression: a worker of io_uring has the TLS base of the thread that it was made for, and was
/// given that one's frames.
#[test]
fn a_thread_of_the_kernels_own_is_not_pythons() {
    let mut run = Run::new();
    run.process.begin(101, 5, block(1));
    run.process.begin(102, 6, block(2));
    let worker = run.process.tasks.get_mut(&Tid(102)).expect("it began");
    worker.is_kernels = true;
    run.tick(101, block(1));
    run.tick(102, block(1));
    run.tick(102, block(1));
    run.look();
    assert!(run.people.is_kernels(Tid(102)) && !run.people.is_kernels(Tid(101)));
    assert_eq!(run.matched_by(0).first(), Some(&TlsBase));
    assert_eq!(run.matched_by(1), []);
    assert_eq!(run.people.everyone()[1].pthread_id, None);
    assert_eq!(run.people.contradictions(), 0);
    assert_eq!(run.names()[1], "kernel's 102");
}
