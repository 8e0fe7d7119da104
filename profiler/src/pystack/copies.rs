//! The copies of a code object's bytecode that threads run (free-threaded builds, 3.14 and later).
//!
//! There each thread but the first specialises a copy of its own, and a frame's instruction lies
//! in whichever its thread runs. An address is in one of them or in none, so where it is tells
//! whose it is, and the frame's own index of the copy is not needed. A copy lives as long as its
//! code object, but for a call that nobody makes (`sys._clear_internal_caches`). Not here: which
//! line an offset has.

use crate::cpython::objects::ObjectError;
use crate::target::Memory;
use crate::words::{CodeAddr, Instr, RemoteAddr};

/// Most copies that are looked at: threads that were alive at one time, and a list may say more.
const MAX_COPIES: u64 = 1 << 12;

/// Where copies begin that instructions were found in, in no order; few, as a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Copies(Vec<u64>);

impl Copies {
    /// One.
    pub(super) fn of(start: u64) -> Self {
        Self(vec![start])
    }

    /// Where the bytecode begins that an instruction is in, if it is in any: the nearest start
    /// at or before it. `main` is the code object's own bytecode.
    pub(super) fn start(&self, main: u64, instr: Instr) -> u64 {
        let starts = self.0.iter().copied().chain([main]);
        starts
            .filter(|start| *start <= instr.0)
            .max()
            .unwrap_or(main)
    }

    /// Adds a start, and takes out those that `overlap` it: their memory was given back and taken
    /// again. True when there were any.
    pub(super) fn add(&mut self, start: u64, overlap: impl Fn(u64, u64) -> bool) -> bool {
        let before = self.0.len();
        self.0
            .retain(|known| !overlap((*known).min(start), (*known).max(start)));
        let lost = self.0.len() < before;
        self.0.push(start);
        lost
    }

    /// About how much memory they take.
    pub(super) fn weight(&self) -> usize {
        self.0.len() * size_of::<u64>()
    }
}

/// The start of the copy that is nearest before an instruction, by the code object's list of them
/// (`_PyCodeArray` in `Include/cpython/code.h`: a length, then pointers); `field` is where the
/// code object keeps that.
///
/// # Errors
/// When the list cannot be read.
pub(super) fn nearest(
    memory: &dyn Memory,
    code: CodeAddr,
    field: u32,
    instr: Instr,
) -> Result<Option<u64>, ObjectError> {
    let list = memory.pointer(RemoteAddr::from(code).plus(field.into()))?;
    if list == RemoteAddr(0) {
        return Ok(None);
    }
    let length = memory.u64(list)?;
    let mut starts = vec![0; 8 * length.min(MAX_COPIES) as usize];
    memory.read(list.plus(8), &mut starts)?;
    let starts = starts.as_chunks::<8>().0.iter();
    let starts = starts.map(|start| u64::from_le_bytes(*start));
    // Null where the thread of that number has not run this code.
    Ok(starts
        .filter(|start| *start != 0 && *start <= instr.0)
        .max())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_is_in_the_bytecode_that_begins_nearest_before_it() {
        let copies = Copies(vec![9000, 3000, 5000]);
        let check = |instr, expected| {
            assert_eq!(copies.start(4000, Instr(instr)), expected, "{instr}");
        };
        check(4000, 4000);
        check(4999, 4000);
        check(5000, 5000);
        check(3001, 3000);
        check(u64::MAX, 9000);
        // The own bytecode, one unit before which a frame of 3.12 can stand.
        check(2999, 4000);
        assert_eq!(Copies::default().start(4000, Instr(3998)), 4000);
    }

    #[test]
    fn a_copy_in_the_place_of_another_one_takes_that_one_out() {
        let mut copies = Copies::default();
        let overlap = |low: u64, high: u64| high - low < 100;
        assert!(!copies.add(1000, overlap));
        assert!(!copies.add(1100, overlap));
        assert!(!copies.add(900, overlap));
        assert_eq!(copies, Copies(vec![1000, 1100, 900]));
        assert!(copies.add(1050, overlap));
        assert_eq!(copies, Copies(vec![900, 1050]));
    }
}
