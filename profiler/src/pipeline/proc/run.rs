//! The loop of a run without eBPF: a round whenever one is due, until the first of the time, the
//! target's end and the user.

use std::{future::Future, io};

use tokio::{io::unix::AsyncFd, time::Instant};

use super::Watch;
use crate::{
    aggregate::{ProcessInfo, ProfileBuilder},
    cpython::CpythonError,
    pipeline::{
        attach::{AttachError, Attached},
        rounds::Rounds,
        run::{End, Outcome, Outside, Progress, RunError, end_of, patiently, until},
        settings::{RunSettings, Target},
    },
    sys,
    words::{DurationNs, MonotonicNs},
};

/// How often an interpreter is looked for in a process that has none; and of so many parts of the
/// time the search takes one at most.
const SEARCH_PAUSE: DurationNs = DurationNs(10_000_000);
const SEARCH_PARTS: u64 = 4;
/// How often progress is told.
const PROGRESS_PAUSE: DurationNs = DurationNs(100_000_000);

/// Profile `target` from outside until the first of: its end, the duration, `stop`. `looking` is
/// called once everything that it does is counted. `why_not_bpf` goes into the ledger.
///
/// # Errors
/// Everything that can fail, fails before the first look. What fails later ends the run with a
/// profile.
pub async fn run_proc(
    target: Target,
    settings: RunSettings,
    host: String,
    why_not_bpf: Option<String>,
    looking: impl FnOnce(),
    outside: Outside<'_, impl Future<Output = ()>>,
) -> Result<Outcome, RunError> {
    let pid = *target.pids.first().ok_or_else(nobody)?;
    let attached = Attached::open(pid)?;
    let started_by_us = target.command.is_some();
    let command = target.command.unwrap_or_else(|| {
        let words = attached.process.command_line().unwrap_or_default();
        words.join(" ")
    });
    let runtime = if started_by_us {
        None
    } else {
        patiently(&attached, false).await?
    };
    sys::open_many_files();
    let since = sys::monotonic();
    let process = ProcessInfo {
        pid,
        parent: None,
        command: command.clone(),
        python: String::new(),
    };
    let meta = settings.meta_of("proc", "timer", pid, command, host, since);
    let mut builder = ProfileBuilder::new(meta);
    builder.process(process);
    if settings.timeline {
        builder = builder.with_timeline();
    }
    let mut watch = Watch::new(attached, builder, settings.clone(), since);
    if let Some(runtime) = runtime {
        watch.read_as(runtime);
    }
    watch.begin().map_err(AttachError::from)?;
    looking();
    let end = drive(&mut watch, &settings, outside).await?;
    let python = watch.had_python;
    Ok(Outcome {
        profile: watch.close(why_not_bpf),
        end,
        python,
    })
}

/// A run is about somebody.
fn nobody() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "no process to profile")
}

async fn drive(
    watch: &mut Watch,
    settings: &RunSettings,
    outside: Outside<'_, impl Future<Output = ()>>,
) -> io::Result<End> {
    let Outside {
        stop,
        asked,
        progress,
        ..
    } = outside;
    let deadline = settings.duration.map(|duration| Instant::now() + duration);
    let target_end = watch.attached.process.pidfd();
    let target_end = target_end.map(|fd| fd.try_clone_to_owned());
    #[expect(
        deprecated,
        reason = "what replaces it is unsafe, and an owned descriptor stays open"
    )]
    let target_end = target_end.transpose()?.map(AsyncFd::new).transpose()?;
    let mut rounds = Rounds::start(settings.period(), !settings.jitter)?;
    let (mut search, mut told) = (MonotonicNs(0), MonotonicNs(0));
    let mut rested = MonotonicNs(0);
    tokio::pin!(stop);
    loop {
        let ended = tokio::select! {
            biased;
            () = &mut stop => Some(End::Interrupted),
            () = until(deadline) => Some(End::Duration),
            () = end_of(target_end.as_ref()) => Some(End::TargetEnded),
            () = asked.notified() => {
                log::warn!(
                    "SIGUSR1: without eBPF there is no profile before the end; Ctrl-C ends and writes"
                );
                continue;
            }
            due = rounds.next() => {
                due?;
                None
            }
        };
        if let Some(ended) = ended {
            return Ok(ended);
        }
        let began = sys::monotonic();
        if began < rested {
            continue;
        }
        if watch.round().is_err() && watch.attached.process.has_ended() {
            return Ok(End::TargetEnded);
        }
        let now = sys::monotonic();
        // So many threads are not looked at so often: half of a CPU is enough.
        rested = MonotonicNs(now.0.saturating_add(now.0.saturating_sub(began.0)));
        if watch.python.is_none() && now >= search {
            look_for_python(watch);
            let end = sys::monotonic();
            let pause = end.0.saturating_sub(now.0).saturating_mul(SEARCH_PARTS - 1);
            search = MonotonicNs(end.0.saturating_add(pause.max(SEARCH_PAUSE.0)));
        }
        if now >= told {
            told = MonotonicNs(now.0 + PROGRESS_PAUSE.0);
            progress(Progress {
                ticks: watch.ticks + watch.looks,
                python: watch.python.is_some(),
            });
        }
    }
}

/// A process that became, or is still to become, a Python.
fn look_for_python(watch: &mut Watch) {
    match watch.attached.discover() {
        Ok(runtime) => watch.read_as(runtime),
        Err(AttachError::Python { error, .. })
            if !error.is_worth_a_retry() && !matches!(error, CpythonError::NotFound(_)) =>
        {
            log::debug!("not profiled as Python: {error}");
        }
        Err(_) => {}
    }
}
