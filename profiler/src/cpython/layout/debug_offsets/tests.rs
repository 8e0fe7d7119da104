//! Recorded tables against measured ones, and tables that lie.

use super::*;
use crate::cpython::layout::{of_version, recorded};

fn table(version: Version) -> Vec<u8> {
    let words = match version.minor {
        13 => recorded::V3_13_0,
        14 => recorded::V3_14_10,
        _ => recorded::V3_15_2,
    };
    let words = words.iter().flat_map(|word| word.to_le_bytes());
    COOKIE.iter().copied().chain(words).collect()
}

fn check(version: Version, whole: usize) {
    let table = table(version);
    let seen = head(&table).map(|head| (head.version, head.free_threaded));
    assert_eq!(seen, Some((version, false)));
    assert_eq!(table.len(), whole);
    assert!(table_bytes(version) <= whole, "{version}");
    // Every field of the recorded table that is read is also in the measured layout, so a
    // wrong order shows as a difference.
    let measured = of_version(version).expect("a table");
    let mut layout = measured;
    overlay(&mut layout, version, &table).expect("a good table");
    assert_eq!(layout, measured, "{version}");
}

#[test]
fn a_recorded_table_says_the_same_as_the_headers_of_its_release() {
    check(Version::release(3, 13, 0), 584);
    check(Version::release(3, 14, 10), 760);
    check(Version::release(3, 15, 2), 888);
}

#[test]
fn what_the_table_says_is_taken_over_the_measured_layout() {
    for minor in [13, 14, 15] {
        let version = Version::release(3, minor, 0);
        let mut moved = of_version(version).expect("a table");
        moved.tstate.first_frame += 8;
        moved.interp.modules += 8;
        moved.frame.owner = None;
        moved.code.qualname = None;
        overlay(&mut moved, version, &table(version)).expect("a good table");
        assert_eq!(moved.tstate.first_frame, 72);
        // It is not where it was measured, so nobody knows where this one went.
        assert_eq!(moved.tstate.exc_info, None);
        assert!(moved.frame.owner.is_some() && moved.code.qualname.is_some());
    }
}

#[test]
fn the_flag_of_3_14_keeps_its_distance_from_the_status_word() {
    let version = Version::release(3, 14, 0);
    let mut layout = of_version(version).expect("a table");
    overlay(&mut layout, version, &table(version)).expect("a good table");
    let (status, holds) = (layout.tstate.status, layout.tstate.holds_gil);
    assert_eq!(holds, status.map(|status| status + 4));
}

#[test]
fn a_table_that_is_short_or_absurd_is_refused() {
    for minor in [13, 14, 15] {
        let version = Version::release(3, minor, 0);
        let measured = of_version(version).expect("a table");
        let good = table(version);
        for length in 0..good.len() - 8 {
            let mut layout = measured;
            let outcome = overlay(&mut layout, version, &good[..length]);
            let needed = HEAD_BYTES + 8 * 60;
            assert!(length > needed || outcome.is_err(), "3.{minor} {length}");
        }
        let mut absurd = good;
        absurd[HEAD_BYTES + 16..HEAD_BYTES + 24].copy_from_slice(&u64::MAX.to_le_bytes());
        let outcome = overlay(&mut { measured }, version, &absurd);
        assert!(matches!(
            outcome,
            Err(TableError::Absurd {
                value: u64::MAX,
                ..
            })
        ));
    }
    let version = Version::release(3, 16, 0);
    let mut layout = of_version(Version::release(3, 15, 0)).expect("a table");
    let outcome = overlay(&mut layout, version, &[0; 1024]);
    assert_eq!(outcome, Err(TableError::UnknownOrder(version)));
}

#[test]
fn what_is_no_table_has_no_head() {
    let good = table(Version::release(3, 15, 0));
    assert!(head(&good).is_some());
    assert_eq!(head(&good[..HEAD_BYTES - 1]), None);
    assert_eq!(head(b""), None);
    assert_eq!(head(&[0; 64]), None);
    for (at, byte) in [(0, b'y'), (11, 2), (16, 2), (12, 1)] {
        let mut bad = good.clone();
        bad[at] = byte;
        assert_eq!(head(&bad), None, "byte {at}");
    }
}
