//! One look at one thread: where it stands, and its frames.
//!
//! What is read of a thread off the CPU is proven by its counts: the same before and after, it did
//! not run between. A thread on a CPU runs on while it is read: its frames are an estimate.

use super::{
    Watch,
    person::{Met, Person},
    shares::Found,
};
use crate::{
    cpython::{GilLock, StateNow},
    pipeline::{
        sampler::futex_of,
        stacks::{self, ChainId},
    },
    pystack::Chain,
    sample::{Activity, FramesFrom, Gc, Gil, Handling, Wait},
    stack::StackId,
    target::{Counts, FdKind, InKernel, Standing, TargetError, TaskState, wait_of},
    words::{Generation, RemoteAddr, ThreadStateAddr},
};

/// How often a thread that moved is walked again.
const ATTEMPTS: usize = 4;

/// What was read of a thread, until it is known whether it holds.
struct Seen {
    chain: Option<Chain>,
    facts: Option<StateNow>,
    gc: Gc,
    /// The thread state that has the GIL it waits for.
    holder: Option<ThreadStateAddr>,
    gil: Gil,
    wait: Wait,
}

impl Watch {
    /// Look at a thread that stands so; nothing when it ended meanwhile.
    pub(super) fn look(
        &mut self,
        person: &mut Person,
        counts: Counts,
        standing: Standing,
    ) -> Option<(Met, Option<ChainId>)> {
        let found = match standing {
            Standing::OnCpu => Found::OnCpu,
            Standing::Runnable => Found::Runnable,
            Standing::Blocked(_) => Found::Blocked,
            Standing::Ended => return None,
        };
        let (mut counts, mut standing) = (counts, standing);
        let mut seen = self.read(person, standing)?;
        let mut from = FramesFrom::Estimated;
        if found == Found::OnCpu {
            // It may have ended, and another thread may have its place by now.
            person.watched.counts(&self.attached.process).ok()?;
            if !self.is_still(person) {
                seen.chain = None;
            }
        } else if counts.arrivals.is_some() {
            for attempt in 1.. {
                // On a CPU its counts stay as well.
                let off = matches!(standing, Standing::Runnable | Standing::Blocked(_));
                if off && person.watched.stayed(&self.attached.process, &counts) {
                    from = FramesFrom::User;
                    break;
                }
                if attempt == ATTEMPTS {
                    break;
                }
                counts = person.watched.counts(&self.attached.process).ok()?;
                standing = person
                    .watched
                    .standing(&self.attached.process, &counts)
                    .ok()?;
                seen = self.read(person, standing)?;
            }
        }
        person.counts = counts;
        let proven = from == FramesFrom::User;
        let moved = found == Found::Blocked && counts.arrivals.is_some() && !proven;
        let mut met = Met {
            found,
            stack: StackId(0),
            frames_from: FramesFrom::None,
            activity: match found {
                Found::OnCpu => Activity::OnCpu,
                Found::Runnable => Activity::Runnable,
                Found::Blocked => Activity::Blocked(seen.wait),
            },
            gil: seen.gil,
            gc: seen.gc,
            handling: seen.facts.map_or(Handling::Unknown, |facts| facts.handling),
            behind: seen
                .holder
                .and_then(|state| self.by_state.get(&state).copied()),
            generation: counts.arrivals.unwrap_or(Generation(0)),
            again: 0,
            again_ns: 0,
        };
        if moved {
            self.moved += 1;
            met.stack = stacks::moved_stack(&mut self.builder);
            met.gil = self.gil_or(Gil::Unknown);
            met.gc = Gc::Unknown;
            met.handling = Handling::Unknown;
            met.behind = None;
            return Some((met, None));
        }
        if let (Some(chain), Some(python)) = (seen.chain, &mut self.python) {
            let collecting = met.gc == Gc::Collecting;
            let memory = &self.attached.memory;
            let id = python
                .stacks
                .of_walk(memory, &mut self.builder, chain, collecting);
            met.stack = python.stacks.stack(id);
            met.frames_from = from;
            return Some((met, Some(id)));
        }
        met.stack = self.without_frames(person, standing);
        Some((met, None))
    }

