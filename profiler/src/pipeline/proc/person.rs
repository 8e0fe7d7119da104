//! One thread of the profile, seen from outside.

use super::shares::{Found, Handed, Reading, Shares};
use crate::{
    aggregate::ThreadIndex,
    sample::{Activity, FramesFrom, Gc, Gil, Handling},
    stack::StackId,
    target::{Counts, Watched},
    threads::Rung,
    words::{Generation, PthreadId, RemoteAddr, ThreadStateAddr, Tid},
};

/// The Python side of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) state: ThreadStateAddr,
    pub(super) pthread_id: PthreadId,
}

/// What the last look at a thread found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Met {
    pub(super) found: Found,
    pub(super) stack: StackId,
    pub(super) frames_from: FramesFrom,
    pub(super) activity: Activity,
    pub(super) gil: Gil,
    pub(super) gc: Gc,
    pub(super) handling: Handling,
    pub(super) behind: Option<ThreadIndex>,
    pub(super) generation: Generation,
    /// Looks since at which it had not run, and the time they stand for; not counted yet.
    pub(super) again: u32,
    pub(super) again_ns: u64,
}

/// A living thread.
#[derive(Debug)]
pub(super) struct Person {
    pub(super) watched: Watched,
    pub(super) index: ThreadIndex,
    pub(super) shares: Shares,
    /// As of the last look.
    pub(super) counts: Counts,
    pub(super) met: Option<Met>,
    /// Whether what was met is to be read anew although the thread slept on: it is known by now
    /// who it is, or not any more.
    pub(super) stale: bool,
    pub(super) known: Option<Known>,
    /// Whether it has states of other interpreters too.
    pub(super) several: bool,
    /// As long as it lives, even if it runs no Python any more.
    pub(super) pthread_id: Option<PthreadId>,
    pub(super) matched_by: Vec<Rung>,
    /// The last one that was seen; it lies in the thread's stack whatever it does.
    pub(super) stack_pointer: Option<RemoteAddr>,
    /// Climbs of the ladder that found no place for it.
    pub(super) attempts: u32,
    /// Its counts at the last of them.
    pub(super) climbed: Option<Counts>,
    /// How often its name may still be asked for.
    pub(super) name_attempts: u32,
}

impl Person {
    /// A look that is not like the one before, or the end of all looks.
    pub(super) fn hand_out(&mut self, now: Reading, found: Option<Found>) -> Handed {
        let handed = self.shares.hand_out(now, found);
        if let Some(met) = &mut self.met {
            met.again_ns -= self.shares.take_back(met.again_ns);
        }
        handed
    }

    pub(super) fn tid(&self) -> Tid {
        self.watched.tid()
    }
}
