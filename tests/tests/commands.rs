//! The commands as they are typed: what they write, what they say, how they end.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tests::folded::Folded;
use tests::parked::{Account, Parked, ThreadAccount, frames_of};
use tests::profile::Entry;
use tests::profiler::{self, Running};
use tests::pythons::{self, Python};
use tests::rung::{self, Rung};
use tests::target::{self, Target};

/// What a file of each format must begin with.
const BEGINNINGS: [(&str, &[u8]); 6] = [
    ("all.folded", b""),
    ("all.svg", b"<?xml"),
    ("all.speedscope.json", b"{"),
    ("all.pb.gz", b"\x1f\x8b"),
    ("all.txt", b""),
    ("all.json", b"{"),
];

fn at_the_kernel() -> Option<&'static Python> {
    rung::reached(Rung::Kernel).then(pythons::any).flatten()
}

fn threads_of(dump: &Value) -> Result<&Vec<Value>> {
    dump["threads"].as_array().context("no list of threads")
}

fn is_as_told(thread: &Value, account: &ThreadAccount, reads: bool, gil: &str) -> Result<()> {
    ensure!(thread["tid"] == account.native_id, "its tid");
    ensure!(thread["name"] == *account.name, "its name");
    ensure!(thread["python"] == true, "it is not known as Python's");
    ensure!(thread["state"] == "blocked", "its state");
    ensure!(thread["gil"] == gil, "its GIL");
    let (reason, call) = match reads {
        true => ("io_pipe", "read"),
        false => ("lock", "futex"),
    };
    ensure!(thread["reason"] == reason, "its reason");
    ensure!(thread["syscall"] == call, "its system call");
    let frames = frames_of(thread);
    ensure!(account.has(&frames), "its frames are not {account:?}");
    Ok(())
}

fn dumps_are_what_the_target_says(python: &Python) -> Result<()> {
    let parked = Parked::start(python, "known_stacks.py", &[])?;
    let account: Account = serde_json::from_str(&parked.line).context(parked.line.clone())?;
    let dump = parked.dumped()?;
    ensure!(
        dump["pid"].as_u64() == parked.pid().parse().ok(),
        "another process"
    );
    ensure!(
        dump["python"] == *python.release,
        "Python {}",
        dump["python"]
    );
    let (gil, said) = match python.free_threaded {
        true => ("no_gil", " · no GIL, detached"),
        false => ("neither", ""),
    };
    let threads = threads_of(&dump)?;
    ensure!(threads.len() == account.threads.len(), "other threads");
    for (ident, account_of) in &account.threads {
        let mut named = threads.iter().filter(|it| it["pthread_id"] == *ident);
        let thread = named.next().with_context(|| format!("no thread {ident}"))?;
        is_as_told(thread, account_of, *ident == account.own, gil)
            .with_context(|| format!("`{}` is {thread}", account_of.name))?;
    }

    let text = profiler::run(&["dump", "--pid", &parked.pid()])?.success()?;
    let text = text.stdout;
    for thread in account.threads.values() {
        let begins = format!("Thread {} \"{}\": blocked (", thread.native_id, thread.name);
        let place = text.split_once(&begins).map(|(_, rest)| rest);
        let place = place.with_context(|| format!("`{begins}` is not in: {text}"))?;
        let (_, rest) = place.split_once(')').context("the reason does not end")?;
        let rest = rest.lines().next().unwrap_or_default();
        let of_gil = rest.find(" · ").map_or("", |at| &rest[at..]);
        ensure!(of_gil == said, "`{of_gil}` in place of `{said}`: {text}");
        let (function, file, line) = thread.stack.first().context("an empty stack")?;
        let leaf = text.lines().any(|text| {
            text.trim_start().starts_with(&format!("{function} ("))
                && text.ends_with(&format!("{file}:{line})"))
        });
        ensure!(leaf, "`{function}` at line {line} is not in: {text}");
    }
    Ok(())
}

#[test]
fn a_dump_says_of_parked_threads_what_they_say() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    for python in pythons::required() {
        dumps_are_what_the_target_says(python).with_context(|| format!("on {}", python.label))?;
    }
    Ok(())
}

