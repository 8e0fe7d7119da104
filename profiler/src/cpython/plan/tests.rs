//! Plans as the kernel gets them.

use super::*;
use crate::cpython::fake::Fake;
use crate::cpython::find::Found;
use crate::cpython::layout;
use crate::words::RemoteAddr;

const WISHES: Wishes = Wishes {
    since: MonotonicNs(17),
    flags: 4,
    max_frames: 128,
};

#[test]
fn the_plan_of_3_12() {
    let (mut fake, _, found) = Fake::python_3_12();
    let runtime = Runtime::attach(found, &fake).expect("attached");
    let plan = plan(&runtime, &fake, WISHES).expect("a plan");
    let walk = WalkPlan {
        first_frame: 56,
        cframe_current: 0,
        cframe_previous: 8,
        frame_entry: NO_FIELD,
        frame_bytes: 72,
        frame_code: 0,
        frame_previous: 8,
        frame_instr: 56,
        instr_bytes: 8,
        frame_owner: 70,
        shim_owner: 3,
        max_frames: 128,
        code_mask: u64::MAX,
        generators: GENERATORS_NONE,
        generator: 0,
        generator_owner: 1,
        into_c: 0,
    };
    let state = StatePlan {
        hops: [0x310 + 16 * 2 + 8, 0, 0],
        n_hops: 1,
        state_bytes: 144,
        thread_id: 136,
        interp: 16,
        holder_addr: 0,
    };
    let flag = FlagPlan {
        gil: GIL_BY_WORD,
        gil_word: 24,
        gil_mask: 0x10,
        gil_wanted: NO_FIELD,
        gc_in_interp: 312,
        world_stopper: NO_FIELD,
        gc_addr: 0,
        exc_info: NO_FIELD,
        exc_value: 0,
        exc_previous: 0,
        _pad: 0,
        none_addr: 0,
    };
    assert_eq!((plan.since_ns, plan.flags), (17, 4));
    assert_eq!((plan.walk, plan.state, plan.flag), (walk, state, flag));
    assert_ne!(fake.at("runtime"), RemoteAddr(0));
}

#[test]
fn the_plan_of_3_14_without_the_gil() {
    let (_, _, found) = Fake::python_3_14t();
    let (fake, ..) = Fake::python_3_14t();
    let runtime = Runtime::attach(found, &fake).expect("attached");
    let plan = plan(&runtime, &fake, WISHES).expect("a plan");
    let flag = FlagPlan {
        gil: GIL_BY_WORD,
        gil_word: 36,
        gil_mask: u32::MAX,
        gil_wanted: NO_FIELD,
        gc_in_interp: 7600,
        world_stopper: 10864,
        gc_addr: 0,
        exc_info: NO_FIELD,
        exc_value: 0,
        exc_previous: 0,
        _pad: 0,
        none_addr: 0,
    };
    assert_eq!(plan.flag, flag);
    assert_eq!((plan.walk.frame_owner, plan.walk.frame_bytes), (78, 80));
    assert_eq!(plan.walk.code_mask, !3);
}

fn check(libc: Libc, made: u32, key: u32, expected: &[i64]) {
    let (mut fake, layout, found) = Fake::python_3_12();
    let place = layout.runtime.auto_tss_key.expect("a key");
    fake.int("runtime", place + layout.tss.initialized, made);
    fake.int("runtime", place + layout.tss.key, key);
    let runtime = Runtime::attach(Found { libc, ..found }, &fake).expect("attached");
    let plan = plan(&runtime, &fake, WISHES).expect("a plan");
    let hops = &plan.state.hops[..plan.state.n_hops as usize];
    assert_eq!(hops, expected, "{libc:?} key {key}");
}

#[test]
fn the_hops_follow_the_key_of_the_c_library() {
    check(Libc::Glibc, 1, 0, &[0x318]);
    check(Libc::Glibc, 1, 31, &[0x508]);
    check(Libc::Glibc, 1, 32, &[0x518, 8]);
    check(Libc::Glibc, 1, 33, &[0x518, 24]);
    check(Libc::Musl, 1, 3, &[0x80, 24]);
}

#[test]
fn a_key_that_is_not_made_or_absurd_gives_no_hops() {
    check(Libc::Glibc, 0, 0, &[]);
    check(Libc::Glibc, 1, 1024, &[]);
    check(Libc::Glibc, 1, u32::MAX, &[]);
    check(Libc::Musl, 1, u32::MAX, &[]);
}

#[test]
fn a_process_without_python_has_a_plan_that_says_so() {
    let plan = plan_without_python(WISHES);
    assert_eq!(plan.flags, 4 | PLAN_NO_PYTHON);
    assert_eq!((plan.state.n_hops, plan.flag.gil), (0, GIL_UNKNOWN));
}

#[test]
fn generators_are_told_as_the_version_has_them_when_asked_for() {
    let check = |minor, build, expected: (u32, u32), bytes: u32| {
        let version = Version::release(3, minor, 0);
        let layout = layout::of_version(version, build).expect("a table");
        let of = |flags| {
            let wishes = Wishes { flags, ..WISHES };
            walk_plan(&layout, version, wishes).expect("a plan")
        };
        let (asked, plain) = (of(PLAN_GENERATORS), of(0));
        assert_eq!((asked.generators, asked.generator), expected, "3.{minor}");
        assert_eq!((plain.generators, plain.generator), (GENERATORS_NONE, 0));
        // No read is longer for it.
        assert_eq!((asked.frame_bytes, plain.frame_bytes), (bytes, bytes));
    };
    let (plain, free) = (Build::Default, Build::FreeThreaded);
    check(8, plain, (GENERATORS_POINTED, 96), 112);
    check(9, plain, (GENERATORS_POINTED, 96), 112);
    check(10, plain, (GENERATORS_POINTED, 88), 104);
    check(11, plain, (GENERATORS_AROUND, 80), 72);
    check(12, plain, (GENERATORS_AROUND, 72), 72);
    check(13, plain, (GENERATORS_AROUND, 72), 72);
    check(13, free, (GENERATORS_AROUND, 88), 72);
    check(14, plain, (GENERATORS_AROUND, 72), 80);
    check(14, free, (GENERATORS_AROUND, 88), 80);
    check(15, plain, (GENERATORS_AROUND, 72), 80);
    check(15, free, (GENERATORS_AROUND, 88), 80);
}
