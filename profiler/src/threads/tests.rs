//! The ladder on processes made of words: stacks with control blocks, alone and merged into one
//! mapping, with and without Python.

use std::collections::BTreeMap;

mod newcomers;
mod reuse;

use super::*;
use crate::target::{Backing, Mapping, Maps, Memory, Perms, ReadError, ReadErrorKind};
use crate::words::{InnerTid, Pid, PthreadId, RemoteAddr, StartTime, ThreadStateAddr, Tid};

/// Memory by pages, each there or not.
#[derive(Default)]
pub(super) struct Fake(BTreeMap<u64, [u8; 4096]>);

impl Fake {
    /// Make the pages that hold these bytes exist, as zeroes.
    pub(super) fn fill(&mut self, addr: u64, bytes: u64) {
        for page in addr / 4096..=(addr + bytes - 1) / 4096 {
            self.0.entry(page).or_insert([0; 4096]);
        }
    }

    pub(super) fn word(&mut self, addr: u64, word: u64) {
        self.int(addr, word as u32);
        self.int(addr + 4, (word >> 32) as u32);
    }

    pub(super) fn int(&mut self, addr: u64, int: u32) {
        self.fill(addr, 4);
        let page = self.0.get_mut(&(addr / 4096)).expect("just filled");
        let at = (addr % 4096) as usize;
        page[at..at + 4].copy_from_slice(&int.to_le_bytes());
    }

    /// A control block as glibc makes it.
    fn block(&mut self, id: u64, tid: u32) {
        self.fill(id, 0x900);
        self.word(id, id);
        self.word(id + 0x10, id);
        // The head of the empty list of robust mutexes points to itself.
        self.word(id + 0x2e0, id + 0x2e0);
        self.int(id + 0x2d0, tid);
    }
}

impl Memory for Fake {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        let bytes = buf.len();
        for (at, byte) in buf.iter_mut().enumerate() {
            let at = addr.plus(at as u64).0;
            let page = self.0.get(&(at / 4096)).ok_or(ReadError {
                addr,
                bytes,
                kind: ReadErrorKind::Unmapped,
            })?;
            *byte = page[(at % 4096) as usize];
        }
        Ok(())
    }
}

const PID: u32 = 100;
const FIRST_STACK: u64 = 0x7ffd_0000_0000;
/// The first thread's control block, where the dynamic linker put it.
const FIRST: u64 = 0x7f90_0000_0740;
/// Two stacks in one mapping of 64 KiB, 32 KiB each, with a guard page at the low end.
const STACKS: u64 = 0x7f00_0000_0000;
const LOW: u64 = STACKS + 0x7000;
const HIGH: u64 = STACKS + 0xf000;

/// A process with a first thread and two others, and what the kernel would say of it.
struct Process {
    memory: Fake,
    maps: Maps,
    threads: Vec<ThreadFacts>,
    states: Vec<StateFacts>,
}

impl Process {
    fn new() -> Self {
        let mut memory = Fake::default();
        memory.fill(FIRST_STACK, 0x4000);
        memory.fill(STACKS + 0x1000, 0x7000);
        memory.fill(STACKS + 0x9000, 0x7000);
        memory.block(FIRST, PID);
        memory.block(LOW, PID + 1);
        memory.block(HIGH, PID + 2);
        // The first thread has started the others, and the lower one joins the higher one.
        memory.word(FIRST_STACK + 0x3000, LOW);
        memory.word(LOW - 0x100, HIGH);
        let maps = [
            (STACKS, 0x1_0000),
            (FIRST & !0xfff, 0x2000),
            (FIRST_STACK, 0x4000),
        ];
        Self {
            memory,
            maps: Maps::new(maps.map(mapping).to_vec()),
            threads: vec![
                thread(PID, Some(FIRST_STACK + 0x2000)),
                thread(PID + 1, Some(LOW - 0x800)),
                thread(PID + 2, Some(HIGH - 0x3008)),
            ],
            states: vec![
                state(3, HIGH, PID + 2),
                state(2, LOW, PID + 1),
                state(1, FIRST, PID),
            ],
        }
    }

    fn facts(&self, scan: ScanWhom) -> Look<'_> {
        Look {
            pid: Pid(PID),
            start_stack: Some(RemoteAddr(FIRST_STACK + 0x3800)),
            maps: &self.maps,
            threads: &self.threads,
            states: &self.states,
            scan,
        }
    }

    fn look(&self, registry: &mut Registry, scan: ScanWhom) {
        registry.look(&self.facts(scan), &self.memory);
    }

    fn without_native_ids(mut self) -> Self {
        for state in &mut self.states {
            state.native_id = None;
        }
        self
    }

    /// As if the C library kept the thread id nowhere.
    fn without_block_tids(mut self) -> Self {
        for id in [FIRST, LOW, HIGH] {
            self.memory.int(id + 0x2d0, 0);
        }
        self
    }
}

