//! Stacks of exceptions, good and hostile.

use super::*;
use crate::cpython::fake::Fake;
use crate::cpython::layout::Layout;

/// An interpreter with None, and one thread whose only entry is the embedded one.
fn thread() -> (Fake, Layout, Runtime) {
    let (mut fake, layout, found) = Fake::python_3_12();
    fake.point("builtins", layout.object.size, "builtins dict");
    fake.dict("builtins dict", &layout, &[("None", "none")]);
    fake.class("type NoneType", &layout, "NoneType");
    fake.point("none", layout.object.ob_type, "type NoneType");
    fake.class("type KeyError", &layout, "KeyError");
    fake.point("an exception", layout.object.ob_type, "type KeyError");
    let oldest = layout.tstate.exc_state.expect("an entry");
    let newest = layout.tstate.exc_info.expect("a pointer");
    fake.word("thread", oldest + layout.exc_item.value, 0);
    fake.word("thread", oldest + layout.exc_item.previous, 0);
    let at = fake.at("thread").plus(oldest.into());
    fake.word("thread", newest, at.0);
    let runtime = Runtime::attach(found, &fake).expect("attached");
    (fake, layout, runtime)
}

/// Puts a generator's entry on top.
fn generator(fake: &mut Fake, layout: &Layout, label: &str, value: &str) {
    let newest = layout.tstate.exc_info.expect("a pointer");
    let at = fake.at("thread").plus(newest.into());
    let before = fake.u64(at).expect("a pointer");
    fake.word(label, layout.exc_item.previous, before);
    put(fake, label, layout.exc_item.value, value);
    fake.point("thread", newest, label);
}

fn put(fake: &mut Fake, label: &str, offset: u32, value: &str) {
    match value {
        "null" => fake.word(label, offset, 0),
        value => fake.point(label, offset, value),
    };
}

fn check(fake: &mut Fake, runtime: &Runtime, expected: Handling) {
    let addr = ThreadStateAddr(fake.at("thread").0);
    let now = runtime.state_now(fake, addr).expect("readable");
    assert_eq!(now.handling, expected);
    assert_eq!(now.pthread_id.0, fake.at("thread, pthread").0);
    assert_eq!(now.interpreter.0, fake.at("interp").0);
    assert_eq!(now.gil, Gil::Neither);
}

#[test]
fn the_newest_exception_of_all_entries_is_handled() {
    // Oldest first.
    let cases: &[(&[&str], Handling)] = &[
        (&["null"], Handling::Nothing),
        (&["none"], Handling::Nothing),
        (&["an exception"], Handling::Exception),
        (&["null", "null"], Handling::Nothing),
        (&["none", "none", "null"], Handling::Nothing),
        (&["an exception", "null", "none"], Handling::Exception),
        (&["null", "an exception", "null"], Handling::Exception),
        (&["null", "null", "an exception"], Handling::Exception),
    ];
    for (entries, expected) in cases {
        let (mut fake, layout, runtime) = thread();
        let oldest = layout.tstate.exc_state.expect("an entry");
        for (index, value) in entries.iter().enumerate() {
            match index {
                0 => put(&mut fake, "thread", oldest + layout.exc_item.value, value),
                _ => generator(&mut fake, &layout, &format!("generator {index}"), value),
            }
        }
        check(&mut fake, &runtime, *expected);
    }
}

#[test]
fn what_makes_no_sense_is_unknown() {
    let (good, layout, runtime) = thread();
    let newest = layout.tstate.exc_info.expect("a pointer");
    let mut circle = good.clone();
    circle.point("generator", layout.exc_item.previous, "generator");
    circle.word("generator", layout.exc_item.value, 0);
    circle.point("thread", newest, "generator");
    check(&mut circle, &runtime, Handling::Unknown);
    for wild in [0, 1, u64::MAX, 0xDEAD_BEEF] {
        let mut nowhere = good.clone();
        nowhere.word("thread", newest, wild);
        check(&mut nowhere, &runtime, Handling::Unknown);
    }
    // Another thread's entry never leads to this one's.
    let mut stranger = good.clone();
    generator(&mut stranger, &layout, "stranger", "null");
    stranger.word("stranger", layout.exc_item.previous, 0);
    check(&mut stranger, &runtime, Handling::Unknown);
}

#[test]
fn none_is_told_by_its_type_and_for_the_kernel_by_its_name() {
    let (mut fake, layout, runtime) = thread();
    let plan = runtime.handling_plan(&fake).expect("a plan");
    assert_eq!(plan.none, fake.at("none"));
    assert_eq!(Some(plan.oldest), layout.tstate.exc_state);
    assert_eq!(Some(plan.newest), layout.tstate.exc_info);
    // A liar's built-in None, which is none.
    let (mut fake, layout, runtime) = thread();
    fake.dict("builtins dict", &layout, &[("None", "thread")]);
    assert_eq!(runtime.handling_plan(&fake), None);
    let oldest = layout.tstate.exc_state.expect("an entry");
    put(
        &mut fake,
        "thread",
        oldest + layout.exc_item.value,
        "nowhere",
    );
    check(&mut fake, &runtime, Handling::Unknown);
    put(&mut fake, "thread", oldest + layout.exc_item.value, "none");
    check(&mut fake, &runtime, Handling::Nothing);
    let plan = runtime.handling_plan(&fake).expect("a plan");
    assert_eq!(plan.none, fake.at("none"));
}
