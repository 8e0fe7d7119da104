//! The threads that were seen, by who they are: a tid that ends and comes again is another.
//!
//! Only threads that were sampled cost anything here: ten thousand sleepers are never looked at.

mod exec;
mod mappings;
mod reuse;
mod weight;

use mappings::Mappings;
use profiler_common::account::Account;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    aggregate::{ProfileBuilder, ThreadIndex, ThreadInfo, Unsampled},
    cpython::{Runtime, ThreadName},
    target::{Maps, Memory, TaskFacts},
    threads::{Look, Registry, Rung, ScanWhom, StateFacts, ThreadFacts},
    wire::Times,
    words::{DurationNs, InnerTid, MonotonicNs, Pid, PthreadId, RemoteAddr, ThreadStateAddr, Tid},
};

/// Who can be asked about the threads of one process: the hold on it, as a rule.
pub(super) trait Witness {
    /// The process.
    fn pid(&self) -> Pid;
    /// What the kernel has of the thread that had this id at that time; none when it is gone,
    /// though another may have the id by now.
    fn task(&self, tid: Tid, at: MonotonicNs) -> Option<TaskFacts>;
    /// The user stack pointer of a thread that is blocked in the kernel.
    fn stack_pointer(&self, tid: Tid) -> Option<RemoteAddr>;
    /// The mappings; none when the process is gone.
    fn maps(&self) -> Option<Maps>;
    /// The memory.
    fn memory(&self) -> &dyn Memory;
}

/// Who can be asked about the Python side of it: the interpreter, as a rule.
pub(super) trait PythonWitness {
    /// The kernel's id of the thread that a state was made for, where the state has it.
    fn native_id(&self, memory: &dyn Memory, state: ThreadStateAddr) -> Option<InnerTid>;
    /// What the program calls those of its threads that are wanted.
    fn names(
        &self,
        memory: &dyn Memory,
        wanted: &dyn Fn(PthreadId) -> bool,
    ) -> FxHashMap<PthreadId, ThreadName>;
}

/// One thread of the profile.
#[derive(Clone, Debug)]
pub(super) struct Person {
    pub(super) index: ThreadIndex,
    pub(super) tid: Tid,
    pub(super) pthread_id: Option<PthreadId>,
    pub(super) matched_by: Vec<Rung>,
    /// What the scheduler counted for it, once it has ended, and when that was.
    pub(super) ended: Option<(Times, MonotonicNs)>,
    /// When it began, if it did while it was watched.
    pub(super) born: Option<MonotonicNs>,
}

/// All threads of the profile.
#[derive(Clone, Debug, Default)]
pub(super) struct People {
    /// In the order of their index.
    everyone: Vec<Person>,
    living: FxHashMap<Tid, Place>,
    /// Those whose id is another thread's already, and whose last switch was not told yet.
    former: FxHashMap<Tid, Place>,
    /// Sampled since the last look and not yet identified.
    strangers: Vec<Stranger>,
    nameless: Vec<Nameless>,
    unmet: Unsampled,
    /// When threads began that have no place yet.
    births: FxHashMap<Tid, MonotonicNs>,
    /// The thread that a thread state was last seen for.
    states_of: FxHashMap<ThreadStateAddr, ThreadIndex>,
    facts: Vec<ThreadFacts>,
    states: Vec<StateFacts>,
    /// The thread that a TLS base was last seen under, and when.
    bases: FxHashMap<PthreadId, (Tid, MonotonicNs)>,
    registry: Registry,
    mappings: Mappings,
    /// Where the process's first stack begins.
    start_stack: Option<RemoteAddr>,
}

/// A thread of Python's that `threading` did not know yet.
#[derive(Clone, Copy, Debug)]
struct Nameless {
    tid: Tid,
    pthread_id: PthreadId,
    attempts: u32,
}

/// In a pid namespace a thread that ends has given its id back before it leaves its CPU for the last
/// time. Ticks that meet it then are of nobody whom they could tell.
pub(super) const NO_ID: Tid = Tid(0);

/// How often a name is asked for again; a program without `threading` never has one.
const ATTEMPTS: u32 = 10;

/// Where a living thread stands.
#[derive(Clone, Copy, Debug)]
struct Place {
    index: ThreadIndex,
    /// Where it is in the list of everyone.
    own: usize,
    /// Whether a thread state of Python's was ever seen for it.
    python: bool,
    /// When it was there first.
    met: MonotonicNs,
    /// When its account was opened, if a look has read that.
    opened: Option<MonotonicNs>,
    /// When it was there last and the kernel had an account of it.
    counted: Option<MonotonicNs>,
    /// Periods in which it was met.
    ticks: u32,
    /// What its samples weigh together.
    weighed: DurationNs,
    /// Whether it has taken over the id of its process's first thread, in an exec.
    took_over: bool,
    /// Whether it is one of the kernel's own, which only seems to be Python's.
    kernels: bool,
}

