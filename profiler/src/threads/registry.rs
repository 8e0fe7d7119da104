//! The threads of one process and what is known of each, from look to look.

mod newcomers;

use std::collections::{BTreeMap, BTreeSet};

use crate::target::Memory;
use crate::threads::control_block::{self, TidOffset};
use crate::threads::facts::{Look, ScanWhom, StateFacts, ThreadFacts};
use crate::threads::ladder::Verdict;
use crate::threads::last_standing::LastStanding;
use crate::threads::notes::Notes;
use crate::threads::rung::{Contradiction, Evidence, Rung};
use crate::threads::stack_scan::{Scan, Stacks};
use crate::words::{InnerTid, PthreadId, RemoteAddr, StartTime, ThreadStateAddr, Tid};

/// A thread that runs Python, and why that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The thread.
    pub tid: Tid,
    /// When it started.
    pub started: StartTime,
    /// Its pthread id.
    pub pthread_id: PthreadId,
    /// Its thread state. Of several (one for each interpreter it entered) it is the last of the
    /// look's, which is the one that it runs now, where that is known.
    pub state: ThreadStateAddr,
    /// Its other thread states, in the look's order.
    pub other_states: Vec<ThreadStateAddr>,
    /// The rungs that say so, strongest first; never empty.
    pub matched_by: Vec<Rung>,
    /// The rungs that said otherwise at the last look.
    pub contradictions: Vec<Contradiction>,
}

/// What is known of one process.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    threads: BTreeMap<Tid, ThreadFacts>,
    matches: BTreeMap<Tid, Match>,
    holders: BTreeMap<PthreadId, Tid>,
    unplaced: Vec<StateFacts>,
    tls_bases: Notes,
    last_standing: LastStanding,
    tid_offset: Option<TidOffset>,
    disputed: BTreeSet<(StartTime, Contradiction)>,
    contradictions: u64,
}

impl Registry {
    /// Nothing known yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Note a TLS base that the kernel saw (at a tick, or at a switch): rung 1, from the next look
    /// on. A thread keeps its TLS base as long as it lives: another one means that the id is
    /// another thread's by now, and all that was known of it is forgotten.
    ///
    /// Call it only for a thread of the last look or a newer one, since the id alone is given.
    pub fn note_tls_base(&mut self, tid: Tid, base: PthreadId) {
        if base.0 != 0 && self.tls_bases.note(tid, base) {
            self.drop_match(tid);
        }
    }

    /// A thread has ended: forget it, so that its id means whoever gets it next.
    pub fn forget(&mut self, tid: Tid) {
        self.tls_bases.forget(tid);
        self.drop_match(tid);
    }

    fn drop_match(&mut self, tid: Tid) {
        self.threads.remove(&tid);
        if let Some(gone) = self.matches.remove(&tid) {
            self.holders.remove(&gone.pthread_id);
        }
    }

    /// Take a look at some of the threads and states: find out anew which thread is which.
    pub fn look(&mut self, look: &Look<'_>, memory: &impl Memory) {
        self.look_at(look, false, memory);
    }

    /// The same when the look has *all* threads and states of the process: then one of each that
    /// is left over, look after look, is known by that (rung 6).
    pub fn look_at_all(&mut self, look: &Look<'_>, memory: &impl Memory) {
        self.look_at(look, true, memory);
    }

    fn look_at(&mut self, look: &Look<'_>, all: bool, memory: &impl Memory) {
        self.meet(look.threads);
        let by_inner: BTreeMap<InnerTid, Tid> = look
            .threads
            .iter()
            .filter_map(|thread| Some((thread.inner?, thread.tid)))
            .collect();
        let bound: Vec<StateFacts> = look
            .states
            .iter()
            .copied()
            .filter(|state| state.pthread_id.0 != 0)
            .collect();
        let ids = live_ids(&bound, &by_inner);
        let by_block = self.by_control_block(&ids, &by_inner, memory);
        let mut verdict = Verdict::default();
        verdict.weigh(self.tls_bases.evidence());
        verdict.weigh(by_native_id(&bound, &by_inner, &by_block));
        verdict.weigh(by_block);
        let native = by_stacks(look, &ids, &mut verdict, memory);
        if all {
            let left = self
                .last_standing
                .evidence(look, &ids, &native, &verdict, memory);
            verdict.weigh(left.into_iter().collect());
        }
        self.settle(look, &bound, verdict);
    }

