//! Rung 6: one thread and one id are left over.
//!
//! That alone proves little: a thread that has just begun has no state yet, and one that has just
//! ended leaves its state behind. So both must stay left over, and everyone else stay the same,
//! for several looks; then they belong together until one of them becomes another.

use std::collections::BTreeSet;

use crate::target::Memory;
use crate::threads::facts::{Look, StateFacts};
use crate::threads::ladder::Verdict;
use crate::threads::rung::{Evidence, Rung};
use crate::words::{PthreadId, RemoteAddr, StartTime, ThreadStateAddr, Tid};

/// How many looks in a row must show the same.
pub(super) const LOOKS: u32 = 4;

/// The thread and the state that are left over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    tid: Tid,
    started: StartTime,
    pthread_id: PthreadId,
    state: ThreadStateAddr,
}

/// Everybody, to see that nobody came or went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Everybody {
    threads: BTreeSet<(Tid, StartTime)>,
    states: BTreeSet<(ThreadStateAddr, PthreadId)>,
}

/// What was left over at the last looks.
#[derive(Clone, Debug, Default)]
pub(super) struct LastStanding {
    pair: Option<Pair>,
    everybody: Everybody,
    looks: u32,
}

impl LastStanding {
    /// What is left over after a look at all threads and all states, once it is to be believed.
    ///
    /// `ids` are those whose thread may be alive, `native` the threads that are known to have
    /// none of them.
    pub(super) fn evidence(
        &mut self,
        look: &Look<'_>,
        ids: &BTreeSet<PthreadId>,
        native: &BTreeSet<Tid>,
        verdict: &Verdict,
        memory: &impl Memory,
    ) -> Option<Evidence> {
        let pair = left_over(look, ids, native, verdict)
            // The state of a thread that has ended points to no control block, or to one that
            // the stronger rungs have given to its successor.
            .filter(|pair| memory.u64(RemoteAddr::from(pair.pthread_id)) == Ok(pair.pthread_id.0));
        // What was believed stays so while both are who they were, whoever else comes and goes.
        if self.looks >= LOOKS
            && let Some(known) = self.pair
            && is_still_there(known, look)
            && verdict.of(known.tid).is_none()
            && !verdict.holds(known.pthread_id)
        {
            return Some(known.evidence());
        }
        let everybody = Everybody {
            threads: look.threads.iter().map(|it| (it.tid, it.started)).collect(),
            states: look
                .states
                .iter()
                .map(|it| (it.state, it.pthread_id))
                .collect(),
        };
        let same = pair.is_some() && self.pair == pair && self.everybody == everybody;
        self.looks = if same { self.looks + 1 } else { 1 };
        self.pair = pair;
        self.everybody = everybody;
        pair.filter(|_| self.looks >= LOOKS).map(Pair::evidence)
    }
}

impl Pair {
    const fn evidence(self) -> Evidence {
        Evidence {
            rung: Rung::LastStanding,
            tid: self.tid,
            pthread_id: self.pthread_id,
        }
    }
}

fn is_still_there(pair: Pair, look: &Look<'_>) -> bool {
    let mut threads = look.threads.iter();
    let mut states = look.states.iter();
    threads.any(|it| it.tid == pair.tid && it.started == pair.started)
        && states.any(|it| it.state == pair.state && it.pthread_id == pair.pthread_id)
}

/// The one thread and the one id that no rung has named, if there is one of each.
fn left_over(
    look: &Look<'_>,
    ids: &BTreeSet<PthreadId>,
    native: &BTreeSet<Tid>,
    verdict: &Verdict,
) -> Option<Pair> {
    let mut threads = look
        .threads
        .iter()
        .filter(|it| verdict.of(it.tid).is_none() && !native.contains(&it.tid));
    let mut left = ids.iter().filter(|id| !verdict.holds(**id));
    let (Some(thread), None, Some(&pthread_id), None) =
        (threads.next(), threads.next(), left.next(), left.next())
    else {
        return None;
    };
    let of_it = |it: &&StateFacts| it.pthread_id == pthread_id;
    Some(Pair {
        tid: thread.tid,
        started: thread.started,
        pthread_id,
        state: look.states.iter().rfind(of_it)?.state,
    })
}
