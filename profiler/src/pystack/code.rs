//! One code object, read once: what a frame of it shows, and where its instructions are.
//!
//! The two are apart, for frames are handed on and a line table may be large: a stack of five
//! hundred codes must not hold as many tables. Not here: keeping them (see [`super::cache`]).

use std::sync::Arc;

use super::copies::Copies;
use super::lines::{LineFormat, Place};
use crate::cpython::objects::{ObjectError, Objects};
use crate::cpython::{Layout, Version};
use crate::target::{Memory, ReadError};
use crate::words::{CodeAddr, Instr, RemoteAddr};

/// Longest line table that is read.
pub const MAX_LINE_TABLE: usize = 1 << 20;
/// Bytes of a code object that are read at once; no layout has more before its bytecode.
const MAX_HEAD: usize = 512;

/// What a code object of the target is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// Where it was.
    pub addr: CodeAddr,
    /// `co_qualname` (3.11+), before that the bare `co_name`.
    pub name: Box<str>,
    /// `co_filename`, as the compiler was given it.
    pub file: Arc<str>,
    /// The line of the `def`.
    pub first_line: u32,
}

/// Where the instructions of a code object are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lines {
    first_line: u32,
    /// Where its bytecode begins (3.11+), else 0.
    start: u64,
    /// Bytes of bytecode before the frame counts as begun (3.11+).
    prologue: u64,
    format: LineFormat,
    line_table: Box<[u8]>,
}

/// Where in its code a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// At this line; none when the instruction has no line or the table is malformed.
    Line(Option<u32>),
    /// The frame is still being set up: the interpreter itself does not show it.
    Incomplete,
    /// Not in this code at all: the frame ran another one that was at the same address.
    Elsewhere,
}

impl Code {
    /// About how much memory it takes, its file's name aside, which many share.
    pub(super) fn weight(&self) -> usize {
        size_of::<Self>() + self.name.len()
    }
}

impl Lines {
    /// Where a frame with this instruction is, given what copies of the bytecode are known.
    pub(super) fn position(&self, copies: &Copies, instr: Instr) -> Position {
        let offset = match self.format {
            // Instruction -1 is "not begun": on the line of the `def`.
            LineFormat::Lnotab => Some(instr.0).filter(|at| *at <= i32::MAX as u64),
            LineFormat::Lengths => Some(instr.0)
                .filter(|at| *at <= i32::MAX as u64)
                .map(|at| 2 * at),
            LineFormat::Locations => {
                // 3.11 and 3.12 keep the instruction before the next one, so a frame that has
                // just been made stands one unit before its code.
                let start = copies.start(self.start, instr);
                let before = start.wrapping_sub(2);
                if !(before..=before.saturating_add(u32::MAX.into())).contains(&instr.0) {
                    return Position::Elsewhere;
                }
                let offset = instr.0.wrapping_sub(start);
                if instr.0 < start || offset < self.prologue {
                    return Position::Incomplete;
                }
                Some(offset)
            }
        };
        let Some(offset) = offset else {
            return Position::Line(Some(self.first_line));
        };
        match self.format.line(&self.line_table, self.first_line, offset) {
            Some(Place::Line(line)) => Position::Line(Some(line)),
            Some(Place::NoLine) | None => Position::Line(None),
            Some(Place::Outside) => Position::Elsewhere,
        }
    }

    /// Whether bytecode as long as this one's, from `low` on, reaches beyond `high`.
    pub(super) fn reaches(&self, low: u64, high: u64) -> bool {
        let place = self
            .format
            .line(&self.line_table, self.first_line, high.wrapping_sub(low));
        !matches!(place, None | Some(Place::Outside))
    }

    /// About how much memory it takes.
    pub(super) fn weight(&self) -> usize {
        size_of::<Self>() + self.line_table.len()
    }
}

/// What tells one code object from another one at the same address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    /// Pointer to the type.
    pub(super) class: RemoteAddr,
    filename: RemoteAddr,
    name: RemoteAddr,
    line_table: RemoteAddr,
    first_line: u32,
    flags: u32,
}

/// How code objects of one version are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    format: LineFormat,
    head_bytes: usize,
}

impl Reading {
    pub(super) fn of(version: Version, layout: &Layout) -> Self {
        let fields = &layout.code;
        let last = [
            layout.object.ob_type,
            fields.flags,
            fields.first_line,
            fields.filename,
            fields.name,
            fields.qualname.unwrap_or(0),
            fields.linetable,
            fields.first_traceable.unwrap_or(0),
        ];
        let last = last.into_iter().max().unwrap_or(0) as usize;
        Self {
            format: LineFormat::of(version),
            // A table of offsets that leads further makes each code unreadable, no more.
            head_bytes: (last + 8).min(MAX_HEAD),
        }
    }

    /// Bytes that [`Self::fingerprint`] and [`Self::code`] want from the code's address.
    pub(super) const fn head_bytes(&self) -> usize {
        self.head_bytes
    }

    pub(super) fn fingerprint(&self, layout: &Layout, head: &[u8]) -> Option<Fingerprint> {
        let fields = &layout.code;
        let name = fields.qualname.unwrap_or(fields.name);
        Some(Fingerprint {
            class: RemoteAddr(word(head, layout.object.ob_type)?),
            filename: RemoteAddr(word(head, fields.filename)?),
            name: RemoteAddr(word(head, name)?),
            line_table: RemoteAddr(word(head, fields.linetable)?),
            first_line: int(head, fields.first_line)?,
            flags: int(head, fields.flags)?,
        })
    }

    /// Reads what the head points to. The caller has checked the type.
    pub(super) fn code(
        &self,
        objects: Objects<'_>,
        addr: CodeAddr,
        head: &[u8],
        print: Fingerprint,
    ) -> Result<(Code, Lines), ObjectError> {
        let fields = &objects.layout.code;
        let code = fields.code_adaptive.map(|offset| {
            let prologue = fields.first_traceable.and_then(|offset| int(head, offset));
            (
                RemoteAddr::from(addr).plus(offset.into()).0,
                2 * u64::from(prologue.unwrap_or(0)),
            )
        });
        let (start, prologue) = code.unwrap_or_default();
        let line_table = objects.bytes(print.line_table, MAX_LINE_TABLE)?;
        let lines = Lines {
            first_line: print.first_line,
            start,
            // More than the table's every byte could cover is garbage, and would hide all.
            prologue: if prologue <= 16 * line_table.len() as u64 {
                prologue
            } else {
                0
            },
            format: self.format,
            line_table: line_table.into_boxed_slice(),
        };
        let code = Code {
            addr,
            name: objects.string(print.name)?.into_boxed_str(),
            file: objects.string(print.filename)?.into(),
            first_line: print.first_line,
        };
        Ok((code, lines))
    }

    /// Reads the head of one code object.
    pub(super) fn head(&self, memory: &dyn Memory, addr: CodeAddr) -> Result<Vec<u8>, ReadError> {
        let mut head = vec![0; self.head_bytes];
        memory.read(addr.into(), &mut head)?;
        Ok(head)
    }
}

fn word(bytes: &[u8], offset: u32) -> Option<u64> {
    let bytes = bytes.get(offset as usize..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*bytes))
}

fn int(bytes: &[u8], offset: u32) -> Option<u32> {
    let bytes = bytes.get(offset as usize..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*bytes))
}
