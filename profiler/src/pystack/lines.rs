//! From a bytecode offset to a line: the three table formats of CPython, as pure functions.
//!
//! Documented in CPython's `Objects/lnotab_notes.txt` (to 3.10) and
//! `InternalDocs/code_objects.md`, before 3.13 `Objects/locations.md` (3.11+). A malformed
//! table gives none, never a panic.

use crate::cpython::Version;

/// How a code object's line table is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// To 3.9: steps of address and line.
    Lnotab,
    /// 3.10: lengths and steps of line.
    Lengths,
    /// 3.11+: locations of varying size.
    Locations,
}

/// What a table says of an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// This line.
    Line(u32),
    /// The instruction belongs to no line.
    NoLine,
    /// The code has no such offset: what the frame ran was another code.
    Outside,
}

impl LineFormat {
    /// The format of a version.
    #[must_use]
    pub const fn of(version: Version) -> Self {
        match version.minor {
            0..=9 => Self::Lnotab,
            10 => Self::Lengths,
            _ => Self::Locations,
        }
    }

    /// The line at a byte offset of the code; none when the table is malformed.
    #[must_use]
    pub fn line(self, table: &[u8], first_line: u32, offset: u64) -> Option<Place> {
        match self {
            Self::Lnotab => lnotab(table, first_line, offset),
            Self::Lengths => lengths(table, first_line, offset),
            Self::Locations => locations(table, first_line, offset),
        }
    }
}

/// `line + step`, when that is a line number.
fn step(line: u32, step: i64) -> Option<u32> {
    u32::try_from(i64::from(line).checked_add(step)?).ok()
}

/// Pairs of an unsigned step of address and a signed step of line. The table does not tell where
/// the code ends, so nothing is outside.
fn lnotab(table: &[u8], first_line: u32, offset: u64) -> Option<Place> {
    let (pairs, rest) = table.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    // Steps can lead below the first line on their way (a decorator, a multi-line expression), so
    // only the end has to be a line.
    let mut line = i64::from(first_line);
    let mut address = 0;
    for [addresses, lines] in pairs {
        address += u64::from(*addresses);
        if address > offset {
            break;
        }
        line += i64::from(*lines as i8);
    }
    step(0, line).map(Place::Line)
}

/// Pairs of a length in bytes and a signed step of line that comes before it; -128 is "no line"
/// and no step.
fn lengths(table: &[u8], first_line: u32, offset: u64) -> Option<Place> {
    let (pairs, rest) = table.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let mut line = i64::from(first_line);
    let mut end = 0;
    for [length, lines] in pairs {
        let lines = *lines as i8;
        if lines != i8::MIN {
            line += i64::from(lines);
        }
        end += u64::from(*length);
        if offset < end {
            return match lines {
                i8::MIN => Some(Place::NoLine),
                _ => step(0, line).map(Place::Line),
            };
        }
    }
    Some(Place::Outside)
}

/// Entries of a head byte and what its kind asks for.
fn locations(table: &[u8], first_line: u32, offset: u64) -> Option<Place> {
    let mut bytes = table.iter().copied();
    let mut line = i64::from(first_line);
    let mut end = 0;
    while let Some(head) = bytes.next() {
        if head & 0x80 == 0 {
            return None;
        }
        let mut has_line = true;
        match (head >> 3) & 15 {
            // Short: columns in one byte.
            0..=9 => {
                bytes.next()?;
            }
            // One line: its step is part of the kind, columns in two bytes.
            kind @ 10..=12 => {
                line += i64::from(kind - 10);
                bytes.next()?;
                bytes.next()?;
            }
            // No columns.
            13 => line = line.checked_add(signed_varint(&mut bytes)?)?,
            // Long: end line and both columns.
            14 => {
                line = line.checked_add(signed_varint(&mut bytes)?)?;
                for _ in 0..3 {
                    varint(&mut bytes)?;
                }
            }
            _ => has_line = false,
        }
        // Lengths are in code units of two bytes.
        end += 2 * u64::from((head & 7) + 1);
        if offset < end {
            return if has_line {
                step(0, line).map(Place::Line)
            } else {
                Some(Place::NoLine)
            };
        }
    }
    Some(Place::Outside)
}

/// Six bits a byte, the low ones first; bit 6 says that more follow.
fn varint(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut value = 0;
    for shift in (0..=30).step_by(6) {
        let byte = bytes.next()?;
        value |= u64::from(byte & 63) << shift;
        if byte & 64 == 0 {
            return Some(value);
        }
    }
    // CPython's own numbers are ints: more than six bytes are none of them.
    None
}

