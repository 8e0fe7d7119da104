//! Rung 2: every interpreter on this machine, walked from outside and compared with its own
//! account of its stacks.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use profiler::cpython::find::FoundBy;
use profiler::cpython::{
    self, Attachment, Build, CpythonError, MappedFile, OpenImage, ReadSeek, Runtime, ThreadState,
    Wishes,
};
use profiler::pystack::{Chain, ChainEnd, PyFrame, Resolver, Walker};
use profiler::sample::Gil;
use profiler::target::{Memory, ReadError, ReadErrorKind};
use profiler::words::{InnerTid, MonotonicNs, PthreadId, RemoteAddr};
use profiler_common::plan::Plan;
use serde::Deserialize;
use tests::pythons;
use tests::rung::{self, Rung};

mod lines;
mod running;
mod target;

use target::{LiveMemory, Target, on_every_python, until};

const KNOWN_STACKS: &str = include_str!("../../targets/known_stacks.py");
const SHORT_LIVED_THREADS: &str = include_str!("../../targets/short_lived_threads.py");

#[derive(Deserialize)]
struct Account {
    pid: u32,
    hexversion: u32,
    /// The thread that gave the account.
    own: u64,
    threads: BTreeMap<u64, ThreadAccount>,
}

#[derive(Deserialize)]
struct ThreadAccount {
    name: String,
    native_id: u32,
    /// Name, base name of the file, line; leaf first.
    stack: Vec<(String, String, u32)>,
}

fn attach(memory: &LiveMemory) -> Result<Runtime, String> {
    let mappings = memory.mappings().map_err(|error| error.to_string())?;
    cpython::discover(&mappings, memory, memory).map_err(|error| error.to_string())
}

fn plan(runtime: &Runtime, memory: &LiveMemory, max_frames: u32) -> Result<Plan, String> {
    let wishes = Wishes {
        since: MonotonicNs(0),
        flags: 0,
        max_frames,
    };
    cpython::plan(runtime, memory, wishes).ok_or_else(|| "no plan".to_owned())
}

fn show(frame: &PyFrame) -> (String, String, u32) {
    match frame {
        PyFrame::Known { code, line } => {
            let file = code.file.rsplit('/').next().unwrap_or_default();
            (code.name.to_string(), file.to_owned(), line.unwrap_or(0))
        }
        other => (format!("{other:?}"), String::new(), 0),
    }
}

/// A target with known stacks, all its threads where they say they are.
struct Session {
    _target: Target,
    memory: LiveMemory,
    runtime: Runtime,
    account: Account,
    states: Vec<ThreadState>,
}

fn known_stacks(python: &[String]) -> Result<Session, String> {
    let target = Target::start(python, KNOWN_STACKS, &[])?;
    let account: Account = serde_json::from_str(&target.line)
        .map_err(|error| format!("no account ({error}): {:?}", target.line))?;
    let memory = target.memory()?;
    let runtime = attach(&memory)?;
    // The thread that printed has yet to come to its final read of standard input.
    let reporter = account.threads.get(&account.own).ok_or("no own thread")?;
    let (pid, tid) = (target.child.id(), reporter.native_id);
    until(|| {
        let syscall = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall"));
        Ok(syscall
            .map_err(|error| error.to_string())?
            .starts_with("0 0x0 "))
    })?;
    let states = runtime
        .thread_states(&memory)
        .map_err(|error| error.to_string())?;
    if account.pid != target.child.id() {
        return Err("it runs in another process".to_owned());
    }
    if states.len() != account.threads.len() {
        let (got, want) = (states.len(), account.threads.len());
        return Err(format!("{got} thread states for {want} threads"));
    }
    Ok(Session {
        _target: target,
        memory,
        runtime,
        account,
        states,
    })
}

