//! The frames of a stack in their order, whatever the base has beside Python frames.

use super::*;
use crate::pystack::Chain;
use profiler_common::walk::RawFrame;

const P: fn(usize) -> Part = Part::Python;
const N: fn(usize) -> Part = Part::Native;

/// A chain of so many frames, of which `missing` are missing before `cut_at`.
fn chain(frames: usize, missing: u32, cut_at: usize) -> Chain {
    let raw = vec![RawFrame::default(); frames];
    let depth = frames as u32 + missing;
    Chain::from_record(&raw, depth, cut_at as u32, 0)
}

/// The stack of frames numbered from 0 on, where a native frame `n` is 100 + n and the kernel's
/// are from 200 on.
#[track_caller]
fn check(base: &Base<'_>, of_base: u32, above: u32, parts: &[Part], expected: &[u32]) {
    let of_base: Vec<FrameId> = (0..of_base).map(FrameId).collect();
    let above: Vec<FrameId> = (200..200 + above).map(FrameId).collect();
    let mut stack = Vec::new();
    put_together(base, &of_base, &above, parts, &mut stack, |index| {
        Some(FrameId(100 + index as u32))
    });
    let stack: Vec<u32> = stack.iter().map(|frame| frame.0).collect();
    assert_eq!(stack, expected);
}

#[test]
fn what_a_stack_has_beside_python_frames_stays_where_it_was() {
    let (two, three, cut) = (chain(2, 0, 2), chain(3, 0, 3), chain(4, 7, 2));
    let of = |chain| Base {
        chain: Some(chain),
        ..Base::bare(StackId(0))
    };
    let between = [N(0), P(0), N(1), P(1)];
    check(&of(&two), 2, 0, &between, &[100, 0, 101, 1]);
    // The kernel is above all.
    check(&of(&two), 2, 2, &between, &[200, 201, 100, 0, 101, 1]);
    // The collector is above even that.
    let collecting = Base {
        collecting: true,
        may_be_anothers: false,
        ..of(&two)
    };
    check(&collecting, 3, 1, &between, &[0, 200, 100, 1, 101, 2]);
    // A cut is before the frame after it.
    let parts = [N(0), P(0), P(1), P(2), P(3), N(5)];
    check(&of(&cut), 5, 0, &parts, &[100, 0, 1, 2, 3, 4, 105]);
    // A task, or why a chain ended early, is at the root.
    check(&of(&two), 4, 0, &[P(0), N(0), P(1)], &[0, 100, 1, 2, 3]);
    // What there is without Python is what native frames replace.
    check(
        &Base::bare(StackId(0)),
        1,
        1,
        &[N(0), N(1)],
        &[200, 100, 101],
    );
    // A frame that is still being set up has no place.
    let entering = Base {
        left_out: &[0],
        ..of(&three)
    };
    let parts = [P(0), N(0), P(1), N(1), P(2)];
    check(&entering, 2, 0, &parts, &[100, 0, 101, 1]);
}
