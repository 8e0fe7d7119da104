//! The threads that are off the CPU: looked at once a period, walked only when they have run since.
//!
//! A thread's generation is read, its frames are walked, and its generation is read again: the
//! same and even, they are what they were all the while. Until it moves they still are, so a
//! thread that sleeps on costs one load a period.

use profiler_common::account::{Account, STATE_STOPPED};
use rustc_hash::FxHashMap;

use super::{Kit, member::Member, plans::Python};
use crate::{
    aggregate::{Place, ThreadIndex},
    pipeline::{
        absence::{Absence, Away, Stretch},
        people,
        stacks::{self, ChainId},
    },
    sample::{Activity, FramesFrom, Gc, Gil, Handling, Sample, Wait},
    source::{Accounts, Slot},
    stack::StackId,
    target::{FdKind, TaskState, wait_of},
    wire::Times,
    words::{
        CodeAddr, DurationNs, Generation, MonotonicNs, Pid, PthreadId, RemoteAddr, ThreadStateAddr,
        Tid,
    },
};

/// The list of thread states is read again no sooner than this.
const STATES_PAUSE: DurationNs = DurationNs(50_000_000);

/// What a look found, until it is known how long that lasted.
#[derive(Clone, Copy, Debug)]
struct Met {
    stack: StackId,
    frames_from: FramesFrom,
    wait: Wait,
    gil: Gil,
    gc: Gc,
    handling: Handling,
    behind: Option<ThreadIndex>,
    generation: Generation,
    since: MonotonicNs,
    runnable: bool,
    /// The round of the first look.
    round: u64,
}

/// A thread that was off the CPU at some look.
#[derive(Clone, Copy, Debug)]
struct Sleeper {
    thread: ThreadIndex,
    absence: Absence,
    met: Option<Met>,
}

/// All of a process's.
#[derive(Debug, Default)]
pub(super) struct OffCpu {
    sleepers: FxHashMap<Tid, Sleeper>,
    /// Thread states that the kernel did not find, by the thread.
    states: FxHashMap<PthreadId, ThreadStateAddr>,
    states_again: MonotonicNs,
    /// Stacks of this round, whose codes are still to be compared.
    fresh: Vec<(Tid, ChainId)>,
    /// Whether anything was ever counted.
    counted: bool,
}

impl OffCpu {
    /// The stacks of this round once it is known which codes are not what they were.
    pub(super) fn restate(
        &mut self,
        changed: &[CodeAddr],
        mut stack: impl FnMut(ChainId) -> StackId,
    ) {
        for (tid, chain) in self.fresh.drain(..) {
            if !changed.is_empty()
                && let Some(met) = self.sleepers.get_mut(&tid).and_then(|s| s.met.as_mut())
            {
                met.stack = stack(chain);
            }
        }
    }

    /// Whether no stack waits to be compared.
    pub(super) fn is_settled(&self) -> bool {
        self.fresh.is_empty()
    }

    /// Whether any of its samples are the process's.
    pub(super) const fn has_samples(&self) -> bool {
        self.counted
    }

    /// Another program from now on, with one thread; that had the id `old` and has `first` now.
    pub(super) fn forget_python(&mut self, old: Tid, first: Tid) {
        self.states.clear();
        self.states_again = MonotonicNs(0);
        if old != first
            && let Some(sleeper) = self.sleepers.remove(&old)
        {
            self.sleepers.insert(first, sleeper);
        }
    }
}

impl Member {
    /// Deal with what has become of a thread since the last round. What is returned moved while it
    /// was looked at.
    pub(super) fn visit(
        &mut self,
        kit: &mut Kit,
        accounts: &Accounts,
        slot: Slot,
        account: Account,
        due: MonotonicNs,
    ) -> Option<Account> {
        let tid = Tid(account.tid);
        self.settle(kit, tid, &account, None);
        let dealt_with = Generation(account.generation);
        if account.generation & 1 != 0 {
            *kit.off.place(slot) = dealt_with;
            return None;
        }
        if account.off_state == 0 && account.since >= due.0 {
            // It ran at that time, and more likely than not it was us who took its CPU.
            return None;
        }
        self.open(kit);
        let Some((met, chain)) = self.look(kit, accounts, slot, &account, due) else {
            return Some(account);
        };
        accounts.mark(slot, dealt_with);
        *kit.off.place(slot) = dealt_with;
        self.off.fresh.extend(chain.map(|chain| (tid, chain)));
        self.meet(kit, &account, met);
        None
    }