fn mapping((start, bytes): (u64, u64)) -> Mapping {
    Mapping {
        start: RemoteAddr(start),
        end: RemoteAddr(start + bytes),
        perms: Perms::default(),
        offset: 0,
        dev: (0, 0),
        inode: 0,
        backing: Backing::Anonymous,
    }
}

fn thread(tid: u32, sp: Option<u64>) -> ThreadFacts {
    ThreadFacts {
        tid: Tid(tid),
        started: StartTime(1),
        inner: Some(InnerTid(tid)),
        name: format!("thread {tid}"),
        stack_pointer: sp.map(RemoteAddr),
    }
}

fn state(state: u64, id: u64, native: u32) -> StateFacts {
    StateFacts {
        state: ThreadStateAddr(state),
        pthread_id: PthreadId(id),
        native_id: Some(InnerTid(native)),
    }
}

/// Who is who, and by which rungs.
fn check(registry: &Registry, expected: &[(u32, u64, &[Rung])]) {
    let matches: Vec<(u32, u64, &[Rung])> = registry
        .matches()
        .map(|found| (found.tid.0, found.pthread_id.0, &found.matched_by[..]))
        .collect();
    assert_eq!(matches, expected);
    for (tid, id, _) in expected {
        let found = registry.by_pthread_id(PthreadId(*id)).expect("by its id");
        assert_eq!(found.tid, Tid(*tid));
    }
}

use Rung::{ControlBlock, MainThread, NativeThreadId, StackScan, TlsBase};

#[test]
fn all_five_rungs_name_the_same_thread() {
    let process = Process::new();
    let mut registry = Registry::new();
    for (tid, id) in [(PID, FIRST), (PID + 1, LOW), (PID + 2, HIGH)] {
        registry.note_tls_base(Tid(tid), PthreadId(id));
    }
    process.look(&mut registry, ScanWhom::Everyone);
    let others = [TlsBase, NativeThreadId, ControlBlock, StackScan];
    check(
        &registry,
        &[
            (
                PID,
                FIRST,
                &[TlsBase, NativeThreadId, ControlBlock, MainThread],
            ),
            (PID + 1, LOW, &others),
            (PID + 2, HIGH, &others),
        ],
    );
    assert_eq!(registry.contradictions(), 0);
    assert_eq!(registry.tid_offset(), Some(TidOffset(0x2d0)));
}

#[test]
fn each_lower_rung_serves_alone() {
    let process = Process::new().without_native_ids();
    let mut registry = Registry::new();
    process.look(&mut registry, ScanWhom::Unmatched);
    check(
        &registry,
        &[
            (PID, FIRST, &[ControlBlock]),
            (PID + 1, LOW, &[ControlBlock]),
            (PID + 2, HIGH, &[ControlBlock]),
        ],
    );
    let process = Process::new().without_native_ids().without_block_tids();
    let mut registry = Registry::new();
    process.look(&mut registry, ScanWhom::Unmatched);
    check(
        &registry,
        &[
            (PID, FIRST, &[MainThread]),
            (PID + 1, LOW, &[StackScan]),
            (PID + 2, HIGH, &[StackScan]),
        ],
    );
    assert_eq!(registry.contradictions(), 0);
}

/// What keeps the scan of a native thread's stack from walking on into the next one.
enum Fence {
    GuardPage,
    NextStackPointer,
    OwnBlock,
}

#[test]
fn each_fence_alone_keeps_a_native_thread_from_the_next_ones_id() {
    for fence in [Fence::GuardPage, Fence::NextStackPointer, Fence::OwnBlock] {
        let mut process = Process::new().without_native_ids().without_block_tids();
        process.states.retain(|state| state.pthread_id.0 != LOW);
        if !matches!(fence, Fence::GuardPage) {
            process.memory.fill(STACKS + 0x8000, 0x1000);
        }
        if !matches!(fence, Fence::NextStackPointer) {
            process.threads[2].stack_pointer = None;
        }
        if !matches!(fence, Fence::OwnBlock) {
            process.memory.word(LOW + 0x10, 0);
        }
        let mut registry = Registry::new();
        process.look(&mut registry, ScanWhom::Everyone);
        assert_eq!(registry.by_tid(Tid(PID + 1)), None);
        let native = registry
            .native_threads()
            .any(|thread| thread.tid.0 == PID + 1);
        assert!(native);
    }
}

#[test]
fn pythons_main_thread_need_not_be_the_process_s() {
    let mut process = Process::new().without_native_ids().without_block_tids();
    process.states.retain(|state| state.pthread_id.0 == HIGH);
    let mut registry = Registry::new();
    process.look(&mut registry, ScanWhom::Everyone);
    check(&registry, &[(PID + 2, HIGH, &[StackScan])]);
    // While the other thread runs its stack is not known, and nobody is guessed to be it.
    process.threads[2].stack_pointer = None;
    process.look(&mut registry, ScanWhom::Everyone);
    check(&registry, &[]);
    assert_eq!(registry.unplaced_states().len(), 1);
}

