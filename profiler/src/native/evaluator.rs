//! The pieces of the interpreter's evaluator.
//!
//! Compilers put the parts of a function that a trial run did not meet elsewhere, with unwind
//! information of their own and with a name that `strip` takes away. With CPython's evaluator that
//! can be most of it. Such a piece is known by this: it begins in the middle of a frame, and the
//! evaluator jumps into it from an instruction where its own frame has the same form.

use std::ops::Range;
use std::os::fd::AsRawFd;

use blazesym::inspect::Inspector;
use blazesym::inspect::source::{Elf, Source};

use super::image::Image;

/// Exported by every version of CPython, from 3.6 on.
pub(super) const EVALUATOR: &str = "_PyEval_EvalFrameDefault";
/// Most bytes of code that are looked through for jumps.
const MAX_CODE: u64 = 1 << 20;
/// Most pieces; there are one or two.
const MAX_PIECES: usize = 16;

/// The evaluator of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Evaluator {
    /// Where its pieces are, by the image's own addresses.
    pub(super) pieces: Vec<Range<u64>>,
    /// Bytes of code of all of it.
    pub(super) bytes: u64,
}

impl Evaluator {
    /// That of an image; none when it exports none.
    pub(super) fn of(image: &Image) -> Option<Self> {
        let file = image.file.as_ref()?;
        let mut elf = Elf::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
        elf.debug_syms = false;
        let inspector = Inspector::new();
        let found = inspector.lookup(&Source::Elf(elf), &[EVALUATOR]).ok()?;
        let symbol = found.first()?.first()?;
        let bytes = symbol.size? as u64;
        if bytes == 0 || bytes > MAX_CODE {
            return None;
        }
        let code = image.code(symbol.addr, bytes)?;
        let pieces = pieces(image, symbol.addr, &code);
        let elsewhere: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
        Some(Self {
            bytes: bytes + elsewhere,
            pieces,
        })
    }

    /// Whether an address of the image is in one of its pieces.
    pub(super) fn has(&self, vaddr: u64) -> bool {
        self.pieces.iter().any(|piece| piece.contains(&vaddr))
    }
}

fn pieces(image: &Image, start: u64, code: &[u8]) -> Vec<Range<u64>> {
    let own = start..start + code.len() as u64;
    let mut pieces: Vec<Range<u64>> = Vec::new();
    for (at, distance) in jumps(code) {
        let from = start + at as u64;
        let to = from.wrapping_add_signed(distance);
        if own.contains(&to) || pieces.iter().any(|piece| piece.contains(&to)) {
            continue;
        }
        let Some(span) = image.span(to).filter(|span| span.is_piece) else {
            continue;
        };
        let form = image.frame_form(from);
        if form.is_some() && form == image.frame_form(to) && pieces.len() < MAX_PIECES {
            pieces.push(span.range);
        }
    }
    pieces
}

/// Where an instruction may be that jumps, and how far. What only looks like one leads into the
/// beginning of a frame's middle by no chance worth counting.
fn jumps(code: &[u8]) -> impl Iterator<Item = (usize, i64)> {
    (0..code.len()).filter_map(|at| {
        let rest = &code[at..];
        // `jmp rel32`, and `jcc rel32`.
        let length = match rest {
            [0xe9, ..] => 1,
            [0x0f, 0x80..=0x8f, ..] => 2,
            _ => return None,
        };
        let distance = rest.get(length..length + 4)?.try_into().ok()?;
        let distance = i64::from(i32::from_le_bytes(distance)) + length as i64 + 4;
        Some((at, distance))
    })
}

#[cfg(test)]
mod tests {
    use super::jumps;

    #[test]
    fn jumps_are_found_with_their_targets() {
        let code = [
            0x90, 0xe9, 0x0b, 0, 0, 0, 0x0f, 0x84, 0xfa, 0xff, 0xff, 0xff,
        ];
        let found: Vec<_> = jumps(&code).collect();
        assert_eq!(found, [(1, 0x10), (6, 0)]);
        assert_eq!(jumps(&[0xe9, 1, 2]).count(), 0);
        assert_eq!(jumps(&[0x0f]).count(), 0);
    }
}
