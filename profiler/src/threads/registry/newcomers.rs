//! Newcomers whom nothing ties to anyone else: their evidence alone is read, and what was found of
//! the others stands.
//!
//! A look at all reads of each thread its control block and its stack, so newcomers that come one
//! by one would cost the square of their number. Whether one can be looked at alone is told by
//! values that are there already, and by its own memory. Where anything ties it to another thread
//! (a base, an id or a native id that two have, a block or a stack that is not its own) nothing is
//! decided here, and the whole ladder is climbed. So no contradiction is ever settled here.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Match, Registry};
use crate::target::Memory;
use crate::threads::control_block;
use crate::threads::facts::{Look, ScanWhom, StateFacts, ThreadFacts};
use crate::threads::rung::Rung;
use crate::threads::stack_scan::{Scan, Stacks};
use crate::words::{InnerTid, PthreadId, Tid};

/// Of so many threads of a look one may be new; with more, a look at all costs no more.
const PARTS: usize = 4;

/// One newcomer, and what speaks for it.
struct Newcomer<'a> {
    facts: &'a ThreadFacts,
    /// Its TLS base.
    pthread_id: PthreadId,
    inner: InnerTid,
    states: Vec<&'a StateFacts>,
    /// Strongest first.
    rungs: Vec<Rung>,
}

impl Registry {
    /// Take a look when, of its threads, these have come since the last one. It comes to the same as
    /// [`Registry::look`], but for what would be found anew of the others: that is found when one
    /// of them is a newcomer again, or when a newcomer has to do with them.
    pub fn look_for(&mut self, newcomers: &FxHashSet<Tid>, look: &Look<'_>, memory: &impl Memory) {
        match self.on_their_own(newcomers, look, memory) {
            Some(found) => found.into_iter().for_each(|it| self.take_in(it)),
            None => self.look(look, memory),
        }
    }

    /// The newcomers, if each of them can be told without a word about another thread.
    fn on_their_own<'a>(
        &self,
        newcomers: &FxHashSet<Tid>,
        look: &Look<'a>,
        memory: &impl Memory,
    ) -> Option<Vec<Newcomer<'a>>> {
        let offset = self.tid_offset?;
        if newcomers.len() * PARTS > look.threads.len() || look.scan != ScanWhom::Everyone {
            return None;
        }
        let mut found = Vec::with_capacity(newcomers.len());
        let mut by_base = FxHashMap::default();
        let mut by_inner = FxHashMap::default();
        let new = look.threads.iter();
        for (place, facts) in new.filter(|it| newcomers.contains(&it.tid)).enumerate() {
            // The first thread's rung asks for everyone.
            if facts.tid.0 == look.pid.0 {
                return None;
            }
            let pthread_id = self.tls_bases.base_of(facts)?;
            let inner = facts.inner?;
            if by_base.insert(pthread_id, place).is_some()
                || by_inner.insert(inner, place).is_some()
            {
                return None;
            }
            found.push(Newcomer {
                facts,
                pthread_id,
                inner,
                states: Vec::new(),
                rungs: vec![Rung::TlsBase],
            });
        }
        let is_new = |tid: Tid, place: &usize| found[*place].facts.tid == tid;
        let has_anothers = |thread: &ThreadFacts| {
            let place = thread.inner.and_then(|inner| by_inner.get(&inner));
            place.is_some_and(|place| !is_new(thread.tid, place))
        };
        let notes = self.tls_bases.iter();
        let mut notes = notes.filter_map(|(tid, base)| Some((tid, by_base.get(&base)?)));
        if look.threads.iter().any(has_anothers) || notes.any(|(tid, place)| !is_new(tid, place)) {
            return None;
        }
        for state in look.states {
            let named = state.native_id.filter(|native| native.0 != 0);
            let own = by_base.get(&state.pthread_id);
            match (own, named) {
                (Some(place), None) => found[*place].states.push(state),
                (Some(place), Some(named)) if found[*place].inner == named => {
                    found[*place].states.push(state);
                    if !found[*place].rungs.contains(&Rung::NativeThreadId) {
                        found[*place].rungs.push(Rung::NativeThreadId);
                    }
                }
                (Some(_), Some(_)) => return None,
                (None, Some(named)) if by_inner.contains_key(&named) => return None,
                (None, _) => {}
            }
        }
        let mut pythons: Vec<_> = found
            .iter_mut()
            .filter(|it| !it.states.is_empty())
            .collect();
        let ids: Vec<PthreadId> = pythons.iter().map(|it| it.pthread_id).collect();
        let blocks = control_block::read(memory, offset, &ids);
        for (newcomer, named) in pythons.iter_mut().zip(blocks) {
            match named {
                Some(named) if named != newcomer.inner => return None,
                Some(_) => newcomer.rungs.push(Rung::ControlBlock),
                None => {}
            }
        }
        let above = |sp| {
            let others = look.threads.iter().filter_map(|it| it.stack_pointer);
            others.filter(|other| *other > sp).min()
        };
        let is_known = |id| look.states.iter().any(|state| state.pthread_id == id);
        let mut stacks = Stacks::of(look, memory, &above, &is_known);
        for newcomer in &mut found {
            let scan = newcomer.facts.stack_pointer.map(|sp| stacks.scan(sp));
            match scan {
                Some(Scan::Of(id)) if id != newcomer.pthread_id => return None,
                Some(Scan::Of(_)) => newcomer.rungs.push(Rung::StackScan),
                Some(Scan::First | Scan::Nobodys | Scan::Unknown) | None => {}
            }
        }
        Some(found)
    }

    fn take_in(&mut self, newcomer: Newcomer<'_>) {
        let Newcomer {
            facts,
            pthread_id,
            states,
            rungs,
            ..
        } = newcomer;
        self.drop_match(facts.tid);
        self.tls_bases.believe(facts);
        self.threads.insert(facts.tid, facts.clone());
        self.unplaced.retain(|state| state.pthread_id != pthread_id);
        let mut states: Vec<_> = states.into_iter().map(|state| state.state).collect();
        let Some(state) = states.pop() else { return };
        self.holders.insert(pthread_id, facts.tid);
        self.matches.insert(
            facts.tid,
            Match {
                tid: facts.tid,
                started: facts.started,
                pthread_id,
                state,
                other_states: states,
                matched_by: rungs,
                contradictions: Vec::new(),
            },
        );
    }
}
