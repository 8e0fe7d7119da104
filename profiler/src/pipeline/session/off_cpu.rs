//! The threads that are off the CPU: looked at once a period, walked only when they have run since.
//!
//! A thread's generation is read, its frames are walked, and its generation is read again: the
//! same and even, they are what they were all the while. Until it moves they still are, so a
//! thread that sleeps on costs one load a period.

mod count;
mod waits;

use profiler_common::account::Account;
use rustc_hash::FxHashMap;

use super::{
    Kit,
    member::Member,
    native::{Native, with_native},
    plans::Python,
};
use crate::{
    aggregate::{Place, ThreadIndex},
    cpython::current_state,
    pipeline::{
        absence::{Absence, Debts, Meeting},
        natives::Base,
        people::{self, Stranger},
        sampler::futex_of,
        stacks::{self, ChainId},
    },
    sample::{Activity, FramesFrom, Gc, Gil, Handling, Wait},
    source::{Accounts, Slot},
    stack::StackId,
    target::is_in_doubt,
    words::{
        CodeAddr, DurationNs, Generation, MonotonicNs, PthreadId, RemoteAddr, ThreadStateAddr, Tid,
    },
};

/// So many ends are remembered; an account outlives its thread by a moment.
const MAX_OVER: usize = 1 << 16;
/// The list of thread states is read again no sooner than this.
const STATES_PAUSE: DurationNs = DurationNs(50_000_000);

/// What the ring tells comes no later than this, or was lost.
const TOLD_WITHIN: DurationNs = DurationNs(1_000_000_000);

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
    how: Meeting,
    /// The round of the first look.
    round: u64,
}

/// A thread that was off the CPU at some look.
#[derive(Clone, Debug)]
struct Sleeper {
    thread: ThreadIndex,
    absence: Absence,
    met: Option<Met>,
    /// What looks by chance are owed, blocked and runnable.
    debts: [Debts<Kind>; 2],
}

/// What makes two looks the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Kind {
    place: Place,
    activity: Activity,
    gil: Gil,
    gc: Gc,
    handling: Handling,
}

impl Sleeper {
    fn new(thread: ThreadIndex) -> Self {
        Self {
            thread,
            absence: Absence::default(),
            met: None,
            debts: <[Debts<Kind>; 2]>::default(),
        }
    }
}

/// All of a process's.
#[derive(Clone, Debug, Default)]
pub(super) struct OffCpu {
    sleepers: FxHashMap<Tid, Sleeper>,
    /// Of threads whose id is another's already.
    former: FxHashMap<Tid, Sleeper>,
    /// Threads that have ended and are counted, and when their accounts were opened: these may
    /// still be there to be read, or have been read before the end was told.
    over: FxHashMap<Tid, MonotonicNs>,
    /// Thread states that the kernel did not find, by the thread.
    states: FxHashMap<PthreadId, ThreadStateAddr>,
    states_again: MonotonicNs,
    /// Stacks of this round, whose codes are still to be compared.
    fresh: Vec<(Tid, ChainId, Native)>,
    /// Whether anything was ever counted.
    counted: bool,
}

impl OffCpu {
    /// The stacks of this round once it is known which codes are not what they were.
    pub(super) fn restate(
        &mut self,
        changed: &[CodeAddr],
        mut stack: impl FnMut(ChainId, Native) -> StackId,
    ) {
        for (tid, chain, native) in self.fresh.drain(..) {
            if !changed.is_empty()
                && let Some(met) = self.sleepers.get_mut(&tid).and_then(|s| s.met.as_mut())
            {
                met.stack = stack(chain, native);
            }
        }
    }

    /// A thread has ended, and all of its time has counted.
    pub(super) fn note_over(&mut self, tid: Tid, opened: MonotonicNs) {
        if self.over.len() >= MAX_OVER {
            self.over.clear();
        }
        self.over.insert(tid, opened);
    }

    /// Whether an account is that of a thread which has ended and is counted.
    pub(super) fn is_over(&self, account: &Account) -> bool {
        let over = self.over.get(&Tid(account.tid));
        over.is_some_and(|over| *over == opened(account))
    }

