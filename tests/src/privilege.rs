//! The profiler with less than root's privilege: as another user, with some capabilities or none,
//! or as a root that lacks some.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::profiler::{self, Finished, Running};
use crate::pythons::{self, Python};
use crate::rung::leave_out;

/// A user with no privilege, `nobody` as a rule.
pub const NOBODY: u32 = 65534;
/// Another one, whom a third user's processes are not his own.
pub const SOMEBODY: u32 = 65533;

/// Words before a command that make it `user`'s, with those capabilities alone; the names are
/// those of `setpriv`.
#[must_use]
pub fn as_user(user: u32, capabilities: &[&str]) -> Vec<String> {
    let user = user.to_string();
    let plus = capabilities.iter().map(|name| format!(",+{name}"));
    let only = format!("-all{}", plus.collect::<String>());
    let words = [
        "setpriv",
        "--reuid",
        &user,
        "--regid",
        &user,
        "--clear-groups",
        "--inh-caps",
        &only,
        "--ambient-caps",
        &only,
        "--bounding-set",
        &only,
    ];
    words.map(str::to_owned).to_vec()
}

/// Words before a command that leave root without those capabilities.
#[must_use]
pub fn as_root_without(capabilities: &[&str]) -> Vec<String> {
    let minus: Vec<String> = capabilities.iter().map(|name| format!("-{name}")).collect();
    let words = ["setpriv", "--inh-caps", "-all", "--bounding-set"];
    let mut words = words.map(str::to_owned).to_vec();
    words.push(minus.join(","));
    words
}

/// A copy of the binary that every user can run: the build folder may be closed to others.
#[derive(Debug)]
pub struct Copy {
    folder: TempDir,
}

impl Copy {
    /// Makes it.
    ///
    /// # Errors
    ///
    /// When the binary was not built or the folder cannot be written.
    pub fn make() -> Result<Self> {
        let folder = open_folder(0o755)?;
        std::fs::copy(profiler::binary()?, folder.path().join("profiler"))
            .context("a copy of the binary")?;
        Ok(Self { folder })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("profiler")
    }

    /// Starts it after the words of [`as_user`] or [`as_root_without`].
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn start(&self, before: &[String], arguments: &[&str]) -> Result<Running> {
        let mut command = command(before, &self.path());
        command.args(arguments);
        Running::spawn(command, open_folder(0o777)?)
    }

    /// Runs it to its end.
    ///
    /// # Errors
    ///
    /// When it cannot be started or hangs.
    pub fn run(&self, before: &[String], arguments: &[&str]) -> Result<Finished> {
        self.start(before, arguments)?.finish()
    }

    /// Starts `run` on a process, with the files that [`Finished::ledger`] and
    /// [`Finished::folded`] read.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn on(&self, before: &[String], pid: Pid, arguments: &[&str]) -> Result<Running> {
        let files = open_folder(0o777)?;
        let mut command = command(before, &self.path());
        command
            .args(["run", "--pid", &pid.to_string()])
            .arg("--ledger")
            .arg(files.path().join("ledger.json"))
            .arg("-o")
            .arg(files.path().join("profile.folded"))
            .args(arguments);
        Running::spawn(command, files)
    }
}

fn command(before: &[String], program: &Path) -> Command {
    match before.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
        None => Command::new(program),
    }
}

fn open_folder(mode: u32) -> Result<TempDir> {
    let folder = tempfile::tempdir().context("a folder for its files")?;
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode))
        .context("a folder that is open to others")?;
    Ok(folder)
}

/// An interpreter that every user can run, as that user; where there is none, that is said and
/// counted.
#[must_use]
pub fn python_of(user: u32) -> Option<Python> {
    let found = pythons::required().iter().rev().find_map(|python| {
        let mut theirs = python.clone();
        theirs.command = as_user(user, &[]);
        // `setpriv` itself still finds a program that its user may not; what it starts does not.
        theirs.command.push("env".to_owned());
        theirs.command.extend(python.command.iter().cloned());
        let (first, rest) = theirs.command.split_first()?;
        let outcome = Command::new(first)
            .args(rest)
            .args(["-I", "-c", "pass"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status();
        outcome
            .is_ok_and(|status| status.success())
            .then_some(theirs)
    });
    if found.is_none() {
        leave_out("there is no Python that other users can run");
    }
    found
}
