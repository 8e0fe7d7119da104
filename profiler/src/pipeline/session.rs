//! One run in progress: events in, a growing profile out.
//!
//! It waits for nothing and sleeps never; `run` calls it when there is something to do.

mod off_cpu;

use off_cpu::OffCpu;
use profiler_common::account::Account;
use profiler_common::plan::{PLAN_NO_WALK, Plan};
use profiler_common::walk::{END_NOT_TRIED, END_UNREADABLE};

use super::{
    attach::{AttachError, Attached},
    books::Received,
    people::{self, People},
    sampler,
    settings::{RunSettings, Walk},
    stacks::{self, ChainId, Stacks},
};
use crate::{
    aggregate::{Place, ProfileBuilder, ThreadIndex},
    cpython::{self, GilLock, Runtime, Wishes},
    native::LiveSymbols,
    pystack::Walker,
    sample::{FramesFrom, Gc, Sample},
    source::{Kernel, KernelError},
    stack::StackId,
    wire::{Event, Tick},
    words::{MonotonicNs, Pid, PthreadId, ThreadStateAddr, Tid},
};

/// Where a sample's stack will come from at the end of its batch.
#[derive(Clone, Copy, Debug)]
enum Frames {
    Chain(ChainId),
    Ready(StackId),
}

/// A sample whose batch is not over.
#[derive(Debug)]
struct Pending {
    thread: ThreadIndex,
    frames: Frames,
    sample: Sample,
    from: FramesFrom,
}

impl Pending {
    fn place(&self, stack: StackId) -> Place {
        Place {
            thread: self.thread,
            stack,
            frames_from: self.from,
            behind: None,
        }
    }
}

/// An interpreter in the target and everything that is read through it.
#[derive(Debug)]
struct Python {
    runtime: Runtime,
    plan: Plan,
    stacks: Stacks,
    gils: Vec<GilLock>,
}

/// Everything that lives as long as a run.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) attached: Attached,
    pub(super) builder: ProfileBuilder,
    pub(super) people: People,
    pub(super) received: Received,
    python: Option<Python>,
    symbols: LiveSymbols,
    walker: Walker,
    pending: Vec<Pending>,
    settings: RunSettings,
    since: MonotonicNs,
    states_wanted: bool,
    had_python: bool,
    off: OffCpu,
}

impl Session {
    pub(super) fn new(
        attached: Attached,
        builder: ProfileBuilder,
        settings: RunSettings,
        since: MonotonicNs,
    ) -> Self {
        Self {
            attached,
            builder,
            people: People::default(),
            received: Received::default(),
            python: None,
            symbols: LiveSymbols::default(),
            walker: Walker::default(),
            pending: Vec::new(),
            settings,
            since,
            states_wanted: false,
            had_python: false,
            off: OffCpu::default(),
        }
    }

    fn pid(&self) -> Pid {
        self.attached.process.pid()
    }

    fn wishes(&self) -> Wishes {
        let flags = if self.settings.walk == Walk::User {
            PLAN_NO_WALK
        } else {
            0
        };
        Wishes {
            since: self.since,
            flags,
            max_frames: self.settings.max_frames,
        }
    }

    /// Tick on the process although it runs no Python yet.
    pub(super) fn plan_without_python(&self, kernel: &mut Kernel) -> Result<(), KernelError> {
        kernel.set_plan(self.pid(), &cpython::plan_without_python(self.wishes()))
    }

    /// Read the process as the interpreter it runs.
    pub(super) fn plan_with(
        &mut self,
        kernel: &mut Kernel,
        runtime: Runtime,
    ) -> Result<(), KernelError> {
        let Some(plan) = cpython::plan(&runtime, &self.attached.memory, self.wishes()) else {
            log::warn!(
                "the interpreter's own table of offsets is out of reach; no frames are read"
            );
            return self.plan_without_python(kernel);
        };
        if plan.state.n_hops == 0 && plan.state.holder_addr == 0 {
            self.states_wanted = true;
        }
        let (found, state) = (runtime.found(), &plan.state);
        log::info!(
            "Python {} in {}, found by {}; {} hops from the TLS base to the thread state",
            found.version,
            found.image,
            found.by,
            state.n_hops
        );
        self.builder
            .python(&runtime.version().to_string(), "default");
        self.had_python = true;
        let stacks = Stacks::new(&runtime);
        self.python = Some(Python {
            gils: runtime.gils(&self.attached.memory).unwrap_or_default(),
            runtime,
            plan,
            stacks,
        });
        self.fill_states(kernel)?;
        kernel.set_plan(self.pid(), &plan)
    }

