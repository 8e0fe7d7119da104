//! The loop of a run: waits for the ring, the clock, the target's end and the user, whichever
//! comes first, and closes everything in order.

use std::{fmt, future::Future, io, time::Duration};

use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

use super::{
    attach::{AttachError, Attached},
    conclude,
    jitter::{Jitter, WHILE},
    rounds::Rounds,
    session::Session,
    settings::{RunSettings, Target, Walk},
};
use crate::{
    aggregate::{Profile, ProfileBuilder},
    assembler::Assembler,
    cpython::{CpythonError, Runtime},
    source::{Kernel, KernelError, ring::Ring},
    sys,
    target::descendants,
    wire,
    words::MonotonicNs,
};

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its time was up.
    Duration,
    /// The user had enough.
    Interrupted,
    /// The target ended.
    TargetEnded,
}

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// The profile, closed.
    pub profile: Profile,
    /// Why it ended.
    pub end: End,
    /// Whether an interpreter was ever found.
    pub python: bool,
}

/// What the progress line shows.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Ticks so far.
    pub ticks: u64,
    /// Whether an interpreter was found yet.
    pub python: bool,
}

/// What a run hears from outside, and whom it tells.
pub struct Outside<'a, S> {
    /// Ends the run.
    pub stop: S,
    /// Asks for the profile so far.
    pub asked: &'a Notify,
    /// Gets it.
    pub so_far: &'a mut dyn FnMut(Profile),
    /// Gets the state of the run, often.
    pub progress: &'a mut dyn FnMut(Progress),
}

impl<S> fmt::Debug for Outside<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outside").finish_non_exhaustive()
    }
}

/// Why a run could not be.
#[derive(Debug)]
pub enum RunError {
    /// The target.
    Attach(AttachError),
    /// The kernel half.
    Kernel(KernelError),
    /// The event loop.
    Io(io::Error),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attach(error) => error.fmt(f),
            Self::Kernel(error) => error.fmt(f),
            Self::Io(error) => write!(f, "the event loop failed: {error}"),
        }
    }
}

impl std::error::Error for RunError {}

impl From<AttachError> for RunError {
    fn from(error: AttachError) -> Self {
        Self::Attach(error)
    }
}

impl From<KernelError> for RunError {
    fn from(error: KernelError) -> Self {
        Self::Kernel(error)
    }
}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Records taken from the ring at a time.
const BATCH: usize = 4096;
/// How often the ring is looked at while it does not call: often at first, when every code
/// object is new and may be gone soon, and calmly later.
const EAGER: Duration = Duration::from_millis(10);
const CALM: Duration = Duration::from_millis(100);
/// How long a process that was there before us may take to finish starting its interpreter.
const STARTING: Duration = Duration::from_secs(5);
/// How often threads that had no name are asked for it again.
const NAMES: Duration = Duration::from_millis(500);
/// How long the end of a process waits for events that are older: a little more than the assembler
/// needs.
const SETTLING: Duration = Duration::from_millis(3);
/// How often CPUs that came online are looked for.
const NEW_CPUS: Duration = Duration::from_secs(5);

/// Profile `target` until the first of: its end, the duration, the word to stop. `ticking` is called once no
/// tick will be missed any more.
///
/// # Errors
/// Everything that can fail, fails before the first tick. What fails later ends the run with a
/// profile.
pub async fn run(
    mut kernel: Kernel,
    target: Target,
    settings: RunSettings,
    host: String,
    ticking: impl FnOnce(),
    outside: Outside<'_, impl Future<Output = ()>>,
) -> Result<Outcome, RunError> {
    let mut roots = Vec::new();
    for pid in &target.pids {
        let attached = Attached::open(*pid)?;
        let command = target.command.clone().unwrap_or_else(|| command(&attached));
        // Its own ticks must not be missed while the interpreter is looked for.
        let runtime = if target.command.is_some() {
            None
        } else {
            patiently(&attached, settings.follow).await?
        };
        roots.push((attached, command, runtime));
    }
    let first = roots.first().map(|(attached, command, _)| {
        let pid = attached.process.pid();
        (pid, command.clone())
    });
    let (pid, command) = first.ok_or_else(|| io::Error::other("there is no process"))?;
    let mut ring = kernel
        .take_ring()
        .ok_or_else(|| io::Error::other("the ring is taken"))??;
    let since = sys::monotonic();
    let meta = settings.meta(pid, command, host, since);
    let mut builder = ProfileBuilder::new(meta);
    if settings.timeline {
        builder = builder.with_timeline();
    }
    let mut session = Session::new(builder, settings.clone(), since);
    for (attached, command, runtime) in roots {
        session.begin(&mut kernel, attached, None, command, runtime)?;
    }
    if settings.follow {
        find_children(&mut kernel, &mut session);
    }
    kernel.take_census()?;
    kernel.tick_everywhere()?;
    ticking();
    let mut assembler = Assembler::default();
    let end = drive(
        &mut kernel,
        &mut ring,
        &mut session,
        &mut assembler,
        &settings,
        outside,
    )
    .await?;
    Ok(conclude::close(
        kernel,
        &mut ring,
        session,
        &mut assembler,
        end,
    )?)
}

fn command(attached: &Attached) -> String {
    let words = attached.process.command_line().unwrap_or_default();
    words.join(" ")
}