    fn meet(&mut self, kit: &mut Kit, account: &Account, met: Met) {
        let sleeper = self.sleeper(kit, account);
        sleeper.absence.meet(account, met.runnable);
        sleeper.met = Some(met);
    }

    fn sleeper(&mut self, kit: &mut Kit, account: &Account) -> &mut Sleeper {
        let tid = Tid(account.tid);
        if !self.off.sleepers.contains_key(&tid) {
            let tls_base = PthreadId(account.tls_base);
            let state = self.state_of(account);
            let thread =
                self.people
                    .index(&self.hold, &mut kit.builder, tid, None, tls_base, state);
            let sleeper = Sleeper {
                thread,
                absence: Absence::default(),
                met: None,
            };
            self.off.sleepers.insert(tid, sleeper);
        }
        self.off.sleepers.entry(tid).or_insert_with(|| Sleeper {
            thread: ThreadIndex(u32::MAX),
            absence: Absence::default(),
            met: None,
        })
    }

    /// A thread's state: as the kernel found it, else from the list of all.
    fn state_of(&self, account: &Account) -> Option<ThreadStateAddr> {
        if account.thread_state != 0 {
            return Some(ThreadStateAddr(account.thread_state));
        }
        let id = PthreadId(account.tls_base);
        self.off.states.get(&id).copied()
    }

    /// Read the list of thread states again if this thread may be on it.
    fn learn_states(&mut self, account: &Account, now: MonotonicNs) {
        if account.thread_state != 0
            || self.off.states.contains_key(&PthreadId(account.tls_base))
            || now < self.off.states_again
        {
            return;
        }
        let Some(python) = &self.python else { return };
        let states = people::all_states(&python.runtime, self.hold.memory());
        self.off.states = states.into_iter().collect();
        self.off.states_again = MonotonicNs(now.0 + STATES_PAUSE.0);
    }

    /// Look at one thread; none when it moved meanwhile.
    fn look(
        &mut self,
        kit: &mut Kit,
        accounts: &Accounts,
        slot: Slot,
        account: &Account,
        due: MonotonicNs,
    ) -> Option<(Met, Option<ChainId>)> {
        self.learn_states(account, due);
        let state = self.state_of(account);
        let id = PthreadId(account.tls_base);
        let memory = self.hold.memory();
        let is_still = || accounts.generation(slot) == Generation(account.generation);
        let mut met = Met {
            stack: StackId(0),
            frames_from: FramesFrom::None,
            wait: Wait::Unknown,
            gil: Gil::Neither,
            gc: Gc::Idle,
            handling: Handling::Unknown,
            behind: None,
            generation: Generation(account.generation),
            since: MonotonicNs(account.since),
            runnable: could_run(account, due),
            round: kit.off.round,
        };
        let mut chain = None;
        if let Some(Python {
            runtime,
            plan,
            gils,
            ..
        }) = &self.python
        {
            let facts = state.and_then(|state| runtime.state_now(memory, state).ok());
            if let (Some(facts), Some(state)) =
                (facts.filter(|facts| facts.pthread_id == id), state)
            {
                met.gil = facts.gil;
                met.handling = facts.handling;
                if facts.gil == Gil::Holds
                    && runtime.collecting(memory, facts.interpreter) == Ok(true)
                {
                    met.gc = Gc::Collecting;
                }
                chain = stacks::walk_now(&mut kit.walker, memory, plan, state);
                if let Some((futex, is_wait)) = futex_of(account)
                    && let Some(gil) = gils.iter().find(|gil| gil.contains(futex))
                {
                    // Who has just let it go may want it again, or be on the way to block.
                    met.gil = if is_wait { Gil::Waits } else { Gil::Unknown };
                    let holder = runtime.holder_of(memory, gil).ok().flatten();
                    met.behind = holder.and_then(|state| self.people.by_state(state));
                }
            }
            let is_gil = |futex| gils.iter().any(|gil| gil.contains(futex));
            met.wait = self.wait(account, is_gil);
        } else {
            met.gil = Gil::Unknown;
            met.wait = self.wait(account, |_| false);
        }
        if !is_still() {
            return None;
        }
        let Some(chain) = chain else {
            let ip = RemoteAddr(account.off_ip);
            met.stack = stacks::native_stack(&mut kit.builder, &mut kit.symbols, self.pid, ip);
            return Some((met, None));
        };
        let python = self.python.as_mut()?;
        let collecting = met.gc == Gc::Collecting;
        let id = python
            .stacks
            .of_walk(memory, &mut kit.builder, chain, collecting);
        met.stack = python.stacks.stack(id);
        met.frames_from = FramesFrom::User;
        Some((met, Some(id)))
    }