/// What a tick or a look told of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stranger {
    pub(super) tid: Tid,
    /// None when no tick met it.
    pub(super) sp: Option<RemoteAddr>,
    pub(super) tls_base: PthreadId,
    pub(super) state: Option<ThreadStateAddr>,
    /// When it was there.
    pub(super) at: MonotonicNs,
    /// Whether the kernel had an account of it then.
    pub(super) is_counted: bool,
    /// When that was opened, where it was read.
    pub(super) opened: Option<MonotonicNs>,
}

impl Stranger {
    /// Somebody of whom the kernel has this account.
    pub(super) fn of_account(account: &Account, state: Option<ThreadStateAddr>) -> Self {
        Self {
            tid: Tid(account.tid),
            sp: None,
            tls_base: PthreadId(account.tls_base),
            state,
            at: MonotonicNs(account.since),
            is_counted: true,
            opened: None,
        }
    }
}

impl People {
    /// The index of a thread, known or new.
    pub(super) fn index(
        &mut self,
        process: &impl Witness,
        builder: &mut ProfileBuilder,
        stranger: Stranger,
    ) -> ThreadIndex {
        match self.meet_again(stranger) {
            Some(index) => index,
            None => self.welcome(process, builder, stranger),
        }
    }

    /// What a further meeting tells of a thread that has a place. It has no TLS base until it first
    /// runs, and no state of Python's until it first calls into it.
    pub(super) fn meet_again(&mut self, stranger: Stranger) -> Option<ThreadIndex> {
        let place = self.living.get_mut(&stranger.tid)?;
        if stranger.is_counted {
            place.counted = place.counted.max(Some(stranger.at));
            place.opened = place.opened.or(stranger.opened);
        }
        if place.kernels {
            return Some(place.index);
        }
        if let Some(state) = stranger.state {
            self.states_of.insert(state, place.index);
            if !place.python {
                place.python = true;
                self.strangers.push(stranger);
            }
        }
        if stranger.tls_base.0 != 0
            && let Some(person) = self.everyone.get_mut(place.own)
        {
            person.pthread_id.get_or_insert(stranger.tls_base);
        }
        Some(place.index)
    }

    /// Give a thread its place; it bears the kernel's name for it until Python's is known.
    fn welcome(
        &mut self,
        process: &impl Witness,
        builder: &mut ProfileBuilder,
        stranger: Stranger,
    ) -> ThreadIndex {
        let Stranger {
            tid,
            mut tls_base,
            mut state,
            ..
        } = stranger;
        let task = process.task(tid, stranger.at);
        let kernels = task.as_ref().is_some_and(|task| task.is_kernels);
        if kernels {
            (tls_base, state) = (PthreadId(0), None);
        }
        let name = match task {
            _ if tid == NO_ID => "threads at their end".to_owned(),
            Some(task) => task.name,
            None => format!("thread {tid}"),
        };
        let python = state.is_some();
        let pid = process.pid();
        let index = builder.thread(ThreadInfo {
            pid,
            tid,
            name,
            python,
        });
        let person = Person {
            index,
            tid,
            pthread_id: Some(tls_base).filter(|id| id.0 != 0),
            matched_by: Vec::new(),
            ended: None,
            born: self.births.remove(&tid),
        };
        // Threads beyond the profile's limit share an index, and so one person.
        let own = self.everyone.partition_point(|known| known.index < index);
        if own == self.everyone.len() {
            self.everyone.push(person);
        }
        self.living.insert(
            tid,
            Place {
                index,
                own,
                python,
                met: stranger.at,
                opened: stranger.opened,
                counted: stranger.is_counted.then_some(stranger.at),
                ticks: 0,
                weighed: DurationNs(0),
                took_over: false,
                kernels,
            },
        );
        if !kernels {
            self.strangers.push(stranger);
        }
        if let Some(state) = state {
            self.states_of.insert(state, index);
        }
        index
    }

    /// The place of a living thread that has one.
    pub(super) fn place_of(&self, tid: Tid) -> Option<ThreadIndex> {
        self.living.get(&tid).map(|place| place.index)
    }

    /// Whether a thread is one of the kernel's own.
    pub(super) fn is_kernels(&self, tid: Tid) -> bool {
        self.living.get(&tid).is_some_and(|place| place.kernels)
    }

    /// The thread that a thread state belongs to.
    pub(super) fn by_state(&self, state: ThreadStateAddr) -> Option<ThreadIndex> {
        self.states_of.get(&state).copied()
    }

    /// Whether somebody waits to be identified.
    pub(super) fn has_strangers(&self) -> bool {
        !self.strangers.is_empty()
    }

