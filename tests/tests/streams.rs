//! Standard output and error that take nothing more: a full device, a reader that has gone away. What
//! was asked for comes first, and nothing panics.

use std::fs::{self, OpenOptions};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use tests::profiler;
use tests::pythons;
use tests::rung::{self, Rung};

/// Long enough for an interpreter to be found in it on a busy machine.
const SPINS: &str = "import sys, time
end = time.process_time() + 1
while time.process_time() < end:
    pass
sys.exit(7)";

/// Everything that is written to it fails.
fn full() -> Result<Stdio> {
    let device = OpenOptions::new().write(true).open("/dev/full");
    Ok(device.context("/dev/full")?.into())
}

/// A pipe that nobody reads any more.
fn unread() -> Result<Stdio> {
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    Ok(writer.into())
}

fn profiler(arguments: &[&str], stdout: Stdio) -> Result<Output> {
    let mut command = Command::new(profiler::binary()?);
    command.args(arguments).stdin(Stdio::null()).stdout(stdout);
    Ok(command.stderr(Stdio::piped()).spawn()?.wait_with_output()?)
}

#[test]
fn a_full_device_is_an_error_and_a_closed_pipe_is_none() -> Result<()> {
    if !rung::reached(Rung::Live) {
        return Ok(());
    }
    let mut calls: Vec<Vec<&str>> = ["bash", "elvish", "fish", "powershell", "zsh"]
        .map(|shell| vec!["completions", shell])
        .to_vec();
    calls.extend([
        vec!["man"],
        vec!["doctor"],
        vec!["--help"],
        vec!["--version"],
    ]);
    for arguments in calls {
        let finished = profiler(&arguments, full()?)?;
        let said = String::from_utf8_lossy(&finished.stderr);
        ensure!(!said.contains("panicked"), "{arguments:?}: {said}");
        ensure!(
            finished.status.code() == Some(1),
            "{arguments:?}: {finished:?}"
        );

        let finished = profiler(&arguments, unread()?)?;
        let said = String::from_utf8_lossy(&finished.stderr);
        ensure!(said.is_empty(), "{arguments:?}: {said}");
        // `doctor` may have something to complain of.
        let done = finished.status.success() || arguments == ["doctor"];
        ensure!(done, "{arguments:?}: {finished:?}");
    }
    Ok(())
}

/// `profiler run … 2>&1 | head -1`: it panicked at its second line, and wrote no profile.
#[test]
fn a_run_that_can_say_nothing_any_more_still_writes_its_profile() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(python) = pythons::any() else {
        return Ok(());
    };
    for stderr in [full()?, unread()?] {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("spin.folded");
        let mut run = Command::new(profiler::binary()?);
        run.args(["run", "-r", "499", "-o"]).arg(&path).arg("--");
        run.args(&python.command).args(["-c", SPINS]);
        run.stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr);
        let status = run.status()?;
        // The command's own.
        ensure!(status.code() == Some(7), "{status}");
        let folded = fs::read_to_string(&path).context("no profile")?;
        ensure!(folded.contains("<module>"), "{folded}");
    }
    Ok(())
}

#[test]
fn a_report_that_cannot_be_printed_says_what_cannot_be_written() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(python) = pythons::any() else {
        return Ok(());
    };
    for output in [&[][..], &["-o", "-"], &["-f", "json"]] {
        let mut arguments = vec!["run", "-r", "499"];
        arguments.extend(output);
        arguments.push("--");
        arguments.extend(python.command.iter().map(String::as_str));
        arguments.extend(["-c", SPINS]);
        let finished = profiler(&arguments, full()?)?;
        let said = String::from_utf8_lossy(&finished.stderr);
        ensure!(said.contains("cannot write to standard output: "), "{said}");
        ensure!(!said.contains("wrote "), "{said}");
    }
    Ok(())
}
