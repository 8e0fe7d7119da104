//! Who is who, seen from outside: the ladder without its first rung, climbed again as long as
//! somebody has no place on it.
//!
//! It is dear, a look at every thread state, so it is climbed only for threads that are new or
//! have run without a place, and takes a small part of the time at most.

use std::collections::BTreeMap;

use super::person::{Known, Person};
use crate::{
    aggregate::ProfileBuilder,
    cpython::{KnownKeys, Runtime, ThreadState, thread_names_of},
    pipeline::attach::Attached,
    sys,
    target::Memory as _,
    threads::{Look, Registry, ScanWhom, StateFacts, ThreadFacts, TidOffset},
    words::{DurationNs, InnerTid, MonotonicNs, PthreadId, RemoteAddr, Tid},
};

/// A thread that has no place is asked for again so often even if it sleeps on: others may have
/// theirs by then.
const ATTEMPTS: u32 = 8;
/// Of so many parts of the time the ladder takes one.
const PARTS: u64 = 10;
/// How often a name is asked for again; a program without `threading` never has one.
const NAME_ATTEMPTS: u32 = 10;
/// And how soon.
const NAME_PAUSE: DurationNs = DurationNs(500_000_000);

/// What is known of the threads' identities, from climb to climb.
#[derive(Debug, Default)]
pub(super) struct Identity {
    registry: Registry,
    /// Contradictions of interpreters that are gone.
    earlier: u64,
    climbs: u64,
    not_before: MonotonicNs,
    names_not_before: MonotonicNs,
    somebody_new: bool,
    keys: KnownKeys,
}

impl Identity {
    /// Whether the ladder is to be climbed now.
    pub(super) fn is_wanted(&self, people: &BTreeMap<Tid, Person>, now: MonotonicNs) -> bool {
        now >= self.not_before && people.values().any(is_seeker)
    }

    /// Climb, given the interpreter's states, which were read before the threads were listed; it
    /// began at `began`.
    pub(super) fn climb(
        &mut self,
        attached: &Attached,
        states: &[ThreadState],
        builder: &mut ProfileBuilder,
        people: &mut BTreeMap<Tid, Person>,
        began: MonotonicNs,
    ) {
        let states: Vec<StateFacts> = states
            .iter()
            .map(|state| StateFacts {
                state: state.addr,
                pthread_id: state.pthread_id,
                native_id: state.native_thread_id,
            })
            .collect();
        // Without them the process is gone, and so will be its threads.
        let Ok(maps) = attached.process.maps() else {
            return;
        };
        for person in people.values_mut().filter(|person| is_seeker(person)) {
            let place = attached.process.in_kernel(person.tid());
            let sp = place.ok().and_then(|place| place.stack_pointer());
            person.stack_pointer = sp.or(person.stack_pointer);
        }
        let facts: Vec<ThreadFacts> = people
            .values()
            .map(|person| ThreadFacts::new(person.watched.facts(), person.stack_pointer))
            .collect();
        let start_stack = people
            .values()
            .find_map(|person| person.watched.facts().start_stack);
        let look = Look {
            pid: attached.process.pid(),
            start_stack,
            maps: &maps,
            threads: &facts,
            states: &states,
            // Once all rungs are held against each other.
            scan: if self.climbs == 0 {
                ScanWhom::Everyone
            } else {
                ScanWhom::Unmatched
            },
        };
        self.registry.look_at_all(&look, &attached.memory);
        self.climbs += 1;
        for (tid, person) in people.iter_mut() {
            person.climbed = Some(person.counts);
            let Some(found) = self.registry.by_tid(*tid) else {
                person.stale |= person.known.take().is_some();
                person.attempts += 1;
                continue;
            };
            let known = Known {
                state: found.state,
                pthread_id: found.pthread_id,
            };
            if person
                .known
                .is_none_or(|before| before.pthread_id != known.pthread_id)
            {
                person.name_attempts = NAME_ATTEMPTS;
                self.somebody_new = true;
                // The kernel's own name may be another one since the program was replaced.
                let now = attached.process.task(*tid);
                let name = now.map_or_else(|_| person.watched.facts().name.clone(), |it| it.name);
                builder.rename(person.index, &name, true);
            }
            person.stale |= person.known != Some(known);
            person.known = Some(known);
            person.pthread_id = Some(known.pthread_id);
            person.several = !found.other_states.is_empty();
            person.attempts = 0;
            for rung in &found.matched_by {
                if !person.matched_by.contains(rung) {
                    person.matched_by.push(*rung);
                }
            }
            person.matched_by.sort_unstable();
        }
        let now = sys::monotonic();
        let took = now.0.saturating_sub(began.0);
        self.not_before = MonotonicNs(now.0.saturating_add(took.saturating_mul(PARTS - 1)));
    }

