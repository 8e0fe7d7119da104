//! A target that says one line of itself and then blocks, in all its threads.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

use crate::lines::PATIENCE;
use crate::profiler;
use crate::pythons::Python;
use crate::target;

/// A target that says one line of itself, after which all its threads block.
#[derive(Debug)]
pub struct Parked {
    child: Child,
    /// What it said.
    pub line: String,
    _folder: TempDir,
}

impl Parked {
    /// Starts it and waits until it is where it stays.
    ///
    /// # Errors
    ///
    /// When it cannot be started, or never blocks.
    pub fn start(python: &Python, script: &str, arguments: &[&str]) -> Result<Self> {
        let (folder, path) = target::lay_out(python, script)?;
        let child = target::command(python, &path, arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut parked = Self {
            child,
            line: String::new(),
            _folder: folder,
        };
        let stdout = parked.child.stdout.take().context("its stdout")?;
        BufReader::new(stdout).read_line(&mut parked.line)?;
        parked.wait_until_all_block()?;
        Ok(parked)
    }

    /// Its process id, as it is typed.
    #[must_use]
    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// The line is said a moment before the last threads block.
    fn wait_until_all_block(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            let mut all = true;
            let mut one_reads = false;
            for task in std::fs::read_dir(format!("/proc/{}/task", self.pid()))? {
                let syscall = std::fs::read_to_string(task?.path().join("syscall"))?;
                all &= syscall.starts_with(|char: char| char.is_ascii_digit());
                one_reads |= syscall.starts_with("0 0x0 ");
            }
            if all && one_reads {
                return Ok(());
            }
            ensure!(start.elapsed() < *PATIENCE, "threads that never block");
            std::thread::yield_now();
        }
    }

    /// What `profiler dump --json` says of it.
    ///
    /// # Errors
    ///
    /// When that fails.
    pub fn dumped(&self) -> Result<Value> {
        let finished = profiler::run(&["dump", "--json", "--pid", &self.pid()])?.success()?;
        serde_json::from_str(&finished.stdout).context("what `dump --json` wrote")
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        // It may be gone already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `known_stacks.py` says of itself.
#[derive(Debug, Deserialize)]
pub struct Account {
    /// The pthread id of the thread that said it.
    pub own: u64,
    /// All threads by their pthread ids.
    pub threads: BTreeMap<u64, ThreadAccount>,
}

/// One of its threads.
#[derive(Debug, Deserialize)]
pub struct ThreadAccount {
    /// Its name.
    pub name: String,
    /// Its kernel id.
    pub native_id: i64,
    /// Name, base name of the file, line; leaf first.
    pub stack: Vec<(String, String, u64)>,
}

/// A thread's Python frames as the target names its own; leaf first.
#[must_use]
pub fn frames_of(thread: &Value) -> Vec<(String, String, u64)> {
    let frames = thread["frames"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    frames
        .filter(|frame| frame["kind"] == "python")
        .map(|frame| {
            let file = text(&frame["file"]);
            let base = file.rsplit('/').next().unwrap_or_default().to_owned();
            (
                text(&frame["function"]),
                base,
                frame["line"].as_u64().unwrap_or(0),
            )
        })
        .collect()
}

impl ThreadAccount {
    /// Whether these are its frames, or both ends of them where the profiler keeps no more.
    #[must_use]
    pub fn has(&self, frames: &[(String, String, u64)]) -> bool {
        let (kept, all) = (frames.len() / 2, &self.stack);
        if frames.len() == all.len() {
            return frames == all;
        }
        let ends = frames.split_at(kept);
        kept > 500 && all.len() > 1024 && all.starts_with(ends.0) && all.ends_with(ends.1)
    }
}