    /// The id of a thread is another's; its own last switch may still be told.
    pub(super) fn part_with(&mut self, tid: Tid) {
        self.former.remove(&tid);
        let sleeper = self.sleepers.remove(&tid);
        self.former.extend(sleeper.map(|sleeper| (tid, sleeper)));
    }

    /// Who had this id before, and who has it, change places.
    pub(super) fn swap_former(&mut self, tid: Tid) {
        let (now, former) = (self.sleepers.remove(&tid), self.former.remove(&tid));
        self.sleepers.extend(former.map(|sleeper| (tid, sleeper)));
        self.former.extend(now.map(|sleeper| (tid, sleeper)));
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
        if self.off.is_over(&account) {
            return None;
        }
        let opened = opened(&account);
        if self.people.is_anothers(tid, opened) {
            if due.0.saturating_sub(opened.0) < TOLD_WITHIN.0 {
                // Its id is another thread's until that one's end and its birth are told.
                return None;
            }
            self.make_room(tid, opened);
        }
        let dealt_with = Generation(account.generation);
        if self.asks_again(kit, accounts, slot, &account) {
            return None;
        }
        self.settle(kit, tid, &account, None);
        if account.generation & 1 != 0 {
            *kit.off.place(slot) = dealt_with;
            return None;
        }
        self.open(kit);
        if !self.off.sleepers.contains_key(&tid) {
            self.sleeper(kit, &account);
        }
        let Some((met, chain)) = self.look(kit, accounts, slot, &account, due) else {
            return Some(account);
        };
        accounts.mark(slot, dealt_with);
        if !is_in_doubt(met.wait) {
            *kit.off.place(slot) = dealt_with;
        }
        self.off
            .fresh
            .extend(chain.map(|(chain, native)| (tid, chain, native)));
        self.meet(kit, &account, met);
        None
    }

    fn meet(&mut self, kit: &mut Kit, account: &Account, met: Met) {
        let sleeper = self.sleeper(kit, account);
        sleeper.absence.meet(account, met.how);
        sleeper.met = Some(met);
    }

    fn sleeper(&mut self, kit: &mut Kit, account: &Account) -> &mut Sleeper {
        let tid = Tid(account.tid);
        let stranger = Stranger {
            opened: Some(opened(account)),
            ..Stranger::of_account(account, self.state_of(account))
        };
        if self.off.sleepers.contains_key(&tid) {
            self.people.meet_again(stranger);
        } else {
            let thread = self.people.index(&self.hold, &mut kit.builder, stranger);
            self.off.sleepers.insert(tid, Sleeper::new(thread));
        }
        let nobody = || Sleeper::new(ThreadIndex(u32::MAX));
        self.off.sleepers.entry(tid).or_insert_with(nobody)
    }

