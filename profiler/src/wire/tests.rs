//! Records as the kernel sends them and as nobody should.

use profiler_common::record::StackRecord;

use super::*;

fn record(kind: u32, bytes: u32, extra: &[(usize, u32)], length: usize) -> Bytes {
    let mut raw = vec![0u8; length];
    let mut put = |at: usize, value: u32| raw[at..at + 4].copy_from_slice(&value.to_le_bytes());
    put(at!(RecordHead, kind), kind);
    put(at!(RecordHead, bytes), bytes);
    for &(at, value) in extra {
        put(at, value);
    }
    Bytes::from(raw)
}

#[test]
fn what_is_no_record_is_a_typed_error() {
    let frames = at!(SampleRecord, frames);
    let generators = at!(SampleRecord, generators);
    let kernel_frames = at!(StackRecord, kernel_frames);
    let stack_bytes = at!(StackRecord, stack_bytes);
    let cases = [
        (Bytes::new(), WireError::TooShort(0)),
        (record(1, 24, &[], 24), WireError::TooShort(24)),
        (record(2, 24, &[], 24), WireError::TooShort(24)),
        (
            record(1, 100, &[], 96),
            WireError::LengthMismatch { says: 100, has: 96 },
        ),
        (record(9, 80, &[], 80), WireError::UnknownKind(9)),
        (
            record(1, 144, &[(frames, 1)], 144),
            WireError::LengthMismatch {
                says: 160,
                has: 144,
            },
        ),
        (
            record(1, 144, &[(frames, u32::MAX)], 144),
            WireError::TooManyFrames(u32::MAX),
        ),
        (
            record(1, 160, &[(frames, 1), (generators, 1)], 160),
            WireError::LengthMismatch {
                says: 176,
                has: 160,
            },
        ),
        (
            record(1, 176, &[(generators, 1)], 176),
            WireError::LengthMismatch {
                says: 160,
                has: 176,
            },
        ),
        (
            record(1, 144, &[(generators, 65)], 144),
            WireError::TooManyGenerators(65),
        ),
        (
            record(1, 144, &[(generators, u32::MAX)], 144),
            WireError::TooManyGenerators(u32::MAX),
        ),
        (record(KIND_STACK, 56, &[], 56), WireError::TooShort(56)),
        (
            record(KIND_STACK, 64, &[(kernel_frames, 65)], 64),
            WireError::TooManyFrames(65),
        ),
        (
            record(KIND_STACK, 80, &[(kernel_frames, 1), (stack_bytes, 16)], 80),
            WireError::LengthMismatch { says: 88, has: 80 },
        ),
        (
            record(KIND_STACK, 64, &[(stack_bytes, u32::MAX)], 64),
            WireError::LengthMismatch {
                says: 64 + 16385,
                has: 64,
            },
        ),
    ];
    for (bytes, expected) in cases {
        assert_eq!(decode(&bytes), Err(expected));
    }
}

#[test]
fn a_sample_keeps_its_frames() {
    let frames = at!(SampleRecord, frames);
    let leaf = at!(SampleRecord, leaf_frames);
    let flags = at!(SampleRecord, flags);
    let bytes = record(
        KIND_SAMPLE,
        176,
        &[
            (frames, 2),
            (leaf, 7),
            (flags, FLAG_GIL_KNOWN | FLAG_GIL_HELD),
            (144, 5),
            (160, 6),
        ],
        176,
    );
    let Ok(Event::Tick(tick)) = decode(&bytes) else {
        panic!("no tick")
    };
    let codes: Vec<u64> = tick.frames().map(|frame| frame.code).collect();
    assert_eq!(codes, [5, 6]);
    assert_eq!(tick.leaf_frames, 2, "a forged leaf count is bounded");
    assert_eq!(tick.holds_gil(), Some(true));
    assert_eq!(tick.collecting(), None);
    assert_eq!((tick.root, tick.generators().count()), (None, 0));
}

#[test]
fn a_sample_keeps_its_generators_apart_from_its_frames() {
    let bytes = record(
        KIND_SAMPLE,
        192,
        &[
            (at!(SampleRecord, frames), 1),
            (at!(SampleRecord, generators), 2),
            (at!(SampleRecord, generators_missing), 3),
            (at!(SampleRecord, root_frame), 0x7000),
            (144, 5),
            (160, 0x1000),
            (168, 1),
            (176, 0x2000),
            (184, 4),
        ],
        192,
    );
    let Ok(Event::Tick(tick)) = decode(&bytes) else {
        panic!("no tick")
    };
    let codes: Vec<u64> = tick.frames().map(|frame| frame.code).collect();
    assert_eq!((codes, tick.frame_bytes().len()), (vec![5], 16));
    let noted = tick
        .generators()
        .map(|noted| (noted.generator, noted.frame));
    assert_eq!(noted.collect::<Vec<_>>(), [(0x1000, 1), (0x2000, 4)]);
    assert_eq!(tick.root, Some(FrameAddr(0x7000)));
    assert_eq!(tick.generators_missing, 3);
}
