//! Reading a few kinds of Python objects from outside: types, str, bytes, small ints.
//!
//! Everything read has a cap. Not here: dicts and attributes (see [`super::dicts`]), code objects
//! (see [`crate::pystack`]).

use std::fmt;

use super::layout::{Layout, UnicodeFields};
use crate::target::{Memory, ReadError};
use crate::words::RemoteAddr;

/// Most code points of a str that are read; the rest is cut off and marked with `…`. A path has
/// at most as many, and of five hundred frames each may have two names of its own.
pub const MAX_CODE_POINTS: usize = 4096;
/// A str said to be longer than this is taken for garbage rather than for a long one.
const MAX_BELIEVED_LENGTH: u64 = 1 << 32;
/// Most bytes of a type's name.
const MAX_TYPE_NAME: usize = 256;
/// Objects are read by at most this many bytes first, within their page.
const FIRST_READ: usize = 256;
/// The smallest page there is on x86-64: a read within one succeeds or fails as a whole.
const PAGE: u64 = 4096;

/// Why an object could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectError {
    /// Its memory could not be read.
    Read(ReadError),
    /// The pointer to it is null.
    Null,
    /// It is not of the type that belongs there.
    WrongType {
        /// Where.
        addr: RemoteAddr,
        /// The type that belongs there.
        expected: &'static str,
    },
    /// A str whose state no compact str has.
    OddString(RemoteAddr),
    /// A size that is beyond its cap.
    TooLong {
        /// Where.
        addr: RemoteAddr,
        /// What it says.
        length: u64,
        /// The most that is believed.
        cap: u64,
    },
}

impl ObjectError {
    /// The kind of error without its addresses, so that many of one kind are one.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Read(_) => "its code object was gone before its name was read",
            Self::Null => "a null pointer where an object belongs",
            Self::WrongType { .. } => "its code object was gone before its name was read",
            Self::OddString(_) => "its name is no str",
            Self::TooLong { .. } => "its size cannot be believed",
        }
    }
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::Null => f.write_str("a null pointer where an object belongs"),
            Self::WrongType { addr, expected } => {
                write!(f, "the object at {addr} is not of type `{expected}`")
            }
            Self::OddString(addr) => write!(f, "the object at {addr} is no compact str"),
            Self::TooLong { addr, length, cap } => {
                write!(f, "the object at {addr} has length {length}, beyond {cap}")
            }
        }
    }
}

impl std::error::Error for ObjectError {}

impl From<ReadError> for ObjectError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

/// The objects of one target.
#[derive(Clone, Copy)]
pub struct Objects<'a> {
    /// Its memory.
    pub memory: &'a dyn Memory,
    /// Its layout.
    pub layout: &'a Layout,
}

impl fmt::Debug for Objects<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").finish_non_exhaustive()
    }
}

impl Objects<'_> {
    /// The type of an object.
    ///
    /// # Errors
    /// When it cannot be read or is null.
    pub fn type_of(&self, object: RemoteAddr) -> Result<RemoteAddr, ObjectError> {
        let field = object.plus(self.layout.object.ob_type.into());
        not_null(self.memory.pointer(field)?)
    }

    /// `tp_name` of a type, up to 256 bytes.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn name_of_type(&self, class: RemoteAddr) -> Result<String, ObjectError> {
        let field = class.plus(self.layout.class.name.into());
        let name = not_null(self.memory.pointer(field)?)?;
        let mut bytes = read_start(self.memory, name, MAX_TYPE_NAME)?;
        if !bytes.contains(&0) && bytes.len() < MAX_TYPE_NAME {
            // The page ended within the name.
            let mut rest = vec![0; MAX_TYPE_NAME - bytes.len()];
            self.memory.read(name.plus(bytes.len() as u64), &mut rest)?;
            bytes.extend(rest);
        }
        let end = bytes.iter().position(|byte| *byte == 0);
        bytes.truncate(end.unwrap_or(bytes.len()));
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Checks that an object is of the type of this name.
    ///
    /// # Errors
    /// When it is not, or cannot be read.
    pub fn expect_type(&self, object: RemoteAddr, name: &'static str) -> Result<(), ObjectError> {
        if self.name_of_type(self.type_of(object)?)? == name {
            return Ok(());
        }
        Err(ObjectError::WrongType {
            addr: object,
            expected: name,
        })
    }

    /// A compact str. Lone surrogates become U+FFFD; beyond [`MAX_CODE_POINTS`] it is cut and `…`
    /// put in place of the rest.
    ///
    /// # Errors
    /// When it cannot be read or is no compact str.
    pub fn string(&self, addr: RemoteAddr) -> Result<String, ObjectError> {
        not_null(addr)?;
        let fields = &self.layout.unicode;
        let header = fields.compact_size as usize;
        let mut start = read_start(self.memory, addr, FIRST_READ.max(header))?;
        if start.len() < header {
            // The page ended within the header; an ASCII str can end there for good.
            let needed = fields.ascii_size.max(fields.state + 4) as usize;
            if start.len() < needed {
                start.resize(needed, 0);
                self.memory.read(addr, &mut start)?;
            }
        }
        let shape = Shape::of(fields, addr, &start)?;
        let kept = shape.length.min(MAX_CODE_POINTS);
        let bytes = kept * shape.kind;
        let text = match start.get(shape.offset..shape.offset + bytes) {
            Some(characters) => decode(characters, shape.kind),
            None => {
                let mut characters = vec![0; bytes];
                let from = addr.plus(shape.offset as u64);
                self.memory.read(from, &mut characters)?;
                decode(&characters, shape.kind)
            }
        };
        Ok(if kept < shape.length {
            text + "…"
        } else {
            text
        })
    }

    /// The content of a bytes object of at most `cap` bytes.
    ///
    /// # Errors
    /// When it cannot be read or says that it is longer.
    pub fn bytes(&self, addr: RemoteAddr, cap: usize) -> Result<Vec<u8>, ObjectError> {
        not_null(addr)?;
        let fields = &self.layout.bytes;
        let data = fields.data as usize;
        let start = read_start(self.memory, addr, FIRST_READ)?;
        let length = match word_at(&start, fields.size as usize) {
            Some(length) => length,
            None => self.memory.u64(addr.plus(fields.size.into()))?,
        };
        if length > cap as u64 {
            return Err(ObjectError::TooLong {
                addr,
                length,
                cap: cap as u64,
            });
        }
        let length = length as usize;
        if let Some(content) = start.get(data..data + length) {
            return Ok(content.to_vec());
        }
        let mut content = vec![0; length];
        self.memory.read(addr.plus(data as u64), &mut content)?;
        Ok(content)
    }

    /// A non-negative int below 2^60.
    ///
    /// # Errors
    /// When it cannot be read or is another int.
    pub fn small_int(&self, addr: RemoteAddr, tagged: bool) -> Result<u64, ObjectError> {
        not_null(addr)?;
        let fields = &self.layout.long;
        let tag = self.memory.u64(addr.plus(fields.tag.into()))?;
        // From 3.12 on the word holds the number of digits above three bits, of which the low two
        // are 0 for a positive number and 1 for zero; before, the signed number of digits.
        let digits = match (tagged, tag & 3) {
            (true, 0) => tag >> 3,
            (true, 1) => 0,
            (true, _) => u64::MAX,
            (false, _) => tag,
        };
        if digits > 2 {
            return Err(ObjectError::TooLong {
                addr,
                length: digits,
                cap: 2,
            });
        }
        let mut value = 0;
        for digit in 0..digits {
            let at = addr.plus(u64::from(fields.digits) + 4 * digit);
            value |= u64::from(self.memory.u32(at)? & 0x3FFF_FFFF) << (30 * digit);
        }
        Ok(value)
    }
}

