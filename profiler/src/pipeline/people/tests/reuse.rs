//! Ids and bases that are handed on before it is told.

use super::*;

/// Looks read the accounts themselves, and so are ahead of what the ring tells of ends.
#[test]
fn a_base_that_is_handed_on_before_an_end_is_told_is_no_contradiction() {
    let mut run = Run::new();
    run.process.begin(101, 5, block(1));
    run.tick(101, block(1));
    run.look();
    run.process.end(101, block(1));
    run.process.begin(102, 5, block(1));
    assert_eq!(run.meet_at(102, block(1), None, NOW), 1);
    // What is told late of the one before changes nothing.
    assert_eq!(run.tick(101, block(1)), 0);
    run.look();
    assert_eq!(run.people.contradictions(), 0);
    assert_eq!(run.matched_by(1), [TlsBase, ControlBlock]);
}

#[test]
fn of_two_with_one_base_in_the_same_look_the_later_has_it() {
    for (first, second) in [((101, BEFORE), (102, NOW)), ((102, NOW), (101, BEFORE))] {
        let mut run = Run::new();
        run.process.begin(101, 5, block(1));
        run.process.begin(102, 5, block(1));
        let sp = Some(RemoteAddr(block(1).0 - 0x400));
        for (tid, at) in [first, second] {
            run.meet_at(tid, block(1), sp, at);
        }
        run.look();
        assert_eq!(run.people.contradictions(), 0);
        let matched = run.people.everyone().iter();
        let matched: Vec<_> = matched.filter(|it| !it.matched_by.is_empty()).collect();
        assert_eq!(matched.len(), 1);
        assert_eq!(matched[0].tid, Tid(102));
    }
}

#[test]
fn a_thread_that_was_met_before_it_ran_is_known_once_it_has() {
    let mut run = Run::new();
    run.process.begin(101, 5, block(1));
    run.tick(101, block(1));
    run.look();
    // The block is its already, and the one before it has not been told to have ended.
    run.process.end(101, block(1));
    run.process.begin(102, 5, block(1));
    assert_eq!(run.meet_at(102, PthreadId(0), None, NOW), 1);
    run.look();
    assert_eq!(run.people.contradictions(), 0);
    assert_eq!(run.people.everyone()[1].pthread_id, None);
    let again = Stranger {
        tid: Tid(102),
        sp: None,
        tls_base: block(1),
        state: Some(ThreadStateAddr(block(1).0 + 1)),
        at: NOW,
        is_counted: true,
        opened: None,
    };
    assert_eq!(run.people.meet_again(again).map(|index| index.0), Some(1));
    run.look();
    assert_eq!(run.people.contradictions(), 0);
    assert_eq!(run.people.everyone()[1].pthread_id, Some(block(1)));
    assert_eq!(run.matched_by(1), [TlsBase, ControlBlock]);
    assert_eq!(run.names()[1], format!("Python's {}", block(1)));
}

/// Regression: with few ids, a look counted a thread that had just been born for the one that had
/// had its id before.
#[test]
fn an_account_that_was_opened_after_a_thread_was_seen_is_anothers() {
    let mut run = Run::new();
    run.process.begin(101, 5, block(1));
    assert!(!run.people.is_anothers(Tid(101), NOW), "nobody's");
    run.meet_at(101, block(1), None, NOW);
    assert!(!run.people.is_anothers(Tid(101), BEFORE));
    assert!(!run.people.is_anothers(Tid(101), NOW));
    assert!(run.people.is_anothers(Tid(101), MonotonicNs(NOW.0 + 1)));
    run.people.make_room(Tid(101), MonotonicNs(NOW.0 + 1));
    assert!(!run.people.is_anothers(Tid(101), MonotonicNs(NOW.0 + 1)));
    assert_eq!(run.meet_at(101, block(1), None, MonotonicNs(NOW.0 + 2)), 1);
}

/// Regression: the same, when not even the birth of the one before had been told.
#[test]
fn what_is_told_late_is_of_the_thread_that_had_the_id_then() {
    let at = MonotonicNs;
    let mut run = Run::new();
    run.process.begin(101, 5, block(1));
    let look = Stranger {
        tid: Tid(101),
        sp: None,
        tls_base: block(1),
        state: Some(ThreadStateAddr(block(1).0 + 1)),
        at: at(78),
        is_counted: true,
        opened: Some(at(70)),
    };
    let met = run.people.index(&run.process, &mut run.builder, look);
    assert_eq!(met.0, 0);
    // Of the one before: its birth, a tick, its last switch.
    assert!(!run.people.make_room(Tid(101), at(40)));
    assert!(run.people.is_younger(Tid(101), at(45)));
    run.people.swap_former(Tid(101));
    assert_eq!(run.meet_at(101, block(1), None, at(45)), 1);
    run.people.former_ended(Tid(101), ran(5), at(50));
    run.people.swap_former(Tid(101));
    // There was yet another one between.
    assert!(!run.people.make_room(Tid(101), at(55)));
    run.people.swap_former(Tid(101));
    assert_eq!(run.meet_at(101, block(1), None, at(57)), 2);
    run.people.swap_former(Tid(101));
    // And of the one that was met.
    assert!(!run.people.make_room(Tid(101), at(70)));
    assert!(!run.people.is_younger(Tid(101), at(75)));
    assert_eq!(run.meet_at(101, block(1), None, at(75)), 0);
    let told = run.people.everyone().iter();
    let told: Vec<_> = told.map(|it| (it.born, it.ended)).collect();
    let former = (Some(at(40)), Some((ran(5), at(50))));
    let between = (Some(at(55)), None);
    assert_eq!(told, [(Some(at(70)), None), former, between]);
    assert_eq!(run.people.unmet(), Unsampled::default());
}
