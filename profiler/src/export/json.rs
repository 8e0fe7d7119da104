//! The profile as plain JSON, for scripts: everything it holds, under the profiler's own words.
//!
//! ```text
//! {"schema": 1,
//!  "meta": {"pid", "command", "python", "build", "mode", "whose", "unit", "clock", "engine",
//!           "rate_hz", "period_ns", "ticks_by", "host", "started_at_unix_ns", "duration_ns",
//!           "ticks", "weight_ns"},
//!  "frames":  [{"kind", "function", "file", "line", "first_line", "module", "label"}],
//!  "stacks":  [[frame, …]],             indices of frames, leaf first
//!  "processes": [{"pid", "parent", "command", "python"}],
//!  "threads": [{"pid", "tid", "name", "python", "process"}],
//!  "entries": [{"thread", "stack", "state", "reason", "gil", "behind", "gc", "handling",
//!               "frames_from", "ticks", "weight_ns"}],
//!  "beyond":  {"frames", "stack_ticks", "threads", "processes"},
//!  "ledger":  {…}}                      as --ledger writes it
//! ```
//!
//! `thread`, `stack` and `process` are indices too; what is not known is `null`. A stack without frames
//! is a thread without Python. Of an entry:
//!
//! - `state`: `on_cpu`, `runnable`, `blocked`, `unknown`; `reason`, only when it was blocked:
//!   `lock`, `gil`, `io_file`, `io_socket`, `io_pipe`, `sleep`, `poll`, `child`, `page_fault`,
//!   `stopped`, `await` (only of tasks), `unknown` or a system call's name;
//! - `gil`: `holds`, `waits`, `neither`, `unknown`; `behind`: the index of the thread that had
//!   the GIL while this one waited for it;
//! - `gc`: `collecting`, `idle`, `unknown`; `handling`: `exception`, `nothing`, `unknown`;
//! - `frames_from`: `kernel`, `user`, `cached`, `estimated`, `none`.
//!
//! `unit` and `clock` are those of every key that ends in `_ns`; `ticks_by` is only what sets
//! the ticks off. `ticks` counts looks at threads off the CPU too.

use std::borrow::Cow;
use std::io;
use std::time::UNIX_EPOCH;

use serde::Serialize;

use crate::aggregate::{CLOCK, Ledger, Profile, ThreadIndex, UNIT};
use crate::export::Options;
use crate::export::format::Granularity;
use crate::sample::Wait;
use crate::stack::Frame;

#[derive(Serialize)]
struct File<'a> {
    schema: u32,
    meta: Meta<'a>,
    frames: Vec<JsonFrame>,
    stacks: Vec<Vec<u32>>,
    processes: Vec<Process<'a>>,
    threads: Vec<Thread<'a>>,
    entries: Vec<JsonEntry>,
    beyond: JsonBeyond,
    ledger: &'a Ledger,
}

#[derive(Serialize)]
struct Meta<'a> {
    pid: u32,
    command: &'a str,
    python: &'a str,
    build: &'a str,
    mode: &'a str,
    whose: &'a str,
    unit: &'a str,
    clock: &'a str,
    engine: &'a str,
    rate_hz: u32,
    period_ns: u64,
    ticks_by: &'a str,
    host: &'a str,
    started_at_unix_ns: Option<u64>,
    duration_ns: u64,
    ticks: u64,
    weight_ns: u64,
}

#[derive(Serialize)]
struct JsonFrame {
    kind: &'static str,
    function: String,
    file: String,
    line: Option<u32>,
    first_line: Option<u32>,
    module: Option<String>,
    label: String,
}

#[derive(Serialize)]
struct Process<'a> {
    pid: u32,
    parent: Option<u32>,
    command: &'a str,
    python: &'a str,
}

#[derive(Serialize)]
struct Thread<'a> {
    pid: u32,
    tid: u32,
    name: &'a str,
    python: bool,
    process: u32,
}

