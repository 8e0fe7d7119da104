//! The GIL on real interpreters: who sleeps on it, and behind whom.
//!
//! The ground truth is what each thread of the target does: spinners wait for nothing but their
//! own interpreter's GIL, and one thread for nothing but a lock.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use profiler::cpython::{GilLock, Runtime};
use profiler::pipeline::Attached;
use profiler::sample::{Gil, Wait};
use profiler::target::{Asleep, FdKind, InKernel, SchedulerMark, TaskState, wait_of};
use profiler::words::{Pid, RemoteAddr, ThreadStateAddr, Tid};
use serde_json::Value;
use tests::pythons::{self, Python, WITH_GIL};
use tests::rung::{self, Rung};
use tests::target::Target;

const PATIENCE: Duration = Duration::from_secs(60);
/// How often each thread is to be seen asleep.
const SIGHTINGS: usize = 50;

/// A thread of the target.
struct Thread {
    tid: Tid,
    state: ThreadStateAddr,
}

struct Session {
    attached: Attached,
    runtime: Runtime,
    gils: Vec<GilLock>,
    ready: Value,
}

impl Session {
    fn begin(target: &Target) -> Result<Self> {
        let attached = Attached::open(Pid(target.pid().as_raw().cast_unsigned()))?;
        let runtime = attached.discover()?;
        Ok(Self {
            gils: runtime.gils(&attached.memory)?,
            ready: target.ready().clone(),
            attached,
            runtime,
        })
    }

    /// The threads of one kind, and the GIL that their interpreter runs under.
    fn threads(&self, kind: &str) -> Result<(Vec<Thread>, &GilLock)> {
        let said: Vec<(u32, u64)> = serde_json::from_value(self.ready[kind].clone())?;
        let states = self.runtime.thread_states(&self.attached.memory)?;
        let mut threads = Vec::new();
        let mut gil = None;
        for (tid, ident) in said {
            let state = states.iter().find(|state| state.pthread_id.0 == ident);
            let state = state.context("a thread without a state")?;
            let of = |gil: &&GilLock| gil.interpreters.contains(&state.interpreter);
            gil = self.gils.iter().find(of);
            threads.push(Thread {
                tid: Tid(tid),
                state: state.addr,
            });
        }
        Ok((threads, gil.context("an interpreter without a GIL")?))
    }

    /// What a thread waits for, and which of all GILs it is; none while it does not sleep.
    fn wait(&self, tid: Tid) -> Result<Option<(Wait, Option<&GilLock>, SchedulerMark)>> {
        let mark = match self.attached.process.mark(tid)? {
            Asleep::Yes(mark) => mark,
            Asleep::No => return Ok(None),
            Asleep::CannotTell => bail!("this kernel keeps no schedstat"),
        };
        let InKernel::Blocked { syscall, args, .. } = *mark.place() else {
            return Ok(None);
        };
        let gil = self
            .gils
            .iter()
            .find(|gil| gil.contains(RemoteAddr(args[0])));
        let fd_kind = |_| FdKind::Unknown;
        let is_gil = |addr| gil.is_some_and(|gil| gil.contains(addr));
        let args = [args[0], args[1]];
        let wait = wait_of(syscall, args, TaskState::Sleeping, is_gil, fd_kind);
        Ok(Some((wait, gil.filter(|_| wait == Wait::Gil), mark)))
    }

    /// Two spinners sleep on their own GIL alone, and one of them behind the other.
    fn check_spinners(&self, kind: &str) -> Result<()> {
        let (threads, gil) = self.threads(kind)?;
        for thread in &threads {
            let (mut seen, mut behind) = (0, 0);
            let started = Instant::now();
            while seen < SIGHTINGS || behind == 0 {
                ensure!(
                    started.elapsed() < PATIENCE,
                    "{kind} seen {seen} times, {behind} behind"
                );
                let Some((wait, which, mark)) = self.wait(thread.tid)? else {
                    continue;
                };
                let holder = self.runtime.holder_of(&self.attached.memory, gil)?;
                if !mark.still_holds() {
                    continue;
                }
                ensure!(wait != Wait::Lock, "{kind} in a lock, {:?}", mark.place());
                if wait == Wait::Gil {
                    ensure!(which == Some(gil), "{kind} in another GIL");
                    // Who takes it names itself a moment after it has locked it.
                    if holder == Some(thread.state) {
                        continue;
                    }
                    seen += 1;
                    let other = threads.iter().find(|other| other.tid != thread.tid);
                    behind += usize::from(other.map(|other| other.state) == holder);
                }
            }
        }
        Ok(())
    }

    fn check_lock(&self) -> Result<()> {
        let (threads, _) = self.threads("lock")?;
        let tid = threads.first().context("no thread")?.tid;
        let started = Instant::now();
        let wait = || anyhow::Ok(self.wait(tid)?.map(|(wait, _, _)| wait));
        while wait()? != Some(Wait::Lock) {
            ensure!(started.elapsed() < PATIENCE, "it never waits for its lock");
        }
        for _ in 0..SIGHTINGS {
            let wait = wait()?;
            ensure!(wait == Some(Wait::Lock), "the lock became {wait:?}");
        }
        Ok(())
    }
}

/// A build without the GIL has none to wait for, until it is switched on.
fn check_without(python: &Python) -> Result<()> {
    let target = Target::start(python, "gil_waiters.py", &[])?;
    let session = Session::begin(&target)?;
    ensure!(session.gils.is_empty(), "{:?}", session.gils);
    let states = session.runtime.thread_states(&session.attached.memory)?;
    ensure!(states.iter().all(|state| state.gil == Gil::NoGil));
    Ok(())
}

fn check(python: &Python) -> Result<()> {
    let mut target = Target::start(python, "gil_waiters.py", &[])?;
    let session = Session::begin(&target)?;
    session.check_lock()?;
    session.check_spinners("spinners")?;
    let apart = python.minor() >= (3, 12);
    ensure!(
        session.gils.len() == if apart { 2 } else { 1 },
        "{:?}",
        session.gils
    );
    if apart {
        session.check_spinners("apart")?;
    }
    for line in ["go", "stop"] {
        target.tell(line)?;
    }
    target.expect("running")?;
    target.done()?;
    Ok(())
}

#[test]
fn who_waits_for_a_gil_sleeps_in_it_and_nobody_else_does() -> Result<()> {
    if !rung::reached(Rung::Live) {
        return Ok(());
    }
    for python in pythons::required() {
        let outcome = if python.free_threaded {
            check_without(python).and_then(|()| check(&python.with(&WITH_GIL)))
        } else {
            check(python)
        };
        outcome.with_context(|| format!("on {}", python.label))?;
    }
    Ok(())
}