/// Runs `test` on a target with known stacks on every interpreter; the targets are shared by the
/// tests, and end when this program does, for then their standard input ends.
fn on_known_stacks(test: impl Fn(&Session) -> Result<String, String>) {
    type Sessions = BTreeMap<Vec<String>, Result<Session, String>>;
    static SESSIONS: OnceLock<Sessions> = OnceLock::new();
    if !rung::reached(Rung::Live) {
        return;
    }
    let sessions = SESSIONS.get_or_init(|| {
        let commands = pythons::required().iter().map(|python| &python.command);
        commands
            .map(|command| (command.clone(), known_stacks(command)))
            .collect()
    });
    on_every_python(|python| test(sessions[python].as_ref().map_err(Clone::clone)?));
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Result<(), String> {
    if got == want {
        Ok(())
    } else {
        Err(format!("{what}:\n   got {got:?}\n  want {want:?}"))
    }
}

impl Session {
    fn account_of(&self, state: &ThreadState) -> Result<&ThreadAccount, String> {
        let account = self.account.threads.get(&state.pthread_id.0);
        account.ok_or_else(|| format!("no thread {}", state.pthread_id))
    }
}

#[test]
fn every_frame_of_every_thread_is_what_the_interpreter_says() {
    on_known_stacks(|session| {
        let (runtime, memory) = (&session.runtime, &session.memory);
        let plan = plan(runtime, memory, 512)?;
        let mut resolver = Resolver::new(runtime);
        let mut walker = Walker::default();
        let mut total = 0;
        for state in &session.states {
            let account = session.account_of(state)?;
            let chain = walker.chain(memory, &plan, state.addr);
            same("end", chain.end, ChainEnd::Complete)?;
            let frames = resolver.frames(memory, &chain);
            let mut want: Vec<_> = account.stack.clone();
            if want.len() > 512 {
                let cut = PyFrame::Cut {
                    frames: want.len() as u32 - 512,
                };
                same("cut", &frames[256], &cut)?;
                want.splice(256..want.len() - 256, [show(&cut)]);
            }
            let got: Vec<_> = frames.iter().map(show).collect();
            total += got.len();
            if let Some(at) = got.iter().zip(&want).position(|(got, want)| got != want) {
                same(
                    &format!("`{}`, frame {at}", account.name),
                    &got[at],
                    &want[at],
                )?;
            }
            same(&account.name, got.len(), want.len())?;
        }
        same("stale codes", resolver.revalidate(memory), Vec::new())?;
        let threads = session.states.len();
        Ok(format!(
            "{} {threads} threads, {total} frames",
            runtime.version()
        ))
    });
}

#[test]
fn a_stack_deeper_than_wished_keeps_both_ends() {
    on_known_stacks(|session| {
        let (runtime, memory) = (&session.runtime, &session.memory);
        let plan = plan(runtime, memory, 16)?;
        let mut resolver = Resolver::new(runtime);
        for state in &session.states {
            let want = &session.account_of(state)?.stack;
            let chain = Walker::default().chain(memory, &plan, state.addr);
            let got: Vec<_> = resolver.frames(memory, &chain).iter().map(show).collect();
            if want.len() > 16 {
                same("missing", chain.missing as usize, want.len() - 16)?;
                same("leaf end", &got[..8], &want[..8])?;
                same("root end", &got[9..], &want[want.len() - 8..])?;
            } else {
                same("whole", &got, want)?;
            }
        }
        Ok("ends kept".to_owned())
    });
}

#[test]
fn version_names_and_native_ids_are_what_the_interpreter_says() {
    on_known_stacks(|session| {
        let (runtime, memory) = (&session.runtime, &session.memory);
        let version = cpython::Version::from_hex(session.account.hexversion);
        same("version", runtime.version(), version)?;
        let names = cpython::thread_names(runtime, memory);
        for state in &session.states {
            let account = session.account_of(state)?;
            let name = names.get(&state.pthread_id);
            same("name", name.map(|it| &it.name), Some(&account.name))?;
            let id = InnerTid(account.native_id);
            same("its id", name.map(|it| it.native_id), Some(Some(id)))?;
            let native = version
                .is_at_least(11)
                .then_some(InnerTid(account.native_id));
            same("native id", state.native_thread_id, native)?;
            let gil = match runtime.build() {
                Build::Default => Gil::Neither,
                Build::FreeThreaded => Gil::NoGil,
            };
            same("gil", state.gil, gil)?;
            let detached = version.is_at_least(13).then_some(Attachment::Detached);
            same("attachment", state.attachment, detached)?;
            let holder = runtime.gil_holder(memory, state.interpreter);
            same("holder", holder, Ok(None))?;
            same(
                "collecting",
                runtime.collecting(memory, state.interpreter),
                Ok(false),
            )?;
        }
        Ok(format!("{version}, {} names", names.len()))
    });
}

/// What the kernel program does: from a thread's TLS base to its state.
fn follow(memory: &LiveMemory, plan: &Plan, thread: PthreadId) -> Result<u64, ReadError> {
    let hops = plan.state.hops[..plan.state.n_hops as usize].iter();
    hops.copied().try_fold(thread.0, |at, hop| {
        memory.u64(RemoteAddr(at.wrapping_add_signed(hop)))
    })
}

#[test]
fn the_hops_from_a_thread_lead_to_its_state() {
    on_known_stacks(|session| {
        let plan = plan(&session.runtime, &session.memory, 512)?;
        if plan.state.n_hops == 0 {
            return Err("no hops".to_owned());
        }
        for state in &session.states {
            let got = follow(&session.memory, &plan, state.pthread_id);
            same("state", got, Ok(state.addr.0))?;
        }
        Ok(format!("hops {:?}", plan.state.hops))
    });
}

#[test]
fn a_process_without_python_is_told_what_was_looked_at() {
    if !rung::reached(Rung::Live) {
        return;
    }
    let target = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut target = Target {
        child: target.expect("cat runs"),
        line: String::new(),
    };
    // It has begun once it gives back what it was given.
    let mut stdin = target.child.stdin.take().expect("stdin");
    io::Write::write_all(&mut stdin, b"ready\n").expect("written");
    let mut stdout = BufReader::new(target.child.stdout.take().expect("stdout"));
    stdout.read_line(&mut target.line).expect("answered");
    let memory = target.memory().expect("its memory");
    let mappings = memory.mappings().expect("its mappings");
    match cpython::discover(&mappings, &memory, &memory) {
        Err(CpythonError::NotFound(list)) => {
            let shown = list.to_string();
            assert!(
                shown.contains("/cat: looked for symbol `_PyRuntime`"),
                "{shown}"
            );
            assert!(shown.contains("writable memory"), "{shown}");
        }
        other => panic!("{other:?}"),
    }
}

/// Nothing holds still here, so no stack is compared: what is read may be torn, and must still
/// be bounded, typed and mostly readable.
#[test]
fn a_program_whose_threads_and_codes_come_and_go_can_be_read() {
    on_every_python(|python| {
        let target = Target::start(python, SHORT_LIVED_THREADS, &[])?;
        let memory = target.memory()?;
        let runtime = attach(&memory)?;
        let plan = plan(&runtime, &memory, 512)?;
        let (mut resolver, mut walker) = (Resolver::new(&runtime), Walker::default());
        let (mut lists, mut known, mut other, mut changed) = (0, 0, 0, 0);
        for _ in 0..300 {
            let Ok(states) = runtime.thread_states(&memory) else {
                continue;
            };
            lists += 1;
            for state in states {
                let chain = walker.chain(&memory, &plan, state.addr);
                for frame in resolver.frames(&memory, &chain) {
                    match frame {
                        PyFrame::Known { .. } => known += 1,
                        _ => other += 1,
                    }
                }
            }
            changed += resolver.revalidate(&memory).len();
            let _ = cpython::thread_names(&runtime, &memory);
        }
        if lists == 0 || known == 0 {
            return Err(format!(
                "only {lists} lists and {known} frames could be read"
            ));
        }
        Ok(format!(
            "{lists} lists, {known} frames, {other} others, {changed} changed"
        ))
    });
}

#[test]
fn an_interpreter_that_is_too_old_is_called_that() {
    if !rung::reached(Rung::Live) {
        return;
    }
    let pythons = target::old_pythons();
    if pythons.is_empty() {
        rung::leave_out("pyenv has no Python from 3.5 to 3.7");
    }
    for python in pythons {
        let child = Command::new(&python)
            .args(["-c", "print(1, flush=True); input()"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut target = Target {
            child: child.expect("it starts"),
            line: String::new(),
        };
        let stdout = target.child.stdout.take().expect("stdout");
        let mut stdout = BufReader::new(stdout);
        stdout.read_line(&mut target.line).expect("it has begun");
        let memory = target.memory().expect("its memory");
        match attach(&memory) {
            Err(error) if error.contains("older than 3.") => println!("{error}"),
            other => panic!("{}: {other:?}", python.display()),
        }
    }
}

/// No file may be opened.
struct NoImages;

impl OpenImage for NoImages {
    fn open(&self, _: &MappedFile) -> io::Result<Box<dyn ReadSeek>> {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

/// Memory in which no image has its first page, so that none can be read as one.
struct NoHeaders<'a> {
    memory: &'a LiveMemory,
    pages: Vec<RemoteAddr>,
}

impl Memory for NoHeaders<'_> {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        if self.pages.contains(&RemoteAddr(addr.0 & !0xfff)) {
            return Err(ReadError {
                addr,
                bytes: buf.len(),
                kind: ReadErrorKind::Unmapped,
            });
        }
        self.memory.read(addr, buf)
    }
}

#[test]
fn a_runtime_is_found_in_memory_when_no_file_can_be_opened() {
    on_known_stacks(|session| {
        let memory = &session.memory;
        let mappings = memory.mappings().map_err(|error| error.to_string())?;
        let found = cpython::discover(&mappings, &NoImages, memory);
        let runtime = found.map_err(|error| error.to_string())?;
        let expected = session.runtime.found().runtime;
        same("runtime", runtime.found().runtime, expected)?;
        same("version", runtime.version(), session.runtime.version())?;
        Ok(format!("found by {}", runtime.found().by))
    });
}

/// Without symbols or sections only the cookie is left.
#[test]
fn a_runtime_that_no_image_tells_of_is_found_by_its_debug_offsets() {
    on_known_stacks(|session| {
        let memory = &session.memory;
        let mappings = memory.mappings().map_err(|error| error.to_string())?;
        let first = mappings.iter().filter(|mapping| mapping.file_offset == 0);
        let memory = NoHeaders {
            memory,
            pages: first.map(|mapping| mapping.start).collect(),
        };
        match cpython::discover(&mappings, &NoImages, &memory) {
            Ok(runtime) => {
                let expected = session.runtime.found().runtime;
                same("runtime", runtime.found().runtime, expected)?;
                same("version", runtime.version(), session.runtime.version())?;
                same("by", runtime.found().by, FoundBy::Cookie)?;
                Ok("found by cookie".to_owned())
            }
            Err(CpythonError::NotFound(_)) if !session.runtime.version().is_at_least(13) => {
                Ok("has no cookie".to_owned())
            }
            Err(error) => Err(error.to_string()),
        }
    });
}

#[test]
fn an_empty_chain_resolves_to_no_frames() {
    on_known_stacks(|session| {
        let mut resolver = Resolver::new(&session.runtime);
        let chain = Chain::empty(ChainEnd::NoFrame);
        same(
            "frames",
            resolver.frames(&session.memory, &chain),
            Vec::new(),
        )?;
        Ok("none".to_owned())
    });
}
