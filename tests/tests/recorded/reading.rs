//! Everything that the profiler reads of one process, in one go: attach, threads, names, the
//! ladder, chains, frames.
//!
//! The recorder, the tests over recorded memory and the fuzz targets all read by this, so an
//! image holds just what they need. It judges nothing.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use profiler::cpython::find::{Found, FoundBy, Libc};
use profiler::cpython::{self, CpythonError, Runtime, ThreadState, Version, Wishes};
use profiler::pystack::{Chain, PyFrame, Resolver, Walker};
use profiler::target::{ImageMeta, Memory};
use profiler::threads::{Look, Registry, ScanWhom, StateFacts, ThreadFacts};
use profiler::words::{MonotonicNs, RemoteAddr, ThreadStateAddr, Tid};
use profiler_common::plan::PLAN_GENERATORS;

/// Frames that a walk keeps.
pub(crate) const MAX_FRAMES: u32 = 512;

/// The fact that holds the target's own account.
pub(crate) const ACCOUNT: &str = "account";
/// The fact that holds the blocked threads' stack pointers, `TID ADDRESS` a word pair each.
pub(crate) const STACK_POINTERS: &str = "stack_pointers";

/// One thread state and all that is known of it.
#[derive(Clone, Debug)]
pub(crate) struct ThreadReading {
    /// As it was read.
    pub(crate) state: ThreadState,
    /// Python's name for it.
    pub(crate) name: Option<String>,
    /// The thread it belongs to, and the keys of the rungs that say so.
    pub(crate) thread: Option<(Tid, Vec<&'static str>)>,
    /// Where the way from the thread's TLS base leads, which the kernel programs go.
    pub(crate) by_hops: Option<ThreadStateAddr>,
    /// Its frames as numbers.
    pub(crate) chain: Chain,
    /// Its frames.
    pub(crate) frames: Vec<PyFrame>,
}

/// A process.
#[derive(Debug)]
pub(crate) struct Reading {
    /// Its interpreter.
    pub(crate) runtime: Runtime,
    /// Its thread states, in the interpreter's order.
    pub(crate) threads: Vec<ThreadReading>,
    /// How often rungs disagreed.
    pub(crate) contradictions: u64,
    /// Codes that were others when they were compared.
    pub(crate) changed: usize,
}

/// What is kept of a find: an image holds no files.
pub(crate) fn facts_of(found: &Found) -> BTreeMap<String, String> {
    let hops: Vec<String> = found.gilstate_hops.iter().map(i64::to_string).collect();
    let Version { minor, patch, .. } = found.version;
    let suffix = if found.free_threaded { "t" } else { "" };
    [
        ("runtime", found.runtime.to_string()),
        ("python", format!("3.{minor}.{patch}{suffix}")),
        ("image", found.image.clone()),
        ("found_by", format!("{:?}", found.by)),
        ("libc", format!("{:?}", found.libc)),
        ("gilstate_hops", hops.join(" ")),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

/// The find that the facts of an image were made from; none when one is missing or odd.
pub(crate) fn found(facts: &BTreeMap<String, String>) -> Option<Found> {
    let fact = |key: &str| facts.get(key).map(String::as_str);
    let python = fact("python")?;
    let mut version = python
        .trim_end_matches('t')
        .split('.')
        .map(|part| part.parse::<u8>().ok());
    let mut part = || version.next().flatten();
    Some(Found {
        runtime: RemoteAddr(hex(fact("runtime")?)?),
        version: Version::release(part()?, part()?, part()?),
        free_threaded: python.ends_with('t'),
        image: fact("image")?.to_owned(),
        by: match fact("found_by")? {
            "Symbol" => FoundBy::Symbol,
            "Section" => FoundBy::Section,
            _ => FoundBy::Cookie,
        },
        libc: match fact("libc")? {
            "Musl" => Libc::Musl,
            _ => Libc::Glibc,
        },
        gilstate_hops: fact("gilstate_hops")?
            .split_whitespace()
            .map(|hop| hop.parse().ok())
            .collect::<Option<_>>()?,
    })
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

fn stack_pointers(meta: &ImageMeta) -> BTreeMap<Tid, RemoteAddr> {
    let text = meta.facts.get(STACK_POINTERS).map_or("", String::as_str);
    let words: Vec<&str> = text.split_whitespace().collect();
    let pairs = words.chunks_exact(2);
    pairs
        .filter_map(|pair| Some((Tid(pair[0].parse().ok()?), RemoteAddr(hex(pair[1])?))))
        .collect()
}

/// Reads a process of which `meta` knows the find, the threads and the mappings.
///
/// # Errors
///
/// When its interpreter cannot be attached to or its threads cannot be listed.
pub(crate) fn read(
    memory: &dyn Memory,
    meta: &ImageMeta,
    found: Found,
) -> Result<Reading, CpythonError> {
    let runtime = Runtime::attach(found, memory)?;
    let states = runtime.thread_states(memory)?;
    let names = cpython::thread_names(&runtime, memory);
    for interpreter in runtime.interpreters(memory)? {
        // What they say is part of the states' reading; here they must only come to an end.
        let _ = runtime.gil_holder(memory, interpreter);
        let _ = runtime.collecting(memory, interpreter);
    }
    for gil in runtime.gils(memory).unwrap_or_default() {
        let _ = runtime.holder_of(memory, &gil);
    }
    for state in &states {
        let _ = runtime.state_now(memory, state.addr);
    }
    let _ = runtime.handling_plan(memory);
    let registry = ladder(memory, meta, &states);
    let wishes = Wishes {
        since: MonotonicNs(0),
        flags: PLAN_GENERATORS,
        max_frames: MAX_FRAMES,
    };
    let plan = cpython::plan(&runtime, memory, wishes);
    let mut walker = Walker::default();
    let mut resolver = Resolver::new(&runtime);
    let mut threads = Vec::new();
    for state in states {
        let Some(plan) = &plan else { break };
        let chain = walker.chain(memory, plan, state.addr);
        let found = registry.by_pthread_id(state.pthread_id);
        let hops = plan.state.hops.iter().take(plan.state.n_hops as usize);
        let by_hops = hops.copied().try_fold(state.pthread_id.0, |at, hop| {
            memory.u64(RemoteAddr(at.wrapping_add_signed(hop)))
        });
        threads.push(ThreadReading {
            state,
            name: names.get(&state.pthread_id).map(|it| it.name.clone()),
            thread: found.map(|found| {
                let rungs = found.matched_by.iter().map(|rung| rung.key());
                (found.tid, rungs.collect())
            }),
            by_hops: by_hops.ok().map(ThreadStateAddr),
            frames: resolver.frames(memory, &chain),
            chain,
        });
    }
    let changed = resolver.revalidate(memory).len();
    Ok(Reading {
        runtime,
        threads,
        contradictions: registry.contradictions(),
        changed,
    })
}

fn ladder(memory: &dyn Memory, meta: &ImageMeta, states: &[ThreadState]) -> Registry {
    let pointers = stack_pointers(meta);
    let thread = |task| ThreadFacts::new(task, pointers.get(&task.tid).copied());
    let threads: Vec<ThreadFacts> = meta.tasks.iter().map(thread).collect();
    let state = |state: &ThreadState| StateFacts {
        state: state.addr,
        pthread_id: state.pthread_id,
        native_id: state.native_thread_id,
    };
    let states: Vec<StateFacts> = states.iter().map(state).collect();
    let mut registry = Registry::new();
    let look = Look {
        pid: meta.pid,
        start_stack: meta.tasks.iter().find_map(|task| task.start_stack),
        maps: &meta.maps,
        threads: &threads,
        states: &states,
        scan: ScanWhom::Everyone,
    };
    registry.look(&look, &memory);
    registry
}

/// A frame as a person reads it.
pub(crate) fn show(frame: &PyFrame) -> String {
    match frame {
        PyFrame::Known { code, line } => match line {
            Some(line) => format!("{} ({}:{line})", code.name, code.file),
            None => format!("{} ({}, no line)", code.name, code.file),
        },
        PyFrame::Unreadable { why, .. } => format!("[unreadable: {}]", why.kind()),
        PyFrame::Stale { .. } => "[stale]".to_owned(),
        PyFrame::Cut { frames } => format!("[{frames} frames cut]"),
        PyFrame::Broken { end } => format!("[broken: {end}]"),
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = self.runtime.found();
        writeln!(
            f,
            "CPython {}{}, its runtime found by {:?}, {:?}",
            self.runtime.version(),
            if found.free_threaded { "t" } else { "" },
            found.by,
            found.libc
        )?;
        writeln!(
            f,
            "{} threads, {} contradictions, {} codes changed",
            self.threads.len(),
            self.contradictions,
            self.changed
        )?;
        for thread in &self.threads {
            thread.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for ThreadReading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_deref().unwrap_or("[no name]");
        let rungs = match &self.thread {
            Some((_, rungs)) => rungs.join(", "),
            None => "none".to_owned(),
        };
        writeln!(f, "\n{name}")?;
        writeln!(
            f,
            "  state {}, gil {}, named by {rungs}; by the TLS base {}",
            self.state.unique_id,
            self.state.gil.key(),
            match self.by_hops {
                Some(state) if state == self.state.addr => "the same state",
                Some(_) => "another state",
                None => "no state",
            }
        )?;
        writeln!(
            f,
            "  {} frames, {} left out: {}",
            self.chain.frames.len(),
            self.chain.missing,
            self.chain.end
        )?;
        let mut lines = String::new();
        let mut frames = self.frames.iter().map(show).peekable();
        while let Some(frame) = frames.next() {
            let mut times = 1;
            while frames.next_if_eq(&frame).is_some() {
                times += 1;
            }
            match times {
                1 => writeln!(lines, "    {frame}")?,
                _ => writeln!(lines, "    {frame}, {times} times")?,
            }
        }
        f.write_str(&lines)
    }
}
