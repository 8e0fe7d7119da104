//! The decision: evidence of every rung in, who is who out.
//!
//! A pthread id belongs to one thread and a thread has one; the strongest evidence is believed,
//! and whatever does not fit with what is believed already is a contradiction.

use std::collections::BTreeMap;

use crate::threads::rung::{Contradiction, Evidence, Rung};
use crate::words::{PthreadId, Tid};

/// A thread's id, and every rung that says so, strongest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) pthread_id: PthreadId,
    pub(super) rungs: Vec<Rung>,
}

/// What the evidence comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    bound: BTreeMap<Tid, Bound>,
    holders: BTreeMap<PthreadId, Tid>,
    pub(super) contradictions: Vec<Contradiction>,
}

impl Verdict {
    /// Weigh evidence; call it rung by rung, the strongest first.
    pub(super) fn weigh(&mut self, mut evidence: Vec<Evidence>) {
        evidence.sort_unstable();
        evidence.dedup();
        for item in evidence {
            self.weigh_one(item);
        }
    }

    fn weigh_one(&mut self, item: Evidence) {
        let Evidence {
            rung,
            tid,
            pthread_id,
        } = item;
        let holder = self.holders.get(&pthread_id).copied();
        match (self.bound.get_mut(&tid), holder) {
            (None, None) => {
                let rungs = vec![rung];
                self.bound.insert(tid, Bound { pthread_id, rungs });
                self.holders.insert(pthread_id, tid);
            }
            (Some(bound), Some(holder)) if holder == tid && bound.pthread_id == pthread_id => {
                bound.rungs.push(rung);
            }
            (Some(bound), _) => {
                let (against, held) = (bound.rungs.first().copied(), bound.pthread_id);
                self.contradict(item, against, tid, held);
            }
            (None, Some(holder)) => {
                let against = self
                    .bound
                    .get(&holder)
                    .and_then(|b| b.rungs.first().copied());
                self.contradict(item, against, holder, pthread_id);
            }
        }
    }

    fn contradict(&mut self, item: Evidence, against: Option<Rung>, holder: Tid, held: PthreadId) {
        self.contradictions.push(Contradiction {
            rung: item.rung,
            tid: item.tid,
            pthread_id: item.pthread_id,
            against: against.unwrap_or(item.rung),
            holder,
            held,
        });
    }

    /// Whether some thread has this id.
    pub(super) fn holds(&self, id: PthreadId) -> bool {
        self.holders.contains_key(&id)
    }

    /// The id of a thread.
    pub(super) fn of(&self, tid: Tid) -> Option<&Bound> {
        self.bound.get(&tid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(rung: Rung, tid: u32, id: u64) -> Evidence {
        Evidence {
            rung,
            tid: Tid(tid),
            pthread_id: PthreadId(id),
        }
    }

    #[test]
    fn rungs_that_agree_are_all_kept_and_none_contradicts() {
        let mut verdict = Verdict::default();
        verdict.weigh(vec![
            says(Rung::StackScan, 1, 100),
            says(Rung::TlsBase, 1, 100),
            says(Rung::ControlBlock, 2, 200),
            says(Rung::TlsBase, 1, 100),
        ]);
        let first = verdict.of(Tid(1)).expect("bound");
        assert_eq!(first.rungs, [Rung::TlsBase, Rung::StackScan]);
        assert_eq!(
            verdict.of(Tid(2)).expect("bound").pthread_id,
            PthreadId(200)
        );
        assert_eq!(verdict.contradictions, []);
    }

    #[test]
    fn the_strongest_rung_wins_and_the_others_contradict() {
        let mut verdict = Verdict::default();
        verdict.weigh(vec![
            says(Rung::NativeThreadId, 1, 200),
            says(Rung::TlsBase, 1, 100),
            says(Rung::ControlBlock, 2, 100),
        ]);
        assert_eq!(
            verdict.of(Tid(1)).expect("bound").pthread_id,
            PthreadId(100)
        );
        assert_eq!(verdict.of(Tid(2)), None);
        let told: Vec<String> = verdict
            .contradictions
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            told,
            [
                "native_thread_id says that thread `1` is 0xc8, \
                 but by tls_base thread `1` is 0x64",
                "control_block says that thread `2` is 0x64, \
                 but by tls_base thread `1` is 0x64",
            ]
        );
    }
}
