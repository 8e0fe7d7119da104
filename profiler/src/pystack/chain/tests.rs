//! Chains as a thread has them and as a hostile target makes them.

use profiler_common::plan::{GENERATORS_NONE, PLAN_GENERATORS};
use profiler_common::walk::MAX_WALK;

use super::*;
use crate::cpython::fake::Fake;
use crate::cpython::{Layout, Runtime, Wishes, plan};
use crate::words::MonotonicNs;

/// A thread of 3.12 whose frames are `frames`, leaf first; the last one's caller is `root`.
fn thread(frames: usize, root: Option<&str>) -> (Fake, Layout, Plan) {
    let (mut fake, layout, found) = Fake::python_3_12();
    let runtime = Runtime::attach(found, &fake).expect("attached");
    let wishes = Wishes {
        since: MonotonicNs(0),
        flags: PLAN_GENERATORS,
        max_frames: 16,
    };
    let plan = plan(&runtime, &fake, wishes).expect("a plan");
    fake.point("thread", layout.tstate.first_frame, "cframe");
    fake.point("cframe", 0, "frame 0");
    fake.word("cframe", 8, 0);
    for frame in 0..frames {
        let label = format!("frame {frame}");
        fake.word(&label, layout.frame.code, 0x1000 + 8 * frame as u64);
        fake.word(&label, layout.frame.instr, frame as u64);
        fake.put(&label, layout.frame.owner.unwrap_or(0), &[0; 8]);
        match root {
            Some(root) if frame + 1 == frames => fake.point(&label, layout.frame.previous, root),
            None if frame + 1 == frames => fake.word(&label, layout.frame.previous, 0),
            _ => fake.point(
                &label,
                layout.frame.previous,
                &format!("frame {}", frame + 1),
            ),
        };
    }
    (fake, layout, plan)
}

fn chain(fake: &mut Fake, plan: &Plan) -> Chain {
    let state = ThreadStateAddr(fake.at("thread").0);
    Walker::default().chain(&*fake, plan, state)
}

fn instrs(chain: &Chain) -> Vec<u64> {
    chain.frames.iter().map(|frame| frame.instr).collect()
}

#[test]
fn a_chain_is_walked_to_its_root() {
    for frames in [1, 2, 15, 16] {
        let (mut fake, _, plan) = thread(frames, None);
        let chain = chain(&mut fake, &plan);
        assert_eq!(chain.end, ChainEnd::Complete);
        assert_eq!(chain.missing, 0);
        assert_eq!(instrs(&chain), Vec::from_iter(0..frames as u64));
        assert_eq!(chain.frames[0].code, 0x1000);
    }
}

#[test]
fn a_deep_chain_keeps_both_ends_in_order() {
    for frames in [17, 20, 24, 25, 100] {
        let (mut fake, _, plan) = thread(frames, None);
        let chain = chain(&mut fake, &plan);
        assert_eq!(chain.end, ChainEnd::Complete);
        assert_eq!((chain.cut_at, chain.missing), (8, frames as u32 - 16));
        let root_end = frames as u64 - 8..frames as u64;
        assert_eq!(instrs(&chain), Vec::from_iter((0..8).chain(root_end)));
    }
}

#[test]
fn shims_are_passed_over() {
    let (mut fake, layout, plan) = thread(4, None);
    fake.put("frame 2", layout.frame.owner.unwrap_or(0), &[3]);
    assert_eq!(instrs(&chain(&mut fake, &plan)), [0, 1, 3]);
}

