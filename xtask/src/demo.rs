//! `cargo xtask demo`: builds the profiler, lets it watch a small program, and shows what it saw.
//!
//! It installs nothing but, as root on Debian, a Python where there is none.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::unistd::geteuid;

use crate::{cache, setup, shell, test};

/// What was typed.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Use a debug build: it is there a little sooner and costs more while it profiles
    #[arg(long)]
    debug: bool,
    /// The interpreter to run the program on [default: the first of python3, python3.15, …,
    /// python3.8 that will do]
    #[arg(long, value_name = "COMMAND")]
    python: Option<String>,
    /// How long the program works
    #[arg(long, default_value_t = 8)]
    seconds: u32,
}

/// From the workspace's top folder, which is where it runs.
const WORKLOAD: &str = "xtask/demo/workload.py";

/// Ends well only in an interpreter that the profiler knows, and says where that is.
const QUESTION: &str = "\
import sys
known = sys.implementation.name == 'cpython' and (3, 8) <= sys.version_info[:2] <= (3, 15)
has_gil = getattr(sys, '_is_gil_enabled', lambda: True)()
print(sys.executable)
sys.exit(0 if known and has_gil else 1)";

pub(crate) fn run(options: &Options) -> Result<()> {
    // First what fails at once.
    let python = python(options)?;
    let profiler = test::build(!options.debug)?;
    let target = cache::target_dir(&cache::workspace_root());
    let (picture, report) = (target.join("demo.svg"), target.join("demo.txt"));
    let mut words = vec![
        profiler.into_os_string(),
        "run".into(),
        "--threads".into(),
        "-o".into(),
        picture.clone().into(),
        "-o".into(),
        report.clone().into(),
        "--".into(),
        python.into(),
        WORKLOAD.into(),
        options.seconds.to_string().into(),
    ];
    if !geteuid().is_root() {
        if !shell::is_there("sudo") {
            let typed: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
            bail!(
                "only root may load kernel programs, and there is no `sudo`: as root, type `{}`",
                typed.join(" ")
            );
        }
        words.insert(0, "sudo".into());
    }
    let mut profile = Command::new(&words[0]);
    profile
        .args(&words[1..])
        .current_dir(cache::workspace_root());
    shell::run(
        &mut profile,
        "`profiler doctor` tells what is missing on this machine",
    )?;
    let text = std::fs::read_to_string(&report)
        .with_context(|| format!("the report `{}`", report.display()))?;
    println!(
        "\n{text}\nThe flame graph, for any browser: {}",
        picture.display()
    );
    Ok(())
}

/// The interpreter for the workload.
fn python(options: &Options) -> Result<PathBuf> {
    if let Some(command) = &options.python {
        return will_do(command).with_context(|| {
            format!("`{command}` is no CPython from 3.8 to 3.15 with a GIL: name another one")
        });
    }
    if let Some(python) = found() {
        return Ok(python);
    }
    setup::install(&["python3"])?;
    found().context(
        "no `python3` on the path is a CPython from 3.8 to 3.15 with a GIL: name one by --python",
    )
}

fn found() -> Option<PathBuf> {
    let newest_first = (8..=15).rev().map(|minor| format!("python3.{minor}"));
    std::iter::once("python3".to_owned())
        .chain(newest_first)
        .find_map(|command| will_do(&command))
}

/// The interpreter behind a command, which may be a script that chooses one, if it will do.
fn will_do(command: &str) -> Option<PathBuf> {
    let mut ask = Command::new(command);
    let path = shell::output(ask.args(["-I", "-c", QUESTION])).ok()?;
    let path = Path::new(path.trim());
    path.is_file().then(|| path.to_owned())
}
