//! Memory that remembers what was read through it, to make an image of it.
//!
//! It keeps what was *read*, not what is mapped: an image holds the bytes that a walk needed, and
//! where the walk found nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::target::memory::{Memory, Piece, ReadError};
use crate::target::recorded::{Failure, Image, ImageMeta, Range};
use crate::words::RemoteAddr;

/// Bytes that are kept together. Small, since most reads are of a few words here and there.
const CELL: usize = 64;
/// Most cells that are kept: 64 MiB of them. What is read beyond is handed on, not remembered.
const MAX_CELLS: usize = 1 << 20;
/// Most failures that are kept.
const MAX_FAILURES: usize = 1 << 16;

/// Some bytes and which of them were read, bit by byte.
struct Cell {
    bytes: [u8; CELL],
    known: u64,
}

#[derive(Default)]
struct Seen {
    cells: BTreeMap<u64, Cell>,
    failures: BTreeMap<(RemoteAddr, usize), ReadError>,
}

/// A memory that reads through another and remembers.
pub struct Recorder<M> {
    memory: M,
    seen: Mutex<Seen>,
}

impl<M: Memory> Recorder<M> {
    /// Remember what is read of `memory` from now on.
    pub fn new(memory: M) -> Self {
        Self {
            memory,
            seen: Mutex::default(),
        }
    }

    /// What was read so far as an image: each byte as it was when it was last read.
    pub fn image(&self, meta: ImageMeta) -> Image {
        let seen = self.seen();
        let mut ranges: Vec<Range> = Vec::new();
        for (&number, cell) in &seen.cells {
            for (index, &byte) in cell.bytes.iter().enumerate() {
                if cell.known >> index & 1 == 0 {
                    continue;
                }
                let addr = RemoteAddr(number * CELL as u64 + index as u64);
                match ranges.last_mut() {
                    Some(last) if last.end() == addr.0 => last.bytes.push(byte),
                    _ => ranges.push(Range {
                        addr,
                        bytes: vec![byte],
                    }),
                }
            }
        }
        let failures = seen
            .failures
            .values()
            .map(|error| Failure {
                addr: error.addr,
                bytes: error.bytes,
                kind: error.kind,
            })
            .collect();
        Image::new(meta, ranges, failures)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn remember(&mut self, addr: RemoteAddr, bytes: &[u8], result: Result<(), ReadError>) {
        match result {
            Ok(()) => {
                for (index, &byte) in bytes.iter().enumerate() {
                    let addr = addr.plus(index as u64).0;
                    let number = addr / CELL as u64;
                    if self.cells.len() >= MAX_CELLS && !self.cells.contains_key(&number) {
                        continue;
                    }
                    let cell = self.cells.entry(number).or_insert(Cell {
                        bytes: [0; CELL],
                        known: 0,
                    });
                    let index = (addr % CELL as u64) as usize;
                    cell.bytes[index] = byte;
                    cell.known |= 1 << index;
                }
            }
            Err(error) => {
                if self.failures.len() < MAX_FAILURES {
                    self.failures.insert((addr, bytes.len()), error);
                }
            }
        }
    }
}

impl<M: Memory> Memory for Recorder<M> {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        let result = self.memory.read(addr, buf);
        self.seen().remember(addr, buf, result);
        result
    }

    fn read_many(&self, pieces: &mut [Piece<'_>]) {
        self.memory.read_many(pieces);
        let mut seen = self.seen();
        for piece in pieces {
            seen.remember(piece.addr, piece.buf, piece.result);
        }
    }
}

impl<M> fmt::Debug for Recorder<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}
