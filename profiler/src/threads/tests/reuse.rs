//! Who is left over at last, and what is handed on from one thread to the next: ids, bases, states.

use super::*;

impl Process {
    fn look_at_all(&self, registry: &mut Registry) {
        registry.look_at_all(&self.facts(ScanWhom::Unmatched), &self.memory);
    }

    /// As if one thread ran, so that its stack is not known, and nothing else told of it.
    fn with_a_runner() -> Self {
        let mut process = Self::new().without_native_ids().without_block_tids();
        process.threads[1].stack_pointer = None;
        process
    }
}

use Rung::LastStanding;

/// The matches of a process with one runner, once the first thread is known by its TLS base: with
/// a stack unknown, rung 5 says nothing.
const OTHERS: [(u32, u64, &[Rung]); 2] = [(PID, FIRST, &[TlsBase]), (PID + 2, HIGH, &[StackScan])];
const RUNNER: (u32, u64, &[Rung]) = (PID + 1, LOW, &[LastStanding]);

fn registry_that_knows_the_first() -> Registry {
    let mut registry = Registry::new();
    registry.note_tls_base(Tid(PID), PthreadId(FIRST));
    registry
}

#[test]
fn who_is_left_over_look_after_look_is_the_last_one_standing() {
    let process = Process::with_a_runner();
    let mut registry = registry_that_knows_the_first();
    for _ in 1..last_standing::LOOKS {
        process.look_at_all(&mut registry);
        check(&registry, &OTHERS);
    }
    process.look_at_all(&mut registry);
    check(&registry, &[OTHERS[0], RUNNER, OTHERS[1]]);
    assert_eq!(registry.contradictions(), 0);
    // A look at some does not know who is left over.
    process.look(&mut registry, ScanWhom::Unmatched);
    check(&registry, &OTHERS);
}

#[test]
fn who_comes_or_goes_meanwhile_puts_the_last_one_standing_off() {
    let mut process = Process::with_a_runner();
    let mut registry = registry_that_knows_the_first();
    let native = thread(PID + 3, Some(FIRST_STACK - 8));
    for look in 0..20 {
        match look % 2 {
            0 => process.threads.push(native.clone()),
            _ => process.threads.truncate(3),
        }
        process.look_at_all(&mut registry);
        check(&registry, &OTHERS);
    }
}

#[test]
fn of_two_left_over_nobody_is_the_last() {
    // Two threads for one id, and two ids for one thread.
    let mut threads = Process::with_a_runner();
    threads.threads.push(thread(PID + 3, None));
    let mut ids = Process::with_a_runner();
    ids.memory.block(HIGH + 0x10_0000, 0);
    ids.states.push(state(9, HIGH + 0x10_0000, 0));
    ids.states[3].native_id = None;
    for process in [threads, ids] {
        let mut registry = registry_that_knows_the_first();
        for _ in 0..20 {
            process.look_at_all(&mut registry);
            check(&registry, &OTHERS);
        }
    }
}

#[test]
fn a_native_thread_and_a_state_that_outlived_its_thread_are_no_pair() {
    // The native thread's stack is known to hold no id.
    let mut native = Process::with_a_runner();
    native.threads[1].stack_pointer = Some(RemoteAddr(LOW - 0x800));
    native.states[1].pthread_id = PthreadId(HIGH + 0x10_0000);
    native.memory.block(HIGH + 0x10_0000, 0);
    // The state's control block is gone.
    let mut gone = Process::with_a_runner();
    gone.states[1].pthread_id = PthreadId(HIGH + 0x10_0000);
    for process in [native, gone] {
        let mut registry = registry_that_knows_the_first();
        for _ in 0..20 {
            process.look_at_all(&mut registry);
            check(&registry, &OTHERS);
        }
        assert_eq!(registry.unplaced_states().len(), 1);
    }
}