#[test]
fn a_dump_names_the_call_that_each_thread_blocks_in() -> Result<()> {
    let Some(python) = at_the_kernel() else {
        return Ok(());
    };
    let parked = Parked::start(python, "threads.py", &["9", "1"])?;
    let dump = parked.dumped()?;
    let threads = threads_of(&dump)?;
    let check = |function: &str, calls: &[&str]| {
        let is_it = |thread: &&Value| {
            let frames = frames_of(thread);
            frames.iter().any(|frame| frame.0 == function)
        };
        let thread = threads.iter().find(is_it);
        let thread = thread.with_context(|| format!("no `{function}` in {dump}"))?;
        let call = thread["syscall"].as_str().unwrap_or_default();
        ensure!(calls.contains(&call), "`{function}` is in `{call}`");
        Ok(())
    };
    check("in_lock", &["futex"])?;
    check("in_timed_wait", &["futex"])?;
    check("in_sleep", &["clock_nanosleep", "select", "pselect6"])?;
    check("in_read", &["read"])?;
    check("in_recv", &["recvfrom"])?;
    check("in_select", &["select", "pselect6"])?;
    check("in_poll", &["poll", "ppoll"])?;
    check("in_epoll", &["epoll_wait", "epoll_pwait"])?;
    let native = threads.iter().filter(|thread| thread["python"] == false);
    ensure!(native.count() == 1, "not one thread of C alone: {dump}");
    Ok(())
}

/// Runs `profiler run … -- COMMAND`.
fn run_command(options: &[&str], command: &[String]) -> Result<profiler::Finished> {
    let command = command.iter().map(String::as_str);
    let words: Vec<&str> = ["run"]
        .into_iter()
        .chain(options.iter().copied())
        .chain(["--"])
        .chain(command)
        .collect();
    profiler::run(&words)
}

#[test]
fn the_commands_own_status_is_passed_on_beside_its_profile() -> Result<()> {
    let Some(python) = at_the_kernel() else {
        return Ok(());
    };
    // From here on: where a machine is emulated, the interpreter's start alone takes longer.
    let source = "import sys, time
end = time.process_time() + 2
while time.process_time() < end:
    pass
sys.exit(7)";
    let words = ["-c", source].map(str::to_owned);
    let command = [python.command.as_slice(), &words].concat();
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("seven.folded");
    let path = path.to_str().context("a path of text")?;
    let finished = run_command(&["-r", "499", "-o", path], &command)?;
    ensure!(finished.status.code() == Some(7), "{finished:?}");
    let folded = Folded::read(Path::new(path))?;
    ensure!(folded.with("<module>") > 100, "{folded:?}");
    Ok(())
}

#[test]
fn a_target_has_its_native_frames() -> Result<()> {
    let Some(python) = at_the_kernel() else {
        return Ok(());
    };
    let mut target = Target::start(python, "native_depth.py", &["5"])?;
    let options = ["-m", "wall", "-r", "99", "--native", "--kernel"];
    let mut profiler = Running::in_detail(target.pid(), &options)?;
    profiler.attached()?;
    let mut cpu_s = 0.0;
    while cpu_s < 1.0 {
        target.tell("20000")?;
        let worked = target.expect("work")?;
        cpu_s += worked["cpu_s"].as_f64().context("no CPU time")?;
    }
    let profile = profiler.stop()?.profile()?;
    let native = profile.ledger.native.as_ref();
    let native = native.context("no account of native frames")?;
    ensure!(native.full > 50, "{native:?}");
    let in_crc: f64 = profile
        .entries
        .iter()
        .filter(|entry| entry.state == "on_cpu" && profile.is_in(entry, "level"))
        .filter(|entry| {
            let mut frames = profile.stack(entry);
            frames.any(|frame| frame.kind == "native" && frame.label.starts_with("crc32"))
        })
        .map(Entry::weight_s)
        .sum();
    ensure!(in_crc > cpu_s / 2.0, "{in_crc} of {cpu_s}: {native:?}");
    Ok(())
}

/// What was met before the interpreter was found stood for as long as the thread slept.
#[test]
fn a_command_that_sleeps_at_once_has_its_python_frames() -> Result<()> {
    let Some(python) = at_the_kernel() else {
        return Ok(());
    };
    let source = "import time
def rests(): time.sleep(5)
rests()";
    let words = ["-c", source].map(str::to_owned);
    let command = [python.command.as_slice(), &words].concat();
    for native in [&["--native"][..], &[]] {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("rests.folded");
        let path = path.to_str().context("a path of text")?;
        let options = [&["-m", "wall", "-r", "199", "-o", path], native].concat();
        let finished = run_command(&options, &command)?;
        ensure!(finished.status.success(), "{finished:?}");
        let folded = Folded::read(Path::new(path))?;
        let rested = folded.with("rests") as f64 / 1e9;
        ensure!(rested > 2.0, "{native:?}: {rested} s: {folded:?}");
    }
    Ok(())
}

#[test]
fn a_command_that_is_no_python_is_refused_with_what_to_type() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("none.folded");
    let check = |command: &str, said: &str| {
        let options = ["-o", path.to_str().context("a path of text")?];
        let finished = run_command(&options, &[command.to_owned()])?;
        ensure!(finished.status.code() == Some(1), "{finished:?}");
        ensure!(finished.stderr.contains(said), "{finished:?}");
        ensure!(!finished.stderr.contains("panicked"), "{finished:?}");
        ensure!(!path.exists(), "a profile was written: {finished:?}");
        Ok(())
    };
    check("true", "profiler run -- python3")?;
    check("./no-such-command", "cannot start `./no-such-command`")
}

