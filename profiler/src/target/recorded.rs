//! A target as it was once: the bytes that were read of it, and what was known beside them.
//!
//! An image stands in for a live process in tests and reports. It holds no file of the target's:
//! what the walk took from files (where the runtime lies, which layout it has) belongs in its
//! `facts`. How it is written down is `image_file`'s.

use std::collections::BTreeMap;

use crate::target::maps::Maps;
use crate::target::memory::{Memory, ReadError, ReadErrorKind};
use crate::target::tasks::TaskFacts;
use crate::words::{Pid, RemoteAddr};

/// What is known of the target beside its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageMeta {
    /// The process's id then.
    pub pid: Pid,
    /// How the image was made, for whoever has to make it again.
    pub recipe: String,
    /// Its mappings then, or those that matter.
    pub maps: Maps,
    /// Its threads then.
    pub tasks: Vec<TaskFacts>,
    /// Whatever else the walk was given: version, addresses, layout.
    pub facts: BTreeMap<String, String>,
}

/// Bytes that lie together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) addr: RemoteAddr,
    pub(super) bytes: Vec<u8>,
}

impl Range {
    /// The address behind its last byte.
    pub(super) fn end(&self) -> u64 {
        self.addr.0.saturating_add(self.bytes.len() as u64)
    }
}

/// A read that failed when the image was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) addr: RemoteAddr,
    pub(super) bytes: usize,
    pub(super) kind: ReadErrorKind,
}

/// A recorded target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// What is known beside the memory.
    pub meta: ImageMeta,
    /// The memory.
    pub memory: RecordedMemory,
}

/// The memory of a recorded target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedMemory {
    /// By address, none overlapping or touching the next.
    pub(super) ranges: Vec<Range>,
    /// By address and size, each pair once.
    pub(super) failures: Vec<Failure>,
}

impl Image {
    pub(super) fn new(meta: ImageMeta, ranges: Vec<Range>, failures: Vec<Failure>) -> Self {
        Self {
            meta,
            memory: RecordedMemory { ranges, failures },
        }
    }
}

impl RecordedMemory {
    /// How many bytes it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.ranges.iter().map(|range| range.bytes.len()).sum()
    }
}

impl Memory for RecordedMemory {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        let behind = self.ranges.partition_point(|range| range.addr <= addr);
        let held = behind
            .checked_sub(1)
            .and_then(|index| self.ranges.get(index))
            .and_then(|range| {
                let from = usize::try_from(addr.0 - range.addr.0).ok()?;
                range.bytes.get(from..from.checked_add(buf.len())?)
            });
        if let Some(held) = held {
            buf.copy_from_slice(held);
            return Ok(());
        }
        let failed = self
            .failures
            .binary_search_by_key(&(addr, buf.len()), |failure| (failure.addr, failure.bytes))
            .ok()
            .and_then(|index| self.failures.get(index));
        Err(ReadError {
            addr,
            bytes: buf.len(),
            kind: failed.map_or(ReadErrorKind::NotRecorded, |failure| failure.kind),
        })
    }
}
