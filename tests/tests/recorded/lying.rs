//! A memory with lies in it, which counts what is asked of it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use profiler::target::{Memory, ReadError, ReadErrorKind};
use profiler::words::RemoteAddr;

/// More reads than any reading may take. It is a hang for whoever waits.
const MAX_READS: u64 = 4_000_000;
/// More bytes than any reading may ask for: the stack scans' budget is a quarter of it.
const MAX_BYTES: u64 = 1 << 30;
/// More bytes than any single read may ask for, since they are allocated before.
const MAX_READ: usize = 8 << 20;
/// Reads that lie beyond what is recorded are answered by pieces of this size.
const PIECE: u64 = 64;
const PAGE: u64 = 4096;
/// User space ends here.
const END: u64 = 1 << 47;

/// What lies beyond the recorded bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beyond {
    /// Nothing: it cannot be read.
    Nothing,
    /// Zeroes.
    Zeroes,
    /// Words that point to themselves.
    Selves,
    /// Words that point to two places by turns.
    Turns([u64; 2]),
    /// Bytes without sense.
    Noise,
}

/// What was asked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    /// Reads.
    pub(crate) reads: u64,
    /// Bytes of them.
    pub(crate) bytes: u64,
}

/// The memory.
pub(crate) struct Lying<'a> {
    truth: &'a dyn Memory,
    /// Words in place of the true ones, by their addresses.
    words: BTreeMap<u64, u64>,
    hole: Range<u64>,
    beyond: Beyond,
    asked: Cell<Asked>,
    seen: Option<RefCell<BTreeSet<u64>>>,
}

impl<'a> Lying<'a> {
    /// Nothing but the truth so far.
    pub(crate) fn new(truth: &'a dyn Memory) -> Self {
        Self {
            truth,
            words: BTreeMap::new(),
            hole: 0..0,
            beyond: Beyond::Nothing,
            asked: Cell::default(),
            seen: None,
        }
    }

    /// Another word at an address.
    pub(crate) fn with_word(mut self, addr: u64, word: u64) -> Self {
        self.words.insert(addr, word);
        self
    }

    /// Nothing can be read there.
    pub(crate) fn with_hole(mut self, hole: Range<u64>) -> Self {
        self.hole = hole;
        self
    }

    /// Something else than nothing beyond.
    pub(crate) fn with_beyond(mut self, beyond: Beyond) -> Self {
        self.beyond = beyond;
        self
    }

    /// Remember which words were read.
    pub(crate) fn watched(mut self) -> Self {
        self.seen = Some(RefCell::default());
        self
    }

    /// The addresses, multiples of eight, of the words that were read.
    pub(crate) fn words_read(&self) -> Vec<u64> {
        let seen = self.seen.as_ref().map(|seen| seen.borrow().clone());
        seen.unwrap_or_default().into_iter().collect()
    }

    /// What was asked so far.
    pub(crate) fn asked(&self) -> Asked {
        self.asked.get()
    }

    fn count(&self, bytes: usize) {
        let mut asked = self.asked.get();
        asked.reads += 1;
        asked.bytes += bytes as u64;
        self.asked.set(asked);
        assert!(bytes <= MAX_READ, "one read asks for {bytes} bytes");
        assert!(asked.reads <= MAX_READS, "it reads on and on");
        assert!(asked.bytes <= MAX_BYTES, "it reads more and more");
    }

    fn beyond(&self, word: u64) -> u64 {
        match self.beyond {
            Beyond::Nothing | Beyond::Zeroes => 0,
            Beyond::Selves => word,
            Beyond::Turns(places) => places[(word / 8 % 2) as usize],
            Beyond::Noise => word.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29),
        }
    }

    fn fill_beyond(&self, addr: u64, buf: &mut [u8]) {
        let mut at = addr;
        let mut rest = buf;
        while !rest.is_empty() {
            let from = (at % 8) as usize;
            let bytes = (8 - from).min(rest.len());
            let (piece, behind) = rest.split_at_mut(bytes);
            let word = self.beyond(at & !7).to_le_bytes();
            piece.copy_from_slice(&word[from..from + bytes]);
            at += bytes as u64;
            rest = behind;
        }
    }

    fn read_beyond(&self, addr: RemoteAddr, buf: &mut [u8]) {
        let mut at = addr.0;
        let mut rest = buf;
        while !rest.is_empty() {
            // What is recorded of a table that is said to be longer is at its beginning.
            let size = if at < addr.0 + PAGE { PIECE } else { PAGE };
            let bytes = (size - at % size).min(rest.len() as u64) as usize;
            let (piece, behind) = rest.split_at_mut(bytes);
            if self.truth.read(RemoteAddr(at), piece).is_err() {
                self.fill_beyond(at, piece);
            }
            at += bytes as u64;
            rest = behind;
        }
    }
}

impl Memory for Lying<'_> {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        self.count(buf.len());
        let (start, bytes) = (addr.0, buf.len());
        let error = ReadError {
            addr,
            bytes,
            kind: ReadErrorKind::Unmapped,
        };
        let end = start.checked_add(bytes as u64).ok_or(error)?;
        if end > END || (start < self.hole.end && end > self.hole.start) {
            return Err(error);
        }
        if let Err(error) = self.truth.read(addr, buf) {
            if self.beyond == Beyond::Nothing {
                return Err(error);
            }
            self.read_beyond(addr, buf);
        }
        if let Some(seen) = &self.seen {
            seen.borrow_mut().extend((start & !7..end).step_by(8));
        }
        for (&word, value) in self.words.range(start.saturating_sub(7)..end) {
            for (at, byte) in (word..).zip(value.to_le_bytes()) {
                if (start..end).contains(&at) {
                    buf[(at - start) as usize] = byte;
                }
            }
        }
        Ok(())
    }
}
