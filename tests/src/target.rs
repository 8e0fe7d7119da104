//! One target program of `tests/targets` under one interpreter, and what it says of itself.
//!
//! The script is copied below the interpreter's own root, so that it runs in another root too
//! and its file name in the frames is known. Nothing sleeps: a target speaks in lines and does
//! its next step when it is told to.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::Pid;
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

use crate::libraries::{self, Made};
use crate::lines::{Lines, PATIENCE};
use crate::pythons::Python;

/// The target programs that run from a file, and what they share, as they are in `tests/targets`.
const SCRIPTS: &[(&str, &str)] = &[
    (
        "absent_pages.py",
        include_str!("../targets/absent_pages.py"),
    ),
    (
        "asleep_from_birth.py",
        include_str!("../targets/asleep_from_birth.py"),
    ),
    ("truth.py", include_str!("../targets/truth.py")),
    (
        "blocked_threads.py",
        include_str!("../targets/blocked_threads.py"),
    ),
    (
        "busy_threads.py",
        include_str!("../targets/busy_threads.py"),
    ),
    ("c_call.py", include_str!("../targets/c_call.py")),
    ("children.py", include_str!("../targets/children.py")),
    (
        "collect_beside.py",
        include_str!("../targets/collect_beside.py"),
    ),
    (
        "code_in_turns.py",
        include_str!("../targets/code_in_turns.py"),
    ),
    ("coroutines.py", include_str!("../targets/coroutines.py")),
    ("count_work.py", include_str!("../targets/count_work.py")),
    (
        "native_depth.py",
        include_str!("../targets/native_depth.py"),
    ),
    ("native_spin.py", include_str!("../targets/native_spin.py")),
    ("crowd.py", include_str!("../targets/crowd.py")),
    ("deny_call.py", include_str!("../targets/deny_call.py")),
    (
        "equal_spinners.py",
        include_str!("../targets/equal_spinners.py"),
    ),
    ("exceptions.py", include_str!("../targets/exceptions.py")),
    ("family.py", include_str!("../targets/family.py")),
    ("gap_meter.c", include_str!("../targets/gap_meter.c")),
    ("gap_meter.py", include_str!("../targets/gap_meter.py")),
    ("gil_waiters.py", include_str!("../targets/gil_waiters.py")),
    ("greenlets.py", include_str!("../targets/greenlets.py")),
    ("generators.py", include_str!("../targets/generators.py")),
    ("makes_code.py", include_str!("../targets/makes_code.py")),
    ("native_calls.c", include_str!("../targets/native_calls.c")),
    (
        "native_calls.py",
        include_str!("../targets/native_calls.py"),
    ),
    (
        "native_calls.rs",
        include_str!("../targets/native_calls.rs"),
    ),
    (
        "native_leaves.py",
        include_str!("../targets/native_leaves.py"),
    ),
    (
        "kinds_of_threads.py",
        include_str!("../targets/kinds_of_threads.py"),
    ),
    (
        "known_shares.py",
        include_str!("../targets/known_shares.py"),
    ),
    (
        "known_stacks.py",
        include_str!("../targets/known_stacks.py"),
    ),
    (
        "main_thread_exits.py",
        include_str!("../targets/main_thread_exits.py"),
    ),
    ("many_tasks.py", include_str!("../targets/many_tasks.py")),
    ("task_time.py", include_str!("../targets/task_time.py")),
    (
        "named_after_work.py",
        include_str!("../targets/named_after_work.py"),
    ),
    ("origin.py", include_str!("../targets/origin.py")),
    (
        "native_border.py",
        include_str!("../targets/native_border.py"),
    ),
    (
        "native_library.py",
        include_str!("../targets/native_library.py"),
    ),
    ("short_calls.py", include_str!("../targets/short_calls.py")),
    ("sleepers.py", include_str!("../targets/sleepers.py")),
    ("short_turns.py", include_str!("../targets/short_turns.py")),
    ("spin.py", include_str!("../targets/spin.py")),
    ("stops.py", include_str!("../targets/stops.py")),
    ("tasks.py", include_str!("../targets/tasks.py")),
    (
        "thread_churn.py",
        include_str!("../targets/thread_churn.py"),
    ),
    ("threads.py", include_str!("../targets/threads.py")),
    (
        "sub_interpreters.py",
        include_str!("../targets/sub_interpreters.py"),
    ),
    (
        "two_spinners.py",
        include_str!("../targets/two_spinners.py"),
    ),
    ("collects.py", include_str!("../targets/collects.py")),
    ("in_step.py", include_str!("../targets/in_step.py")),
    (
        "lock_ping_pong.py",
        include_str!("../targets/lock_ping_pong.py"),
    ),
    (
        "pipe_ping_pong.py",
        include_str!("../targets/pipe_ping_pong.py"),
    ),
    ("phases.py", include_str!("../targets/phases.py")),
    ("reasons.py", include_str!("../targets/reasons.py")),
    (
        "work_and_sleep.py",
        include_str!("../targets/work_and_sleep.py"),
    ),
    ("classics.py", include_str!("../targets/classics.py")),
    ("frameless.py", include_str!("../targets/frameless.py")),
    (
        "loop_of_tasks.py",
        include_str!("../targets/loop_of_tasks.py"),
    ),
    (
        "numbers_in_c.py",
        include_str!("../targets/numbers_in_c.py"),
    ),
    ("short_lives.py", include_str!("../targets/short_lives.py")),
    ("web_service.py", include_str!("../targets/web_service.py")),
    ("without_sys.py", include_str!("../targets/without_sys.py")),
];

