//! Attaching to good and to hostile memory.

use super::*;
use crate::cpython::fake::Fake;

fn refused(fake: &Fake, found: Found) -> CpythonError {
    Runtime::attach(found, fake).expect_err("refused")
}

#[test]
fn a_good_runtime_is_attached_to_and_tells_its_exact_version() {
    let (mut fake, _, found) = Fake::python_3_12();
    let guess = Version::release(3, 12, 0);
    let runtime = Runtime::attach(
        Found {
            version: guess,
            ..found
        },
        &fake,
    );
    let runtime = runtime.expect("attached");
    assert_eq!(runtime.version(), Version::release(3, 12, 1));
    let states = runtime.thread_states(&fake).expect("states");
    assert_eq!(states.len(), 1);
    assert_eq!(states[0].addr.0, fake.at("thread").0);
    assert_eq!(states[0].pthread_id.0, fake.at("thread, pthread").0);
    assert_eq!(states[0].native_thread_id, Some(InnerTid(4711)));
    assert_eq!(states[0].gil, Gil::Neither);
}

#[test]
fn versions_that_are_not_supported_have_errors_of_their_own() {
    let (fake, _, found) = Fake::python_3_12();
    let with = |minor| Found {
        version: Version::release(3, minor, 0),
        ..found.clone()
    };
    let too_old = refused(&fake, with(7));
    assert!(matches!(too_old, CpythonError::TooOld { .. }), "{too_old}");
    let too_new = refused(&fake, with(16));
    assert!(matches!(too_new, CpythonError::TooNew { .. }), "{too_new}");
}

#[test]
fn a_build_without_the_gil_says_so_until_the_gil_is_switched_on() {
    let (mut fake, layout, found) = Fake::python_3_14t();
    let fields = layout.tstate;
    fake.int("thread", fields.state.expect("a state"), 1);
    let runtime = Runtime::attach(found, &fake).expect("attached");
    assert_eq!(runtime.build(), Build::FreeThreaded);
    let state = |fake: &Fake| runtime.thread_states(fake).expect("states")[0];
    let holder = |fake: &Fake, state: ThreadState| runtime.gil_holder(fake, state.interpreter);
    let first = state(&fake);
    assert_eq!(first.gil, Gil::NoGil);
    assert_eq!(first.attachment, Some(Attachment::Attached));
    assert_eq!(runtime.runs_with_gil(&fake), Ok(false));
    assert_eq!(holder(&fake, first), Ok(None));
    for (word, attachment) in [
        (0, Attachment::Detached),
        (2, Attachment::Stopped),
        (3, Attachment::Ending),
        (9, Attachment::Unknown(9)),
    ] {
        fake.int("thread", fields.state.expect("a state"), word);
        assert_eq!(state(&fake).attachment, Some(attachment));
    }

    fake.int("gil", layout.gil.enabled.expect("3.13 or later"), u32::MAX);
    fake.int("gil", layout.gil.locked, 1);
    fake.point("gil", layout.gil.last_holder, "thread");
    assert_eq!(runtime.runs_with_gil(&fake), Ok(true));
    assert_eq!(state(&fake).gil, Gil::Neither);
    fake.int("thread", fields.holds_gil.expect("3.14 or later"), 1);
    let last = state(&fake);
    assert_eq!(last.gil, Gil::Holds);
    assert_eq!(holder(&fake, last), Ok(Some(last.addr)));
}

#[test]
fn an_interpreter_that_does_not_run_is_worth_a_retry() {
    let (mut fake, layout, found) = Fake::python_3_12();
    let check = |label, offset| {
        let mut early = fake.clone();
        early.word(label, offset, 0);
        let error = refused(&early, found.clone());
        assert!(
            matches!(error, CpythonError::NotInitialised { .. }),
            "{error}"
        );
        assert!(error.is_worth_a_retry());
    };
    check("runtime", layout.runtime.interpreters_head);
    check("interp", layout.interp.threads_head);
    check("interp", layout.interp.modules);
    fake.dict("modules", &layout, &[]);
    let error = refused(&fake, found);
    assert!(error.is_worth_a_retry(), "{error}");
}

/// A program may do with `sys.modules` what it likes; that a thread runs code is proof enough.
#[test]
fn an_interpreter_whose_modules_lack_sys_is_attached_to_once_it_runs_code() {
    let (mut fake, layout, found) = Fake::python_3_12();
    fake.dict("modules", &layout, &[("builtins", "builtins")]);
    assert!(refused(&fake, found.clone()).is_worth_a_retry());
    fake.point("thread", layout.tstate.first_frame, "cframe");
    let current = layout.frame.cframe_current.expect("3.12 has it");
    fake.point("cframe", current, "frame");
    fake.point("frame", layout.frame.code, "code");
    fake.point("code", layout.object.ob_type, "type x");
    fake.class("type x", &layout, "int");
    assert!(refused(&fake, found.clone()).is_worth_a_retry());
    fake.class("type x", &layout, "code");
    let runtime = Runtime::attach(found.clone(), &fake).expect("attached");
    assert_eq!(runtime.version(), found.version);
}

