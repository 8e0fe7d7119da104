//! One thread, looked at once: what it does, what it waits for and behind whom, its frames.
//!
//! Everything is read between two readings of the count of its arrivals on a CPU, so it belongs
//! together if the thread was off the CPU. Not here: which thread state is whose.

use profiler_common::walk::MAX_FRAMES;
use rustc_hash::FxHashMap;

use crate::{
    cpython::{self, CpythonError, GilLock, Runtime, StateNow, Wishes},
    native::{LiveSymbols, Symbols as _},
    pipeline::{attach::Attached, stacks},
    pystack::{Chain, Resolver, Walker},
    sample::{Activity, FramesFrom, Gc, Gil, Handling, Wait},
    stack::Frame,
    sys::{self, TaskClockReading},
    target::{FdKind, InKernel, LeftCpu, Presence, TaskFacts, TaskState, wait_of},
    words::{Cpu, DurationNs, MonotonicNs, RemoteAddr, ThreadStateAddr, Tid},
};

use super::Seen;

/// How often a thread that moved is walked again.
const ATTEMPTS: usize = 4;

/// What looking at threads of a process takes.
pub(super) struct Eye<'a> {
    attached: &'a Attached,
    runtime: &'a Runtime,
    gils: Vec<GilLock>,
    no_gil: bool,
    plan: Option<profiler_common::plan::Plan>,
    walker: Walker,
    resolver: Resolver,
    symbols: LiveSymbols,
    clocks: FxHashMap<Cpu, Option<TaskClockReading>>,
}

/// One reading of a thread.
struct Reading {
    activity: Activity,
    /// Where it is in the kernel, while it is off the CPU.
    place: Option<InKernel>,
    left: Option<LeftCpu>,
    chain: Option<Chain>,
    state: Option<StateNow>,
    /// Whether it collects, if it may; see [`Runtime::collects`].
    collecting: Option<bool>,
    /// The state that holds the GIL it waits for.
    behind: Option<ThreadStateAddr>,
    /// It did not run meanwhile.
    exact: bool,
}

impl<'a> Eye<'a> {
    /// For the threads of one process.
    pub(super) fn new(attached: &'a Attached, runtime: &'a Runtime) -> Result<Self, CpythonError> {
        let memory = &attached.memory;
        let wishes = Wishes {
            since: MonotonicNs(0),
            flags: 0,
            max_frames: MAX_FRAMES as u32,
        };
        Ok(Self {
            attached,
            runtime,
            gils: runtime.gils(memory)?,
            no_gil: runtime.runs_with_gil(memory) == Ok(false),
            plan: cpython::plan(runtime, memory, wishes),
            walker: Walker::default(),
            resolver: Resolver::new(runtime),
            symbols: LiveSymbols::default(),
            clocks: FxHashMap::default(),
        })
    }

    /// Looks at a thread, and says which thread state it waits behind.
    pub(super) fn see(
        &mut self,
        task: &TaskFacts,
        state: Option<ThreadStateAddr>,
    ) -> (Seen, Option<ThreadStateAddr>) {
        let mut attempts = 1;
        let mut reading = self.read(task, state);
        // A thread that runs will not come out better by asking again.
        while !reading.exact && reading.activity != Activity::OnCpu && attempts < ATTEMPTS {
            attempts += 1;
            reading = self.read(task, state);
        }
        let gil = self.gil(state, &reading);
        let gc = gc(state, &reading, gil);
        let mut frames = self.frames(&reading);
        if gc == Gc::Collecting {
            frames.insert(0, Frame::gc());
        }
        let seen = Seen {
            tid: task.tid,
            name: task.name.clone(),
            pthread_id: None,
            python: state.is_some(),
            activity: reading.activity,
            state: task.state,
            blocked: self.blocked(&reading),
            syscall: match reading.place {
                Some(InKernel::Blocked { syscall, .. }) => syscall,
                _ => None,
            },
            waits_in: self.attached.process.waits_in(task.tid).ok().flatten(),
            gil,
            attachment: reading.state.and_then(|now| now.attachment),
            behind: None,
            gc,
            handling: match (state, reading.state) {
                (None, _) => Handling::Nothing,
                (_, Some(now)) => now.handling,
                (_, None) => Handling::Unknown,
            },
            frames,
            frames_from: match (&reading.chain, reading.exact) {
                (None, _) => FramesFrom::None,
                (Some(_), true) => FramesFrom::User,
                (Some(_), false) => FramesFrom::Estimated,
            },
            matched_by: Vec::new(),
        };
        (seen, reading.behind)
    }