/// What a thread of a target says of itself when its work is done.
#[derive(Clone, Debug, Deserialize)]
pub struct Account {
    /// The function that it ran.
    pub name: String,
    /// Its kernel id.
    pub tid: i64,
    /// Its pthread id.
    pub ident: u64,
    /// Its CPU seconds, by `time.thread_time()`.
    pub cpu_s: f64,
    /// Its CPU seconds, by `utime + stime` of `/proc`.
    pub stat_s: f64,
    /// The seconds for which it waited for a CPU, by `schedstat` of `/proc`; from Linux 6.12 on
    /// some of its sleep can be in it.
    pub runnable_s: f64,
    /// The seconds that its function took, where it says so.
    #[serde(default)]
    pub wall_s: f64,
    /// The seconds from before its birth until after its end, where it says so.
    #[serde(default)]
    pub life_s: f64,
    /// What it measured on its way, by name: seconds, as a rule those off the CPU.
    #[serde(default)]
    pub spent_s: BTreeMap<String, f64>,
}

impl Account {
    /// What it measured under that name, seconds.
    ///
    /// # Errors
    ///
    /// When it has measured nothing so named.
    pub fn spent(&self, name: &str) -> Result<f64> {
        let spent = self.spent_s.get(name).copied();
        spent.with_context(|| format!("it did not measure `{name}`: {self:?}"))
    }
}

/// A running target program. Dropping it ends it.
#[derive(Debug)]
pub struct Target {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines,
    ready: Value,
    script: PathBuf,
    folder: TempDir,
}

impl Target {
    /// Starts a target and waits until it is ready.
    ///
    /// # Errors
    ///
    /// When it cannot be started or its first line is not the ready line.
    pub fn start(python: &Python, name: &str, arguments: &[&str]) -> Result<Self> {
        let (folder, script) = lay_out(python, name)?;
        Self::spawn(python, folder, script, arguments)
    }

    /// Starts a target behind the words of another command, such as those of
    /// [`crate::container`]. What it says of itself is then by other ids than ours.
    ///
    /// # Errors
    ///
    /// As [`Target::start`].
    pub fn start_behind(
        words: &[String],
        python: &Python,
        name: &str,
        arguments: &[&str],
    ) -> Result<Self> {
        let (folder, script) = lay_out(python, name)?;
        let behind = Python {
            command: words.iter().chain(&python.command).cloned().collect(),
            ..python.clone()
        };
        Self::spawn_any(&behind, folder, script, arguments)
    }

    /// Starts `gap_meter.py` with its native half, built here.
    ///
    /// # Errors
    ///
    /// When there is no C compiler, or as [`Target::start`].
    pub fn start_gap_meter(python: &Python) -> Result<Self> {
        let (folder, script) = lay_out(python, "gap_meter.py")?;
        let built = Command::new("cc")
            .args([
                "-O2",
                "-shared",
                "-fPIC",
                "-o",
                "gap_meter.so",
                "gap_meter.c",
            ])
            .current_dir(folder.path())
            .status()
            .context("`cc` could not be run: type `cargo xtask setup`")?;
        ensure!(built.success(), "`cc` could not build gap_meter.c");
        let library = script.with_file_name("gap_meter.so");
        let library = library.to_string_lossy().into_owned();
        Self::spawn(python, folder, script, &[&library])
    }

    /// Starts `native_calls.py` with its libraries in C and in Rust, built here.
    ///
    /// # Errors
    ///
    /// When one cannot be built, or as [`Target::start`].
    pub fn start_native(python: &Python, made: Made, arguments: &[&str]) -> Result<Self> {
        let (folder, script) = lay_out(python, "native_calls.py")?;
        let in_folder = |name: &str| script.with_file_name(name).to_string_lossy().into_owned();
        let c = in_folder(libraries::in_c(python, made, folder.path())?);
        let rust = in_folder(libraries::in_rust(folder.path())?);
        let arguments = [&[&*c, &*rust], arguments].concat();
        Self::spawn(python, folder, script, &arguments)
    }

