//! One round: who is there, what was counted for each thread since the last one, and a look at
//! those for whom that changed.

use std::collections::BTreeMap;

use super::{
    Fresh, Watch,
    close::Account,
    person::{Met, Owed, Person},
    shares::{Found, Handed, Reading, Shares, Weights},
};
use crate::{
    aggregate::{Place, ThreadIndex, ThreadInfo},
    pipeline::stacks,
    sample::{Activity, FramesFrom, Gc, Gil, Handling, Mode, Sample, Wait},
    stack::StackId,
    sys,
    target::{Counts, Standing, TargetError},
    words::{DurationNs, Generation, MonotonicNs, Tid},
};

/// How often in a row the interpreter cannot be read before it is taken for gone: taken down, or
/// replaced with its program.
const FAILURES: u32 = 10;

impl Watch {
    /// Note who is there and what was counted for them before the watch began.
    ///
    /// # Errors
    /// When the process is gone.
    pub(super) fn begin(&mut self) -> Result<(), TargetError> {
        for tid in self.attached.process.tids()? {
            if let Some(person) = self.welcome(tid, true) {
                self.people.insert(tid, person);
            }
        }
        self.last = sys::monotonic();
        self.cpu_before = sys::cpu_of(self.attached.process.pid());
        Ok(())
    }

    /// One round.
    ///
    /// # Errors
    /// When the process is gone.
    pub(super) fn round(&mut self) -> Result<(), TargetError> {
        self.rounds += 1;
        self.list()?;
        self.climb();
        self.ask_again();
        let mut people = std::mem::take(&mut self.people);
        let mut gone = Vec::new();
        for (tid, person) in &mut people {
            if self.visit(person).is_none() {
                gone.push(*tid);
            }
        }
        for tid in gone {
            if let Some(person) = people.remove(&tid) {
                self.farewell(person);
            }
        }
        self.people = people;
        self.end_round();
        self.last = sys::monotonic();
        self.note_cpu();
        Ok(())
    }

    /// Note the process's own clock, which tells of threads that are gone too.
    pub(super) fn note_cpu(&mut self) {
        self.cpu_last = sys::cpu_of(self.attached.process.pid()).or(self.cpu_last);
    }

    /// Meet those who are new, part from those who are gone.
    fn list(&mut self) -> Result<(), TargetError> {
        let tids = self.attached.process.tids()?;
        let mut people = std::mem::take(&mut self.people);
        let mut still = BTreeMap::new();
        for tid in tids {
            let known = people.remove(&tid);
            if let Some(person) = known.or_else(|| self.welcome(tid, false)) {
                still.insert(tid, person);
            }
        }
        for person in people.into_values() {
            self.farewell(person);
        }
        self.people = still;
        Ok(())
    }

    /// A thread that was there `before` the watch has a past that is not ours.
    fn welcome(&mut self, tid: Tid, before: bool) -> Option<Person> {
        let watched = self.attached.process.watch(tid).ok()?;
        // A first thread that has ended is shown as long as the others live.
        if watched.facts().state.has_ended() {
            return None;
        }
        let counts = watched.counts(&self.attached.process).ok()?;
        let now = sys::monotonic();
        let began = if before {
            reading(now, &counts)
        } else {
            // It began since the last round, and no later than what it has done since took.
            let did = counts.on_cpu.0.saturating_add(counts.run_delay.0);
            let at = now.0.saturating_sub(did).max(self.last.0);
            reading(MonotonicNs(at), &Counts::default())
        };
        let index = self.builder.thread(ThreadInfo {
            pid: self.attached.process.pid(),
            tid,
            name: watched.facts().name.clone(),
            python: false,
        });
        Some(Person {
            watched,
            index,
            shares: Shares::new(began),
            owed: Owed::default(),
            counts: if before { counts } else { Counts::default() },
            met: None,
            stale: false,
            known: None,
            several: false,
            pthread_id: None,
            matched_by: Vec::new(),
            stack_pointer: None,
            attempts: 0,
            climbed: None,
            name_attempts: 0,
        })
    }

    /// A thread is gone. What was counted for it since the last look nobody can tell any more.
    pub(super) fn farewell(&mut self, mut person: Person) {
        self.count_again(&mut person);
        let rest = person.shares.rest();
        let (paid, rest) = person.pay(rest);
        for (met, weights) in paid {
            self.count_before(person.index, person.tid(), &met, weights, self.last);
        }
        self.count_rest(person.index, person.tid(), rest, self.last);
        self.keep_account(&person);
    }