#[test]
fn hostile_chains_end_and_say_how() {
    let check = |fake: &mut Fake, plan: &Plan, end: ChainEnd| {
        let chain = chain(fake, plan);
        assert_eq!(chain.end, end);
        assert!(chain.frames.len() <= 16);
        assert!(end.is_early());
    };
    for (frames, back) in [(1, 0), (2, 0), (5, 3), (40, 0), (40, 39), (300, 7)] {
        let (mut fake, _, plan) = thread(frames, Some(&format!("frame {back}")));
        check(&mut fake, &plan, ChainEnd::Cycle);
    }
    let (mut fake, _, plan) = thread(3, Some("nothing"));
    check(&mut fake, &plan, ChainEnd::Unreadable);
    let (mut fake, layout, plan) = thread(3, None);
    for nowhere in [u64::MAX - 7, 8, 1 << 47, 0xFFFF_FFFF_FFFF_F000] {
        fake.word("frame 2", layout.frame.previous, nowhere);
        check(&mut fake, &plan, ChainEnd::Unreadable);
    }
    fake.word("frame 2", layout.frame.previous, 0xDEAD_BEEF);
    check(&mut fake, &plan, ChainEnd::BadPointer);
    let (mut fake, _, plan) = thread(MAX_WALK as usize + 1, None);
    check(&mut fake, &plan, ChainEnd::TooDeep);
}

#[test]
fn threads_without_frames_say_so() {
    let (mut fake, layout, plan) = thread(1, None);
    let nobody = Walker::default().chain(&fake, &plan, ThreadStateAddr(0));
    assert_eq!(nobody, Chain::empty(ChainEnd::NoThreadState));
    fake.word("cframe", 0, 0);
    assert_eq!(chain(&mut fake, &plan), Chain::empty(ChainEnd::NoFrame));
    fake.word("thread", layout.tstate.first_frame, 0);
    assert_eq!(chain(&mut fake, &plan), Chain::empty(ChainEnd::NoFrame));
    fake.unmap("thread");
    assert_eq!(chain(&mut fake, &plan), Chain::empty(ChainEnd::Unreadable));
}

#[test]
fn nobody_is_noted_unless_it_is_asked_for() {
    let (mut fake, layout, mut plan) = thread(3, None);
    let owner = layout.frame.generator_owner.unwrap_or(0) as u8;
    fake.put("frame 1", layout.frame.owner.unwrap_or(0), &[owner]);
    let noted = chain(&mut fake, &plan);
    assert_eq!(noted.root, Some(FrameAddr(fake.at("frame 2").0)));
    let coroutine = CoroutineAddr(fake.at("frame 1").0 - u64::from(layout.generator.frame));
    let frame = 1;
    assert_eq!(noted.generators, [GeneratorFrame { coroutine, frame }]);
    plan.walk.generators = GENERATORS_NONE;
    let plain = Chain {
        generators: Vec::new(),
        root: None,
        ..noted
    };
    assert_eq!(chain(&mut fake, &plan), plain);
}

#[test]
fn a_root_that_was_not_reached_is_none() {
    let (mut fake, _, plan) = thread(3, Some("nothing"));
    assert_eq!(chain(&mut fake, &plan).root, None);
}

#[test]
fn generators_beyond_those_that_are_noted_are_counted() {
    for frames in [63, 64, 65, 100] {
        let (mut fake, layout, plan) = thread(frames, None);
        let owner = layout.frame.generator_owner.unwrap_or(0) as u8;
        for frame in 0..frames {
            let label = format!("frame {frame}");
            fake.put(&label, layout.frame.owner.unwrap_or(0), &[owner]);
        }
        let chain = chain(&mut fake, &plan);
        let noted: Vec<usize> = chain.generators.iter().map(|noted| noted.frame).collect();
        assert_eq!(noted, Vec::from_iter(0..frames.min(64)));
        assert_eq!(chain.generators_missing as usize, frames.saturating_sub(64));
        let places: Vec<_> = (0..=frames)
            .filter_map(|frame| chain.place(frame))
            .collect();
        assert_eq!(places, Vec::from_iter(0..16));
        assert_eq!(chain.place(7), Some(7));
        assert_eq!(chain.place(8), None);
        assert_eq!(chain.place(frames - 8), Some(8));
    }
}