    /// Whether an interpreter should be looked for.
    pub(super) fn wants_python(&self) -> bool {
        self.python.is_none()
    }

    /// Look for the interpreter.
    pub(super) fn discover(&self) -> Result<Runtime, AttachError> {
        self.attached.discover()
    }

    /// Tell the tick of every thread state, when some thread's storage did not.
    pub(super) fn fill_states(&mut self, kernel: &mut Kernel) -> Result<(), KernelError> {
        if !std::mem::take(&mut self.states_wanted) {
            return Ok(());
        }
        let Some(python) = &self.python else {
            return Ok(());
        };
        for (thread, state) in people::all_states(&python.runtime, &self.attached.memory) {
            kernel.set_state(self.attached.process.pid(), thread, state)?;
        }
        Ok(())
    }

    /// Take one event.
    pub(super) fn event(&mut self, event: Event) {
        match event {
            Event::Tick(tick) if tick.pid != self.pid() => {
                self.received.unknown_process += u64::from(tick.periods);
            }
            Event::Tick(tick) => self.tick(&tick),
            Event::Fork { pid, tid, time, .. } if pid == self.pid() => {
                self.people.make_room(tid, time);
            }
            Event::Exit {
                tid,
                times,
                pid,
                last,
                time,
                replaced: false,
                ..
            } if pid == self.pid() => {
                // Its samples are older than its end, so they are in the batch already.
                self.identify();
                self.people.leave(tid, times, time);
                if last {
                    self.gone_off_cpu(tid, times, time);
                    self.people.gone(tid, times.on_cpu);
                }
            }
            Event::Exec { pid, old, .. } if pid == self.pid() => {
                self.end_batch();
                self.python = None;
                self.people.forget_python();
                self.people.take_over(old, Tid(pid.0));
            }
            Event::Fork { .. } | Event::Exit { .. } | Event::Exec { .. } => {}
        }
    }

    fn tick(&mut self, tick: &Tick) {
        self.received.ticks += u64::from(tick.periods);
        self.received.first.get_or_insert(tick.time);
        let state = tick.thread_state.map(|(state, _)| state);
        let thread = self.people.index(
            &self.attached,
            &mut self.builder,
            tick.tid,
            Some(tick.sp),
            tick.tls_base,
            state,
        );
        let weight = self.people.weigh(tick, self.settings.period());
        let known = self.python.is_some();
        let in_gil = |futex| {
            let gils = self.python.iter().flat_map(|python| &python.gils);
            gils.into_iter().any(|gil| gil.contains(futex))
        };
        let sample = sampler::sample(tick, weight, known, in_gil);
        let (frames, from) = self.frames(tick, state, sample.gc == Gc::Collecting);
        self.pending.push(Pending {
            thread,
            frames,
            sample,
            from,
        });
    }

    fn frames(
        &mut self,
        tick: &Tick,
        state: Option<ThreadStateAddr>,
        collecting: bool,
    ) -> (Frames, FramesFrom) {
        let memory = &self.attached.memory;
        if let Some(python) = &mut self.python {
            let from_kernel = tick.frame_count() > 0;
            if from_kernel {
                let id = python
                    .stacks
                    .of_tick(memory, &mut self.builder, tick, collecting);
                return (Frames::Chain(id), FramesFrom::Kernel);
            }
            let by_user = match self.settings.walk {
                Walk::Kernel => false,
                Walk::Auto => tick.walk_end == END_UNREADABLE,
                Walk::User => tick.walk_end == END_NOT_TRIED,
            };
            if by_user
                && let Some(state) = state
                && let Some(chain) = stacks::walk_now(&mut self.walker, memory, &python.plan, state)
            {
                let id = python
                    .stacks
                    .of_walk(memory, &mut self.builder, chain, collecting);
                return (Frames::Chain(id), FramesFrom::Estimated);
            }
            if by_user && state.is_some() && tick.walk_end == END_NOT_TRIED {
                // It may well have frames; they were gone, or unreadable, before they were read.
                let stack = stacks::unread_stack(&mut self.builder);
                return (Frames::Ready(stack), FramesFrom::None);
            }
            // A thread between its Python frames is known to have none.
            self.states_wanted |= state.is_none() && python.plan.state.n_hops == 0;
        }
        let pid = self.attached.process.pid();
        let stack = stacks::native_stack(&mut self.builder, &mut self.symbols, pid, tick.ip);
        (Frames::Ready(stack), FramesFrom::None)
    }

