//! One process of a run: its interpreter, its threads, its samples.
//!
//! It knows nothing of the others; what they all use is handed in.

use std::sync::Arc;

use profiler_common::{
    account::Account,
    walk::{END_NOT_TRIED, END_UNREADABLE},
};

use super::{
    Kit,
    native::{Native, with_native},
    off_cpu::OffCpu,
    pending::{Frames, Pending},
    plans::{Python, lacks_ways},
    tasks::{MemberTasks, Ran},
};
use crate::{
    aggregate::ProcessIndex,
    pipeline::{
        books::Gone,
        hold::Hold,
        natives::{Base, Natives},
        people::{self, People, Stranger},
        sampler::{self, Lock},
        search::Search,
        settings::Walk,
        stacks,
    },
    sample::{FramesFrom, Gc, Gil, Handling},
    target::Memory,
    tasks::Task,
    wire::{ExitStatus, Tick},
    words::{DurationNs, MonotonicNs, Pid, PthreadId, ThreadStateAddr, Tid},
};

/// The process that a child came from, and which of its programs that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kin {
    pub(super) pid: Pid,
    index: ProcessIndex,
    program: u32,
}

/// One process.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) pid: Pid,
    pub(super) index: ProcessIndex,
    pub(super) hold: Hold,
    pub(super) people: People,
    pub(super) python: Option<Python>,
    pub(super) natives: Option<Natives>,
    pub(super) off: OffCpu,
    pub(super) tasks: MemberTasks,
    pub(super) search: Search,
    /// Whom it was forked from, where that was seen.
    pub(super) kin: Option<Kin>,
    /// When it became a target.
    pub(super) since: MonotonicNs,
    /// When it was born, if it was seen.
    born: Option<MonotonicNs>,
    /// How many programs it has run.
    program: u32,
    /// When its plan was last set from here.
    pub(super) planned: MonotonicNs,
    /// Its plan is that of a program which it does not run any more.
    pub(super) replan: bool,
    pending: Vec<Pending>,
    pub(super) states_wanted: bool,
    ticks: u64,
    /// What it ends with.
    ended_by: Option<ExitStatus>,
    /// When it was first seen to end, by whatever sign.
    ending: Option<MonotonicNs>,
    /// When it was first found to be over.
    over: Option<MonotonicNs>,
}

/// How long after a process was found to be over the kernel's word of that, and of its threads, is
/// waited for. It comes at once, unless it was lost.
const ENDS_WITHIN: DurationNs = DurationNs(300_000_000);
/// A child that is older and was not opened yet is, to know whether it is still there.
const OLD: DurationNs = DurationNs(1_000_000_000);

impl Member {
    /// One that is watched since `since`; `born` is known of those that were seen to be.
    pub(super) fn new(
        index: ProcessIndex,
        hold: Hold,
        pid: Pid,
        since: MonotonicNs,
        born: Option<MonotonicNs>,
    ) -> Self {
        Self {
            pid,
            index,
            hold,
            people: People::default(),
            python: None,
            natives: None,
            off: OffCpu::default(),
            tasks: MemberTasks::default(),
            search: Search::begin(since),
            kin: None,
            since,
            born,
            program: 0,
            planned: MonotonicNs(0),
            replan: false,
            pending: Vec::new(),
            states_wanted: false,
            ticks: 0,
            ended_by: None,
            ending: None,
            over: None,
        }
    }

    /// A child that was forked from this process at `time`, one of `living`: it is the same
    /// program in the same state.
    pub(super) fn child(
        &mut self,
        index: ProcessIndex,
        pid: Pid,
        time: MonotonicNs,
        living: usize,
    ) -> Self {
        let mut child = Self::new(index, Hold::later(pid), pid, time, Some(time));
        child.kin = Some(Kin {
            pid: self.pid,
            index: self.index,
            program: self.program,
        });
        // What was found later may have come into the parent after the fork.
        if self.planned < time
            && let Some(python) = &mut self.python
        {
            child.python = Some(Python {
                runtime: python.runtime.clone(),
                plan: python.plan,
                stacks: python.stacks.heir(living),
                gils: python.gils.clone(),
                lock: python.lock,
                several: python.several,
                keys: python.keys.clone(),
            });
            child.states_wanted = lacks_ways(&python.plan);
        }
        child
    }

