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

use crate::{setup, shell, vm};

/// What was typed.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The highest rung of privilege that must run: 1 nothing, 2 own children, 3 root and eBPF
    /// (3 for root, else 2)
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=3))]
    rung: Option<u8>,
    /// Run the tests of rung 3 on other kernels, in virtual machines: all of them, or those named
    /// (5.10, 6.1, 6.12)
    #[arg(long, value_name = "KERNEL", num_args = 0.., value_delimiter = ',',
        default_missing_value = vm::ALL, conflicts_with = "rung")]
    vm: Option<Vec<String>>,
    /// Arguments for the test runner, such as a test's name
    #[arg(last = true)]
    rest: Vec<String>,
}

/// The kernel side builds for another target and has no tests.
const PACKAGES: &[&str] = &["--workspace", "--exclude", "profiler-ebpf"];

pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(kernels) = &options.vm {
        return vm::run(kernels, &options.rest);
    }
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
    if release {
        cargo.arg("--release");
    }
    let built = artifacts(cargo)?;
    let programs = built
        .iter()
        .filter_map(|message| message["executable"].as_str());
    let path = programs
        .map(PathBuf::from)
        .find(|path| path.file_name() == Some(OsStr::new("profiler")));
    match path {
        Some(path) => Ok(path),
        None => bail!("cargo built no `profiler`: see its messages above"),
    }
}

/// A built program of the package `tests`.
#[derive(Debug)]
pub(crate) struct TestProgram {
    /// Its name: that of its file in `tests/tests`, or of the folder.
    pub(crate) name: String,
    /// What runs it.
    pub(crate) executable: PathBuf,
}

/// Builds the live tests without running them.
pub(crate) fn build_tests() -> Result<Vec<TestProgram>> {
    let mut cargo = shell::cargo();
    cargo.args(["test", "--no-run", "--package", "tests", "--test", "*"]);
    let program = |message: &Value| {
        Some(TestProgram {
            executable: message["executable"].as_str()?.into(),
            name: message["target"]["name"].as_str()?.to_owned(),
        })
    };
    Ok(artifacts(cargo)?.iter().filter_map(program).collect())
}

/// Runs cargo and gives its messages.
fn artifacts(mut cargo: Command) -> Result<Vec<Value>> {
    cargo.args(["--message-format", "json-render-diagnostics"]);
    cargo.stderr(std::process::Stdio::inherit());
    let messages = shell::output(&mut cargo)?;
    let parsed = messages.lines().map(serde_json::from_str);
    Ok(parsed.filter_map(Result::ok).collect())
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
