//! Newcomers: looked at alone where that comes to the same, with everyone where it does not.

use rustc_hash::FxHashSet;

use super::*;

const NEW: u32 = PID + 2;
/// Threads that never ran Python.
const NATIVE: std::ops::Range<u32> = PID + 10..PID + 20;

/// What a process is, once the newcomer is there, and what is known of it from before.
fn scene() -> (Process, Registry) {
    scene_of(Process::new())
}

fn scene_of(mut process: Process) -> (Process, Registry) {
    process.threads.extend(NATIVE.map(|tid| thread(tid, None)));
    let mut registry = Registry::new();
    registry.note_tls_base(Tid(PID), PthreadId(FIRST));
    registry.note_tls_base(Tid(PID + 1), PthreadId(LOW));
    let (new, high) = (process.threads.remove(2), process.states.remove(0));
    process.look(&mut registry, ScanWhom::Everyone);
    process.threads.push(new);
    process.states.push(high);
    registry.note_tls_base(Tid(NEW), PthreadId(HIGH));
    (process, registry)
}

fn look_for(process: &Process, registry: &mut Registry, tids: &[u32]) {
    let newcomers: FxHashSet<Tid> = tids.iter().copied().map(Tid).collect();
    let look = process.facts(ScanWhom::Everyone);
    registry.look_for(&newcomers, &look, &process.memory);
}

/// What ties the newcomer to another thread, as it is made.
type Tie = fn(&mut Process, &mut Registry);

/// Looks for the newcomer, and checks that a look at all says the same.
fn check_same(process: &Process, mut registry: Registry) -> Registry {
    let mut all = registry.clone();
    process.look(&mut all, ScanWhom::Everyone);
    look_for(process, &mut registry, &[NEW]);
    let told = |registry: &Registry| {
        let matches: Vec<Match> = registry.matches().cloned().collect();
        let threads: Vec<ThreadFacts> = registry.threads().cloned().collect();
        let unplaced = registry.unplaced_states().to_vec();
        (matches, threads, unplaced, registry.contradictions())
    };
    assert_eq!(told(&registry), told(&all));
    registry
}

#[test]
fn a_newcomer_is_matched_as_by_a_look_at_all() {
    let (process, registry) = scene();
    let registry = check_same(&process, registry);
    let found = registry.by_tid(Tid(NEW)).expect("the newcomer");
    let others = [TlsBase, NativeThreadId, ControlBlock, StackScan];
    assert_eq!(found.matched_by, others);
    // Without native ids, to 3.10.
    let (process, registry) = scene_of(Process::new().without_native_ids());
    let registry = check_same(&process, registry);
    let found = registry.by_tid(Tid(NEW)).expect("the newcomer");
    assert_eq!(found.matched_by, [TlsBase, ControlBlock, StackScan]);
    // Without a state it is a native thread, until it has one.
    let (mut process, registry) = scene();
    let state = process.states.pop().expect("the newcomer's");
    let registry = check_same(&process, registry);
    assert_eq!(registry.by_tid(Tid(NEW)), None);
    process.states.push(state);
    check_same(&process, registry);
}

#[test]
fn of_the_others_nothing_is_read() {
    let (mut process, mut registry) = scene();
    let before: Vec<Match> = registry.matches().cloned().collect();
    for id in [FIRST, LOW] {
        process.memory.word(id, 0);
    }
    look_for(&process, &mut registry, &[NEW]);
    let after: Vec<Match> = registry.matches().cloned().collect();
    assert_eq!(after[..2], before);
    assert_eq!(after.len(), 3);
    // It is what a look at all would have found missing.
    process.look(&mut registry, ScanWhom::Everyone);
    assert_ne!(registry.by_tid(Tid(PID + 1)), Some(&before[1]));
}

#[test]
fn whatever_ties_a_newcomer_to_another_is_judged_with_everyone() {
    let ties: [(&str, u64, Tie); 8] = [
        ("nothing", 0, |_, _| {}),
        ("a base that another has as well", 2, |_, registry| {
            registry.note_tls_base(Tid(NEW), PthreadId(LOW));
        }),
        ("another's native id", 0, |process, _| {
            process.states[2].native_id = Some(InnerTid(PID + 1));
        }),
        ("a native id that another's state has", 1, |process, _| {
            process.states[0].native_id = Some(InnerTid(NEW));
            process.states[2].native_id = None;
        }),
        ("another's number in its block", 1, |process, _| {
            process.memory.int(HIGH + 0x2d0, PID + 1);
        }),
        ("another's stack", 1, |process, _| {
            process.threads.last_mut().expect("new").stack_pointer = Some(RemoteAddr(LOW - 0x700));
        }),
        ("an id of its own that another has", 0, |process, _| {
            process.threads.last_mut().expect("new").inner = Some(InnerTid(PID + 1));
        }),
        (
            "a start that is not the noted one's",
            0,
            |process, registry| {
                check_same(process, registry.clone());
                look_for(process, registry, &[NEW]);
                process.threads.last_mut().expect("new").started = StartTime(9);
            },
        ),
    ];
    for (tie, contradictions, make) in ties {
        let (mut process, mut registry) = scene();
        make(&mut process, &mut registry);
        let registry = check_same(&process, registry);
        assert!(registry.contradictions() >= contradictions, "{tie}");
    }
}

#[test]
fn the_first_thread_and_many_at_once_are_looked_at_with_everyone() {
    for newcomers in [&[PID][..], &[PID + 1, NEW, PID + 10, PID + 11]] {
        let (mut process, mut registry) = scene();
        process.memory.word(LOW, 0);
        look_for(&process, &mut registry, newcomers);
        let low = registry.by_tid(Tid(PID + 1)).expect("by its base");
        assert_eq!(low.matched_by, [TlsBase, NativeThreadId], "{newcomers:?}");
    }
}