    /// Whether a child came from this process as it is now.
    pub(super) fn is_parent_of(&self, kin: Kin) -> bool {
        self.index == kin.index && self.program == kin.program
    }

    /// Open the process, unless it is, and learn what it is called.
    pub(super) fn open(&mut self, kit: &mut Kit) {
        if self.hold.open(self.born)
            && let Some(command) = self.hold.command()
        {
            kit.builder.process_runs(self.index, &command);
        }
    }

    /// Another program from now on; the batch is over. `old` is the thread that asked for it and is
    /// the first now.
    pub(super) fn exec(&mut self, kit: &mut Kit, old: Tid, name: &str, time: MonotonicNs) {
        self.python = None;
        self.natives = None;
        self.program = self.program.wrapping_add(1);
        self.replan |= self.planned > time;
        self.search = Search::begin(time);
        self.hold = Hold::later(self.pid);
        kit.symbols.forget(self.pid);
        kit.builder.process_runs(self.index, name);
        kit.builder.process_python(self.index, "");
        let first = Tid(self.pid.0);
        self.people.take_over(&mut kit.builder, old, first);
        self.people.rename_all(&mut kit.builder, name);
        self.people.forget_python();
        self.off.forget_python(old, first);
        self.settle_tasks(kit, time);
        self.tasks.forget_python();
    }

    /// The last of its threads begins to end, and the process with this.
    pub(super) fn ends_with(&mut self, status: ExitStatus, time: MonotonicNs) {
        self.ended_by.get_or_insert(status);
        self.ending.get_or_insert(time);
    }

    /// Whether it ends, by any sign so far.
    pub(super) fn ends(&mut self) -> bool {
        self.hold.check();
        self.hold.is_over() || self.ending.is_some()
    }

    /// Whether it is over and the kernel's word of that will not come any more. That it has begun to
    /// end is no sign: on a busy machine the rest can take long, and ticks fall into it.
    pub(super) fn is_over(&mut self, kit: &mut Kit, now: MonotonicNs) -> bool {
        let since = |time: MonotonicNs| now.0.saturating_sub(time.0);
        let long_ago = |time| since(time) > ENDS_WITHIN.0;
        if since(self.since) > OLD.0 || self.ending.is_some_and(long_ago) {
            self.open(kit);
        }
        self.hold.check();
        if !self.hold.is_over() {
            return false;
        }
        long_ago(*self.over.get_or_insert(now))
    }

    pub(super) fn tick(&mut self, kit: &mut Kit, tick: &Tick) {
        self.open(kit);
        if self.pending.is_empty() {
            self.hold.check();
        }
        kit.received.ticks += u64::from(tick.periods);
        kit.received.late += u64::from(tick.periods.saturating_sub(1));
        kit.received.first.get_or_insert(tick.time);
        self.ticks += u64::from(tick.periods);
        // A look may have met the next thread with this id before this tick was told.
        let is_former = self.people.is_younger(tick.tid, tick.time);
        if is_former {
            self.people.swap_former(tick.tid);
        }
        let state = tick.thread_state.map(|(state, _)| state);
        let thread = self.people.index(
            &self.hold,
            &mut kit.builder,
            Stranger {
                tid: tick.tid,
                sp: Some(tick.sp),
                tls_base: tick.tls_base,
                state,
                at: tick.time,
                is_counted: tick.on_cpu.is_some(),
                opened: None,
            },
        );
        let weight = {
            let whole = kit.settings.mode.looks_off_cpu();
            self.people.weigh(tick, kit.settings.period(), whole)
        };
        let lock = self.python.as_ref().map_or(Lock::Unknown, |it| it.lock);
        let in_gil = |futex| {
            let gils = self.python.iter().flat_map(|python| &python.gils);
            gils.into_iter().any(|gil| gil.contains(futex))
        };
        let mut sample = sampler::sample(tick, weight, lock, in_gil);
        let mut named = None;
        let (frames, from) = if self.people.is_kernels(tick.tid) {
            // What the tick says of Python is of the thread that this one was made for.
            sample.gil = self.gil_or(Gil::Neither);
            (sample.gc, sample.handling) = (Gc::Idle, Handling::Unknown);
            let stack = stacks::kernels_stack(&mut kit.builder);
            (Frames::Ready(stack), FramesFrom::None)
        } else {
            let ran = self.ran(kit, tick);
            named = ran.as_ref().and_then(|ran| ran.named.clone());
            self.frames(kit, tick, state, sample.gc == Gc::Collecting, ran)
        };
        let native = match (frames, from) {
            _ if self.people.is_kernels(tick.tid) => Native::Unasked,
            // Its Python frames are of another moment.
            (_, FramesFrom::Estimated) => {
                self.native_of(kit, tick, Some("python_frames_estimated"))
            }
            (Frames::Ready(_), _) => self.native_of(kit, tick, Some("python_frames_missing")),
            _ => self.native_of(kit, tick, None),
        };
        if is_former {
            self.people.swap_former(tick.tid);
        }
        self.pending.push(Pending {
            thread,
            frames,
            sample,
            from,
            named,
            native,
        });
    }

