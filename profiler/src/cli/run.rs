//! `profiler run`: everything that can fail fails first; then it profiles, then it writes.

use std::{os::unix::process::ExitStatusExt as _, path::PathBuf, process::Child};

use anyhow::{Context as _, Result, bail};
use tokio::sync::oneshot;

use super::{
    DONE, FAILED,
    args::RunArgs,
    log,
    progress::Line,
    report,
    settings::{RunPlan, Whom, run_plan},
    signals::{self, Word},
    start::{CANNOT_START, Held},
};
use crate::{
    aggregate::Profile,
    export::{self, Format, Sink, SinkError},
    pipeline::{self, Attached, End, Outcome, Target},
    source::{Kernel, KernelOptions, TickProgram, capabilities},
    words::Pid,
};

/// The files of a run, opened.
struct Outputs {
    profiles: Vec<(Sink, Format)>,
    ledger: Option<Sink>,
}

/// Run it; the exit status.
pub(super) fn main(args: &RunArgs) -> Result<u8> {
    log::begin(args.verbose);
    let plan = run_plan(args)?;
    let outputs = open(&plan)?;
    if let Whom::Process(pid) = plan.whom {
        // Cheap to ask, and a wrong pid should not hear of missing privileges first.
        drop(Attached::open(pid)?);
    }
    let pid_namespace = capabilities::own_pid_namespace()
        .context("mount a /proc of the own pid namespace (`mount -t proc proc /proc`)")?;
    let options = KernelOptions {
        period: plan.run.period(),
        ring_bytes: plan.ring_bytes,
        wake_bytes: wake_bytes(&plan),
        tick: TickProgram::Best,
        looks_off_cpu: plan.run.mode.looks_off_cpu(),
        pid_namespace,
    };
    let signals = signals::listen()?;
    let kernel = Kernel::load(options)?;
    let (target, mut held) = start(&plan)?;
    let pid = target.pid;
    let line = Line::new(
        &format!("profiling process {pid}"),
        plan.quiet,
        held.is_some(),
    );
    let run = profile(kernel, target, &plan, &line, signals, || {
        if let Some(held) = &mut held {
            held.let_through();
        }
    });
    line.clear();
    let (outcome, word) = run?;
    if outcome.python {
        let why = match outcome.end {
            End::Duration => "time is up",
            End::Interrupted => "interrupted",
            End::TargetEnded => "the target ended",
        };
        write(&plan, outputs, &outcome.profile, why)?;
    }
    let status = held.map(|held| wait(held.child, word)).transpose()?;
    match (outcome.python, status) {
        (true, status) => Ok(status.unwrap_or(DONE)),
        // The child has said why.
        (false, Some(CANNOT_START)) => Ok(FAILED),
        (false, _) if outcome.end == End::Duration => bail!(
            "process {pid} ran no Python interpreter yet when its time was up, so nothing was written: give it longer (`-d`)"
        ),
        (false, _) => bail!(
            "process {pid} ran no Python interpreter, so nothing was written: start the Python itself (`profiler run -- python3 …`), or give the pid of a running one"
        ),
    }
}

/// Wake the profiler at every sample when it walks itself, else when an eighth of the ring waits.
fn wake_bytes(plan: &RunPlan) -> u32 {
    match plan.run.walk {
        pipeline::Walk::User => 0,
        pipeline::Walk::Auto | pipeline::Walk::Kernel => plan.ring_bytes / 8,
    }
}

fn open(plan: &RunPlan) -> Result<Outputs> {
    let mut profiles = Vec::new();
    for (path, format) in &plan.outputs {
        profiles.push((Sink::open(path)?, *format));
    }
    let ledger = plan
        .ledger
        .as_ref()
        .map(|path| Sink::open(path))
        .transpose()?;
    Ok(Outputs { profiles, ledger })
}

/// The target, and the child that waits when we start it.
fn start(plan: &RunPlan) -> Result<(Target, Option<Held>)> {
    match &plan.whom {
        Whom::Process(pid) => Ok((
            Target {
                pid: *pid,
                command: None,
            },
            None,
        )),
        Whom::Command(words) => {
            let held = Held::start(words)?;
            let target = Target {
                pid: Pid(held.child.id()),
                command: Some(words.join(" ")),
            };
            Ok((target, Some(held)))
        }
    }
}

fn profile(
    kernel: Kernel,
    target: Target,
    plan: &RunPlan,
    line: &Line,
    signals: oneshot::Receiver<Word>,
    ticking: impl FnOnce(),
) -> Result<(Outcome, Option<Word>)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let host = nix::sys::utsname::uname()
        .map(|name| name.nodename().to_string_lossy().into_owned())
        .unwrap_or_default();
    let mut progress = |progress| line.show(progress);
    let mut word = None;
    let stop = async { word = signals.await.ok() };
    let settings = plan.run.clone();
    let run = pipeline::run(kernel, target, settings, host, ticking, stop, &mut progress);
    let outcome = runtime.block_on(run)?;
    Ok((outcome, word))
}

/// The status of our command, which may well outlive its profile: then it goes on, and we wait.
fn wait(mut child: Child, word: Option<Word>) -> Result<u8> {
    if word == Some(Word::Terminate) {
        let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
        // It may have ended by itself.
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
    }
    let status = child.wait().context("cannot wait for the command")?;
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(code
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(FAILED))
}

fn write(plan: &RunPlan, outputs: Outputs, profile: &Profile, why: &str) -> Result<()> {
    let mut written: Vec<PathBuf> = Vec::new();
    let mut failed = None;
    // One file that cannot be written costs no other.
    let mut note = |path: PathBuf, outcome: Result<(), SinkError>| match outcome {
        Ok(()) => written.push(path),
        Err(error) => {
            if let Some(before) = failed.replace(error) {
                eprintln!("error: {before}");
            }
        }
    };
    for (sink, format) in outputs.profiles {
        let path = sink.path().to_owned();
        let outcome = sink.finish(|out| export::write(format, profile, &plan.options, out));
        note(path, outcome);
    }
    if let Some(sink) = outputs.ledger {
        let path = sink.path().to_owned();
        let outcome = sink.finish(|out| {
            serde_json::to_writer_pretty(&mut *out, profile.ledger())?;
            out.write_all(b"\n")
        });
        note(path, outcome);
    }
    let report = plan.outputs.is_empty() && !plan.quiet;
    if report {
        report::print(profile, &plan.options)?;
    }
    if !plan.quiet {
        report::summary(profile, why, &written, report);
    }
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}
