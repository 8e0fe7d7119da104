//! The peers: other profilers, run as their users run them on the same target programs.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use nix::unistd::Pid;
use tests::folded::Folded;
use tests::profiler::Running;

use crate::cache::Cache;

/// A way to run py-spy.
#[derive(Clone, Copy, Debug)]
pub(super) struct PySpy {
    /// Its name in the report.
    pub(super) name: &'static str,
    flags: &'static [&'static str],
}

/// The ways that are measured. Without `--nonblocking` it stops the target for each sample.
pub(super) const PY_SPIES: [PySpy; 3] = [
    PySpy {
        name: "py-spy",
        flags: &[],
    },
    PySpy {
        name: "py-spy --nonblocking",
        flags: &["--nonblocking"],
    },
    PySpy {
        name: "py-spy --nonblocking --gil",
        flags: &["--nonblocking", "--gil"],
    },
];

/// A py-spy that records.
#[derive(Debug)]
pub(super) struct Recording {
    running: Running,
    file: PathBuf,
}

impl PySpy {
    /// Starts it on a process and waits until it samples.
    pub(super) fn start(&self, pid: Pid, rate: u32) -> Result<Recording> {
        let files = tempfile::tempdir().context("a folder for the peer's files")?;
        let file = files.path().join("profile.folded");
        // It says that it samples on stdout, where a user's shell would show it.
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec \"$0\" \"$@\" >&2"])
            .arg(Cache::open()?.peers().join("bin/py-spy"))
            .args(["record", "--format", "raw", "--duration", "100000"])
            .args(["--pid", &pid.to_string(), "--rate", &rate.to_string()])
            .args(self.flags)
            .arg("--output")
            .arg(&file);
        let mut running = Running::spawn(command, files)?;
        running.says(|line| line.contains("Sampling process"))?;
        Ok(Recording { running, file })
    }
}

impl Recording {
    /// Ends it and reads its stacks.
    pub(super) fn stop(self) -> Result<Folded> {
        self.running.interrupt()?;
        // Its folder goes with what it left.
        let _left = self.running.finish()?;
        Folded::read(&self.file)
    }
}