#[test]
fn doctor_finds_that_everything_works() -> Result<()> {
    let Some(python) = at_the_kernel() else {
        return Ok(());
    };
    let finished = profiler::run(&["doctor"])?;
    ensure!(finished.status.code() == Some(0), "{finished:?}");
    let said = "ok  the kernel programs load, attach and tick";
    ensure!(finished.stdout.contains(said), "{finished:?}");

    let target = Target::start(python, "spin.py", &["1"])?;
    let finished = profiler::run(&["doctor", "--pid", &target.pid().to_string()])?;
    ensure!(finished.status.code() == Some(0), "{finished:?}");
    ensure!(finished.stdout.contains(&python.release), "{finished:?}");
    Ok(())
}

#[test]
fn one_run_writes_every_format() -> Result<()> {
    let Some(python) = at_the_kernel() else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let paths = BEGINNINGS.map(|(name, _)| folder.path().join(name).to_string_lossy().into_owned());
    let mut arguments = vec!["-r", "499", "-d", "1s"];
    arguments.extend(paths.iter().flat_map(|path| ["-o", path]));
    let mut target = Target::start(python, "spin.py", &["5"])?;
    target.tell("go")?;
    target.expect("running")?;
    let finished = Running::on(target.pid(), &arguments)?.finish()?.success()?;
    let ledger = finished.ledger()?;
    ensure!(ledger.samples > 50, "{ledger:?}");

    for ((name, begins), path) in BEGINNINGS.iter().zip(&paths) {
        let bytes = std::fs::read(path).with_context(|| format!("no {name}"))?;
        ensure!(!bytes.is_empty(), "{name} is empty");
        ensure!(bytes.starts_with(begins), "{name} begins otherwise");
        if name.ends_with(".json") {
            let value: Value = serde_json::from_slice(&bytes).context(*name)?;
            ensure!(value.is_object(), "{name} is no object");
        }
    }
    for folded in [Folded::read(Path::new(&paths[0]))?, finished.folded()?] {
        let total = folded.total();
        ensure!(total == ledger.samples, "the lines sum to {total}");
    }
    Ok(())
}

/// What is not allowed to the target or the profiler is done another way.
#[test]
fn a_seccomp_filter_on_either_side_is_no_hindrance() -> Result<()> {
    let Some(python) = at_the_kernel() else {
        return Ok(());
    };
    let [program] = python.command.as_slice() else {
        rung::leave_out("the interpreter is not started by its path");
        return Ok(());
    };
    let (_folder, filter) = target::lay_out(python, "deny_call.py")?;
    let filter = filter.to_string_lossy().into_owned();
    let mut filtered = python.clone();
    filtered.command = [program, &filter, "process_vm_readv", program]
        .map(str::to_owned)
        .to_vec();
    let mut target = Target::start(&filtered, "spin.py", &["5"])?;
    target.tell("go")?;
    target.expect("running")?;
    let pid = target.pid().to_string();

    let finished = Running::on(target.pid(), &["-r", "499", "-d", "1s"])?;
    let ledger = finished.finish()?.success()?.ledger()?;
    ensure!(ledger.from("kernel") > 50, "{ledger:?}");
    let dump = profiler::run(&["dump", "--pid", &pid])?.success()?;
    ensure!(dump.stdout.contains("spin.py:"), "{dump:?}");

    let files = tempfile::tempdir()?;
    let outputs = ["ledger.json", "profile.folded"].map(|name| files.path().join(name));
    let mut run = Command::new(program);
    run.args([&filter, "process_vm_readv"])
        .arg(profiler::binary()?);
    run.args(["run", "--pid", &pid, "-r", "499", "-d", "1s"]);
    run.arg("--ledger")
        .arg(&outputs[0])
        .arg("-o")
        .arg(&outputs[1]);
    let finished = Running::spawn(run, files)?.finish()?.success()?;
    ensure!(finished.ledger()?.from("kernel") > 50, "{finished:?}");
    ensure!(finished.folded()?.total() > 50, "{finished:?}");
    let mut dump = Command::new(program);
    dump.args([&filter, "process_vm_readv"])
        .arg(profiler::binary()?);
    dump.args(["dump", "--pid", &pid]);
    let dump = Running::spawn(dump, tempfile::tempdir()?)?
        .finish()?
        .success()?;
    ensure!(dump.stdout.contains("spin.py:"), "{dump:?}");
    Ok(())
}