/// Bit 0 is the sign.
fn signed_varint(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let value = varint(bytes)?;
    let size = i64::try_from(value >> 1).ok()?;
    Some(if value & 1 == 1 { -size } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(format: LineFormat, first_line: u32, table: &[u8], expected: &[(u64, Option<Place>)]) {
        for (offset, place) in expected {
            let got = format.line(table, first_line, *offset);
            assert_eq!(got, *place, "{format:?} at {offset} of {table:?}");
        }
    }

    const fn at(line: u32) -> Option<Place> {
        Some(Place::Line(line))
    }
    const NO_LINE: Option<Place> = Some(Place::NoLine);
    const OUTSIDE: Option<Place> = Some(Place::Outside);

    #[test]
    fn lnotab_steps_by_address_and_line() {
        let table = [0, 1, 8, 1, 4, 2];
        let lines = [
            (0, at(11)),
            (7, at(11)),
            (8, at(12)),
            (11, at(12)),
            (12, at(14)),
        ];
        check(LineFormat::Lnotab, 10, &table, &lines);
        check(LineFormat::Lnotab, 10, &table, &[(u64::MAX, at(14))]);
        check(LineFormat::Lnotab, 10, &[], &[(0, at(10)), (99, at(10))]);
    }

    #[test]
    fn lnotab_steps_back_and_in_parts() {
        // A step back of 3, a step of 300 lines in three parts, a step of 300 bytes in two.
        let table = [4, 0xFD, 4, 127, 0, 127, 0, 46, 255, 0, 45, 1];
        let lines = [
            (0, at(10)),
            (4, at(7)),
            (8, at(307)),
            (307, at(307)),
            (308, at(308)),
        ];
        check(LineFormat::Lnotab, 10, &table, &lines);
        // Below the first line on the way, but not at the end.
        check(
            LineFormat::Lnotab,
            1,
            &[2, 0x80, 0, 0x7F, 0, 5],
            &[(2, at(5))],
        );
    }

    #[test]
    fn lengths_cover_ranges() {
        let table = [4, 0, 6, 1, 2, 0x80, 8, 0xFE, 0, 5, 2, 1];
        let lines = [
            (0, at(10)),
            (3, at(10)),
            (4, at(11)),
            (10, NO_LINE),
            (12, at(9)),
            (19, at(9)),
            (20, at(15)),
            (21, at(15)),
            (22, OUTSIDE),
        ];
        check(LineFormat::Lengths, 10, &table, &lines);
        check(LineFormat::Lengths, 10, &[], &[(0, OUTSIDE)]);
    }

    #[test]
    fn locations_of_every_kind() {
        let table = [
            0x80 | (9 << 3) | 1,
            0x23, // short, two units
            0x80 | (10 << 3),
            1,
            2, // one line, the same
            0x80 | (12 << 3) | 7,
            1,
            2, // one line, two further, eight units
            0x80 | (13 << 3),
            0x07, // no columns, 3 back
            0x80 | (14 << 3),
            0x48,
            0x02,
            0x41,
            0x01,
            0x05,
            0x00,                 // long, 2 * 68 further
            0x80 | (15 << 3) | 2, // none, three units
            0x80 | (11 << 3),
            1,
            2, // one line, one further
        ];
        let lines = [
            (0, at(10)),
            (3, at(10)),
            (4, at(10)),
            (6, at(12)),
            (21, at(12)),
            (22, at(9)),
            (24, at(77)),
            (26, NO_LINE),
            (31, NO_LINE),
            (32, at(78)),
            (34, OUTSIDE),
        ];
        check(LineFormat::Locations, 10, &table, &lines);
        check(LineFormat::Locations, 10, &[], &[(0, OUTSIDE)]);
    }

    #[test]
    fn tables_that_are_cut_off_are_malformed() {
        check(LineFormat::Lnotab, 1, &[1], &[(0, None)]);
        check(LineFormat::Lengths, 1, &[1, 0, 1], &[(5, None)]);
        let whole = [0x80 | (14 << 3), 0x48, 0x02, 0x41, 0x01, 0x05, 0x00];
        for length in 1..whole.len() - 1 {
            check(LineFormat::Locations, 1, &whole[..length], &[(0, None)]);
        }
        check(LineFormat::Locations, 1, &[0x80], &[(0, None)]);
        check(
            LineFormat::Locations,
            1,
            &[0x80 | (11 << 3), 1],
            &[(0, None)],
        );
    }

    #[test]
    fn lines_that_cannot_be_are_malformed() {
        check(LineFormat::Lnotab, 1, &[0, 0x80], &[(0, None)]);
        check(LineFormat::Lengths, 1, &[2, 0x81], &[(0, None)]);
        check(
            LineFormat::Locations,
            1,
            &[0x80 | (13 << 3), 0x3F],
            &[(0, None)],
        );
        // A head without its bit, and a number of seven bytes.
        check(LineFormat::Locations, 1, &[0x00, 0x00], &[(0, None)]);
        let endless = [0x80 | (13 << 3), 0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0x01];
        check(LineFormat::Locations, 1, &endless, &[(0, None)]);
    }

    #[test]
    fn no_table_at_all_panics() {
        // Every table of up to two bytes, and long runs of each byte.
        for format in [
            LineFormat::Lnotab,
            LineFormat::Lengths,
            LineFormat::Locations,
        ] {
            for first in 0..=255_u8 {
                for second in 0..=255_u8 {
                    for line in [0, 1, u32::MAX] {
                        let _ = format.line(&[first, second], line, 1);
                    }
                }
                for offset in [0, 4096, u64::MAX] {
                    let _ = format.line(&[first; 4096], u32::MAX, offset);
                }
            }
        }
    }
}