    /// Whether names are to be asked for: of somebody new, or again after a while.
    pub(super) fn are_names_due(&self, now: MonotonicNs) -> bool {
        self.somebody_new || now >= self.names_not_before
    }

    /// Ask for the names of threads that have none; `threading` is imported late, and a thread
    /// runs before it is entered there.
    pub(super) fn ask_names(
        &mut self,
        attached: &Attached,
        runtime: &Runtime,
        builder: &mut ProfileBuilder,
        people: &mut BTreeMap<Tid, Person>,
        now: MonotonicNs,
    ) {
        self.somebody_new = false;
        let again = now >= self.names_not_before;
        if again {
            self.names_not_before = MonotonicNs(now.0.saturating_add(NAME_PAUSE.0));
        }
        let nameless = |person: &&mut Person| person.known.is_some() && person.name_attempts > 0;
        let wanted: Vec<PthreadId> = people
            .values_mut()
            .filter(nameless)
            .filter_map(|person| person.known.map(|known| known.pthread_id))
            .collect();
        if wanted.is_empty() {
            return;
        }
        let names = thread_names_of(runtime, &attached.memory, &mut self.keys, &|id| {
            wanted.contains(&id)
        });
        for person in people.values_mut().filter(nameless) {
            person.name_attempts -= u32::from(again);
            let name = person.known.and_then(|known| names.get(&known.pthread_id));
            let is_first = person.tid().0 == attached.process.pid().0;
            let name = name.and_then(|name| name.of(person.watched.inner(), is_first));
            // Of a thread that has ended meanwhile another may have the pthread id.
            if let Some(name) = name
                && self.is_still(attached, person)
            {
                builder.rename(person.index, name, true);
                person.name_attempts = 0;
            }
        }
    }

    /// Whether the control block at a thread's pthread id still bears its number; true where
    /// that cannot be told.
    pub(super) fn is_still(&self, attached: &Attached, person: &Person) -> bool {
        let (Some(known), Some(TidOffset(offset)), Some(inner)) = (
            person.known,
            self.registry.tid_offset(),
            person.watched.inner(),
        ) else {
            return true;
        };
        let place = RemoteAddr::from(known.pthread_id).plus(offset.into());
        attached.memory.u32(place).map(InnerTid) == Ok(inner)
    }

    /// Whether there are thread states that no thread was found for.
    pub(super) fn has_unplaced(&self) -> bool {
        !self.registry.unplaced_states().is_empty()
    }

    /// How often two rungs named different threads.
    pub(super) fn contradictions(&self) -> u64 {
        self.earlier + self.registry.contradictions()
    }

    /// The interpreter is another one: nobody is who they were.
    pub(super) fn forget(&mut self, people: &mut BTreeMap<Tid, Person>) {
        self.earlier += std::mem::take(&mut self.registry).contradictions();
        self.not_before = MonotonicNs(0);
        for person in people.values_mut() {
            person.known = None;
            person.stale = true;
            person.attempts = 0;
        }
    }
}

/// Whether a thread may have a place that is not known yet, or another one by now: it has a state
/// for each interpreter it has entered.
fn is_seeker(person: &Person) -> bool {
    let ran = person.climbed != Some(person.counts);
    match person.known {
        None => ran || person.attempts < ATTEMPTS,
        Some(_) => ran && person.several,
    }
}