#[test]
fn of_a_threads_states_the_one_that_its_storage_names_comes_last() {
    let (mut fake, layout, found) = Fake::python_3_12();
    fake.thread("thread", &layout, "interp", Some("other"));
    fake.thread("other", &layout, "interp", Some("third"));
    fake.thread("third", &layout, "interp", None);
    let thread = fake.at("thread, pthread");
    for label in ["other", "third"] {
        fake.word(label, layout.tstate.thread_id, thread.0);
    }
    let runtime = Runtime::attach(found, &fake).expect("attached");
    let mut check = |named: &str, order: [&str; 3]| {
        // The key is 2 of the block of 16 bytes each, from 0x310 on, value at 8.
        fake.point("thread, pthread", 0x310 + 16 * 2 + 8, named);
        let states = runtime.thread_states(&fake).expect("states");
        let got: Vec<u64> = states.iter().map(|state| state.addr.0).collect();
        assert_eq!(got, order.map(|label| fake.at(label).0), "{named}");
    };
    check("third", ["thread", "other", "third"]);
    check("other", ["thread", "third", "other"]);
    check("thread", ["third", "other", "thread"]);
    check("nothing", ["thread", "other", "third"]);
}

#[test]
fn the_c_library_is_told_by_a_threads_control_block() {
    let (mut fake, _, found) = Fake::python_3_12();
    let mut check = |second: &str, third: &str, expected: Libc| {
        fake.point("thread, pthread", 0x10, second);
        fake.point("thread, pthread", 0x18, third);
        let runtime = Runtime::attach(found.clone(), &fake).expect("attached");
        assert_eq!(runtime.found().libc, expected, "{second}, {third}");
    };
    check("thread, pthread", "thread, pthread", Libc::Musl);
    check("thread, pthread", "a flag", Libc::Glibc);
    check("nothing", "nothing", Libc::Glibc);
}

#[test]
fn memory_that_contradicts_the_layout_is_refused() {
    let (fake, layout, found) = Fake::python_3_12();
    let check = |change: &dyn Fn(&mut Fake)| {
        let mut other = fake.clone();
        change(&mut other);
        let error = refused(&other, found.clone());
        assert!(matches!(error, CpythonError::Mismatch { .. }), "{error}");
    };
    check(&|fake| {
        fake.word("interp", layout.interp.id, 7);
    });
    check(&|fake| {
        fake.word("thread, pthread", 0, 7);
    });
    check(&|fake| {
        fake.unmap("thread, pthread");
    });
    check(&|fake| {
        fake.class("type dict", &layout, "list");
    });
}

#[test]
fn lists_that_lead_in_circles_or_nowhere_end_with_an_error() {
    let (fake, layout, found) = Fake::python_3_12();
    let runtime = Runtime::attach(found.clone(), &fake).expect("attached");
    let mut circle = fake.clone();
    circle.thread("thread", &layout, "interp", Some("second"));
    circle.thread("second", &layout, "interp", Some("thread"));
    let restless = Err(CpythonError::Restless("threads"));
    assert_eq!(runtime.thread_states(&circle), restless);
    assert!(Runtime::attach(found.clone(), &circle).is_err());

    let mut stranger = fake.clone();
    stranger.thread("thread", &layout, "another interp", None);
    assert_eq!(runtime.thread_states(&stranger), restless);

    let mut nowhere = fake.clone();
    nowhere.thread("thread", &layout, "interp", Some("nothing here"));
    let error = runtime.thread_states(&nowhere);
    assert!(matches!(error, Err(CpythonError::Read(_))), "{error:?}");

    let mut interpreters = fake.clone();
    interpreters.point("interp", layout.interp.next, "interp");
    let restless = Err(CpythonError::Restless("interpreters"));
    assert_eq!(runtime.interpreters(&interpreters), restless);
}

#[test]
fn the_holder_of_the_gil_counts_only_while_it_is_locked() {
    let (mut fake, layout, found) = Fake::python_3_12();
    let runtime = Runtime::attach(found, &fake).expect("attached");
    let main = runtime.interpreters(&fake).expect("interpreters")[0];
    let gil = layout.interp.gil.expect("a GIL of its own");
    fake.point("interp", gil, "gil");
    fake.point("gil", layout.gil.last_holder, "thread");
    let thread = ThreadStateAddr(fake.at("thread").0);
    for (locked, expected) in [(0, None), (1, Some(thread)), (u32::MAX, None)] {
        fake.int("gil", layout.gil.locked, locked);
        assert_eq!(runtime.gil_holder(&fake, main), Ok(expected), "{locked}");
    }
    fake.word("interp", gil, 0xDEAD_BEEF);
    assert!(runtime.gil_holder(&fake, main).is_err());
}