    /// Climb the ladder for those who came since the last look, and learn their names.
    pub(super) fn look(
        &mut self,
        process: &impl Witness,
        python: &impl PythonWitness,
        builder: &mut ProfileBuilder,
    ) {
        let strangers = std::mem::take(&mut self.strangers);
        let memory = process.memory();
        let mut newcomers = FxHashSet::default();
        let mut is_fresh = false;
        for stranger in &strangers {
            // What has not run yet has nothing that is its own; and what has ended is no evidence.
            if stranger.tls_base.0 == 0 || !self.claims_base(stranger) {
                continue;
            }
            let Some(task) = process.task(stranger.tid, stranger.at) else {
                continue;
            };
            // The same for every thread of the process, and kept: the first stack must not be
            // taken for another's when its own thread was met in an earlier look.
            self.start_stack = task.start_stack.or(self.start_stack);
            // A thread without a tick is blocked as a rule, and then the kernel tells its place.
            let sp = stranger.sp.or_else(|| process.stack_pointer(stranger.tid));
            if let Some(sp) = sp
                && !is_fresh
                && !self.mappings.have(sp, stranger.at, task.started)
            {
                let Some(now) = Mappings::read(process) else {
                    return;
                };
                self.mappings = now;
                is_fresh = true;
            }
            self.facts.retain(|facts| facts.tid != stranger.tid);
            self.facts.push(ThreadFacts::new(&task, sp));
            newcomers.insert(stranger.tid);
            if let Some(state) = stranger.state {
                let native_id = python.native_id(memory, state);
                self.states
                    .retain(|facts| facts.pthread_id != stranger.tls_base);
                self.states.push(StateFacts {
                    state,
                    pthread_id: stranger.tls_base,
                    native_id,
                });
            }
            self.registry.note_tls_base(stranger.tid, stranger.tls_base);
        }
        let look = Look {
            pid: process.pid(),
            start_stack: self.start_stack,
            maps: self.mappings.maps(),
            threads: &self.facts,
            states: &self.states,
            scan: ScanWhom::Everyone,
        };
        if !newcomers.is_empty() {
            self.registry.look_for(&newcomers, &look, &memory);
        }
        let of_python = strangers.iter().filter(|it| it.state.is_some());
        // Who has ended before it was looked at is not told by its pthread id, which may be another's.
        let named = of_python.filter(|it| self.facts.iter().any(|facts| facts.tid == it.tid));
        let named: FxHashSet<PthreadId> = named.map(|it| it.tls_base).collect();
        let names = if named.is_empty() {
            FxHashMap::default()
        } else {
            python.names(memory, &|id| named.contains(&id))
        };
        for stranger in strangers {
            let Some(&Place {
                index,
                own,
                python: is_python,
                ..
            }) = self.living.get(&stranger.tid)
            else {
                continue;
            };
            let facts = self.facts.iter().find(|facts| facts.tid == stranger.tid);
            let kernels = facts.map(|facts| &*facts.name);
            // Of a thread that has ended meanwhile, another one may have the pthread id by now.
            let pythons = facts.and_then(|facts| {
                let is_first = facts.tid.0 == look.pid.0;
                names.get(&stranger.tls_base)?.of(facts.inner, is_first)
            });
            if is_python && pythons.is_none() {
                self.nameless.push(Nameless {
                    tid: stranger.tid,
                    pthread_id: stranger.tls_base,
                    attempts: ATTEMPTS,
                });
            }
            if is_python && let Some(name) = pythons.or(kernels) {
                builder.rename(index, name, true);
            }
            if let Some(found) = self.registry.by_tid(stranger.tid)
                && let Some(person) = self.everyone.get_mut(own)
            {
                person.pthread_id = Some(found.pthread_id);
                person.matched_by.clone_from(&found.matched_by);
            }
        }
    }

    /// Ask again for the names of threads that had none when they were met: `threading` is
    /// imported late, and a thread runs before it is entered there.
    pub(super) fn ask_again(
        &mut self,
        process: &impl Witness,
        python: &impl PythonWitness,
        builder: &mut ProfileBuilder,
    ) {
        if self.nameless.is_empty() {
            return;
        }
        let wanted = |id| {
            self.nameless
                .iter()
                .any(|nameless| nameless.pthread_id == id)
        };
        let names = python.names(process.memory(), &wanted);
        let living = &self.living;
        self.nameless.retain_mut(|nameless| {
            nameless.attempts -= 1;
            let Some(place) = living.get(&nameless.tid) else {
                return false;
            };
            let is_first = nameless.tid.0 == process.pid().0;
            if let Some(name) = names.get(&nameless.pthread_id)
                && let Some(task) = process.task(nameless.tid, place.met)
                && let Some(name) = name.of(task.inner, is_first)
            {
                builder.rename(place.index, name, true);
                return false;
            }
            nameless.attempts > 0
        });
    }

    /// Everyone, in the order of their index.
    pub(super) fn everyone(&self) -> &[Person] {
        &self.everyone
    }

    /// Whether a thread of this id is alive and has a place.
    pub(super) fn knows(&self, tid: Tid) -> bool {
        self.living.contains_key(&tid)
    }

    /// How often two rungs named different threads.
    pub(super) fn contradictions(&self) -> u64 {
        self.registry.contradictions()
    }
}

/// All thread states by pthread id, for the kernel's map: asked for only when thread-local
/// storage did not tell.
pub(super) fn all_states(
    runtime: &Runtime,
    memory: &dyn Memory,
) -> Vec<(PthreadId, ThreadStateAddr)> {
    let states = runtime.thread_states(memory).unwrap_or_default();
    states
        .into_iter()
        .map(|state| (state.pthread_id, state.addr))
        .collect()
}

#[cfg(test)]
mod tests;