    fn wait(&self, account: &Account, is_gil: impl Fn(RemoteAddr) -> bool) -> Wait {
        let state = if account.off_state & STATE_STOPPED != 0 {
            TaskState::Stopped
        } else {
            TaskState::Sleeping
        };
        let tid = Tid(account.tid);
        let kind = |fd| {
            let process = self.hold.process();
            let kind = process.and_then(|process| process.fd_kind(tid, fd).ok());
            kind.unwrap_or(FdKind::Unknown)
        };
        let syscall = u32::try_from(account.off_syscall).ok();
        wait_of(syscall, account.off_args, state, is_gil, kind)
    }

    /// It ran on each time it was looked at.
    pub(super) fn gave_up(&mut self, kit: &mut Kit, account: &Account, due: MonotonicNs) {
        kit.off.moved += 1;
        let stack = stacks::moved_stack(&mut kit.builder);
        let met = Met {
            stack,
            frames_from: FramesFrom::None,
            wait: self.wait(account, |futex| {
                let gils = self.python.as_ref().map(|python| &python.gils);
                gils.is_some_and(|gils| gils.iter().any(|gil| gil.contains(futex)))
            }),
            gil: Gil::Unknown,
            gc: Gc::Unknown,
            handling: Handling::Unknown,
            behind: None,
            generation: Generation(account.generation),
            since: MonotonicNs(account.since),
            runnable: could_run(account, due),
            round: kit.off.round,
        };
        self.meet(kit, account, met);
    }

    /// What a thread was met in is over, if it is, and counts.
    fn settle(&mut self, kit: &mut Kit, tid: Tid, account: &Account, end: Option<MonotonicNs>) {
        let period = kit.settings.period();
        let Some(sleeper) = self.off.sleepers.get_mut(&tid) else {
            return;
        };
        let over = sleeper.absence.settle(account, end, period);
        self.count(kit, tid, over, end.is_some());
    }