    /// What a thread has to do with the GIL: `otherwise`, but where there is none.
    pub(super) fn gil_or(&self, otherwise: Gil) -> Gil {
        match &self.python {
            Some(python) if python.lock == Lock::NoGil => Gil::NoGil,
            _ => otherwise,
        }
    }

    fn frames(
        &mut self,
        kit: &mut Kit,
        tick: &Tick,
        state: Option<ThreadStateAddr>,
        collecting: bool,
        ran: Option<Ran>,
    ) -> (Frames, FramesFrom) {
        let memory = self.hold.memory();
        let is_first = self.pending.is_empty() && self.off.is_settled();
        if let Some(python) = &mut self.python {
            let from_kernel = tick.frame_count() > 0;
            if from_kernel {
                if kit.is_urgent && is_first {
                    python.stacks.refresh(memory, tick);
                }
                let builder = &mut kit.builder;
                let stacks = &mut python.stacks;
                let id = match ran {
                    Some(Ran { chain, root, .. }) => {
                        stacks.of_task(memory, builder, chain, root, collecting)
                    }
                    None => stacks.of_tick(memory, builder, tick, collecting),
                };
                return (Frames::Chain(id), FramesFrom::Kernel);
            }
            let by_user = match kit.settings.walk {
                Walk::Kernel => false,
                Walk::Auto => tick.walk_end == END_UNREADABLE,
                Walk::User => tick.walk_end == END_NOT_TRIED,
            };
            if by_user
                && let Some(state) = state
                && let Some(chain) = stacks::walk_now(&mut kit.walker, memory, &python.plan, state)
            {
                let builder = &mut kit.builder;
                let id = python.stacks.of_walk(memory, builder, chain, collecting);
                return (Frames::Chain(id), FramesFrom::Estimated);
            }
            if by_user && state.is_some() && tick.walk_end == END_NOT_TRIED {
                // It may well have frames; they were gone, or unreadable, before they were read.
                let stack = stacks::unread_stack(&mut kit.builder);
                return (Frames::Ready(stack), FramesFrom::None);
            }
            // A thread between its Python frames is known to have none.
            self.states_wanted |= state.is_none() && python.plan.state.n_hops == 0;
        }
        let stack = stacks::native_stack(&mut kit.builder, &mut kit.symbols, self.pid, tick.ip);
        (Frames::Bare(stack), FramesFrom::None)
    }

    pub(super) fn identify(&mut self, kit: &mut Kit) {
        if self.people.has_strangers()
            && let Some(python) = &self.python
        {
            self.people.look(&self.hold, python, &mut kit.builder);
        }
    }

    /// Now and then: the names of threads that had none yet.
    pub(super) fn ask_again(&mut self, kit: &mut Kit) {
        self.hold.check();
        if let Some(python) = &mut self.python {
            // Interpreters come and go, and with them their locks.
            if let Ok(gils) = python.runtime.gils(self.hold.memory()) {
                python.gils = gils;
            }
            self.people
                .ask_again(&self.hold, &*python, &mut kit.builder);
        }
    }

    /// Whether samples or stacks wait for the end of their batch.
    pub(super) fn has_batch(&self) -> bool {
        !self.pending.is_empty() || !self.off.is_settled() || self.people.has_strangers()
    }