    /// A thread's state: as the kernel found it, else from the list of all.
    fn state_of(&self, account: &Account) -> Option<ThreadStateAddr> {
        if self.people.is_kernels(Tid(account.tid)) {
            return None;
        }
        if account.thread_state != 0 {
            return Some(ThreadStateAddr(account.thread_state));
        }
        let id = Some(PthreadId(account.tls_base)).filter(|id| id.0 != 0);
        self.off.states.get(&id?).copied()
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
    ) -> Option<(Met, Option<(ChainId, Native)>)> {
        self.learn_states(account, due);
        let state = self.state_of(account);
        let id = PthreadId(account.tls_base);
        let memory = self.hold.memory();
        let mut met = Met {
            stack: StackId(0),
            frames_from: FramesFrom::None,
            wait: self.wait(account),
            gil: self.gil_or(Gil::Neither),
            gc: Gc::Idle,
            handling: Handling::Unknown,
            behind: None,
            generation: Generation(account.generation),
            since: MonotonicNs(account.since),
            how: meeting(account, due),
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
            // What the account has is the state it had first, if it is there still.
            let state = current_state(runtime, plan, memory, id)
                .filter(|_| state.is_some())
                .or(state);
            let facts = state.and_then(|state| runtime.state_now(memory, state).ok());
            if let (Some(facts), Some(state)) =
                (facts.filter(|facts| facts.pthread_id == id), state)
            {
                met.gil = facts.gil;
                met.handling = facts.handling;
                if matches!(facts.gil, Gil::Holds | Gil::NoGil) {
                    met.gc = match runtime.collects(memory, state, facts.interpreter) {
                        Ok(Some(true)) => Gc::Collecting,
                        Ok(Some(false)) => Gc::Idle,
                        Ok(None) | Err(_) => Gc::Unknown,
                    };
                }
                chain = stacks::walk_now(&mut kit.walker, memory, plan, state);
                if let Some((futex, is_wait)) = futex_of(self.syscall(account), account.off_args)
                    && let Some(gil) = gils.iter().find(|gil| gil.contains(futex))
                {
                    // Who has just let it go may want it again, or be on the way to block.
                    met.gil = if is_wait { Gil::Waits } else { Gil::Unknown };
                    let holder = runtime.holder_of(memory, gil).ok().flatten();
                    // Who takes it names itself a moment after it has locked it.
                    let holder = holder.filter(|holder| *holder != state);
                    met.behind = holder.and_then(|state| self.people.by_state(state));
                }
            }
        } else {
            met.gil = Gil::Unknown;
        }
        let entry = chain.as_ref().and_then(|chain| chain.entry);
        let native = self.native_at_rest(kit, account, entry);
        let memory = self.hold.memory();
        if accounts.generation(slot) != Generation(account.generation) {
            return None;
        }
        let Some(chain) = chain else {
            let ip = RemoteAddr(account.off_ip);
            met.stack = if self.people.is_kernels(Tid(account.tid)) {
                stacks::kernels_stack(&mut kit.builder)
            } else if ip == RemoteAddr(0) && account.on_cpu_ns == 0 {
                stacks::unborn_stack(&mut kit.builder)
            } else {
                let stack = stacks::native_stack(&mut kit.builder, &mut kit.symbols, self.pid, ip);
                let base = Base::bare(stack);
                with_native(kit, &mut self.natives, self.pid, native, base, 1)
            };
            return Some((met, None));
        };
        let python = self.python.as_mut()?;
        let collecting = met.gc == Gc::Collecting;
        let id = python
            .stacks
            .of_walk(memory, &mut kit.builder, chain, collecting);
        let base = python.base(python.stacks.stack(id), id);
        met.stack = with_native(kit, &mut self.natives, self.pid, native, base, 1);
        met.frames_from = FramesFrom::User;
        Some((met, Some((id, native))))
    }

    /// It ran on each time it was looked at.
    pub(super) fn gave_up(&mut self, kit: &mut Kit, account: &Account, due: MonotonicNs) {
        kit.off.moved += 1;
        let stack = stacks::moved_stack(&mut kit.builder);
        let met = Met {
            stack,
            frames_from: FramesFrom::None,
            wait: self.wait(account),
            gil: self.gil_or(Gil::Unknown),
            gc: Gc::Unknown,
            handling: Handling::Unknown,
            behind: None,
            generation: Generation(account.generation),
            since: MonotonicNs(account.since),
            how: meeting(account, due),
            round: kit.off.round,
        };
        self.meet(kit, account, met);
    }
}

/// When the account was opened: it has all of the time since then.
const fn opened(account: &Account) -> MonotonicNs {
    let counted = account
        .on_cpu_ns
        .saturating_add(account.runnable_ns)
        .saturating_add(account.blocked_ns);
    MonotonicNs(account.since.saturating_sub(counted))
}

/// How a look that was due at that time came upon a thread.
pub(super) const fn meeting(account: &Account, due: MonotonicNs) -> Meeting {
    // What began after the look was due is met as it is now.
    let asked = if account.since >= due.0 {
        u64::MAX
    } else {
        due.0
    };
    if account.off_state == 0 && account.since >= due.0 {
        // More likely than not it was us who took its CPU.
        Meeting::Preempted
    } else if account.off_state == 0 || (account.woken_ns != 0 && account.woken_ns <= asked) {
        Meeting::Runnable
    } else {
        Meeting::Blocked
    }
}

#[cfg(test)]
mod tests;
