//! The scheduler's accounts, read from the memory that the kernel writes them into.

use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;

use profiler_common::account::{Account, MAX_ACCOUNTS, Used};

use crate::sys::SharedArray;
use crate::words::Generation;

/// A place of the accounts; in the course of time it may belong to several threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u32);

/// All accounts.
#[derive(Debug)]
pub struct Accounts {
    accounts: SharedArray<Account>,
    used: SharedArray<Used>,
}

/// How often an account that changes while it is read is read again.
const ATTEMPTS: usize = 100;

impl Accounts {
    /// Map them.
    ///
    /// # Errors
    /// As the kernel has it.
    pub fn map(accounts: impl AsFd, used: impl AsFd) -> io::Result<Self> {
        Ok(Self {
            accounts: SharedArray::map(accounts, MAX_ACCOUNTS as usize)?,
            used: SharedArray::map(used, 1)?,
        })
    }

    /// The places that were ever used; some may be free.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        let used = self.used.read(0).map_or(0, |used| used.places);
        (0..u32::try_from(used).unwrap_or(u32::MAX).min(MAX_ACCOUNTS)).map(Slot)
    }

    /// The generation of a place.
    #[must_use]
    pub fn generation(&self, slot: Slot) -> Generation {
        let word = self
            .accounts
            .word(slot.0 as usize, offset_of!(Account, generation));
        Generation(word.unwrap_or(0))
    }

    /// The account in a place. With an even generation (off the CPU) its fields belong together;
    /// none when the place is free.
    #[must_use]
    pub fn read(&self, slot: Slot) -> Option<Account> {
        for _ in 0..ATTEMPTS {
            let before = self.generation(slot);
            let account = self.accounts.read(slot.0 as usize)?;
            if account.tid == 0 {
                return None;
            }
            if account.generation == before.0 && self.generation(slot) == before {
                return Some(account);
            }
        }
        // It switches faster than we read: what is there now is as good as anything.
        self.accounts
            .read(slot.0 as usize)
            .filter(|account| account.tid != 0)
    }

    /// Ask the kernel for the length of a stretch: it will be in the account once the thread is
    /// on a CPU again.
    pub fn mark(&self, slot: Slot, stretch: Generation) {
        let offset = offset_of!(Account, marked);
        self.accounts.set_word(slot.0 as usize, offset, stretch.0);
    }

    /// The accounts of all threads there are now.
    #[must_use]
    pub fn all(&self) -> Vec<Account> {
        self.slots().filter_map(|slot| self.read(slot)).collect()
    }
}
