//! Records as the kernel sends them and as nobody should.

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
            record(1, 136, &[(frames, 1)], 136),
            WireError::LengthMismatch {
                says: 152,
                has: 136,
            },
        ),
        (
            record(1, 136, &[(frames, u32::MAX)], 136),
            WireError::TooManyFrames(u32::MAX),
        ),
        (
            record(1, 152, &[(frames, 1), (generators, 1)], 152),
            WireError::LengthMismatch {
                says: 168,
                has: 152,
            },
        ),
        (
            record(1, 168, &[(generators, 1)], 168),
            WireError::LengthMismatch {
                says: 152,
                has: 168,
            },
        ),
        (
            record(1, 136, &[(generators, 65)], 136),
            WireError::TooManyGenerators(65),
        ),
        (
            record(1, 136, &[(generators, u32::MAX)], 136),
            WireError::TooManyGenerators(u32::MAX),
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
        168,
        &[
            (frames, 2),
            (leaf, 7),
            (flags, FLAG_GIL_KNOWN | FLAG_GIL_HELD),
            (136, 5),
            (152, 6),
        ],
        168,
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
        184,
        &[
            (at!(SampleRecord, frames), 1),
            (at!(SampleRecord, generators), 2),
            (at!(SampleRecord, generators_missing), 3),
            (at!(SampleRecord, root_frame), 0x7000),
            (136, 5),
            (152, 0x1000),
            (160, 1),
            (168, 0x2000),
            (176, 4),
        ],
        184,
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