/// The address itself unless it is null.
pub(super) fn not_null(addr: RemoteAddr) -> Result<RemoteAddr, ObjectError> {
    if addr == RemoteAddr(0) {
        return Err(ObjectError::Null);
    }
    Ok(addr)
}

/// Up to `most` bytes at `addr`, fewer when its page ends before.
fn read_start(memory: &dyn Memory, addr: RemoteAddr, most: usize) -> Result<Vec<u8>, ReadError> {
    let in_page = (PAGE - addr.0 % PAGE) as usize;
    let mut bytes = vec![0; most.min(in_page)];
    match memory.read(addr, &mut bytes) {
        Ok(()) => Ok(bytes),
        // A recorded image may hold just the object: what is surely needed is its head.
        Err(error) if bytes.len() > 32 => {
            bytes.truncate(32);
            memory.read(addr, &mut bytes).map_err(|_| error)?;
            Ok(bytes)
        }
        Err(error) => Err(error),
    }
}

pub(crate) fn word_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let word = bytes.get(offset..offset.checked_add(8)?)?;
    Some(u64::from_le_bytes(word.try_into().ok()?))
}

pub(crate) fn int_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let word = bytes.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_le_bytes(word.try_into().ok()?))
}

/// What a str's header says.
struct Shape {
    length: usize,
    kind: usize,
    offset: usize,
}

impl Shape {
    fn of(fields: &UnicodeFields, addr: RemoteAddr, header: &[u8]) -> Result<Self, ObjectError> {
        let odd = ObjectError::OddString(addr);
        let length = word_at(header, fields.length as usize).ok_or(odd)?;
        let state = int_at(header, fields.state as usize).ok_or(odd)?;
        let kind = match fields.kind_mask.trailing_zeros() {
            shift @ 0..32 => (state & fields.kind_mask) >> shift,
            _ => return Err(odd),
        };
        let ascii = state & fields.ascii_mask != 0;
        let kind_fits = matches!((kind, ascii), (1, _) | (2 | 4, false));
        if state & fields.compact_mask == 0 || !kind_fits {
            return Err(odd);
        }
        if length > MAX_BELIEVED_LENGTH {
            return Err(ObjectError::TooLong {
                addr,
                length,
                cap: MAX_BELIEVED_LENGTH,
            });
        }
        Ok(Self {
            length: length as usize,
            kind: kind as usize,
            offset: if ascii {
                fields.ascii_size
            } else {
                fields.compact_size
            } as usize,
        })
    }
}

/// Characters of 1 (Latin-1), 2 or 4 bytes each. What is no character, as a lone surrogate of
/// an undecodable path, becomes U+FFFD.
fn decode(characters: &[u8], kind: usize) -> String {
    let code_points = |code: u32| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    match kind {
        1 => characters.iter().map(|byte| char::from(*byte)).collect(),
        2 => {
            let units = characters.chunks_exact(2);
            let units = units.map(|unit| u32::from(unit[0]) | u32::from(unit[1]) << 8);
            units.map(code_points).collect()
        }
        _ => {
            let units = characters.chunks_exact(4);
            let units = units.map(|unit| u32::from_le_bytes([unit[0], unit[1], unit[2], unit[3]]));
            units.map(code_points).collect()
        }
    }
}

#[cfg(test)]
mod tests;
