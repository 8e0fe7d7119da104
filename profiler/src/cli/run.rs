//! `profiler run`: everything that can fail fails first; then it profiles, then it writes.

use std::{
    collections::HashSet,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::Child,
};

use super::{
    DONE, FAILED,
    args::RunArgs,
    engine::{self, Chosen},
    log,
    progress::Line,
    report,
    settings::{PID_MARK, RunPlan, Whom, run_plan},
    signals::{self, Heard, Word},
    start::{CANNOT_START, Held},
    voice::say,
};
use crate::{
    aggregate::{ProcessIndex, Profile},
    export::{self, Format, Sink, SinkError, Unit},
    pipeline::{self, Attached, End, Outcome, Outside, Target},
    sys,
    words::Pid,
};
use anyhow::{Context as _, Result, bail};

/// The files of a run, opened.
struct Outputs {
    profiles: Vec<(Sink, Format)>,
    /// Those of which each process has one; their names are known at the end.
    split: Vec<(PathBuf, Format)>,
    ledger: Option<Sink>,
}

/// Run it; the exit status.
pub(super) fn main(args: &RunArgs) -> Result<u8> {
    // First of all: what is not listened to would end us.
    let signals = signals::listen()?;
    log::begin(args.verbose);
    let mut plan = run_plan(args)?;
    let outputs = open(&plan)?;
    if let Whom::Processes(pids) = &plan.whom {
        for pid in pids {
            // Cheap to ask, and a wrong pid should not hear of missing privileges first.
            drop(Attached::open(*pid)?);
        }
    }
    let engine = engine::choose(&plan)?;
    if matches!(engine, Chosen::Proc(_)) {
        // Its looks are worth what was counted between them, not all the same.
        plan.options.unit = Unit::Nanoseconds;
    }
    let (target, mut held) = start(&plan)?;
    if plan.run.follow {
        // Each process costs descriptors. The command that we start keeps its own limit.
        sys::open_many_files();
    }
    let who = words(&target.pids);
    let line = Line::new(&format!("profiling {who}"), plan.quiet, held.is_some());
    let run = profile(engine, target, &plan, &line, signals, || {
        line.begin();
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
            "{who} ran no Python interpreter yet when its time was up, so nothing was written: give it longer (`-d`)"
        ),
        (false, _) => bail!(
            "{who} ran no Python interpreter, so nothing was written: start the Python itself (`profiler run -- python3 …`), or give the pid of a running one"
        ),
    }
}

/// `process 7`, `processes 7, 8`.
fn words(pids: &[Pid]) -> String {
    let list: Vec<String> = pids.iter().map(Pid::to_string).collect();
    let noun = if pids.len() == 1 {
        "process"
    } else {
        "processes"
    };
    format!("{noun} {}", list.join(", "))
}

fn open(plan: &RunPlan) -> Result<Outputs> {
    let mut profiles = Vec::new();
    let mut split = Vec::new();
    for (path, format) in &plan.outputs {
        if is_split(path) {
            // It fails now where it would at the end.
            drop(Sink::open(&of_process(path, "0"))?);
            split.push((path.clone(), *format));
        } else {
            profiles.push((Sink::open(path)?, *format));
        }
    }
    let ledger = plan
        .ledger
        .as_ref()
        .map(|path| Sink::open(path))
        .transpose()?;
    Ok(Outputs {
        profiles,
        split,
        ledger,
    })
}

fn is_split(path: &Path) -> bool {
    path.to_string_lossy().contains(PID_MARK)
}

/// The name of the file that one process has.
fn of_process(path: &Path, pid: &str) -> PathBuf {
    PathBuf::from(path.to_string_lossy().replace(PID_MARK, pid))
}

/// The target, and the child that waits when we start it.
fn start(plan: &RunPlan) -> Result<(Target, Option<Held>)> {
    match &plan.whom {
        Whom::Processes(pids) => Ok((
            Target {
                pids: pids.clone(),
                command: None,
            },
            None,
        )),
        Whom::Command(words) => {
            let held = Held::start(words)?;
            let target = Target {
                pids: vec![Pid(held.child.id())],
                command: Some(words.join(" ")),
            };
            Ok((target, Some(held)))
        }
    }
}

fn profile(
    engine: Chosen,
    target: Target,
    plan: &RunPlan,
    line: &Line,
    signals: Heard,
    ticking: impl FnOnce(),
) -> Result<(Outcome, Option<Word>)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let host = nix::sys::utsname::uname()
        .map(|name| name.nodename().to_string_lossy().into_owned())
        .unwrap_or_default();
    let mut word = None;
    let Heard { word: heard, asked } = signals;
    let outside = Outside {
        stop: async { word = heard.await.ok() },
        asked: &asked,
        so_far: &mut |profile| {
            line.beside(|| {
                if let Err(error) = write_so_far(plan, &profile) {
                    say!("error: {error}");
                }
            });
        },
        progress: &mut |progress| line.show(progress),
    };
    let settings = plan.run.clone();
    let outcome = match engine {
        Chosen::Bpf(kernel) => runtime.block_on(pipeline::run(
            *kernel, target, settings, host, ticking, outside,
        )),
        Chosen::Proc(why_not_bpf) => runtime.block_on(pipeline::run_proc(
            target,
            settings,
            host,
            why_not_bpf,
            ticking,
            outside,
        )),
    }?;
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

/// What was collected so far, into the same files; they are written again at the end.
fn write_so_far(plan: &RunPlan, profile: &Profile) -> Result<()> {
    write(plan, open(plan)?, profile, "so far")
}

fn write(plan: &RunPlan, outputs: Outputs, profile: &Profile, why: &str) -> Result<()> {
    let mut written: Vec<PathBuf> = Vec::new();
    let mut failed = None;
    // One file that cannot be written costs no other.
    let mut note = |path: PathBuf, outcome: Result<(), SinkError>| match outcome {
        Ok(()) => written.push(path),
        Err(error) => {
            if let Some(before) = failed.replace(error) {
                say!("error: {before}");
            }
        }
    };
    for (sink, format) in outputs.profiles {
        let path = sink.path().to_owned();
        let outcome = sink.finish(|out| export::write(format, profile, &plan.options, out));
        note(path, outcome);
    }
    for (template, format) in outputs.split {
        for (path, part) in parts(&template, profile) {
            let outcome = Sink::open(&path).and_then(|sink| {
                sink.finish(|out| export::write(format, &part, &plan.options, out))
            });
            note(path, outcome);
        }
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

/// Each process that has samples, as a profile of its own, and its file. The second process with
/// the same number has another name.
fn parts<'a>(
    template: &'a Path,
    profile: &'a Profile,
) -> impl Iterator<Item = (PathBuf, Profile)> + 'a {
    let mut taken = HashSet::new();
    let processes = (0..).map(ProcessIndex).zip(profile.processes());
    processes.filter_map(move |(index, info)| {
        let part = profile.of_process(index)?;
        if part.ticks() == 0 {
            return None;
        }
        let names = (1..).map(|n| match n {
            1 => info.pid.to_string(),
            n => format!("{}-{n}", info.pid),
        });
        let mut paths = names.map(|name| of_process(template, &name));
        let path = paths.find(|path| taken.insert(path.clone()))?;
        Some((path, part))
    })
}