    /// Drop what was known of threads that are no more, or are others under an old id.
    fn meet(&mut self, threads: &[ThreadFacts]) {
        let now: BTreeMap<Tid, &ThreadFacts> =
            threads.iter().map(|thread| (thread.tid, thread)).collect();
        self.tls_bases.meet(&now);
        self.disputed
            .retain(|(started, said)| now.get(&said.tid).is_some_and(|t| t.started == *started));
        self.threads = now.into_iter().map(|(tid, t)| (tid, t.clone())).collect();
    }

    fn by_control_block(
        &mut self,
        ids: &BTreeSet<PthreadId>,
        by_inner: &BTreeMap<InnerTid, Tid>,
        memory: &impl Memory,
    ) -> Vec<Evidence> {
        let ids: Vec<PthreadId> = ids.iter().copied().collect();
        if self.tid_offset.is_none() {
            let live = by_inner.keys().copied().collect();
            self.tid_offset = control_block::calibrate(memory, &ids, &live);
        }
        let Some(offset) = self.tid_offset else {
            return Vec::new();
        };
        let tids = control_block::read(memory, offset, &ids);
        let named = ids.iter().zip(tids).filter_map(|(&pthread_id, inner)| {
            Some(Evidence {
                rung: Rung::ControlBlock,
                tid: *by_inner.get(&inner?)?,
                pthread_id,
            })
        });
        named.collect()
    }

    /// Keep the verdict: a thread with states is Python's, the others are native.
    fn settle(&mut self, look: &Look<'_>, bound: &[StateFacts], verdict: Verdict) {
        let mut states: BTreeMap<PthreadId, Vec<ThreadStateAddr>> = BTreeMap::new();
        for state in bound {
            states
                .entry(state.pthread_id)
                .or_default()
                .push(state.state);
        }
        self.matches.clear();
        self.holders.clear();
        for thread in look.threads {
            let Some(held) = verdict.of(thread.tid) else {
                continue;
            };
            let Some(mut own) = states.get(&held.pthread_id).cloned() else {
                continue;
            };
            let Some(state) = own.pop() else { continue };
            self.holders.insert(held.pthread_id, thread.tid);
            let disputes = |said: &&Contradiction| {
                said.tid == thread.tid || said.pthread_id == held.pthread_id
            };
            self.matches.insert(
                thread.tid,
                Match {
                    tid: thread.tid,
                    started: thread.started,
                    pthread_id: held.pthread_id,
                    state,
                    other_states: own,
                    matched_by: held.rungs.clone(),
                    contradictions: verdict
                        .contradictions
                        .iter()
                        .filter(disputes)
                        .copied()
                        .collect(),
                },
            );
        }
        self.unplaced = bound
            .iter()
            .copied()
            .filter(|state| !self.holders.contains_key(&state.pthread_id))
            .collect();
        for said in verdict.contradictions {
            if let Some(thread) = self.threads.get(&said.tid)
                && self.disputed.insert((thread.started, said))
            {
                self.contradictions += 1;
            }
        }
    }

    /// Every thread of the last look.
    pub fn threads(&self) -> impl Iterator<Item = &ThreadFacts> {
        self.threads.values()
    }

    /// Every thread that runs Python.
    pub fn matches(&self) -> impl Iterator<Item = &Match> {
        self.matches.values()
    }

    /// Every thread without a Python thread state.
    pub fn native_threads(&self) -> impl Iterator<Item = &ThreadFacts> {
        self.threads
            .values()
            .filter(|thread| !self.matches.contains_key(&thread.tid))
    }

    /// The Python thread states that no thread was found for.
    #[must_use]
    pub fn unplaced_states(&self) -> &[StateFacts] {
        &self.unplaced
    }

    /// A thread's Python side.
    #[must_use]
    pub fn by_tid(&self, tid: Tid) -> Option<&Match> {
        self.matches.get(&tid)
    }

    /// The same by its pthread id, which is its TLS base.
    #[must_use]
    pub fn by_pthread_id(&self, id: PthreadId) -> Option<&Match> {
        self.matches.get(self.holders.get(&id)?)
    }

