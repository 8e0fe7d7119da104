//! What cannot be done is refused before the first tick: one line that says what, where and what
//! to type, with a list below it of what was tried where much was, and the documented exit status.

use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use tests::profiler::{self, Finished, Running};
use tests::pythons;
use tests::rung::{self, Rung};
use tests::target::Target;

/// 1: could not profile.
const FAILED: i32 = 1;
/// 2: usage.
const USAGE: i32 = 2;

/// Holds a refusal to its form: the status, no panic, no profile, and every word of these.
fn refused(finished: &Finished, status: i32, words: &[&str]) -> Result<()> {
    let said = finished.stderr.trim_end();
    ensure!(
        finished.status.code() == Some(status),
        "ended with {} instead of {status}: {said}",
        finished.status
    );
    ensure!(!said.contains("panicked"), "it panicked: {said}");
    ensure!(!said.is_empty(), "it said nothing");
    // A usage error is clap's, which shows the usage below it; a list is indented.
    let mut below = said.lines().skip(1);
    ensure!(
        status == USAGE || below.all(|line| line.starts_with("  ")),
        "not one line: {said}"
    );
    let lower = said.to_lowercase();
    for word in words {
        let any = word.split('|').any(|word| lower.contains(word));
        ensure!(any, "`{word}` is not in: {said}");
    }
    ensure!(finished.stdout.is_empty(), "stdout has {}", finished.stdout);
    Ok(())
}

fn check(arguments: &[&str], status: i32, words: &[&str]) -> Result<()> {
    let finished = profiler::run(arguments)?;
    refused(&finished, status, words).with_context(|| format!("profiler {}", arguments.join(" ")))
}

/// A process that is not Python and waits for its stdin.
struct Cat(Child);

impl Cat {
    fn start() -> Result<Self> {
        let mut cat = Command::new("cat");
        cat.stdin(Stdio::piped()).stdout(Stdio::null());
        Ok(Self(cat.spawn()?))
    }
}

impl Drop for Cat {
    fn drop(&mut self) {
        // It may be gone already, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn usage_is_refused_with_status_2() -> Result<()> {
    if !rung::reached(Rung::Live) {
        return Ok(());
    }
    let pid = std::process::id().to_string();
    check(&["run"], USAGE, &["--pid", "run -- python3"])?;
    check(&["run", "--pid", "cat"], USAGE, &["cat", "pgrep -a"])?;
    check(&["run", "--pid", "-4"], USAGE, &["-4", "pgrep -a"])?;
    check(&["run", &pid], USAGE, &[&format!("run --pid {pid}`")])?;
    check(&["dump", &pid], USAGE, &[&format!("dump --pid {pid}`")])?;
    check(&["run", "x.py", "-v"], USAGE, &["run -- x.py -v`"])?;
    check(&["run", "--pid", &pid, "--no-such"], USAGE, &["--no-such"])?;
    check(&["run", "--pid", &pid, "-r", "0"], USAGE, &["rate", "1"])?;
    check(&["run", "--pid", &pid, "-r", "-5"], USAGE, &[])?;
    check(&["run", "--pid", &pid, "-r", "many"], USAGE, &["many"])?;
    check(&["run", "--pid", &pid, "-r", "10000000"], USAGE, &["rate"])?;
    check(&["run", "--pid", &pid, "-d", "0"], USAGE, &["duration"])?;
    check(&["run", "--pid", &pid, "-d", "-1"], USAGE, &["duration -1"])?;
    check(&["run", "--pid", &pid, "-d", "soon"], USAGE, &["soon"])?;
    check(&["run", "--pid", &pid, "-m", "dream"], USAGE, &["dream"])?;
    check(
        &["run", "--pid", &pid, "-o", "x.jpeg"],
        USAGE,
        &["jpeg", "folded"],
    )?;
    check(&["no-such-command"], USAGE, &["no-such-command"])
}

#[test]
fn a_process_that_is_not_there_is_named() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    // A reaped child's number: nobody has it, unless the kernel has gone round in between.
    let mut gone = Command::new("true").spawn()?;
    gone.wait()?;
    let pid = gone.id().to_string();
    check(&["run", "--pid", "0"], FAILED, &["no such|no process"])?;
    check(
        &["run", "--pid", &pid],
        FAILED,
        &[&pid, "no such|no process"],
    )?;
    check(
        &["dump", "--pid", &pid],
        FAILED,
        &[&pid, "no such|no process"],
    )
}

#[test]
fn a_process_that_is_not_python_is_told_what_was_looked_for() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let cat = Cat::start()?;
    let pid = cat.0.id().to_string();
    check(
        &["run", "--pid", &pid],
        FAILED,
        &[&pid, "python", "pyruntime"],
    )?;
    check(
        &["dump", "--pid", &pid],
        FAILED,
        &[&pid, "python", "pyruntime"],
    )
}

#[test]
fn an_output_that_cannot_be_written_is_refused_before_the_first_tick() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(python) = pythons::any() else {
        return Ok(());
    };
    let target = Target::start(python, "two_spinners.py", &[])?;
    let pid = target.pid().to_string();
    let folder = target.folder().to_string_lossy().into_owned();
    let nowhere = format!("{folder}/no/such/folder/x.folded");
    let a_folder = format!("{folder}/x.folded");
    std::fs::create_dir(&a_folder)?;
    for path in [&nowhere, &a_folder] {
        check(&["run", "--pid", &pid, "-o", path], FAILED, &["x.folded"])?;
        check(
            &["run", "--pid", &pid, "--ledger", path],
            FAILED,
            &["x.folded"],
        )?;
    }
    Ok(())
}

#[test]
fn another_users_process_is_refused_without_privilege() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(python) = pythons::any() else {
        return Ok(());
    };
    let target = Target::start(python, "two_spinners.py", &[])?;
    let pid = target.pid().to_string();
    // The build folder may be closed to others: a copy is not.
    let files = tempfile::tempdir()?;
    std::fs::set_permissions(files.path(), PermissionsExt::from_mode(0o755))?;
    let copy = files.path().join("profiler");
    std::fs::copy(profiler::binary()?, &copy)?;
    for command in ["run", "dump"] {
        let mut as_nobody = Command::new("setpriv");
        as_nobody
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(&copy)
            .args([command, "--pid", &pid]);
        let finished = Running::spawn(as_nobody, tempfile::tempdir()?)?.finish()?;
        refused(
            &finished,
            FAILED,
            &[&pid, "may not|permi|privilege", "sudo"],
        )
        .with_context(|| format!("profiler {command} as nobody"))?;
    }
    Ok(())
}
