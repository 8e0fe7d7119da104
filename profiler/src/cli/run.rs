//! `profiler run`: everything that can fail fails first; then it profiles, then it writes.

use std::{os::unix::process::ExitStatusExt as _, path::PathBuf, process::Child};

use anyhow::{Context as _, Result, bail};

use super::{
    DONE, FAILED,
    args::RunArgs,
    log,
    progress::Line,
    report,
    settings::{RunPlan, Whom, run_plan},
    start::{CANNOT_START, Held},
};
use crate::{
    export::{self, Format, Sink},
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
    if !capabilities::in_initial_pid_namespace().unwrap_or(true) {
        bail!(
            "process ids mean something else in this pid namespace than to the kernel: start the container with the host's pid namespace (`docker run --pid=host`, `hostPID: true`)"
        );
    }
    let options = KernelOptions {
        period: plan.run.period(),
        ring_bytes: plan.ring_bytes,
        wake_bytes: wake_bytes(&plan),
        tick: TickProgram::Best,
    };
    let kernel = Kernel::load(options)?;
    let (target, mut held) = start(&plan)?;
    let pid = target.pid;
    let line = Line::new(&format!("profiling process {pid}"), plan.quiet);
    let outcome = profile(kernel, target, &plan, &line, || {
        if let Some(held) = &mut held {
            held.let_through();
        }
    });
    line.clear();
    let outcome = outcome?;
    let status = held.map(|held| wait(held.child, outcome.end)).transpose()?;
    if !outcome.python {
        if status == Some(CANNOT_START) {
            return Ok(FAILED);
        }
        bail!(
            "process {pid} ran no Python interpreter: nothing was written; `profiler doctor --pid PID` tells of a running process what was looked for"
        );
    }
    let why = match outcome.end {
        End::Duration => "time is up",
        End::Interrupted => "interrupted",
        End::TargetEnded => "the target ended",
    };
    write(&plan, outputs, outcome, why)?;
    Ok(status.unwrap_or(DONE))
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
    ticking: impl FnOnce(),
) -> Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let host = nix::sys::utsname::uname()
        .map(|name| name.nodename().to_string_lossy().into_owned())
        .unwrap_or_default();
    let mut progress = |progress| line.show(progress);
    runtime.block_on(async {
        let mut interrupts =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())?;
        let mut terminations =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let stop = async move {
            tokio::select! {
                _ = interrupts.recv() => {}
                _ = terminations.recv() => {}
            }
            // A second one while we write gives up.
            tokio::spawn(async move {
                interrupts.recv().await;
                std::process::exit(FAILED.into());
            });
        };
        let settings = plan.run.clone();
        Ok(pipeline::run(kernel, target, settings, host, ticking, stop, &mut progress).await?)
    })
}

/// A command outlives its profile when the time was up first: it goes on, and we wait for it.
fn wait(mut child: Child, end: End) -> Result<u8> {
    if end == End::Interrupted {
        // The terminal sent it the same Ctrl-C; from `kill` it has to hear of it.
        let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT);
    }
    let status = child.wait().context("cannot wait for the command")?;
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(code
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(FAILED))
}

fn write(plan: &RunPlan, outputs: Outputs, outcome: Outcome, why: &str) -> Result<()> {
    let profile = &outcome.profile;
    let mut written: Vec<PathBuf> = Vec::new();
    for (sink, format) in outputs.profiles {
        written.push(sink.path().to_owned());
        sink.finish(|out| export::write(format, profile, &plan.options, out))?;
    }
    if let Some(sink) = outputs.ledger {
        written.push(sink.path().to_owned());
        sink.finish(|out| {
            serde_json::to_writer_pretty(&mut *out, profile.ledger())?;
            out.write_all(b"\n")
        })?;
    }
    let report = plan.outputs.is_empty() && !plan.quiet;
    if report {
        report::print(profile, &plan.options)?;
    }
    if !plan.quiet {
        report::summary(profile, why, &written, report);
    }
    Ok(())
}