/// The interpreter of a process that was there before us; one that is just starting gets a while.
/// One whose children are followed need not have any.
pub(super) async fn patiently(
    attached: &Attached,
    follow: bool,
) -> Result<Option<Runtime>, AttachError> {
    let deadline = Instant::now() + STARTING;
    loop {
        match attached.discover() {
            Err(AttachError::Python { error, .. })
                if error.is_worth_a_retry() && Instant::now() < deadline =>
            {
                tokio::time::sleep(EAGER).await;
            }
            Err(AttachError::Python {
                error: CpythonError::NotFound(_),
                ..
            }) if follow => return Ok(None),
            other => return other.map(Some),
        }
    }
}

/// The children that are there already. Those that come meanwhile are followed by the kernel, or
/// found when it is looked again.
fn find_children(kernel: &mut Kernel, session: &mut Session) {
    loop {
        let found = descendants(&session.pids()).into_iter();
        let fresh: Vec<_> = found.filter(|(pid, _)| !session.knows(*pid)).collect();
        if fresh.is_empty() {
            return;
        }
        for (pid, parent) in fresh {
            session.find(kernel, pid, parent);
        }
    }
}

async fn drive(
    kernel: &mut Kernel,
    ring: &mut Ring,
    session: &mut Session,
    assembler: &mut Assembler,
    settings: &RunSettings,
    outside: Outside<'_, impl Future<Output = ()>>,
) -> Result<End, RunError> {
    let Outside {
        stop,
        asked,
        so_far,
        progress,
    } = outside;
    let begin = Instant::now();
    let deadline = settings.duration.map(|duration| begin + duration);
    let mut calm = false;
    let mut urgent = None;
    let mut beat = every(EAGER);
    let mut around = begin;
    let mut new_cpus = begin + NEW_CPUS;
    let mut names = begin + NAMES;
    let mut periods = begin;
    let period = settings.period();
    let mut jitter = Jitter::new(period);
    let rounds = settings.mode.looks_off_cpu();
    let rounds = rounds.then(|| Rounds::start(period, !settings.jitter));
    let mut rounds = rounds.transpose()?;
    tokio::pin!(stop);
    loop {
        let soon = assembler.holds_an_end().then(|| Instant::now() + SETTLING);
        let ended = tokio::select! {
            biased;
            () = &mut stop => Some(End::Interrupted),
            () = until(deadline) => Some(End::Duration),
            due = round(rounds.as_mut()) => {
                session.look_off_cpu(kernel.accounts(), due?);
                // Rounds that take longer than they are apart leave no time to anything else.
                if around.elapsed() < CALM {
                    continue;
                }
                None
            }
            () = asked.notified() => {
                so_far(conclude::so_far(kernel, ring, session, assembler)?);
                continue;
            }
            readable = ring.readable() => {
                readable?;
                None
            }
            () = until(soon) => None,
            _ = beat.tick() => None,
        };
        let now = Instant::now();
        if settings.jitter && now >= periods {
            periods = now + WHILE;
            kernel.change_period(jitter.next())?;
        }
        pump(ring, session, assembler, Some(sys::monotonic()));
        session.end_batch();
        if let Some(end) = ended {
            return Ok(end);
        }
        let is_urgent = session.is_urgent(sys::monotonic());
        if urgent.replace(is_urgent) != Some(is_urgent) {
            kernel.set_urgent(is_urgent)?;
            // A walk from user space is the less wrong the sooner it is.
            assembler.hurry(is_urgent || settings.walk == Walk::User);
        }
        session.look_around(kernel)?;
        around = Instant::now();
        kernel.flush_log();
        kernel.turn_meter(sys::monotonic());
        progress(Progress {
            ticks: session.ticks(),
            python: session.was_python(),
        });
        if now >= names || session.is_small() {
            session.miss_the_ended(kernel)?;
        }
        if session.is_deserted() {
            return Ok(End::TargetEnded);
        }
        if now >= names {
            names = now + NAMES;
            session.ask_again();
        }
        if now >= new_cpus {
            new_cpus = now + NEW_CPUS;
            kernel.tick_everywhere()?;
        }
        if calm == session.has_young() {
            calm = !calm;
            beat = every(if calm { CALM } else { EAGER });
        }
    }
}

async fn round(rounds: Option<&mut Rounds>) -> io::Result<MonotonicNs> {
    match rounds {
        Some(rounds) => rounds.next().await,
        None => std::future::pending().await,
    }
}

fn every(period: Duration) -> tokio::time::Interval {
    let mut beat = interval_at(Instant::now() + period, period);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    beat
}

pub(super) async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

pub(super) async fn end_of(target: Option<&AsyncFd<std::os::fd::OwnedFd>>) {
    match target {
        // An error of the reactor is looked into by the next beat.
        Some(fd) if fd.readable().await.is_ok() => {}
        _ => std::future::pending().await,
    }
}

/// Take what is in the ring; with no `now`, everything to the last record.
pub(super) fn pump(
    ring: &mut Ring,
    session: &mut Session,
    assembler: &mut Assembler,
    now: Option<MonotonicNs>,
) {
    let mut records = Vec::new();
    loop {
        ring.drain(&mut records, BATCH);
        let full = records.len() == BATCH;
        for record in records.drain(..) {
            match wire::decode(&record) {
                Ok(event) => assembler.push(event),
                Err(error) => {
                    session.kit.received.malformed += 1;
                    log::debug!("a record of the ring is malformed: {error}");
                }
            }
        }
        for event in assembler.settled(now.unwrap_or(MonotonicNs(u64::MAX))) {
            session.event(event);
        }
        if !full {
            return;
        }
        session.end_batch();
    }
}
