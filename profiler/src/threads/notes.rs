//! Rung 1: the TLS bases that the kernel saw, each of a thread that may have ended since.
//!
//! A thread keeps its TLS base as long as it lives, and a base belongs to one thread at a time, but
//! both ids and bases are handed on. So a note is believed only until something of it is seen
//! anew: the id with another start, the id with another base, the base under another id.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::threads::facts::ThreadFacts;
use crate::threads::rung::{Evidence, Rung};
use crate::words::{PthreadId, StartTime, Tid};

/// One base that was seen.
#[derive(Clone, Copy, Debug)]
struct Note {
    base: PthreadId,
    /// Later ones have higher numbers.
    number: u64,
    /// The start of the thread it was taken for, from the first look on.
    started: Option<StartTime>,
}

/// Every base that is still believed.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    by_tid: BTreeMap<Tid, Note>,
    last: u64,
}

impl Notes {
    /// Notes a base; true when the id had another one, and so was another thread's.
    pub(super) fn note(&mut self, tid: Tid, base: PthreadId) -> bool {
        self.last += 1;
        let note = Note {
            base,
            number: self.last,
            started: None,
        };
        match self.by_tid.entry(tid) {
            Entry::Vacant(new) => {
                new.insert(note);
                false
            }
            Entry::Occupied(mut known) if known.get().base == base => {
                known.get_mut().number = note.number;
                false
            }
            Entry::Occupied(mut known) => {
                known.insert(note);
                true
            }
        }
    }

    /// The thread has ended.
    pub(super) fn forget(&mut self, tid: Tid) {
        self.by_tid.remove(&tid);
    }

    /// What is noted of a thread, unless it was of another with the same id.
    pub(super) fn base_of(&self, thread: &ThreadFacts) -> Option<PthreadId> {
        let note = self.by_tid.get(&thread.tid)?;
        let started = note.started.unwrap_or(thread.started);
        (started == thread.started).then_some(note.base)
    }

    /// The note of a thread is of this very one.
    pub(super) fn believe(&mut self, thread: &ThreadFacts) {
        if let Some(note) = self.by_tid.get_mut(&thread.tid) {
            note.started = Some(thread.started);
        }
    }

    /// Every note.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Tid, PthreadId)> {
        self.by_tid.iter().map(|(tid, note)| (*tid, note.base))
    }

    /// Drops what was noted of threads that are no more or are others under an old id. A base of
    /// a thread that this look does not have is noted again at its next tick.
    pub(super) fn meet(&mut self, now: &BTreeMap<Tid, &ThreadFacts>) {
        self.by_tid.retain(|tid, note| {
            let Some(now) = now.get(tid) else {
                return false;
            };
            *note.started.get_or_insert(now.started) == now.started
        });
    }

    /// What the notes say. Of threads with the same base all but one have ended: the one that
    /// started last lives, and of those that started in the same moment the one noted last.
    pub(super) fn evidence(&self) -> Vec<Evidence> {
        let mut holders: BTreeMap<PthreadId, (Option<StartTime>, u64, Tid)> = BTreeMap::new();
        for (tid, note) in &self.by_tid {
            let claim = (note.started, note.number, *tid);
            let holder = holders.entry(note.base).or_insert(claim);
            *holder = claim.max(*holder);
        }
        let says = |(pthread_id, (_, _, tid))| Evidence {
            rung: Rung::TlsBase,
            tid,
            pthread_id,
        };
        holders.into_iter().map(says).collect()
    }
}