    /// Where this process's C library keeps the thread id; none while it was not found.
    #[must_use]
    pub fn tid_offset(&self) -> Option<TidOffset> {
        self.tid_offset
    }

    /// How often rungs disagreed, each disagreement counted once however long it lasts.
    #[must_use]
    pub fn contradictions(&self) -> u64 {
        self.contradictions
    }
}

/// Rung 2. A state outlives a thread that was ended without Python's knowledge, and once its id
/// is given away it names the wrong one: of several ids for one thread the one counts that stands
/// in a control block with it, and without such a one none does.
fn by_native_id(
    states: &[StateFacts],
    by_inner: &BTreeMap<InnerTid, Tid>,
    by_block: &[Evidence],
) -> Vec<Evidence> {
    let named = states.iter().filter_map(|state| {
        Some(Evidence {
            rung: Rung::NativeThreadId,
            tid: *by_inner.get(&state.native_id?)?,
            pthread_id: state.pthread_id,
        })
    });
    let named: BTreeSet<Evidence> = named.collect();
    let mut counts: BTreeMap<Tid, usize> = BTreeMap::new();
    for said in &named {
        *counts.entry(said.tid).or_default() += 1;
    }
    let in_blocks: BTreeSet<(Tid, PthreadId)> = by_block
        .iter()
        .map(|said| (said.tid, said.pthread_id))
        .collect();
    named
        .into_iter()
        .filter(|said| {
            counts.get(&said.tid) == Some(&1) || in_blocks.contains(&(said.tid, said.pthread_id))
        })
        .collect()
}

/// The ids whose thread may be alive. A state that names a thread which is no more was read
/// before its end; its pthread id may already be the next thread's, and says nothing now.
fn live_ids(states: &[StateFacts], by_inner: &BTreeMap<InnerTid, Tid>) -> BTreeSet<PthreadId> {
    let is_stale = |state: &StateFacts| {
        !by_inner.is_empty()
            && state
                .native_id
                .is_some_and(|native| native.0 != 0 && !by_inner.contains_key(&native))
    };
    states
        .iter()
        .filter(|state| !is_stale(state))
        .map(|state| state.pthread_id)
        .collect()
}

/// Rungs 4 and 5, which go together: what is on no other stack may be the first thread's. Gives the
/// threads whose stacks hold none of the ids.
fn by_stacks(
    look: &Look<'_>,
    ids: &BTreeSet<PthreadId>,
    verdict: &mut Verdict,
    memory: &impl Memory,
) -> BTreeSet<Tid> {
    let stack_pointers: BTreeSet<RemoteAddr> = look
        .threads
        .iter()
        .filter_map(|t| t.stack_pointer)
        .collect();
    let above = |sp: RemoteAddr| stack_pointers.range(sp.plus(1)..).next().copied();
    let is_known = |id| ids.contains(&id);
    let mut stacks = Stacks::of(look, memory, &above, &is_known);
    let mut found = Vec::new();
    let mut taken = BTreeSet::new();
    let mut native = BTreeSet::new();
    let mut all_others_known = true;
    let mut first = None;
    for thread in look.threads {
        let known = verdict.of(thread.tid).map(|bound| bound.pthread_id);
        let is_first = thread.tid.0 == look.pid.0;
        if known.is_some() && look.scan == ScanWhom::Unmatched {
            taken.extend(known);
            continue;
        }
        match thread.stack_pointer.map(|sp| stacks.scan(sp)) {
            Some(Scan::Of(pthread_id)) => {
                taken.insert(pthread_id);
                found.push(Evidence {
                    rung: Rung::StackScan,
                    tid: thread.tid,
                    pthread_id,
                });
            }
            Some(Scan::First) if is_first => first = Some(thread.tid),
            Some(Scan::Nobodys) => {
                native.insert(thread.tid);
            }
            Some(Scan::First | Scan::Unknown) | None => {
                // A stronger rung's word does as well for what is not this thread's.
                taken.extend(known);
                all_others_known &= is_first || known.is_some();
            }
        }
    }
    verdict.weigh(found);
    let mut left = ids.difference(&taken);
    if let (Some(tid), true, Some(&pthread_id), None) =
        (first, all_others_known, left.next(), left.next())
    {
        verdict.weigh(vec![Evidence {
            rung: Rung::MainThread,
            tid,
            pthread_id,
        }]);
    }
    native
}