    fn spawn(
        python: &Python,
        folder: TempDir,
        script: PathBuf,
        arguments: &[&str],
    ) -> Result<Self> {
        let target = Self::spawn_any(python, folder, script, arguments)?;
        let said = target.ready["pid"].as_u64();
        ensure!(
            said == Some(u64::from(target.child.id())),
            "the target says it is {said:?}, but was started as {}",
            target.child.id()
        );
        Ok(target)
    }

    fn spawn_any(
        python: &Python,
        folder: TempDir,
        script: PathBuf,
        arguments: &[&str],
    ) -> Result<Self> {
        let mut child = command(python, &script, arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("`{}` could not be started", python.command.join(" ")))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("the target has no stdout")?;
        let mut target = Self {
            child,
            stdin,
            lines: Lines::of("the target's stdout", stdout),
            ready: Value::Null,
            script,
            folder,
        };
        target.ready = target.expect("ready")?;
        Ok(target)
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(i32::MAX))
    }

    /// What its ready line said.
    #[must_use]
    pub fn ready(&self) -> &Value {
        &self.ready
    }

    /// The script's path as the target sees it, and so as its frames name it.
    #[must_use]
    pub fn script(&self) -> &Path {
        &self.script
    }

    /// The callers and callees that its ready line allows.
    #[must_use]
    pub fn pairs(&self) -> Vec<(String, String)> {
        serde_json::from_value(self.ready["pairs"].clone()).unwrap_or_default()
    }

    /// Gives the target a line.
    ///
    /// # Errors
    ///
    /// When it does not read any more.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        use std::io::Write;
        let stdin = self
            .stdin
            .as_mut()
            .context("the target's stdin is closed")?;
        stdin
            .write_all(format!("{line}\n").as_bytes())
            .context("the target does not read")
    }

    /// Its next line, which must be that event.
    ///
    /// # Errors
    ///
    /// When the target ended, hangs, or says something else.
    pub fn expect(&mut self, event: &str) -> Result<Value> {
        let Some((_, line)) = self.lines.next(*PATIENCE)? else {
            bail!(
                "the target ended before it said `{event}`; before: {:?}",
                self.lines.seen()
            );
        };
        let value: Value = serde_json::from_str(&line)
            .with_context(|| format!("the target's line is not JSON: `{line}`"))?;
        ensure!(
            value["event"] == event,
            "expected the target to say `{event}`, but it said `{line}`"
        );
        Ok(value)
    }

    /// Its `done` line: the accounts of its threads, whose work is over.
    ///
    /// # Errors
    ///
    /// As [`Target::expect`], or when the line is of another form.
    pub fn done(&mut self) -> Result<Vec<Account>> {
        let mut value = self.expect("done")?;
        serde_json::from_value(value["threads"].take()).context("the accounts of the target")
    }

    /// Ends it at once.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("the target could not be killed")
    }

    /// Its folder as the machine sees it: room for files beside the script.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // It may be gone already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command for a script under an interpreter, with a fixed environment.
#[must_use]
pub fn command(python: &Python, script: &Path, arguments: &[&str]) -> Command {
    let mut words = python.command.iter();
    let mut command = Command::new(words.next().map_or("python3", String::as_str));
    command
        .args(words)
        .arg(script)
        .args(arguments)
        .env("LC_ALL", "C")
        .env("PYTHONUTF8", "1")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    for variable in ["PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP"] {
        command.env_remove(variable);
    }
    command
}

/// Copies the targets below the interpreter's root; gives the folder as the machine sees it and
/// the script as the interpreter does.
///
/// # Errors
///
/// When there is no such target or the folder cannot be written.
pub fn lay_out(python: &Python, name: &str) -> Result<(TempDir, PathBuf)> {
    ensure!(
        SCRIPTS.iter().any(|(script, _)| *script == name),
        "there is no target `{name}` in tests/targets"
    );
    let below = python.root().join("tmp");
    let folder = tempfile::Builder::new()
        .prefix("profiler-target-")
        .tempdir_in(&below)
        .with_context(|| format!("no folder could be made in {}", below.display()))?;
    // Some run as another user, who may not write there.
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open)
        .with_context(|| format!("{} could not be opened", folder.path().display()))?;
    for (script, text) in SCRIPTS {
        std::fs::write(folder.path().join(script), text)
            .with_context(|| format!("`{script}` could not be written"))?;
    }
    let inside = match folder.path().strip_prefix(python.root()) {
        Ok(inside) => Path::new("/").join(inside),
        Err(_) => bail!("{} is not in the root", folder.path().display()),
    };
    Ok((folder, inside.join(name)))
}
