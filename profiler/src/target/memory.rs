//! The one door to the target's memory: a fallible read, and the same for many at once.

use std::fmt;

use crate::words::RemoteAddr;

/// Why a read failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadErrorKind {
    /// Nothing (readable) is mapped there.
    Unmapped,
    /// The process is gone.
    Gone,
    /// The profiler may not read this process.
    Refused,
    /// The recorded image does not hold these bytes.
    NotRecorded,
    /// The reader has read as much as it may for this purpose.
    TooMuch,
    /// Another error of the operating system, by number.
    Os(i32),
}

/// A read that failed: where, how much, why. A failed read is never zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// Where the read began.
    pub addr: RemoteAddr,
    /// How many bytes it wanted.
    pub bytes: usize,
    /// Why it failed.
    pub kind: ReadErrorKind,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read {} bytes at {}: ", self.bytes, self.addr)?;
        match self.kind {
            ReadErrorKind::Unmapped => f.write_str("nothing is mapped there"),
            ReadErrorKind::Gone => f.write_str("the process is gone"),
            ReadErrorKind::Refused => f.write_str("permission denied"),
            ReadErrorKind::NotRecorded => f.write_str("the image does not hold them"),
            ReadErrorKind::TooMuch => f.write_str("more than is read at once"),
            ReadErrorKind::Os(errno) => write!(f, "os error {errno}"),
        }
    }
}

impl std::error::Error for ReadError {}

/// One piece of a batch.
#[derive(Debug)]
pub struct Piece<'a> {
    /// Where to read.
    pub addr: RemoteAddr,
    /// What to fill, all of it.
    pub buf: &'a mut [u8],
    /// How it went; [`Memory::read_many`] sets it for every piece.
    pub result: Result<(), ReadError>,
}

impl<'a> Piece<'a> {
    /// A piece still to be read.
    pub fn new(addr: RemoteAddr, buf: &'a mut [u8]) -> Self {
        let bytes = buf.len();
        Self {
            addr,
            buf,
            result: Err(ReadError {
                addr,
                bytes,
                kind: ReadErrorKind::Unmapped,
            }),
        }
    }
}

/// The memory of a target: a live process or a recorded image.
pub trait Memory {
    /// Fill `buf` from `addr`.
    ///
    /// # Errors
    /// When any byte could not be read; `buf` then holds nothing of meaning.
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError>;

    /// Read many pieces; each has its own result, and a failed one stops no other.
    fn read_many(&self, pieces: &mut [Piece<'_>]) {
        for piece in pieces {
            piece.result = self.read(piece.addr, piece.buf);
        }
    }

    /// The 64-bit word at `addr`.
    ///
    /// # Errors
    /// As [`Memory::read`].
    fn u64(&self, addr: RemoteAddr) -> Result<u64, ReadError> {
        let mut buf = [0; 8];
        self.read(addr, &mut buf)?;
        Ok(u64::from_le_bytes(buf))
    }

    /// The 32-bit word at `addr`.
    ///
    /// # Errors
    /// As [`Memory::read`].
    fn u32(&self, addr: RemoteAddr) -> Result<u32, ReadError> {
        let mut buf = [0; 4];
        self.read(addr, &mut buf)?;
        Ok(u32::from_le_bytes(buf))
    }

    /// The pointer at `addr`, which may be null.
    ///
    /// # Errors
    /// As [`Memory::read`].
    fn pointer(&self, addr: RemoteAddr) -> Result<RemoteAddr, ReadError> {
        self.u64(addr).map(RemoteAddr)
    }
}

impl<M: Memory + ?Sized> Memory for &M {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        (**self).read(addr, buf)
    }

    fn read_many(&self, pieces: &mut [Piece<'_>]) {
        (**self).read_many(pieces);
    }
}