#[test]
fn notes_that_cannot_be_are_counted_and_not_kept() {
    let frames = [RawFrame::default(); 4];
    let check = |generator, frame, end, kept: bool| {
        let raw = RawGenerator {
            generator,
            frame,
            _pad: 0,
        };
        let chain = Chain::from_record(&frames, 6, 2, end);
        let chain = chain.with_notes([raw], u32::MAX - 1, Some(FrameAddr(8)));
        assert_eq!(chain.generators.len(), usize::from(kept));
        let missing = if kept { u32::MAX - 1 } else { u32::MAX };
        assert_eq!(chain.generators_missing, missing);
        assert_eq!(chain.root.is_some(), end == END_COMPLETE);
    };
    check(0x1000, 0, END_COMPLETE, true);
    check(0x1000, 5, END_UNREADABLE, true);
    check(0x1000, 6, END_COMPLETE, false);
    check(0x1000, u32::MAX, END_CYCLE, false);
    check(0x1001, 0, END_COMPLETE, false);
    check(0, 0, 77, false);
}

#[test]
fn records_that_lie_of_their_frames_are_put_in_some_order() {
    let frames: Vec<RawFrame> = (0..6).map(|n| RawFrame { code: n, instr: n }).collect();
    for depth in [0, 1, 6, 7, 8, 9, 1000, u32::MAX] {
        for leaf in [0, 1, 3, 6, 7, u32::MAX] {
            for count in 0..frames.len() {
                let chain = Chain::from_record(&frames[..count], depth, leaf, 77);
                assert_eq!(chain.frames.len(), count);
                assert!(chain.cut_at <= count);
                assert_eq!(chain.end, ChainEnd::Unknown(77));
            }
        }
    }
    let honest = Chain::from_record(&frames, 8, 3, END_COMPLETE);
    assert_eq!(instrs(&honest), [0, 1, 2, 5, 3, 4]);
    assert_eq!((honest.cut_at, honest.missing), (3, 2));
}

/// Observed on 3.11 and 3.12 in about one sample of a hundred of a program that is called back
/// from C all the time: `tstate->cframe` was already the new call's, its `current_frame` not yet.
#[test]
fn a_stale_first_frame_is_not_believed() {
    let (mut fake, layout, plan) = thread(3, None);
    let frame = layout.frame;
    let owner = frame.owner.unwrap_or(0);
    fake.point("cframe", 8, "outer cframe");
    fake.point("outer cframe", 0, "frame 0");
    fake.word("outer cframe", 8, 0);
    fake.word("called", frame.code, 0x2000);
    fake.word("called", frame.instr, 99);
    fake.put("called", owner, &[0; 8]);
    fake.point("called", frame.previous, "shim");
    fake.word("shim", frame.code, 0);
    fake.word("shim", frame.instr, 0);
    fake.put("shim", owner, &[3; 8]);
    let check = |fake: &mut Fake, expected: &[u64]| {
        let chain = chain(fake, &plan);
        assert_eq!(
            (instrs(&chain).as_slice(), chain.end),
            (expected, ChainEnd::Complete)
        );
    };
    fake.point("cframe", 0, "called");
    fake.point("shim", frame.previous, "frame 0");
    check(&mut fake, &[99, 0, 1, 2]);
    // Nor is its generator. That of the caller is still there.
    let generator_owner = frame.generator_owner.unwrap_or(0) as u8;
    for label in ["called", "frame 1"] {
        fake.put(label, owner, &[generator_owner]);
    }
    let noted = |fake: &mut Fake| -> Vec<usize> {
        let generators = chain(fake, &plan).generators;
        generators.iter().map(|noted| noted.frame).collect()
    };
    assert_eq!(noted(&mut fake), [0, 2]);
    fake.point("shim", frame.previous, "frame 1");
    assert_eq!(noted(&mut fake), [1]);
    fake.point("shim", frame.previous, "frame 1");
    check(&mut fake, &[0, 1, 2]);
    fake.point("shim", frame.previous, "called");
    check(&mut fake, &[0, 1, 2]);
    for stale in [0, 8, 12, u64::MAX - 7] {
        fake.word("cframe", 0, stale);
        check(&mut fake, &[0, 1, 2]);
    }
}

mod versions;