#[derive(Serialize)]
struct JsonEntry {
    thread: u32,
    stack: u32,
    state: &'static str,
    reason: Option<Cow<'static, str>>,
    gil: &'static str,
    behind: Option<u32>,
    gc: &'static str,
    handling: &'static str,
    frames_from: &'static str,
    ticks: u64,
    weight_ns: u64,
}

#[derive(Serialize)]
struct JsonBeyond {
    frames: u64,
    stack_ticks: u64,
    threads: u64,
    processes: u64,
}

/// Writes `profile` as JSON. Frames keep their numbers; with the granularity `function` their
/// lines are those of the functions, so that several may be alike.
///
/// # Errors
/// Those of `out`.
pub fn write(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let frames = profile.frames().as_slice().iter();
    let frames = frames.map(|frame| match options.granularity {
        Granularity::Function => json_frame(&frame.without_line()),
        Granularity::Line => json_frame(frame),
    });
    let stacks = profile.stacks().iter();
    let stacks = stacks.map(|stack| stack.iter().map(|frame| frame.0).collect());
    let processes = profile.processes().iter().map(|info| Process {
        pid: info.pid.0,
        parent: info.parent.map(|parent| parent.0),
        command: &info.command,
        python: &info.python,
    });
    let threads = profile.threads().iter().zip(0..);
    let threads = threads.map(|(info, index)| Thread {
        pid: info.pid.0,
        tid: info.tid.0,
        name: &info.name,
        python: info.python,
        process: profile.process_of(ThreadIndex(index)).0,
    });
    let entries = profile.entries().iter().map(|entry| JsonEntry {
        thread: entry.thread.0,
        stack: entry.stack.0,
        state: entry.activity.key(),
        reason: entry.activity.wait().map(Wait::key),
        gil: entry.gil.key(),
        behind: entry.behind.map(|thread| thread.0),
        gc: entry.gc.key(),
        handling: entry.handling.key(),
        frames_from: entry.frames_from.key(),
        ticks: entry.ticks,
        weight_ns: entry.weight.0,
    });
    let beyond = profile.beyond();
    let file = File {
        schema: 1,
        meta: meta(profile),
        frames: frames.collect(),
        stacks: stacks.collect(),
        processes: processes.collect(),
        threads: threads.collect(),
        entries: entries.collect(),
        beyond: JsonBeyond {
            frames: beyond.frames,
            stack_ticks: beyond.stack_ticks,
            threads: beyond.threads,
            processes: beyond.processes,
        },
        ledger: profile.ledger(),
    };
    serde_json::to_writer(&mut *out, &file)?;
    writeln!(out)
}

/// Writes the accounts alone, as one line of JSON: what `--ledger` asks for.
///
/// # Errors
/// Those of `out`.
pub fn write_ledger(ledger: &Ledger, out: &mut dyn io::Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, ledger)?;
    writeln!(out)
}

fn meta(profile: &Profile) -> Meta<'_> {
    let meta = profile.meta();
    let since = meta.started_at.duration_since(UNIX_EPOCH).ok();
    Meta {
        pid: meta.pid.0,
        command: &meta.command,
        python: &meta.python,
        build: &meta.build,
        mode: meta.mode.key(),
        whose: meta.whose.key(),
        unit: UNIT,
        clock: CLOCK,
        engine: &meta.engine,
        rate_hz: meta.rate_hz,
        period_ns: meta.period.0,
        ticks_by: &meta.clock,
        host: &meta.host,
        started_at_unix_ns: since.and_then(|since| u64::try_from(since.as_nanos()).ok()),
        duration_ns: profile.duration().0,
        ticks: profile.ticks(),
        weight_ns: profile.weight().0,
    }
}

fn json_frame(frame: &Frame) -> JsonFrame {
    JsonFrame {
        kind: frame.kind.key(),
        function: frame.function.to_string(),
        file: frame.file.to_string(),
        line: frame.line,
        first_line: frame.first_line,
        module: frame.module.as_deref().map(str::to_owned),
        label: frame.to_string(),
    }
}