#[test]
fn the_last_one_standing_stays_it_until_it_is_another() {
    let mut process = Process::with_a_runner();
    let mut registry = registry_that_knows_the_first();
    let all = [OTHERS[0], RUNNER, OTHERS[1]];
    for _ in 0..last_standing::LOOKS {
        process.look_at_all(&mut registry);
    }
    check(&registry, &all);
    // Others may come and go now.
    process.threads.push(thread(PID + 3, None));
    process.look_at_all(&mut registry);
    check(&registry, &all);
    process.threads.pop();
    process.look_at_all(&mut registry);
    check(&registry, &all);
    // The state is reused, then the id: both are to be proved anew.
    let mut state_again = process.states[1];
    state_again.state = ThreadStateAddr(77);
    process.states[1] = state_again;
    process.look_at_all(&mut registry);
    check(&registry, &OTHERS);
    for _ in 1..last_standing::LOOKS {
        process.look_at_all(&mut registry);
    }
    check(&registry, &all);
    process.threads[1].started = StartTime(5);
    process.look_at_all(&mut registry);
    check(&registry, &OTHERS);
    // A stronger rung is asked first, as ever.
    registry.note_tls_base(Tid(PID + 1), PthreadId(LOW));
    process.look_at_all(&mut registry);
    check(
        &registry,
        &[OTHERS[0], (PID + 1, LOW, &[TlsBase]), OTHERS[1]],
    );
    assert_eq!(registry.contradictions(), 0);
}

#[test]
fn an_id_that_is_seen_with_another_base_is_forgotten_at_once() {
    let process = Process::new();
    let mut registry = Registry::new();
    registry.note_tls_base(Tid(PID + 1), PthreadId(LOW));
    process.look(&mut registry, ScanWhom::Unmatched);
    assert!(registry.by_tid(Tid(PID + 1)).is_some());
    registry.note_tls_base(Tid(PID + 1), PthreadId(LOW));
    assert!(registry.by_tid(Tid(PID + 1)).is_some());
    registry.note_tls_base(Tid(PID + 1), PthreadId(LOW + 0x1000));
    assert_eq!(registry.by_tid(Tid(PID + 1)), None);
    assert_eq!(registry.by_pthread_id(PthreadId(LOW)), None);
}

/// A thread ends, and the next one gets its stack, and with it its pthread id and often its state,
/// while the first one's entry is still read.
#[test]
fn a_base_that_was_handed_on_is_the_younger_threads() {
    for same_moment in [false, true] {
        let mut process = Process::new().without_native_ids().without_block_tids();
        process.threads[1].stack_pointer = None;
        let mut heir = thread(PID + 9, None);
        heir.started = StartTime(if same_moment { 1 } else { 2 });
        process.threads.push(heir);
        let mut registry = Registry::new();
        registry.note_tls_base(Tid(PID + 1), PthreadId(LOW));
        process.look(&mut registry, ScanWhom::Unmatched);
        registry.note_tls_base(Tid(PID + 9), PthreadId(LOW));
        process.look(&mut registry, ScanWhom::Unmatched);
        let held = registry.by_pthread_id(PthreadId(LOW)).expect("the heir's");
        assert_eq!(held.tid, Tid(PID + 9));
        assert_eq!(registry.by_tid(Tid(PID + 1)), None);
        assert_eq!(registry.contradictions(), 0);
    }
}

/// A thread was ended without Python's knowledge, so its state still has its id, which the kernel
/// has given to the next thread.
#[test]
fn of_two_states_that_name_one_thread_the_one_with_its_block_counts() {
    let mut process = Process::new();
    process.states.insert(0, state(9, LOW - 0x10_0000, PID + 1));
    let mut registry = Registry::new();
    process.look(&mut registry, ScanWhom::Unmatched);
    let found = registry.by_tid(Tid(PID + 1)).expect("by its block");
    assert_eq!(found.pthread_id, PthreadId(LOW));
    assert_eq!(found.matched_by, [NativeThreadId, ControlBlock]);
    assert_eq!(registry.contradictions(), 0);
    // And where no block tells, no state is guessed.
    let mut process = process.without_block_tids();
    process.threads[1].stack_pointer = None;
    let mut registry = Registry::new();
    process.look(&mut registry, ScanWhom::Unmatched);
    assert_eq!(registry.by_tid(Tid(PID + 1)), None);
}
