//! Recorded tables against measured ones, and tables that lie.

use super::*;
use crate::cpython::Build;
use crate::cpython::layout::{Layout, recorded};

const BUILDS: [Build; 2] = [Build::Default, Build::FreeThreaded];

fn table(version: Version, build: Build) -> Vec<u8> {
    let words = match (version.minor, build) {
        (13, Build::Default) => recorded::V3_13_0,
        (13, Build::FreeThreaded) => recorded::V3_13_15T,
        (14, Build::Default) => recorded::V3_14_10,
        (14, Build::FreeThreaded) => recorded::V3_14_7T,
        (_, Build::Default) => recorded::V3_15_2,
        (_, Build::FreeThreaded) => recorded::V3_15_0T,
    };
    let words = words.iter().flat_map(|word| word.to_le_bytes());
    COOKIE.iter().copied().chain(words).collect()
}

fn of_version(version: Version, build: Build) -> Layout {
    crate::cpython::layout::of_version(version, build).expect("a table")
}

fn check(version: Version, build: Build, whole: usize) {
    let table = table(version, build);
    let seen = head(&table).map(|head| (head.version, Build::of(head.free_threaded)));
    assert_eq!(seen, Some((version, build)));
    assert_eq!(table.len(), whole);
    assert!(table_bytes(version) <= whole, "{version}");
    // Every field of the recorded table that is read is also in the measured layout, so a
    // wrong order shows as a difference.
    let measured = of_version(version, build);
    let mut layout = measured;
    overlay(&mut layout, version, &table).expect("a good table");
    assert_eq!(layout, measured, "{version} {build:?}");
}

#[test]
fn a_recorded_table_says_the_same_as_the_headers_of_its_release() {
    check(Version::release(3, 13, 0), Build::Default, 584);
    check(Version::release(3, 14, 10), Build::Default, 760);
    check(Version::release(3, 15, 2), Build::Default, 888);
    check(Version::release(3, 13, 15), Build::FreeThreaded, 584);
    check(Version::release(3, 14, 7), Build::FreeThreaded, 760);
    let candidate = Version::from_hex(0x030F_00C1);
    check(candidate, Build::FreeThreaded, 888);
}

#[test]
fn what_the_table_says_is_taken_over_the_measured_layout() {
    for (minor, build) in [13, 14, 15]
        .into_iter()
        .flat_map(|m| BUILDS.map(|b| (m, b)))
    {
        let version = Version::release(3, minor, 0);
        let mut moved = of_version(version, build);
        let copies = moved.code.copies;
        moved.tstate.first_frame += 8;
        moved.interp.modules += 8;
        moved.frame.owner = None;
        moved.code.qualname = None;
        moved.code.copies = copies.map(|offset| offset + 8);
        overlay(&mut moved, version, &table(version, build)).expect("a good table");
        assert_eq!(moved.tstate.first_frame, 72);
        // It is not where it was measured, so nobody knows where this one went.
        assert_eq!(moved.tstate.exc_info, None);
        assert!(moved.frame.owner.is_some() && moved.code.qualname.is_some());
        assert_eq!(moved.code.copies, copies);
        assert_eq!(copies.is_some(), minor > 13 && build == Build::FreeThreaded);
    }
}

#[test]
fn flags_without_an_entry_keep_their_distance_from_the_status_word() {
    for build in BUILDS {
        let version = Version::release(3, 14, 0);
        let mut layout = of_version(version, build);
        layout.tstate.status = layout.tstate.status.map(|status| status + 8);
        layout.tstate.holds_gil = layout.tstate.holds_gil.map(|holds| holds + 8);
        layout.tstate.state = layout.tstate.state.map(|state| state + 8);
        overlay(&mut layout, version, &table(version, build)).expect("a good table");
        let fields = layout.tstate;
        let ints = (fields.status, fields.holds_gil, fields.state);
        assert_eq!(ints, (Some(32), Some(36), Some(44)));
    }
}

#[test]
fn a_table_that_is_short_or_absurd_is_refused() {
    for minor in [13, 14, 15] {
        let version = Version::release(3, minor, 0);
        let measured = of_version(version, Build::Default);
        let good = table(version, Build::Default);
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
    let mut layout = of_version(Version::release(3, 15, 0), Build::Default);
    let outcome = overlay(&mut layout, version, &[0; 1024]);
    assert_eq!(outcome, Err(TableError::UnknownOrder(version)));
}

#[test]
fn what_is_no_table_has_no_head() {
    let good = table(Version::release(3, 15, 0), Build::Default);
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
