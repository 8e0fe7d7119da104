//! A file as a process has it mapped: its bytes by their offsets in the file, read from the
//! process's memory.
//!
//! It takes no file, so neither the right to open one nor that it still exists, and it touches no
//! file system of the target's. What was not mapped is not there: sections' headers and symbols
//! for debuggers, as a rule.

use std::io::{self, Read, Seek, SeekFrom};

use super::MappedFile;
use super::budget::Budget;
use crate::target::Memory;

/// Most mappings of the same bytes that are tried.
const MAX_TRIES: usize = 8;

/// A file's mappings, as a stream.
pub(super) struct Mapped<'a> {
    memory: &'a dyn Memory,
    mappings: &'a [&'a MappedFile],
    at: u64,
}

impl<'a> Mapped<'a> {
    pub(super) const fn new(memory: &'a dyn Memory, mappings: &'a [&'a MappedFile]) -> Self {
        Self {
            memory,
            mappings,
            at: 0,
        }
    }
}

impl Read for Mapped<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let covering = self.mappings.iter().filter_map(|mapping| {
            let within = self.at.checked_sub(mapping.file_offset)?;
            let left = mapping.end.0.checked_sub(mapping.start.0)?;
            let left = left.checked_sub(within).filter(|left| *left > 0)?;
            Some((mapping.start.plus(within), left))
        });
        let mut failure = None;
        // Between segments the loader leaves mappings that nobody may read.
        for (addr, left) in covering.take(MAX_TRIES) {
            let bytes = usize::try_from(left).map_or(buf.len(), |left| buf.len().min(left));
            match self.memory.read(addr, &mut buf[..bytes]) {
                Ok(()) => {
                    self.at = self.at.saturating_add(bytes as u64);
                    return Ok(bytes);
                }
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(0), |error| Err(io::Error::other(error)))
    }
}

impl Seek for Mapped<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let end = || {
            let ends = self.mappings.iter().map(|mapping| {
                let bytes = mapping.end.0.saturating_sub(mapping.start.0);
                mapping.file_offset.saturating_add(bytes)
            });
            ends.max().unwrap_or(0)
        };
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => end().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// A stream that may be read only as far as the search's budget goes.
pub(super) struct Metered<'a, R> {
    pub(super) stream: R,
    pub(super) budget: &'a Budget,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if !self.budget.spend(buf.len() as u64) {
            return Err(io::Error::other("the search has read as much as it may"));
        }
        self.stream.read(buf)
    }
}

impl<R: Seek> Seek for Metered<'_, R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.stream.seek(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpython::fake::Fake;
    use crate::words::RemoteAddr;

    fn mapping(start: RemoteAddr, bytes: u64, file_offset: u64) -> MappedFile {
        MappedFile {
            path: "/some".to_owned(),
            start,
            end: start.plus(bytes),
            file_offset,
            executable: false,
            writable: false,
            inode: 1,
        }
    }

    #[test]
    fn bytes_are_found_by_their_offsets_in_the_file_across_mappings() {
        let mut fake = Fake::default();
        fake.put("first", 0, b"ELF, and")
            .put("second", 0, b" the rest");
        let first = mapping(fake.at("first"), 8, 0);
        let second = mapping(fake.at("second"), 9, 8);
        let far = mapping(fake.at("nothing"), 16, 0x1000);
        let shut = mapping(fake.at("nothing"), 8, 8);
        let mappings = [&shut, &second, &first, &far];
        let mut stream = Mapped::new(&fake, &mappings);
        let mut all = [0; 17];
        stream.read_exact(&mut all).expect("both are mapped");
        assert_eq!(&all, b"ELF, and the rest");
        assert_eq!(stream.seek(SeekFrom::Start(5)).expect("within"), 5);
        let mut some = [0; 7];
        stream.read_exact(&mut some).expect("within");
        assert_eq!(&some, b"and the");
        assert_eq!(stream.seek(SeekFrom::End(0)).expect("the end"), 0x1010);
        for hole in [0x11, 0x1000, 0x2000] {
            stream.seek(SeekFrom::Start(hole)).expect("anywhere");
            assert!(stream.read_exact(&mut some).is_err(), "{hole:#x}");
        }
    }
}