    /// Keep a thread's account for the books.
    pub(super) fn keep_account(&mut self, person: &Person) {
        let index = person.index.0 as usize;
        if index >= self.accounts.len() {
            self.accounts.resize_with(index + 1, || None);
        }
        self.accounts[index] = Some(Account::of(person));
    }

    fn climb(&mut self) {
        let Some(python) = &self.python else { return };
        let now = sys::monotonic();
        if !self.identity.is_wanted(&self.people, now) {
            return;
        }
        let Ok(states) = python.runtime.thread_states(&self.attached.memory) else {
            // Lists that change all the time can be read another time.
            self.failures += 1;
            if self.failures >= FAILURES {
                self.forget_python();
            }
            return;
        };
        self.failures = 0;
        // The states first and then the threads, so that the thread of each state is among them.
        if self.list().is_err() {
            return;
        }
        self.identity.climb(
            &self.attached,
            &states,
            &mut self.builder,
            &mut self.people,
            now,
        );
        self.by_state = self
            .people
            .values()
            .filter_map(|person| Some((person.known?.state, person.index)))
            .collect();
    }

    /// Now and then: names of threads that had none, and the locks of interpreters, which come and
    /// go.
    fn ask_again(&mut self) {
        let now = sys::monotonic();
        let Some(python) = &mut self.python else {
            return;
        };
        if !self.identity.are_names_due(now) {
            return;
        }
        python.ask_for_locks(&self.attached.memory);
        self.identity.ask_names(
            &self.attached,
            &python.runtime,
            &mut self.builder,
            &mut self.people,
            now,
        );
    }

    /// Deal with what has become of a thread since the last look; nothing when it is gone.
    fn visit(&mut self, person: &mut Person) -> Option<()> {
        let process = &self.attached.process;
        let counts = person.watched.counts(process).ok()?;
        let now = reading(sys::monotonic(), &counts);
        if let Some(met) = &mut person.met
            && met.found == Found::Blocked
            && counts.arrivals.is_some()
            && counts == person.counts
            && !person.stale
        {
            // It has slept on.
            let handed = person.shares.hand_out(now, Some(Found::Blocked));
            met.again += 1;
            met.again_ns = met.again_ns.saturating_add(handed.now.blocked);
            if handed.stood_for.blocked > handed.got.blocked {
                person.note_debt(&handed);
            }
            return Some(());
        }
        let standing = person.watched.standing(process, &counts).ok()?;
        let found = match standing {
            Standing::Ended => return None,
            Standing::OnCpu => Found::OnCpu,
            Standing::Runnable => Found::Runnable,
            Standing::Blocked(_) => Found::Blocked,
        };
        let Handed {
            before, now: mine, ..
        } = person.hand_out(now, Some(found));
        self.count_again(person);
        if let Some(met) = person.met {
            self.count_before(person.index, person.tid(), &met, before, now.at);
        }
        person.counts = counts;
        person.stale = false;
        let wanted = self.settings.mode.looks_off_cpu() || mine.on_cpu > 0 || found == Found::OnCpu;
        if !wanted {
            person.met = Some(asleep());
            // There is no stack that what it does from now on could belong to.
            person.shares.found_nothing();
            return Some(());
        }
        let Some((met, chain)) = self.look(person, counts, standing) else {
            self.count_rest(person.index, person.tid(), mine, now.at);
            return None;
        };
        person.met = Some(met);
        self.fresh.push(Fresh {
            tid: person.tid(),
            met,
            chain,
            weights: mine,
            time: now.at,
        });
        Some(())
    }

    /// The codes that this round used are compared with the target, and its looks count.
    fn end_round(&mut self) {
        let mut fresh = std::mem::take(&mut self.fresh);
        if let Some(python) = &mut self.python {
            let memory = &self.attached.memory;
            let changed = python.stacks.compare(memory);
            for look in fresh.iter_mut().filter(|_| !changed.is_empty()) {
                if let Some(chain) = look.chain {
                    look.met.stack =
                        python
                            .stacks
                            .restated(memory, &mut self.builder, chain, &changed);
                }
            }
            python.stacks.settle(&changed);
        }
        for Fresh {
            tid,
            met,
            weights,
            time,
            ..
        } in fresh
        {
            let Some(person) = self.people.get_mut(&tid) else {
                continue;
            };
            person.met = Some(met);
            let index = person.index;
            self.count_look(index, tid, &met, weights, time);
        }
    }

