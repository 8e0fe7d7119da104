//! Every kind of interpreter is found: rung 2 by `dump`, rung 3 by `run` too.
//!
//! What a target says of itself is the truth; each kind is made here from the interpreters of the
//! machine.

mod alive;
mod linked;
mod refused;

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tests::kinds::{self, Made};
use tests::profiler::{self, Finished, Running};
use tests::pythons::{self, Python};
use tests::rung::{self, Rung};
use tests::target::Target;

/// `profiler` with all rights of this test.
fn with_all_rights(arguments: &[&str]) -> Result<Finished> {
    profiler::run(arguments)
}

/// `profiler` of root with no other right than to read the memory of others.
fn with_few_rights(arguments: &[&str]) -> Result<Finished> {
    if !nix::unistd::geteuid().is_root() {
        return with_all_rights(arguments);
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set=-all,+sys_ptrace", "--inh-caps=-all"])
        .arg(profiler::binary()?)
        .args(arguments);
    Running::spawn(command, tempfile::tempdir()?)?.finish()
}

type Way = fn(&[&str]) -> Result<Finished>;

/// What `dump --json` says.
fn dumped(pid: &str, way: Way) -> Result<Value> {
    let finished = way(&["dump", "--json", "--pid", pid])?.success()?;
    serde_json::from_str(&finished.stdout).context("what `dump --json` wrote")
}

/// The names of the functions of the thread of this name, leaf first.
fn functions(dump: &Value, thread: &str) -> Result<Vec<String>> {
    let threads = dump["threads"].as_array().context("no list of threads")?;
    let is_it = |it: &&Value| it["name"] == thread && it["python"] == true;
    let thread = threads
        .iter()
        .find(is_it)
        .with_context(|| format!("no thread `{thread}` in {dump}"))?;
    let frames = thread["frames"].as_array().into_iter().flatten();
    let name = |frame: &Value| frame["function"].as_str().unwrap_or_default().to_owned();
    Ok(frames.map(name).collect())
}

/// Starts a target, lets it run, and sees that its thread `recurse` is dumped as it is.
fn spin(python: &Python) -> Result<Target> {
    let mut target = Target::start(python, "spin.py", &["5"])?;
    target.tell("go")?;
    target.expect("running")?;
    Ok(target)
}

fn spins(python: &Python, pid: &str, way: Way) -> Result<()> {
    let dump = dumped(pid, way)?;
    let (major, minor, micro) = python.version;
    let told = dump["python"].as_str().unwrap_or_default();
    let version = format!("{major}.{minor}.{micro}");
    ensure!(told.starts_with(&version), "Python {told}");
    recurses(&dump)
}

/// That the thread `recurse` is as `spin.py` has it.
fn recurses(dump: &Value) -> Result<()> {
    let names = functions(dump, "recurse")?;
    let recursed = names.iter().filter(|name| *name == "recurse").count();
    ensure!(
        names.first().is_some_and(|leaf| leaf == "leaf") && recursed == 5,
        "its frames are {names:?}"
    );
    Ok(())
}

/// At rung 3, that `run` gives all its samples to one function.
fn is_profiled(pid: nix::unistd::Pid, function: &str) -> Result<()> {
    if !rung::must_run(Rung::Kernel) {
        return Ok(());
    }
    let finished = Running::on(pid, &["-r", "499", "-d", "500ms"])?
        .finish()?
        .success()?;
    let folded = finished.folded()?;
    let (with, all) = (folded.with(function), folded.total());
    ensure!(
        all > 10 && with * 100 >= all * 95,
        "`{function}` has {with} of {all} samples"
    );
    Ok(())
}

fn on_every_python(check: impl Fn(&Python) -> Result<()>) -> Result<()> {
    if !rung::reached(Rung::Live) {
        return Ok(());
    }
    for python in pythons::required() {
        check(python).with_context(|| format!("on {}", python.label))?;
    }
    Ok(())
}

fn is_found_whole_and_deleted(made: &Made) -> Result<Target> {
    let target = spin(&made.python)?;
    let pid = target.pid().to_string();
    spins(&made.python, &pid, with_all_rights)?;
    made.delete()?;
    spins(&made.python, &pid, with_all_rights).context("deleted")?;
    spins(&made.python, &pid, with_few_rights).context("deleted, with few rights")?;
    is_profiled(target.pid(), "leaf").context("deleted")?;
    Ok(target)
}

#[test]
fn a_renamed_interpreter_without_any_symbol_or_section_is_found_also_when_it_is_deleted()
-> Result<()> {
    on_every_python(|python| {
        let made = kinds::copied(python)?
            .change(kinds::strip)?
            .change(kinds::drop_section_headers)?;
        is_found_whole_and_deleted(&made).map(drop)
    })
}

/// The library bears another name, and Python's main thread is not the process's.
#[test]
fn an_interpreter_that_a_program_has_loaded_on_another_thread_is_found() -> Result<()> {
    on_every_python(|python| {
        let Some(made) = kinds::embedded(python, None)? else {
            return Ok(());
        };
        let target = is_found_whole_and_deleted(&made)?;
        let pid = target.pid().to_string();
        let dump = dumped(&pid, with_all_rights)?;
        ensure!(
            functions(&dump, "MainThread")?.contains(&"command".to_owned()),
            "Python's main thread is not the one that reads: {dump}"
        );
        let threads = dump["threads"].as_array().context("threads")?;
        let first = threads.iter().find(|it| it["tid"] == target.pid().as_raw());
        ensure!(
            first.is_some_and(|it| it["python"] == false),
            "the process's first thread is Python's: {dump}"
        );
        Ok(())
    })
}

/// From its start on: the first fifth of a second is native, and at least a tenth of all, of the half second
/// that is Python's is Python's (how soon its code is given names is up to the machine).
#[test]
fn a_program_that_loads_its_interpreter_late_is_profiled_from_then_on() -> Result<()> {
    const WORK: &str = "import time
def late():
    end = time.thread_time() + 0.5
    while time.thread_time() < end:
        pass
late()";
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    for python in pythons::required() {
        let Some(made) = kinds::embedded(python, None)? else {
            continue;
        };
        let folder = tempfile::tempdir()?;
        let script = folder.path().join("late.py");
        std::fs::write(&script, WORK)?;
        let output = folder.path().join("late.folded");
        let mut run = Command::new(profiler::binary()?);
        run.args(["run", "-r", "499", "-o"]).arg(&output).arg("--");
        run.args(&made.python.command).arg(&script);
        Running::spawn(run, tempfile::tempdir()?)?
            .finish()?
            .success()?;
        let folded = tests::folded::Folded::read(&output)?;
        let (late, all) = (folded.with("late"), folded.total());
        ensure!(
            late * 10 >= all && late * 10 <= all * 8,
            "`late` has {late} of {all} samples on {}",
            python.label
        );
    }
    Ok(())
}

/// Two libraries of two versions, each with all its symbols to itself: the busy one is shown, and
/// that there is another is said.
#[test]
fn of_two_interpreters_in_one_process_the_busier_is_taken_and_the_other_named() -> Result<()> {
    if !rung::reached(Rung::Live) {
        return Ok(());
    }
    let mut with_library = Vec::new();
    for python in pythons::required() {
        if python.root.is_none() && kinds::library_of(python)?.is_some() {
            with_library.push(python);
        }
    }
    let (Some(first), Some(last)) = (with_library.first(), with_library.last()) else {
        rung::leave_out("no interpreter here has a library of its own");
        return Ok(());
    };
    if first.version == last.version {
        rung::leave_out("only one interpreter here has a library of its own");
        return Ok(());
    }
    for (one, other) in [(first, last), (last, first)] {
        let made = kinds::embedded(one, Some(other))?.context("it has a library")?;
        let target = spin(&made.python)?;
        let pid = target.pid().to_string();
        spins(one, &pid, with_all_rights)?;
        let dump = with_all_rights(&["dump", "--pid", &pid])?.success()?;
        let (major, minor, micro) = other.version;
        let named = format!("a second interpreter, Python {major}.{minor}.{micro}");
        ensure!(dump.stderr.contains(&named), "{dump:?}");
    }
    Ok(())
}

#[test]
fn a_debug_build_is_read_as_any_other() -> Result<()> {
    if !rung::reached(Rung::Live) {
        return Ok(());
    }
    let Some(python) = kinds::debug() else {
        rung::leave_out("there is no debug build: type `cargo xtask setup`");
        return Ok(());
    };
    is_found_whole_and_deleted(&kinds::copied(&python)?).map(drop)
}

#[test]
fn an_interpreter_built_against_musl_is_read_as_any_other() -> Result<()> {
    if !rung::reached(Rung::Live) {
        return Ok(());
    }
    let Some(python) = kinds::musl() else {
        rung::leave_out("there is no interpreter built against musl in the cache's folder `musl`");
        return Ok(());
    };
    let target = spin(&python)?;
    spins(&python, &target.pid().to_string(), with_all_rights)?;
    is_profiled(target.pid(), "leaf")
}

/// PyInstaller's program is two processes: one unpacks and waits, its child is the Python.
#[test]
fn a_program_packed_into_one_file_is_found_and_its_parent_names_it() -> Result<()> {
    use std::io::{BufRead, BufReader, Write};
    if !rung::reached(Rung::Live) {
        return Ok(());
    }
    let program = kinds::packed()?;
    let mut parent = Command::new(&program)
        .arg("5")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = parent.stdin.take().context("its stdin")?;
    let mut lines = BufReader::new(parent.stdout.take().context("its stdout")?).lines();
    let ready = lines.next().context("it said nothing")??;
    let ready: Value = serde_json::from_str(&ready)?;
    let pid = ready["pid"].as_i64().context("its pid")?;
    let outcome = (|| {
        stdin.write_all(b"go\n")?;
        lines.next().context("it does not run")??;
        recurses(&dumped(&pid.to_string(), with_all_rights)?)?;
        let child = nix::unistd::Pid::from_raw(i32::try_from(pid)?);
        is_profiled(child, "leaf")?;
        let refused = with_all_rights(&["dump", "--pid", &parent.id().to_string()])?;
        ensure!(refused.status.code() == Some(1), "{refused:?}");
        let named = format!("`--pid {pid}`");
        ensure!(refused.stderr.contains(&named), "{refused:?}");
        Ok(())
    })();
    // It ends with its input, and takes its folder of unpacked files away.
    drop(stdin);
    let ended = parent.wait();
    outcome.and_then(|()| Ok(ended.map(drop)?))
}