    /// Read everything that one look needs. A thread that has lost its place gets it back at the
    /// next climb.
    fn read(&mut self, person: &mut Person, standing: Standing) -> Option<Seen> {
        let mut seen = Seen {
            chain: None,
            facts: None,
            gc: Gc::Idle,
            holder: None,
            gil: self.gil_or(Gil::Neither),
            wait: Wait::Unknown,
        };
        if person.known.is_some() && !self.is_still(person) {
            person.known = None;
        }
        let memory = &self.attached.memory;
        let gils = self.python.as_ref().map(|python| python.gils.as_slice());
        match (&self.python, person.known) {
            (None, _) => seen.gil = Gil::Unknown,
            (Some(_), None) if self.may_be_pythons(person) => {
                seen.gil = self.gil_or(Gil::Unknown);
            }
            (Some(_), None) => {}
            (Some(python), Some(known)) => {
                let facts = python.runtime.state_now(memory, known.state).ok();
                seen.facts = facts.filter(|facts| facts.pthread_id == known.pthread_id);
                match seen.facts {
                    None => {
                        person.known = None;
                        seen.gil = self.gil_or(Gil::Unknown);
                    }
                    Some(facts) => {
                        seen.gil = facts.gil;
                        let collects = || {
                            let runtime = &python.runtime;
                            let collects = runtime.collects(memory, known.state, facts.interpreter);
                            collects.ok().flatten()
                        };
                        seen.gc = match facts.gil {
                            Gil::Holds | Gil::NoGil => match collects() {
                                Some(true) => Gc::Collecting,
                                Some(false) => Gc::Idle,
                                None => Gc::Unknown,
                            },
                            Gil::Unknown if collects() != Some(false) => Gc::Unknown,
                            _ => Gc::Idle,
                        };
                        seen.chain =
                            stacks::walk_now(&mut self.walker, memory, &python.plan, known.state);
                    }
                }
            }
        }
        if let (Standing::Blocked(Some(InKernel::Blocked { syscall, args, .. })), Some(python)) =
            (standing, &self.python)
            && person.known.is_some()
            && let syscall = self.attached.process.resumed(person.tid(), syscall)
            && let Some((futex, waits)) = futex_of(syscall, [args[0], args[1]])
            && let Some(gil) = python.gils.iter().find(|gil| gil.contains(futex))
        {
            // Who has just let it go may want it again, or be on the way to block.
            seen.gil = if waits { Gil::Waits } else { Gil::Unknown };
            // Who takes it names itself a moment after it has locked it.
            let holder = python.runtime.holder_of(memory, gil).ok().flatten();
            seen.holder = holder.filter(|holder| person.known.map(|it| it.state) != Some(*holder));
        }
        if let Standing::Blocked(place) = standing
            && self.settings.mode.looks_off_cpu()
        {
            seen.wait = self.wait(person, place, gils.unwrap_or_default()).ok()?;
        }
        Some(seen)
    }

    fn wait(
        &self,
        person: &Person,
        place: Option<InKernel>,
        gils: &[GilLock],
    ) -> Result<Wait, TargetError> {
        let process = &self.attached.process;
        let state = person.watched.state(process)?;
        let Some(InKernel::Blocked { syscall, args, .. }) = place else {
            return Ok(match state {
                TaskState::Stopped => Wait::Stopped,
                _ => Wait::Unknown,
            });
        };
        let kind = |fd| {
            let kind = process.fd_kind(person.tid(), fd);
            kind.unwrap_or(FdKind::Unknown)
        };
        let is_gil = |futex| gils.iter().any(|gil| gil.contains(futex));
        let syscall = process.resumed(person.tid(), syscall);
        Ok(wait_of(syscall, [args[0], args[1]], state, is_gil, kind))
    }

    /// The stack of a thread of which no Python frames were read: the native function in which it
    /// blocks, or why there is nothing.
    fn without_frames(&mut self, person: &Person, standing: Standing) -> StackId {
        if person.counts.arrivals == Some(Generation(0)) {
            return stacks::unborn_stack(&mut self.builder);
        }
        if self.python.is_some() && self.may_be_pythons(person) {
            return stacks::unmatched_stack(&mut self.builder);
        }
        match standing {
            Standing::Blocked(Some(InKernel::Blocked { pc, .. })) if pc != RemoteAddr(0) => {
                let pid = self.attached.process.pid();
                stacks::native_stack(&mut self.builder, &mut self.symbols, pid, pc)
            }
            _ => stacks::unseen_stack(&mut self.builder),
        }
    }

    /// Whether a thread may be one of Python's although nobody knows yet which.
    fn may_be_pythons(&self, person: &Person) -> bool {
        person.known.is_none() && (person.climbed.is_none() || self.identity.has_unplaced())
    }

    fn is_still(&self, person: &Person) -> bool {
        self.identity.is_still(&self.attached, person)
    }
}