#[test]
fn a_rung_that_lies_is_outvoted_and_counted_once() {
    let mut process = Process::new();
    process.states[0].native_id = Some(InnerTid(PID + 1));
    process.states[1].native_id = Some(InnerTid(PID + 2));
    let mut registry = Registry::new();
    for (tid, id) in [(PID + 1, LOW), (PID + 2, HIGH)] {
        registry.note_tls_base(Tid(tid), PthreadId(id));
    }
    for _ in 0..3 {
        registry.note_tls_base(Tid(PID + 1), PthreadId(LOW));
        process.look(&mut registry, ScanWhom::Unmatched);
        let found = registry.by_tid(Tid(PID + 1)).expect("by its TLS base");
        assert_eq!(found.pthread_id, PthreadId(LOW));
        assert_eq!(found.matched_by, [TlsBase, ControlBlock]);
        assert_eq!(found.contradictions.len(), 2);
    }
    assert_eq!(registry.contradictions(), 2);
}

#[test]
fn an_id_that_was_given_to_another_thread_is_another_thread() {
    let mut process = Process::new().without_native_ids().without_block_tids();
    let mut registry = Registry::new();
    process.look(&mut registry, ScanWhom::Unmatched);
    registry.note_tls_base(Tid(PID + 1), PthreadId(LOW));
    process.look(&mut registry, ScanWhom::Unmatched);
    check(
        &registry,
        &[
            (PID, FIRST, &[MainThread]),
            (PID + 1, LOW, &[TlsBase]),
            (PID + 2, HIGH, &[StackScan]),
        ],
    );
    process.threads[1].started = StartTime(2);
    process.threads[1].stack_pointer = None;
    process.look(&mut registry, ScanWhom::Unmatched);
    assert_eq!(registry.by_tid(Tid(PID + 1)), None);
    registry.forget(Tid(PID + 2));
    assert_eq!(registry.by_pthread_id(PthreadId(HIGH)), None);
}

#[test]
fn a_state_whose_thread_is_gone_names_nobody_else() {
    let mut process = Process::new();
    // Its stack, and so its pthread id, went to a new thread with an id of its own.
    process.states[1].native_id = Some(InnerTid(PID + 50));
    let mut registry = Registry::new();
    process.look(&mut registry, ScanWhom::Everyone);
    assert_eq!(registry.by_tid(Tid(PID + 1)), None);
    assert_eq!(registry.unplaced_states(), [process.states[1]]);
}

#[test]
fn threads_of_a_pid_namespace_are_found_by_the_ids_they_have_inside() {
    let mut process = Process::new();
    for (inner, (thread, id)) in (1..).zip(process.threads.iter_mut().zip([FIRST, LOW, HIGH])) {
        thread.inner = Some(InnerTid(inner));
        process.memory.int(id + 0x2d0, inner);
    }
    for (state, inner) in process.states.iter_mut().zip([3, 2, 1]) {
        state.native_id = Some(InnerTid(inner));
    }
    let mut registry = Registry::new();
    process.look(&mut registry, ScanWhom::Unmatched);
    let rungs = [NativeThreadId, ControlBlock];
    check(
        &registry,
        &[
            (PID, FIRST, &rungs),
            (PID + 1, LOW, &rungs),
            (PID + 2, HIGH, &rungs),
        ],
    );
}

#[test]
fn a_thread_with_several_interpreters_has_several_states() {
    let mut process = Process::new();
    process.states.insert(0, state(9, LOW, PID + 1));
    let mut registry = Registry::new();
    process.look(&mut registry, ScanWhom::Unmatched);
    let found = registry.by_tid(Tid(PID + 1)).expect("found");
    assert_eq!(found.state, ThreadStateAddr(2));
    assert_eq!(found.other_states, [ThreadStateAddr(9)]);
}

#[test]
fn facts_without_sense_match_nobody() {
    let mut process = Process::new();
    process.memory = Fake::default();
    for (index, state) in process.states.iter_mut().enumerate() {
        state.pthread_id = PthreadId([0, 7, u64::MAX][index]);
        state.native_id = None;
    }
    for thread in &mut process.threads {
        thread.stack_pointer = Some(RemoteAddr(u64::MAX));
    }
    let mut registry = Registry::new();
    process.look(&mut registry, ScanWhom::Everyone);
    check(&registry, &[]);
    assert_eq!(registry.native_threads().count(), 3);
}

#[test]
fn a_stack_full_of_words_that_point_to_themselves_is_given_up() {
    let mut process = Process::new().without_native_ids().without_block_tids();
    for addr in (LOW - 0x1000..LOW - 0x10).step_by(8) {
        process.memory.word(addr, addr);
    }
    process.threads[1].stack_pointer = Some(RemoteAddr(LOW - 0x1000));
    let mut registry = Registry::new();
    process.look(&mut registry, ScanWhom::Everyone);
    check(&registry, &[(PID + 2, HIGH, &[StackScan])]);
}
