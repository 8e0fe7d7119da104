//! The GILs of good and of hostile memory.

use super::*;
use crate::cpython::fake::Fake;

#[test]
fn interpreters_that_share_a_gil_are_named_together() {
    let (mut fake, layout, found) = Fake::python_3_12();
    let runtime = Runtime::attach(found, &fake).expect("attached");
    let gil = layout.interp.gil.expect("a GIL of its own");
    let mut newer = "runtime";
    // Newest first: one with its own, one with none yet, one that shares.
    for (label, lock) in [("c", Some("own")), ("b", None), ("a", Some("shared"))] {
        let field = match newer {
            "runtime" => layout.runtime.interpreters_head,
            _ => layout.interp.next,
        };
        fake.point(newer, field, label);
        match lock {
            Some(lock) => fake.point(label, gil, lock),
            None => fake.word(label, gil, 0),
        };
        newer = label;
    }
    fake.point(newer, layout.interp.next, "interp");
    fake.point("interp", gil, "shared");
    let mut at = |label: &str| fake.at(label);
    let lock = |start, interpreters: &[RemoteAddr]| GilLock {
        start,
        bytes: 208,
        interpreters: interpreters
            .iter()
            .map(|at| InterpreterAddr(at.0))
            .collect(),
    };
    let expected = vec![
        lock(at("own"), &[at("c")]),
        lock(at("shared"), &[at("a"), at("interp")]),
    ];
    assert_eq!(runtime.gils(&fake), Ok(expected));
    fake.unmap("a");
    assert!(runtime.gils(&fake).is_err());
}

#[test]
fn an_address_is_in_a_gil_or_not_wherever_the_target_says_that_it_lies() {
    let check = |start: u64, addr: u64, expected: bool| {
        let gil = GilLock {
            start: RemoteAddr(start),
            bytes: 208,
            interpreters: Vec::new(),
        };
        assert_eq!(
            gil.contains(RemoteAddr(addr)),
            expected,
            "{start:x} {addr:x}"
        );
    };
    check(0x1000, 0x0fff, false);
    check(0x1000, 0x1000, true);
    check(0x1000, 0x10cf, true);
    check(0x1000, 0x10d0, false);
    check(u64::MAX - 7, u64::MAX, true);
    check(u64::MAX - 7, 0x100, false);
    check(0x1000, u64::MAX, false);
}

#[test]
fn a_gil_that_nobody_holds_has_no_holder() {
    let (mut fake, layout, found) = Fake::python_3_12();
    let runtime = Runtime::attach(found, &fake).expect("attached");
    fake.point("interp", layout.interp.gil.expect("a GIL"), "gil");
    fake.point("gil", layout.gil.last_holder, "thread");
    let thread = ThreadStateAddr(fake.at("thread").0);
    for (locked, expected) in [(1, Some(thread)), (0, None), (u32::MAX, None)] {
        fake.int("gil", layout.gil.locked, locked);
        let gils = runtime.gils(&fake).expect("GILs");
        assert_eq!(runtime.holder_of(&fake, &gils[0]), Ok(expected), "{locked}");
    }
    fake.unmap("gil");
    let gils = runtime.gils(&fake).expect("GILs");
    assert!(runtime.holder_of(&fake, &gils[0]).is_err());
}