    fn read(&mut self, task: &TaskFacts, state: Option<ThreadStateAddr>) -> Reading {
        let process = &self.attached.process;
        let memory = &self.attached.memory;
        let presence = process.presence(task.tid).unwrap_or(Presence::CannotTell);
        let (place, letter, left) = match &presence {
            Presence::OnCpu => (None, task.state, None),
            Presence::Off(off) => (Some(*off.mark.place()), off.state, off.left),
            // It moves too fast, or nobody counts its moves; it may still be in the kernel.
            Presence::CannotTell => (process.in_kernel(task.tid).ok(), task.state, None),
        };
        let activity = match (&presence, &place) {
            _ if letter.has_ended() => Activity::Unknown,
            (Presence::OnCpu, _) => Activity::OnCpu,
            (_, Some(place @ InKernel::Blocked { .. })) => {
                Activity::Blocked(self.wait(task.tid, place, letter))
            }
            (Presence::Off(_), _) => Activity::Runnable,
            (Presence::CannotTell, _) => Activity::Unknown,
        };
        let chain = state.and_then(|state| {
            let plan = self.plan.as_ref()?;
            stacks::walk_now(&mut self.walker, memory, plan, state)
        });
        let addr = state;
        let state = addr.and_then(|addr| self.runtime.state_now(memory, addr).ok());
        let collecting = addr.zip(state).and_then(|(addr, state)| {
            let collecting = self.runtime.collects(memory, addr, state.interpreter);
            collecting.ok().flatten()
        });
        let behind = match (activity, &place, state) {
            (Activity::Blocked(Wait::Gil), Some(place), _) => self.holder_at(place),
            (_, _, Some(state)) if state.gil == Gil::Waits => {
                let holder = self.runtime.gil_holder(memory, state.interpreter);
                holder.ok().flatten()
            }
            _ => None,
        };
        // Who takes it names itself a moment after it has locked it.
        let behind = behind.filter(|holder| Some(*holder) != addr);
        // Last, for it is the proof of everything above.
        let exact = matches!(&presence, Presence::Off(off) if off.mark.still_holds());
        Reading {
            activity,
            place,
            left,
            chain,
            state,
            collecting,
            behind,
            exact,
        }
    }

    fn wait(&self, tid: Tid, place: &InKernel, letter: TaskState) -> Wait {
        let InKernel::Blocked { syscall, args, .. } = *place else {
            return Wait::Unknown;
        };
        let is_gil = |futex| self.gils.iter().any(|gil| gil.contains(futex));
        let process = &self.attached.process;
        let fd_kind = |fd| process.fd_kind(tid, fd).unwrap_or(FdKind::Unknown);
        let syscall = process.resumed(tid, syscall);
        wait_of(syscall, [args[0], args[1]], letter, is_gil, fd_kind)
    }

    /// What a thread has to do with the GIL. One that waits for it wakes up every few milliseconds,
    /// and is then nowhere to be seen waiting, unless its state says so (3.15).
    fn gil(&self, state: Option<ThreadStateAddr>, reading: &Reading) -> Gil {
        let asks = self.runtime.layout().tstate.gil_requested;
        let Some(now) = reading.state else {
            return if state.is_some() {
                Gil::Unknown
            } else if self.no_gil {
                Gil::NoGil
            } else {
                Gil::Neither
            };
        };
        match (reading.activity, now.gil) {
            (Activity::Blocked(Wait::Gil), _) => Gil::Waits,
            (Activity::Blocked(_), gil) => gil,
            (_, Gil::Neither) if asks.is_none() => Gil::Unknown,
            (_, gil) => gil,
        }
    }

    /// Who holds the GIL that a thread sleeps in.
    fn holder_at(&self, place: &InKernel) -> Option<ThreadStateAddr> {
        let InKernel::Blocked { args, .. } = place else {
            return None;
        };
        let futex = RemoteAddr(args[0]);
        let gil = self.gils.iter().find(|gil| gil.contains(futex))?;
        let holder = self.runtime.holder_of(&self.attached.memory, gil);
        holder.ok().flatten()
    }

    /// For how long a thread has been blocked, if it has not run since it was seen so.
    fn blocked(&mut self, reading: &Reading) -> Option<DurationNs> {
        let (Activity::Blocked(_), Some(left), true) =
            (reading.activity, reading.left, reading.exact)
        else {
            return None;
        };
        // Read once for all threads that left this CPU; since then it went on as time does.
        let clock = self.clocks.entry(left.cpu);
        let clock = (*clock.or_insert_with(|| sys::task_clock(left.cpu)))?;
        let since = sys::monotonic().0.saturating_sub(clock.at.0);
        let now = clock.clock.0.saturating_add(since);
        Some(DurationNs(now.saturating_sub(left.clock.0)))
    }

    fn frames(&mut self, reading: &Reading) -> Vec<Frame> {
        if let Some(chain) = &reading.chain {
            let frames = self.resolver.frames(&self.attached.memory, chain);
            return frames
                .iter()
                .map(|frame| stacks::frame_of(frame, &[]))
                .collect();
        }
        match reading.place {
            Some(InKernel::Blocked { pc, .. }) => {
                let pid = self.attached.process.pid();
                vec![Frame::from(&self.symbols.name(pid, pc))]
            }
            _ => Vec::new(),
        }
    }
}

/// The collector runs in whichever thread holds the GIL while the flag is up; where there is
/// none, it was asked whose collection it is.
fn gc(state: Option<ThreadStateAddr>, reading: &Reading, gil: Gil) -> Gc {
    match (state, reading.collecting, gil) {
        (None, ..) => Gc::Idle,
        (_, None, _) | (_, Some(true), Gil::Unknown) => Gc::Unknown,
        (_, Some(true), Gil::Holds | Gil::NoGil) => Gc::Collecting,
        (_, Some(_), _) => Gc::Idle,
    }
}
