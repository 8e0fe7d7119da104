//! `cargo xtask test`: installs what the tests need, builds the binary and runs every test that
//! this machine allows.
//!
//! It measures nothing and installs no peers: `cargo xtask bench` does.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::unistd::geteuid;
use serde_json::Value;
use tests::rung::{LEFT_OUT_VARIABLE, RUNG_VARIABLE};

use crate::{setup, shell};

/// What was typed.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The highest rung of privilege that must run: 1 nothing, 2 own children, 3 root and eBPF
    /// (3 for root, else 2)
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=3))]
    rung: Option<u8>,
    /// Arguments for the test runner, such as a test's name
    #[arg(last = true)]
    rest: Vec<String>,
}

/// The kernel side builds for another target and has no tests.
const PACKAGES: &[&str] = &["--workspace", "--exclude", "profiler-ebpf"];

pub(crate) fn run(options: &Options) -> Result<()> {
    let most = if geteuid().is_root() { 3 } else { 2 };
    let rung = options.rung.unwrap_or(most);
    if rung > 1 {
        setup::run(&setup::Options::default())?;
    }
    let bin = build(false)?;
    let left_out = tempfile::NamedTempFile::new().context("a file for what is left out")?;
    let with = |command: &mut Command| {
        command
            .env(RUNG_VARIABLE, rung.to_string())
            .env(LEFT_OUT_VARIABLE, left_out.path())
            .env(tests::profiler::BIN_VARIABLE, &bin);
    };
    if options.rest.is_empty() {
        // Before the others, so that their summary closes the output.
        let mut docs = shell::cargo();
        docs.args(["test", "--doc"]).args(PACKAGES);
        with(&mut docs);
        shell::run(&mut docs, "a documentation test failed")?;
    }
    let mut runner = runner(&options.rest);
    with(&mut runner);
    let outcome = shell::run(&mut runner, "a test failed");
    report(left_out.path(), rung)?;
    outcome
}

/// Builds the binary and asks cargo where it is.
pub(crate) fn build(release: bool) -> Result<PathBuf> {
    let mut cargo = shell::cargo();
    cargo.args(["build", "--package", "profiler", "--bin", "profiler"]);
    cargo.args(["--message-format", "json-render-diagnostics"]);
    if release {
        cargo.arg("--release");
    }
    cargo.stderr(std::process::Stdio::inherit());
    let messages = shell::output(&mut cargo)?;
    let path = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .find(|path| path.file_name() == Some(OsStr::new("profiler")));
    match path {
        Some(path) => Ok(path),
        None => bail!("cargo built no `profiler`: see its messages above"),
    }
}

/// nextest where it is installed: a process a test, so that one's crash is not another's.
fn runner(rest: &[String]) -> Command {
    let mut cargo = shell::cargo();
    if shell::is_there("cargo-nextest") {
        cargo.args(["nextest", "run"]).args(PACKAGES).args(rest);
    } else {
        eprintln!("no cargo-nextest: the tests run by `cargo test`");
        cargo
            .arg("test")
            .args(PACKAGES)
            .arg("--all-targets")
            .args(rest);
    }
    cargo
}

/// What did not run, to the user: with rung 3 on a full machine there is nothing to say.
fn report(left_out: &Path, rung: u8) -> Result<()> {
    let text = std::fs::read_to_string(left_out).context("the file of what was left out")?;
    let lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        return Ok(());
    }
    eprintln!("{} left out of this run (rung {rung}):", lines.len());
    for line in lines {
        eprintln!("  {line}");
    }
    Ok(())
}
