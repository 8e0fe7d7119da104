//! `profiler dump`: every thread now, with its state and its frames.

use std::io::{self, IsTerminal as _, Write};

use anyhow::Result;
use serde_json::{Value, json};

use super::args::DumpArgs;
use crate::{
    export::printable,
    pipeline::{self, Attached, Seen, View},
    sample::{Activity, FramesFrom, Gil},
    source::capabilities,
    stack::FrameKind,
    words::Pid,
};

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
    let view = pipeline::look(&attached)?;
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

/// What the thread is blocked in, in the kernel's words.
fn reason(seen: &Seen) -> Option<String> {
    if !matches!(seen.activity, Activity::Blocked(_)) {
        return None;
    }
    let syscall = seen.syscall.map(|number| {
        let known = syscalls::Sysno::new(number as usize);
        known.map_or_else(
            || format!("system call {number}"),
            |known| known.name().to_owned(),
        )
    });
    syscall
        .or_else(|| seen.waits_in.clone())
        .or_else(|| Some(seen.state.to_string()))
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
        "Python {} in {}",
        view.runtime.version(),
        view.runtime.found().image
    )?;
    if view.collecting == Some(true) {
        write!(out, " · collecting garbage")?;
    }
    writeln!(out)?;
    for seen in &view.threads {
        let name = printable(&seen.name);
        write!(out, "\n{on}Thread {} \"{name}\"{off}: ", seen.tid)?;
        match reason(seen) {
            Some(reason) => write!(out, "blocked ({reason})")?,
            None if seen.activity == Activity::OnCpu => write!(out, "on a CPU")?,
            None => write!(out, "{}", seen.activity.key())?,
        }
        match (seen.python, seen.gil) {
            (false, _) => write!(out, " · no Python")?,
            (true, Gil::Holds) => write!(out, " · holds the GIL")?,
            (true, Gil::Waits) => write!(out, " · waits for the GIL")?,
            (true, Gil::Unknown) => write!(out, " · GIL unknown")?,
            (true, Gil::Neither) => {}
        }
        if seen.frames_from == FramesFrom::Estimated {
            write!(out, " · frames estimated: it was running")?;
        }
        writeln!(out)?;
        for run in seen.frames.chunk_by(|a, b| a == b) {
            let Some(frame) = run.first() else { continue };
            writeln!(out, "    {}", printable(&frame.to_string()))?;
            if run.len() > 1 {
                writeln!(out, "    … {} times more", run.len() - 1)?;
            }
        }
        if seen.frames.is_empty() {
            writeln!(out, "    (no frames)")?;
        }
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

fn as_json(pid: u32, command: &str, view: &View) -> Value {
    json!({
        "schema": 1,
        "pid": pid,
        "command": command,
        "python": view.runtime.version().to_string(),
        "image": view.runtime.found().image,
        "collecting": view.collecting,
        "contradictions": view.contradictions,
        "threads": view.threads.iter().map(thread_json).collect::<Vec<_>>(),
    })
}

fn thread_json(seen: &Seen) -> Value {
    json!({
        "tid": seen.tid.0,
        "name": seen.name,
        "pthread_id": seen.pthread_id.map(|id| id.0),
        "python": seen.python,
        "state": seen.activity.key(),
        "reason": reason(seen),
        "waits_in": seen.waits_in,
        "gil": seen.gil.key(),
        "frames_from": seen.frames_from.key(),
        "matched_by": seen.matched_by.iter().map(|rung| rung.key()).collect::<Vec<_>>(),
        "frames": seen.frames.iter().map(|frame| json!({
            "kind": frame.kind.key(),
            "function": &*frame.function,
            "file": (frame.kind == FrameKind::Python).then_some(&*frame.file),
            "line": frame.line,
            "first_line": frame.first_line,
            "module": frame.module.as_deref(),
        })).collect::<Vec<_>>(),
    })
}
