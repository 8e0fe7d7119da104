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
