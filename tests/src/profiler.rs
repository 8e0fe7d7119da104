//! The built `profiler` as its user has it: a command line, two streams, an exit status, files.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::folded::Folded;
use crate::ledger::Ledger;
use crate::lines::{Lines, PATIENCE};
use crate::profile::Profile;

pub use crate::cargo::BIN_VARIABLE;

/// How the line of `profiler run` on stderr begins that says that it is attached and ticks.
pub const ATTACHED: &str = "profiling ";

/// The binary.
///
/// # Errors
///
/// When it was not built.
pub fn binary() -> Result<PathBuf> {
    crate::cargo::profiler()
}

/// Chooses the binary for this process, in place of the variable; the first choice stays.
pub fn use_binary(path: PathBuf) {
    crate::cargo::choose(path);
}

/// A running `profiler`, or a peer that is started in its place. Dropping it ends it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    started: Instant,
    stdout: Option<Lines>,
    stderr: Option<Lines>,
    files: TempDir,
}

/// What a `profiler` left.
#[derive(Debug)]
pub struct Finished {
    /// Its exit status.
    pub status: ExitStatus,
    /// What it wrote for programs.
    pub stdout: String,
    /// What it said to people.
    pub stderr: String,
    files: TempDir,
}

impl Running {
    /// Starts `profiler` with these arguments.
    ///
    /// # Errors
    ///
    /// When it was not built or cannot be started.
    pub fn start(arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(binary()?);
        command.args(arguments);
        Self::spawn(
            command,
            tempfile::tempdir().context("a folder for its files")?,
        )
    }

    /// Starts `profiler run` on a process, with a ledger and a folded file that
    /// [`Finished::ledger`] and [`Finished::folded`] read.
    ///
    /// # Errors
    ///
    /// As [`Running::start`].
    pub fn on(pid: Pid, arguments: &[&str]) -> Result<Self> {
        Self::writing(&["profile.folded"], pid, arguments)
    }

    /// As [`Running::on`], with a JSON file too, which [`Finished::profile`] reads.
    ///
    /// # Errors
    ///
    /// As [`Running::start`].
    pub fn in_detail(pid: Pid, arguments: &[&str]) -> Result<Self> {
        Self::writing(&["profile.folded", "profile.json"], pid, arguments)
    }

    fn writing(outputs: &[&str], pid: Pid, arguments: &[&str]) -> Result<Self> {
        let files = tempfile::tempdir().context("a folder for its files")?;
        let mut command = Command::new(binary()?);
        command
            .args(["run", "--pid", &pid.to_string()])
            .arg("--ledger")
            .arg(files.path().join("ledger.json"))
            .args(arguments);
        for output in outputs {
            command.arg("-o").arg(files.path().join(output));
        }
        Self::spawn(command, files)
    }

    /// Starts `profiler run` on a command, with a ledger and a folded file that
    /// [`Finished::ledger`] and [`Finished::folded`] read.
    ///
    /// # Errors
    ///
    /// As [`Running::start`].
    pub fn of(target: &Command, arguments: &[&str]) -> Result<Self> {
        let files = tempfile::tempdir().context("a folder for its files")?;
        let mut command = Command::new(binary()?);
        command
            .arg("run")
            .arg("--ledger")
            .arg(files.path().join("ledger.json"))
            .arg("-o")
            .arg(files.path().join("profile.folded"))
            .args(arguments)
            .arg("--")
            .arg(target.get_program())
            .args(target.get_args());
        for (name, value) in target.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        Self::spawn(command, files)
    }