    /// Whether only its parent can say whether codes are what they are taken for.
    pub(super) fn was_missed(&self) -> bool {
        self.kin.is_some() && !self.hold.was_open()
    }

    /// The batch is over: what it used is compared with the target, and its samples count. The
    /// memory to compare with is the process's own unless another is given.
    pub(super) fn end_batch(&mut self, kit: &mut Kit, judge: Option<&dyn Memory>) {
        self.identify(kit);
        if self.pending.is_empty() && self.off.is_settled() {
            return;
        }
        self.hold.check();
        self.renew_natives(kit);
        let named = self.pending.iter().filter_map(|it| it.named.clone());
        let doubtful = self.doubtful(named);
        let memory = self.hold.memory();
        if let Some(python) = &mut self.python
            && !doubtful.is_empty()
        {
            let is_doubtful = |task: &Arc<Task>| doubtful.contains(&task.addr);
            let of_others = self.pending.iter_mut();
            for pending in of_others.filter(|it| it.named.as_ref().is_some_and(is_doubtful)) {
                if let Frames::Chain(id) = &mut pending.frames {
                    *id = python.by_coroutine(kit, memory, *id);
                    kit.tasks.accounts.by_coroutine += u64::from(pending.sample.ticks);
                }
            }
        }
        let changed = match &mut self.python {
            Some(python) => python.stacks.compare(judge.unwrap_or(memory)),
            None => Vec::new(),
        };
        for pending in self.pending.drain(..) {
            let stack = match (pending.frames, &mut self.python) {
                (Frames::Ready(stack) | Frames::Bare(stack), _) => stack,
                (Frames::Chain(id), Some(python)) if changed.is_empty() => python.stacks.stack(id),
                (Frames::Chain(id), Some(python)) => {
                    python
                        .stacks
                        .restated(memory, &mut kit.builder, id, &changed)
                }
                // An exec ends the batch before it takes the interpreter away.
                (Frames::Chain(_), None) => continue,
            };
            let base = match (pending.frames, &self.python) {
                (Frames::Chain(id), Some(python)) => python.base(stack, id),
                _ => Base::bare(stack),
            };
            let ticks = pending.sample.ticks.into();
            let stack = with_native(
                kit,
                &mut self.natives,
                self.pid,
                pending.native,
                base,
                ticks,
            );
            kit.builder.add(pending.place(stack), &pending.sample);
        }
        if let Some(python) = &mut self.python {
            self.off.restate(&changed, |id, native| {
                let stack = python
                    .stacks
                    .restated(memory, &mut kit.builder, id, &changed);
                let base = python.base(stack, id);
                with_native(kit, &mut self.natives, self.pid, native, base, 0)
            });
            python.stacks.settle(&changed);
            python.ask_for_lock(memory);
        }
        if let Some(natives) = &mut self.natives {
            natives.settle();
        }
    }

    /// Threads that the scheduler switched and no tick ever found have a line in the ledger too.
    pub(super) fn meet_the_unsampled(&mut self, kit: &mut Kit, accounts: &[Account]) {
        let own = accounts.iter().filter(|it| it.tgid == self.pid.0);
        let unknown = own.filter(|it| !self.people.knows(Tid(it.tid)));
        let unknown: Vec<_> = unknown.collect();
        if unknown.is_empty() {
            return;
        }
        self.open(kit);
        let states = self.python.as_ref().map_or_else(Vec::new, |python| {
            people::all_states(&python.runtime, self.hold.memory())
        });
        for account in unknown {
            let tls_base = PthreadId(account.tls_base);
            let state = states.iter().find(|(id, _)| *id == tls_base);
            let stranger = Stranger::of_account(account, state.map(|(_, state)| *state));
            self.people.index(&self.hold, &mut kit.builder, stranger);
        }
        self.identify(kit);
    }

    /// It is over (`ended`), or the run is: what the books keep of it.
    pub(super) fn account(&self, ended: Option<MonotonicNs>) -> Gone {
        Gone {
            index: self.index,
            pid: self.pid,
            since: self.since,
            ended,
            ended_by: self.ended_by,
            was_read: self.hold.was_open(),
            has_samples: self.ticks > 0 || self.off.has_samples(),
            unmet: self.people.unmet(),
            contradictions: self.people.contradictions(),
            people: self.people.everyone().to_vec(),
        }
    }
}
