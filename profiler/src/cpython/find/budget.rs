//! How much one search may read, all images together.
//!
//! A process chooses what it maps and how large its tables are; without a bound over all of them
//! it could hold whoever attaches for as long as it likes. Counted in bytes, not in time: the
//! core has no clock.

use std::cell::Cell;

/// Most bytes: those of a process with hundreds of libraries, several times over, and about half
/// a second of reading.
const MAX_BYTES: u64 = 1 << 30;

/// What may still be read.
#[derive(Debug)]
pub(super) struct Budget(Cell<u64>);

impl Default for Budget {
    fn default() -> Self {
        Self(Cell::new(MAX_BYTES))
    }
}

impl Budget {
    #[cfg(test)]
    pub(super) const fn of(bytes: u64) -> Self {
        Self(Cell::new(bytes))
    }

    /// Takes from it; false when not that much is left.
    pub(super) fn spend(&self, bytes: u64) -> bool {
        match self.0.get().checked_sub(bytes) {
            Some(left) => {
                self.0.set(left);
                true
            }
            None => {
                self.0.set(0);
                false
            }
        }
    }

    /// Whether nothing may be read any more.
    pub(super) fn is_spent(&self) -> bool {
        self.0.get() == 0
    }
}
