//! `run -- CMD`: starts a command so that not one of its ticks is missed.
//!
//! The child is this program, waiting at a pipe. Once the kernel programs tick on it, it is let
//! through and becomes the command: same process, same standard streams.

use std::{
    fs::File,
    io::{self, PipeReader, PipeWriter, Read as _, Write as _},
    os::{fd::AsRawFd as _, unix::process::CommandExt as _},
    path::Path,
    process::{Child, Command},
};

use anyhow::{Context as _, Result, bail};

use super::voice::say;

/// What a shell returns for a command that it cannot start.
pub(super) const CANNOT_START: u8 = 127;

/// A child that waits to become its command.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) child: Child,
    gate: PipeWriter,
    /// Kept open, since the child opens it through this process, maybe later than it is let
    /// through.
    _reader: PipeReader,
}

impl Held {
    /// Start a child that will become `command`.
    pub(super) fn start(command: &[String]) -> Result<Self> {
        let (reader, gate) = io::pipe().context("cannot make a pipe")?;
        // By way of this process's folder, no descriptor is inherited that the command would keep.
        let path = format!("/proc/{}/fd/{}", std::process::id(), reader.as_raw_fd());
        let child = Command::new("/proc/self/exe")
            .args(["__become", &path, "--"])
            .args(command)
            .spawn()
            .context("cannot start a child")?;
        Ok(Self {
            child,
            gate,
            _reader: reader,
        })
    }

    /// Let it through.
    pub(super) fn let_through(&mut self) {
        // A child that was killed meanwhile needs no telling.
        let _ = self.gate.write_all(&[1]);
    }
}

/// The child's side: wait, then become the command. It returns only when it cannot.
pub(super) fn become_command(gate: &Path, command: &[String]) -> Result<u8> {
    let mut word = [0; 1];
    let read = File::open(gate).and_then(|mut gate| gate.read(&mut word));
    if !matches!(read, Ok(1)) {
        bail!("the profiler that started this is gone");
    }
    let Some((program, arguments)) = command.split_first() else {
        bail!("no command was given");
    };
    let error = Command::new(program).args(arguments).exec();
    say!("error: cannot start `{program}`: {error}: check its name, or give its whole path");
    Ok(CANNOT_START)
}