    /// The last stretch of a thread counts; `last` says that its round is over.
    fn count(&mut self, kit: &mut Kit, tid: Tid, over: Option<Stretch>, last: bool) {
        let Some(sleeper) = self.off.sleepers.get_mut(&tid) else {
            return;
        };
        let thread = sleeper.thread;
        let (Some(over), Some(met)) = (over, sleeper.met.take()) else {
            return;
        };
        let looks = (kit.off.round + u64::from(last)).saturating_sub(met.round);
        let looks = u32::try_from(looks.max(1)).unwrap_or(u32::MAX);
        self.off.counted = true;
        kit.off.looks += u64::from(looks);
        let Away { blocked, runnable } = over.weight;
        let runnable_looks = match over.length {
            Some(length) if blocked > 0 && runnable > 0 => {
                let share = length.runnable as f64 / (length.blocked + length.runnable) as f64;
                (f64::from(looks) * share).round() as u32
            }
            _ if runnable > 0 || met.runnable => looks,
            _ => 0,
        };
        let end = met.since.0 + blocked;
        let parts = [
            (
                Activity::Blocked(met.wait),
                looks - runnable_looks,
                blocked,
                end,
            ),
            (Activity::Runnable, runnable_looks, runnable, end + runnable),
        ];
        let mut walked = met.frames_from == FramesFrom::User;
        for (activity, looks, weight, time) in parts {
            // The first look walked; at the others the thread had not run since.
            let first = u32::from(walked && looks > 0);
            walked &= looks == 0;
            let own = weight.checked_div(looks.into()).unwrap_or(0) * u64::from(first);
            let rest_from = match met.frames_from {
                FramesFrom::User => FramesFrom::Cached,
                other => other,
            };
            for (ticks, weight, frames_from) in [
                (first, own, FramesFrom::User),
                (looks - first, weight - own, rest_from),
            ] {
                if ticks == 0 && weight == 0 {
                    continue;
                }
                let sample = Sample {
                    time: MonotonicNs(time),
                    pid: self.pid,
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
                kit.builder.add(place, &sample);
            }
        }
    }

    /// A thread is gone: all of its time off the CPU counts.
    pub(super) fn gone_off_cpu(&mut self, kit: &mut Kit, tid: Tid, times: Times, now: MonotonicNs) {
        let period = kit.settings.period();
        let away = Away {
            blocked: times.blocked.0,
            runnable: times.runnable.0,
        };
        let Some(sleeper) = self.off.sleepers.get_mut(&tid) else {
            return;
        };
        let over = sleeper.absence.settle_for_good(away, period);
        self.count(kit, tid, over, false);
        self.count_rest(kit, tid, now);
        self.off.sleepers.remove(&tid);
    }

    /// The run is over: what still lasts of a thread counts up to now.
    pub(super) fn end_off_cpu(&mut self, kit: &mut Kit, account: &Account, now: MonotonicNs) {
        let tid = Tid(account.tid);
        self.sleeper(kit, account);
        self.settle(kit, tid, account, Some(now));
        self.count_rest(kit, tid, now);
    }

    /// What was counted for a thread and met by no look.
    fn count_rest(&mut self, kit: &mut Kit, tid: Tid, now: MonotonicNs) {
        let Some(sleeper) = self.off.sleepers.get_mut(&tid) else {
            return;
        };
        let thread = sleeper.thread;
        let Away { blocked, runnable } = sleeper.absence.rest();
        let stack = stacks::between_looks(&mut kit.builder);
        for (activity, weight) in [
            (Activity::Blocked(Wait::Unknown), blocked),
            (Activity::Runnable, runnable),
        ] {
            if weight == 0 {
                continue;
            }
            let sample = Sample {
                time: now,
                pid: self.pid,
                tid,
                cpu: None,
                ticks: 0,
                weight: DurationNs(weight),
                activity,
                gil: Gil::Unknown,
                gc: Gc::Unknown,
                handling: Handling::Unknown,
                generation: Generation(0),
            };
            let place = Place {
                thread,
                stack,
                frames_from: FramesFrom::None,
                behind: None,
            };
            kit.builder.add(place, &sample);
        }
    }
}

/// Whether a thread off the CPU could run at that time.
const fn could_run(account: &Account, at: MonotonicNs) -> bool {
    account.off_state == 0 || (account.woken_ns != 0 && account.woken_ns <= at.0)
}

/// The futex word that the system call is about in which a thread went off the CPU, asleep or
/// preempted; and whether it is there to wait.
fn futex_of(account: &Account) -> Option<(RemoteAddr, bool)> {
    // `FUTEX_WAIT`, `FUTEX_WAIT_BITSET` and `FUTEX_LOCK_PI` of `include/uapi/linux/futex.h`; the
    // bits above say which clock and whose futex it is.
    const WAITING: [u64; 3] = [0, 9, 6];
    let [word, operation] = account.off_args;
    (account.off_syscall == syscalls::Sysno::futex as i32)
        .then(|| (RemoteAddr(word), WAITING.contains(&(operation & 0x7f))))
}