    fn identify(&mut self) {
        if self.people.has_strangers()
            && let Some(python) = &self.python
        {
            self.people
                .look(&self.attached, &python.runtime, &mut self.builder);
        }
    }

    /// Now and then: the names of threads that had none yet.
    pub(super) fn ask_again(&mut self) {
        if let Some(python) = &mut self.python {
            // Interpreters come and go, and with them their locks.
            if let Ok(gils) = python.runtime.gils(&self.attached.memory) {
                python.gils = gils;
            }
            self.people
                .ask_again(&self.attached, &python.runtime, &mut self.builder);
        }
    }

    /// The batch is over: what it used is compared with the target, and its samples count.
    pub(super) fn end_batch(&mut self) {
        self.identify();
        if self.pending.is_empty() && self.off.is_settled() {
            return;
        }
        let memory = &self.attached.memory;
        let changed = match &mut self.python {
            Some(python) => python.stacks.compare(memory),
            None => Vec::new(),
        };
        for pending in self.pending.drain(..) {
            let stack = match (pending.frames, &mut self.python) {
                (Frames::Ready(stack), _) => stack,
                (Frames::Chain(id), Some(python)) if changed.is_empty() => python.stacks.stack(id),
                (Frames::Chain(id), Some(python)) => {
                    python
                        .stacks
                        .restated(memory, &mut self.builder, id, &changed)
                }
                // An exec ends the batch before it takes the interpreter away.
                (Frames::Chain(_), None) => continue,
            };
            self.builder.add(pending.place(stack), &pending.sample);
        }
        if let Some(python) = &mut self.python {
            self.off.restate(&changed, |id| {
                python
                    .stacks
                    .restated(memory, &mut self.builder, id, &changed)
            });
            python.stacks.settle(&changed);
        }
    }

    /// Looks at threads off the CPU so far, and how many of them found nothing that stayed.
    pub(super) fn looks(&self) -> (u64, u64) {
        (self.off.looks(), self.off.moved())
    }

    /// Ticks that arrived so far, for the progress line.
    pub(super) fn ticks(&self) -> u64 {
        self.received.ticks
    }

    /// When the target became one.
    pub(super) fn since(&self) -> MonotonicNs {
        self.since
    }

    /// Whether threads off the CPU are looked at.
    pub(super) fn looks_off_cpu(&self) -> bool {
        self.settings.mode.looks_off_cpu()
    }

    /// When the program began.
    pub(super) fn began(&self) -> MonotonicNs {
        self.settings.began
    }

    /// Whether an interpreter was ever found.
    pub(super) fn was_python(&self) -> bool {
        self.had_python
    }

    /// Threads that the scheduler switched and no tick ever found have a line in the ledger too.
    pub(super) fn meet_the_unsampled(&mut self, accounts: &[(Tid, Account)]) {
        let unknown = accounts.iter().filter(|(tid, _)| !self.people.knows(*tid));
        let unknown: Vec<_> = unknown.collect();
        let states = match &self.python {
            Some(python) if !unknown.is_empty() => {
                people::all_states(&python.runtime, &self.attached.memory)
            }
            _ => Vec::new(),
        };
        for (tid, account) in unknown {
            let tls_base = PthreadId(account.tls_base);
            let state = states.iter().find(|(id, _)| *id == tls_base);
            self.people.index(
                &self.attached,
                &mut self.builder,
                *tid,
                None,
                tls_base,
                state.map(|(_, state)| *state),
            );
        }
        self.identify();
    }
}
