//! One thread of the profile, seen from outside.

use super::shares::{Found, Handed, Reading, Shares, Weights};
use crate::{
    aggregate::ThreadIndex,
    pipeline::absence::Debts,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

impl Met {
    /// What it has in common with other looks that found the same.
    pub(super) const fn kind(&self) -> Self {
        Self {
            found: Found::Blocked,
            generation: Generation(0),
            again: 0,
            again_ns: 0,
            ..*self
        }
    }
}

/// What looks are owed, on a CPU, waiting for one, blocked.
pub(super) type Owed = [Debts<Met>; 3];

/// A living thread.
#[derive(Debug)]
pub(super) struct Person {
    pub(super) watched: Watched,
    pub(super) index: ThreadIndex,
    pub(super) shares: Shares,
    pub(super) owed: Owed,
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
        self.note_debt(&handed);
        handed
    }

    /// What the look before did not get of what it stands for is owed to it.
    pub(super) fn note_debt(&mut self, handed: &Handed) {
        let Some(met) = self.met else { return };
        let (due, got) = (&handed.stood_for, &handed.got);
        let kinds = [
            (due.on_cpu, got.on_cpu),
            (due.runnable, got.runnable),
            (due.blocked, got.blocked),
        ];
        for (debts, (due, got)) in self.owed.iter_mut().zip(kinds) {
            debts.note(met.kind(), due, got);
        }
    }

    /// What no look got, handed out to those that it is owed to; what nobody is owed is left.
    pub(super) fn pay(&self, left: Weights) -> (Vec<(Met, Weights)>, Weights) {
        let Weights {
            on_cpu,
            runnable,
            blocked,
        } = left;
        type Part = fn(u64) -> Weights;
        let kinds: [Part; 3] = [Weights::on_cpu, Weights::runnable, Weights::blocked];
        let (mut paid, mut rest) = (Vec::new(), Weights::default());
        for ((debts, part), left) in self.owed.iter().zip(kinds).zip([on_cpu, runnable, blocked]) {
            debts.pay(left, |met, weight| paid.push((met, part(weight))));
            if debts.is_empty() {
                rest = rest.plus(part(left));
            }
        }
        (paid, rest)
    }

    pub(super) fn tid(&self) -> Tid {
        self.watched.tid()
    }
}