    /// Starts a command that becomes `profiler`, such as one through `setpriv`.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn spawn(mut command: Command, files: TempDir) -> Result<Self> {
        let started = Instant::now();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .env("NO_COLOR", "1")
            .spawn()
            .with_context(|| format!("{command:?} could not be started"))?;
        let stdout = child.stdout.take().map(|it| Lines::of("stdout", it));
        let stderr = child.stderr.take().map(|it| Lines::of("stderr", it));
        Ok(Self {
            child,
            started,
            stdout,
            stderr,
            files,
        })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(i32::MAX))
    }

    /// Waits until it says that it is attached; gives how long that took from its start.
    ///
    /// # Errors
    ///
    /// When it ends before.
    pub fn attached(&mut self) -> Result<Duration> {
        self.says(|line| line.starts_with(ATTACHED))
    }

    /// Waits for a line on stderr; gives how long that took from the start.
    ///
    /// # Errors
    ///
    /// When it ends before.
    pub fn says(&mut self, is_it: impl Fn(&str) -> bool) -> Result<Duration> {
        let stderr = self.stderr.as_mut().context("stderr was taken")?;
        while let Some((time, line)) = stderr.next(*PATIENCE)? {
            if is_it(&line) {
                return Ok(time.saturating_duration_since(self.started));
            }
        }
        bail!(
            "it ended before it was attached; it said: {:?}",
            stderr.seen()
        )
    }

    /// What Ctrl-C does.
    ///
    /// # Errors
    ///
    /// When it is gone.
    pub fn interrupt(&self) -> Result<()> {
        kill(self.pid(), Signal::SIGINT).context("`profiler` could not be interrupted")
    }

    /// Asks for what was collected so far, and reads it as JSON.
    ///
    /// # Errors
    ///
    /// When it ends instead, or writes nothing.
    pub fn so_far(&mut self) -> Result<Profile> {
        kill(self.pid(), Signal::SIGUSR1).context("`profiler` could not be asked")?;
        self.says(|line| line.starts_with("so far"))?;
        Profile::read(&self.files.path().join("profile.json"))
    }

    /// Ends it without a chance to tidy up.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn kill(mut self) -> Result<()> {
        self.child
            .kill()
            .context("`profiler` could not be killed")?;
        self.child.wait().context("`profiler` is not a child")?;
        Ok(())
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// When it hangs.
    pub fn finish(mut self) -> Result<Finished> {
        let rest = |lines: Option<Lines>| lines.map_or(Ok(String::new()), Lines::rest);
        let stderr = rest(self.stderr.take())?;
        let stdout = rest(self.stdout.take())?;
        let status = self.child.wait().context("`profiler` is not a child")?;
        let files = tempfile::tempdir().context("a folder in place of its files")?;
        let files = std::mem::replace(&mut self.files, files);
        Ok(Finished {
            status,
            stdout,
            stderr,
            files,
        })
    }

    /// Ctrl-C, then its end, which must be a success.
    ///
    /// # Errors
    ///
    /// When it fails.
    pub fn stop(self) -> Result<Finished> {
        self.interrupt()?;
        self.finish()?.success()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may be gone already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Finished {
    /// The same, if it was a success.
    ///
    /// # Errors
    ///
    /// When its status is another.
    pub fn success(self) -> Result<Self> {
        if !self.status.success() {
            bail!("`profiler` ended with {}: {}", self.status, self.stderr);
        }
        Ok(self)
    }

    /// Where its files are.
    #[must_use]
    pub fn files(&self) -> &Path {
        self.files.path()
    }

    /// The ledger it wrote.
    ///
    /// # Errors
    ///
    /// When there is none or it is of another form.
    pub fn ledger(&self) -> Result<Ledger> {
        Ledger::read(&self.files.path().join("ledger.json"))
    }

    /// The folded stacks it wrote.
    ///
    /// # Errors
    ///
    /// When there are none or they are of another form.
    pub fn folded(&self) -> Result<Folded> {
        Folded::read(&self.files.path().join("profile.folded"))
    }

    /// The profile it wrote as JSON.
    ///
    /// # Errors
    ///
    /// When there is none or it is of another form.
    pub fn profile(&self) -> Result<Profile> {
        Profile::read(&self.files.path().join("profile.json"))
    }
}

/// Runs `profiler` to its end.
///
/// # Errors
///
/// When it cannot be started or hangs.
pub fn run(arguments: &[&str]) -> Result<Finished> {
    Running::start(arguments)?.finish()
}
