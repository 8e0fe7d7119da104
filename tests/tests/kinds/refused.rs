//! What is said where no interpreter is found or may be read.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use tests::kinds;
use tests::profiler::{self, Running};
use tests::pythons;
use tests::rung::{self, Rung};

use crate::{Way, spin, with_all_rights, with_few_rights};

/// What `dump` says of a program that gives back what it is given, and is no Python.
fn refused(command: &[&str], then: impl Fn() -> Result<()>, way: Way) -> Result<String> {
    let mut child = Command::new(command[0])
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    // It has begun once it gives back what it was given.
    let mut stdin = child.stdin.take().context("its stdin")?;
    stdin.write_all(b"ready\n")?;
    let mut stdout = BufReader::new(child.stdout.take().context("its stdout")?);
    stdout.read_line(&mut String::new())?;
    let finished = then().and_then(|()| way(&["dump", "--pid", &child.id().to_string()]));
    drop(stdin);
    child.wait()?;
    let finished = finished?;
    ensure!(finished.status.code() == Some(1), "{finished:?}");
    Ok(finished.stderr)
}

fn says(told: &str, words: &[&str]) -> Result<()> {
    for said in words {
        ensure!(told.contains(said), "no `{said}` in: {told}");
    }
    Ok(())
}

/// In namespaces of its own the check-list says whose paths it lists.
#[test]
fn where_no_interpreter_is_everything_that_was_tried_is_listed() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let always = [
        "no Python interpreter in it",
        "/cat: looked for symbol `_PyRuntime` or section `.PyRuntime`: neither",
        "/libc.so.6: looked for",
        "writable memory: looked for the debug offsets",
        "in its data: no constant in it tells a version",
        "`pgrep -a python`",
    ];
    says(&refused(&["cat"], || Ok(()), with_all_rights)?, &always)?;
    let unshared = refused(&["unshare", "--mount", "cat"], || Ok(()), with_all_rights)?;
    says(&unshared, &always)?;
    says(&unshared, &["which has its own mount namespace"])
}

/// A right that would have let more be looked at is named.
#[test]
fn a_program_that_is_no_more_on_disk_says_which_right_its_file_takes() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let copy = folder.path().join("worker");
    let program = copy.to_str().context("a path of text")?;
    let check = |way: Way, words: &[&str]| {
        // By a program of its own: what is open for writing cannot be run.
        let copied = Command::new("cp").args(["/bin/cat", program]).status()?;
        ensure!(copied.success(), "`cp` ended with {copied}");
        let delete = || Ok(std::fs::remove_file(Path::new(program))?);
        says(&refused(&[program], delete, way)?, words)
    };
    check(with_all_rights, &["/worker: looked for", ": neither"])?;
    let missing = [
        "/worker: looked for",
        "its file cannot be opened",
        "CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE",
        "run the profiler with `sudo`",
    ];
    check(with_few_rights, &missing)
}

/// What another user may not read is refused with what to type, also when it is no more on disk.
#[test]
fn a_deleted_interpreter_of_another_user_is_refused_with_what_to_type() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(python) = pythons::any() else {
        return Ok(());
    };
    let made = kinds::copied(python)?;
    let target = spin(&made.python)?;
    made.delete()?;
    let folder = tempfile::tempdir()?;
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755))?;
    let copy = folder.path().join("profiler");
    std::fs::copy(profiler::binary()?, &copy)?;
    let mut as_nobody = Command::new("setpriv");
    as_nobody
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(&copy)
        .args(["dump", "--pid", &target.pid().to_string()]);
    let finished = Running::spawn(as_nobody, tempfile::tempdir()?)?.finish()?;
    ensure!(finished.status.code() == Some(1), "{finished:?}");
    ensure!(finished.stderr.contains("sudo"), "{finished:?}");
    Ok(())
}
