//! Where a thread was: its registers, and a copy of its stack from the stack pointer upwards.

use crate::words::RemoteAddr;

/// What unwinding begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The instruction pointer.
    pub ip: RemoteAddr,
    /// The stack pointer.
    pub sp: RemoteAddr,
    /// The frame pointer, `rbp`; 0 when it is not known.
    pub bp: RemoteAddr,
}

/// A copy of the upper end of a stack: the bytes from an address on, as far as they were had.
#[derive(Clone, Copy, Debug)]
pub struct StackCopy<'a> {
    /// Where the first byte was.
    pub from: RemoteAddr,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl StackCopy<'_> {
    /// The word at an address, if the copy has all of it.
    pub(super) fn word(&self, addr: u64) -> Option<u64> {
        let at = usize::try_from(addr.checked_sub(self.from.0)?).ok()?;
        let bytes = self.bytes.get(at..at.checked_add(8)?)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    /// The address behind the last byte.
    pub(super) fn end(&self) -> u64 {
        self.from.0.saturating_add(self.bytes.len() as u64)
    }
}
