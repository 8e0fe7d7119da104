//! `profiler dump`: every thread now, with its state and its frames; and every asyncio task and greenlet.

use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::args::DumpArgs;
use crate::{
    cpython::{Attachment, Build},
    export::printable,
    pipeline::{self, Attached, Seen, View},
    sample::{Activity, FramesFrom, Gil, Handling, Wait},
    source::capabilities,
    stack::{Frame, FrameKind},
    target::TaskState,
    words::{DurationNs, Pid},
};

mod tasks;

/// Look, and print.
pub(super) fn main(args: &DumpArgs) -> Result<()> {
    super::log::begin(0);
    // Else the number would mean one process in /proc and another one to the kernel.
    capabilities::own_pid_namespace()?;
    let attached = Attached::open(Pid(args.pid))?;
    let command = attached
        .process
        .command_line()
        .unwrap_or_default()
        .join(" ");
    let view = pipeline::look(&attached, args.tasks)?;
    let out = io::stdout();
    let bold = out.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let mut out = io::BufWriter::new(out.lock());
    if args.json {
        serde_json::to_writer_pretty(&mut out, &as_json(args.pid, &command, &view))?;
        writeln!(out)?;
    } else {
        print(&mut out, args.pid, &command, &view, bold)?;
    }
    out.flush()?;
    Ok(())
}

/// What a thread was doing, in words.
fn doing(seen: &Seen) -> String {
    let wait = match seen.activity {
        Activity::OnCpu => return "on a CPU".to_owned(),
        Activity::Runnable => return "waits for a CPU".to_owned(),
        Activity::Blocked(wait) => wait,
        // Whether it is on a CPU or waits for one, this kernel does not tell.
        Activity::Unknown if seen.state == TaskState::Running => {
            return "running or runnable".to_owned();
        }
        Activity::Unknown => return seen.state.to_string(),
    };
    let mut words = format!("blocked ({}", wait.key());
    match syscall(seen) {
        Some(name) if name != wait.key() => words += &format!(", {name})"),
        _ => words.push(')'),
    }
    if let Some(blocked) = seen.blocked {
        words += &format!(" for {}", time(blocked));
    }
    words
}

/// The system call it is blocked in.
fn syscall(seen: &Seen) -> Option<String> {
    let number = seen.syscall?;
    seen.activity.wait()?;
    Some(Wait::Syscall(number).key().into_owned())
}

fn time(time: DurationNs) -> String {
    let ns = time.0 as f64;
    match time.0 {
        0..1_000_000 => format!("{:.0} µs", ns / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns / 1e6),
        1_000_000_000..60_000_000_000 => format!("{:.1} s", ns / 1e9),
        _ => {
            let whole = Duration::from_secs(time.0 / 1_000_000_000);
            humantime::format_duration(whole).to_string()
        }
    }
}

fn print(out: &mut dyn Write, pid: u32, command: &str, view: &View, bold: bool) -> io::Result<()> {
    let (on, off) = if bold {
        ("\x1b[1m", "\x1b[0m")
    } else {
        ("", "")
    };
    writeln!(out, "Process {pid}: {}", printable(command))?;
    write!(
        out,
        "Python {}{} in {}",
        view.runtime.version(),
        match view.runtime.build() {
            Build::Default => "",
            Build::FreeThreaded => ", free-threaded,",
        },
        view.runtime.found().image
    )?;
    if view.collecting == Some(true) {
        write!(out, " · collecting garbage")?;
    }
    writeln!(out)?;
    for seen in &view.threads {
        let name = printable(&seen.name);
        write!(out, "\n{on}Thread {} \"{name}\"{off}: ", seen.tid)?;
        write!(out, "{}", doing(seen))?;
        match (seen.python, seen.gil) {
            (false, _) => write!(out, " · no Python")?,
            (true, Gil::Holds) => write!(out, " · holds the GIL")?,
            (true, Gil::Waits) => {
                write!(out, " · waits for the GIL")?;
                if let Some((tid, name)) = &seen.behind {
                    write!(out, " behind Thread {tid} \"{}\"", printable(name))?;
                }
            }
            (true, Gil::Unknown) => write!(out, " · GIL unknown")?,
            (true, Gil::Neither) => {}
            (true, Gil::NoGil) => {
                write!(out, " · no GIL")?;
                if let Some(attachment) = seen.attachment {
                    write!(out, ", {}", attachment.key())?;
                }
            }
        }
        if seen.handling == Handling::Exception {
            write!(out, " · handles an exception")?;
        }
        if seen.frames_from == FramesFrom::Estimated {
            let why = match seen.activity {
                Activity::OnCpu => "it was running",
                _ => "it may have run",
            };
            write!(out, " · frames estimated: {why}")?;
        }
        writeln!(out)?;
        print_frames(out, &seen.frames)?;
    }
    if let Some(seen) = &view.tasks {
        tasks::print(out, seen, &view.threads, (on, off))?;
    }
    if view.contradictions > 0 {
        writeln!(
            out,
            "\nwarning: {} times two ways to name a thread disagreed",
            view.contradictions
        )?;
    }
    Ok(())
}

fn print_frames(out: &mut dyn Write, frames: &[Frame]) -> io::Result<()> {
    for run in frames.chunk_by(|a, b| a == b) {
        let Some(frame) = run.first() else { continue };
        writeln!(out, "    {}", printable(&frame.to_string()))?;
        if run.len() > 1 {
            writeln!(out, "    … {} times more", run.len() - 1)?;
        }
    }
    if frames.is_empty() {
        writeln!(out, "    (no frames)")?;
    }
    Ok(())
}

fn as_json(pid: u32, command: &str, view: &View) -> Value {
    let mut dump = json!({
        "schema": 1,
        "pid": pid,
        "command": command,
        "python": view.runtime.version().to_string(),
        "build": view.runtime.build().key(),
        "image": view.runtime.found().image,
        "collecting": view.collecting,
        "contradictions": view.contradictions,
        "threads": view.threads.iter().map(thread_json).collect::<Vec<_>>(),
    });
    if let Some(seen) = &view.tasks {
        dump["tasks"] = tasks::as_json(seen, &view.threads);
    }
    dump
}

fn thread_json(seen: &Seen) -> Value {
    json!({
        "tid": seen.tid.0,
        "name": seen.name,
        "pthread_id": seen.pthread_id.map(|id| id.0),
        "python": seen.python,
        "state": seen.activity.key(),
        "reason": seen.activity.wait().map(Wait::key),
        "syscall": syscall(seen),
        "waits_in": seen.waits_in,
        "blocked_ns": seen.blocked.map(|blocked| blocked.0),
        "gil": seen.gil.key(),
        "attachment": seen.attachment.map(Attachment::key),
        "gil_behind": seen.behind.as_ref().map(|(tid, name)| json!({
            "tid": tid.0,
            "name": name,
        })),
        "gc": seen.gc.key(),
        "handling": seen.handling.key(),
        "frames_from": seen.frames_from.key(),
        "matched_by": seen.matched_by.iter().map(|rung| rung.key()).collect::<Vec<_>>(),
        "frames": seen.frames.iter().map(frame_json).collect::<Vec<_>>(),
    })
}

fn frame_json(frame: &Frame) -> Value {
    json!({
        "kind": frame.kind.key(),
        "function": &*frame.function,
        "file": (frame.kind == FrameKind::Python).then_some(&*frame.file),
        "line": frame.line,
        "first_line": frame.first_line,
        "module": frame.module.as_deref(),
    })
}
