//! Objects as they are and as a hostile target makes them.

use super::*;
use crate::cpython::fake::Fake;
use crate::cpython::{Build, Version, layout};

fn layouts() -> impl Iterator<Item = Layout> {
    let minors = layout::OLDEST_MINOR..=layout::NEWEST_MINOR;
    let builds = [Build::Default, Build::FreeThreaded].into_iter();
    builds.flat_map(move |build| {
        let of = move |minor| layout::of_version(Version::release(3, minor, 0), build);
        minors.clone().filter_map(of)
    })
}

fn string(fake: &mut Fake, layout: &Layout) -> Result<String, ObjectError> {
    let addr = fake.at("text");
    let memory = &*fake;
    Objects { memory, layout }.string(addr)
}

fn check(kind: u32, characters: &[u8], expected: &str) {
    for layout in layouts() {
        let mut fake = Fake::default();
        fake.wide("text", &layout, kind, characters);
        assert_eq!(string(&mut fake, &layout).as_deref(), Ok(expected));
    }
}

fn units<const N: usize>(characters: &[[u8; N]]) -> Vec<u8> {
    characters.concat()
}

#[test]
fn strings_of_every_kind_are_read() {
    for layout in layouts() {
        for text in ["", "f", "a/long/path/".repeat(100).as_str()] {
            let mut fake = Fake::default();
            fake.ascii("text", &layout, text);
            assert_eq!(string(&mut fake, &layout).as_deref(), Ok(text));
        }
    }
    check(1, &[0x6E, 0x61, 0xEF, 0xFF], "naïÿ");
    check(
        2,
        &units(&[0x0444_u16, 0x4E2D].map(u16::to_le_bytes)),
        "ф中",
    );
    check(4, &units(&[0x1D4B3_u32, 0x41].map(u32::to_le_bytes)), "𝒳A");
}

#[test]
fn what_is_no_character_is_replaced() {
    check(
        2,
        &units(&[0xDCFF_u16, 0x41].map(u16::to_le_bytes)),
        "\u{FFFD}A",
    );
    check(
        4,
        &units(&[0x0011_0000_u32].map(u32::to_le_bytes)),
        "\u{FFFD}",
    );
    check(4, &units(&[u32::MAX].map(u32::to_le_bytes)), "\u{FFFD}");
}

#[test]
fn a_long_string_is_cut_with_a_mark() {
    for layout in layouts() {
        let mut fake = Fake::default();
        fake.ascii("text", &layout, &"x".repeat(MAX_CODE_POINTS + 1));
        let text = string(&mut fake, &layout).expect("a str");
        assert_eq!(text.chars().count(), MAX_CODE_POINTS + 1);
        assert!(text.ends_with("x…"));
    }
}

#[test]
fn a_length_beyond_belief_is_refused_and_one_that_lies_is_a_failed_read() {
    for layout in layouts() {
        let mut fake = Fake::default();
        fake.ascii("text", &layout, "f");
        for length in [u64::MAX, 1 << 63, 1 << 40] {
            fake.word("text", layout.unicode.length, length);
            let error = string(&mut fake, &layout);
            assert!(
                matches!(error, Err(ObjectError::TooLong { .. })),
                "{error:?}"
            );
        }
        fake.word("text", layout.unicode.length, 1 << 20);
        let error = string(&mut fake, &layout);
        assert!(matches!(error, Err(ObjectError::Read(_))), "{error:?}");
    }
}

#[test]
fn an_object_that_is_no_compact_str_is_refused() {
    for layout in layouts() {
        let fields = layout.unicode;
        let unit = 1 << fields.kind_mask.trailing_zeros();
        let states = [
            0,
            u32::MAX,
            fields.compact_mask,
            fields.ascii_mask | unit,
            fields.compact_mask | fields.ascii_mask | (2 * unit),
            fields.compact_mask | (3 * unit),
        ];
        for state in states {
            let mut fake = Fake::default();
            fake.ascii("text", &layout, "f")
                .int("text", fields.state, state);
            let error = string(&mut fake, &layout);
            assert!(
                matches!(error, Err(ObjectError::OddString(_))),
                "{state:#x} {error:?}"
            );
        }
    }
}

#[test]
fn pointers_to_nowhere_are_errors() {
    let (fake, layout, _) = Fake::python_3_12();
    let objects = Objects {
        memory: &fake,
        layout: &layout,
    };
    let null = RemoteAddr(0);
    assert_eq!(objects.string(null), Err(ObjectError::Null));
    assert_eq!(objects.bytes(null, 10), Err(ObjectError::Null));
    assert_eq!(objects.small_int(null, true), Err(ObjectError::Null));
    for addr in [1, 8, 0xDEAD_BEEF, u64::MAX, u64::MAX - 7, 1 << 47].map(RemoteAddr) {
        assert!(matches!(objects.string(addr), Err(ObjectError::Read(_))));
        assert!(matches!(objects.bytes(addr, 10), Err(ObjectError::Read(_))));
        assert!(matches!(objects.type_of(addr), Err(ObjectError::Read(_))));
        assert!(matches!(
            objects.dict_entries(addr),
            Err(ObjectError::Read(_))
        ));
        assert!(matches!(
            objects.attribute_entries(addr),
            Err(ObjectError::Read(_))
        ));
    }
}

#[test]
fn bytes_beyond_their_cap_are_refused() {
    for layout in layouts() {
        let mut fake = Fake::default();
        fake.binary("bytes", &layout, &[7; 300]);
        let addr = fake.at("bytes");
        let read = |fake: &Fake, cap| {
            let memory: &dyn Memory = fake;
            Objects {
                memory,
                layout: &layout,
            }
            .bytes(addr, cap)
        };
        assert_eq!(read(&fake, 300), Ok(vec![7; 300]));
        assert!(matches!(read(&fake, 299), Err(ObjectError::TooLong { .. })));
        fake.word("bytes", layout.bytes.size, u64::MAX);
        assert!(matches!(
            read(&fake, 1 << 20),
            Err(ObjectError::TooLong { .. })
        ));
    }
}

#[test]
fn small_ints_are_read_and_others_refused() {
    let (mut fake, layout, _) = Fake::python_3_12();
    let addr = fake.at("int");
    let mut check = |tagged, tag, digits: [u32; 2], expected: Option<u64>| {
        fake.word("int", layout.long.tag, tag);
        fake.int("int", layout.long.digits, digits[0]);
        fake.int("int", layout.long.digits + 4, digits[1]);
        let memory: &dyn Memory = &fake;
        let objects = Objects {
            memory,
            layout: &layout,
        };
        assert_eq!(objects.small_int(addr, tagged).ok(), expected, "{tag:#x}");
    };
    check(true, 1 << 3, [5, 0], Some(5));
    check(true, 2 << 3, [5, 1], Some((1 << 30) + 5));
    check(true, 1, [0, 0], Some(0));
    check(true, (1 << 3) | 2, [5, 0], None);
    check(true, 3 << 3, [5, 0], None);
    check(false, 1, [5, 0], Some(5));
    check(false, 2, [5, 1], Some((1 << 30) + 5));
    check(false, u64::MAX, [5, 0], None);
}