    /// A look counts once, for what it found; the rest of its time is beside it.
    fn count_look(
        &mut self,
        thread: ThreadIndex,
        tid: Tid,
        met: &Met,
        weights: Weights,
        time: MonotonicNs,
    ) {
        self.first.get_or_insert(time);
        let off_cpu = self.settings.mode.looks_off_cpu();
        let on_cpu = u32::from(met.found == Found::OnCpu || !off_cpu);
        self.ticks += u64::from(on_cpu);
        self.looks += u64::from(1 - on_cpu);
        for (activity, ticks, weight) in [
            (Activity::OnCpu, on_cpu, weights.on_cpu),
            (
                Activity::Runnable,
                u32::from(met.found == Found::Runnable && off_cpu),
                weights.runnable,
            ),
            (
                met.activity,
                u32::from(met.found == Found::Blocked && off_cpu),
                weights.blocked,
            ),
        ] {
            let from = met.frames_from;
            self.count(thread, tid, met, activity, ticks, weight, from, time);
        }
    }

    /// What is counted since a look and belongs to it still.
    pub(super) fn count_before(
        &mut self,
        thread: ThreadIndex,
        tid: Tid,
        met: &Met,
        weights: Weights,
        time: MonotonicNs,
    ) {
        for (activity, weight) in [
            (Activity::OnCpu, weights.on_cpu),
            (Activity::Runnable, weights.runnable),
            (met.activity, weights.blocked),
        ] {
            let from = met.frames_from;
            self.count(thread, tid, met, activity, 0, weight, from, time);
        }
    }

    /// The looks at which a thread still slept.
    pub(super) fn count_again(&mut self, person: &mut Person) {
        let Some(met) = &mut person.met else { return };
        let (ticks, weight) = (met.again, met.again_ns);
        (met.again, met.again_ns) = (0, 0);
        if ticks == 0 || !self.settings.mode.looks_off_cpu() {
            return;
        }
        let met = *met;
        self.looks += u64::from(ticks);
        let from = match met.frames_from {
            FramesFrom::User => FramesFrom::Cached,
            other => other,
        };
        let time = self.last;
        let (thread, tid) = (person.index, person.tid());
        self.count(thread, tid, &met, met.activity, ticks, weight, from, time);
    }

    #[expect(clippy::too_many_arguments, reason = "what a sample is made of")]
    fn count(
        &mut self,
        thread: ThreadIndex,
        tid: Tid,
        met: &Met,
        activity: Activity,
        ticks: u32,
        weight: u64,
        frames_from: FramesFrom,
        time: MonotonicNs,
    ) {
        let is_on_cpu = activity == Activity::OnCpu;
        if (ticks == 0 && weight == 0) || (self.settings.mode == Mode::Cpu && !is_on_cpu) {
            return;
        }
        let sample = Sample {
            time,
            pid: self.attached.process.pid(),
            tid,
            cpu: None,
            ticks,
            weight: DurationNs(weight),
            activity,
            gil: met.gil,
            gc: met.gc,
            handling: met.handling,
            generation: met.generation,
        };
        let place = Place {
            thread,
            stack: met.stack,
            frames_from,
            behind: met.behind,
        };
        self.builder.add(place, &sample);
    }

    /// What was counted for a thread and met by no look.
    pub(super) fn count_rest(
        &mut self,
        thread: ThreadIndex,
        tid: Tid,
        rest: Weights,
        time: MonotonicNs,
    ) {
        let met = Met {
            stack: stacks::between_looks(&mut self.builder),
            gil: self.gil_or(Gil::Unknown),
            gc: Gc::Unknown,
            ..asleep()
        };
        self.count_before(thread, tid, &met, rest, time);
    }
}

/// What is kept of a look that is about nothing of the mode's.
const fn asleep() -> Met {
    Met {
        found: Found::Blocked,
        stack: StackId(0),
        frames_from: FramesFrom::None,
        activity: Activity::Blocked(Wait::Unknown),
        gil: Gil::Neither,
        gc: Gc::Idle,
        handling: Handling::Unknown,
        behind: None,
        generation: Generation(0),
        again: 0,
        again_ns: 0,
    }
}

pub(super) const fn reading(at: MonotonicNs, counts: &Counts) -> Reading {
    Reading {
        at,
        on_cpu: counts.on_cpu,
        run_delay: counts.run_delay,
    }
}
