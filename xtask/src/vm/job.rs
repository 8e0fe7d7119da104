//! What is done in a machine: a script that the guest runs as root, and leaves its outputs beside.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tests::PATIENCE_VARIABLE;
use tests::pythons::{self, PYTHONS_VARIABLE};
use tests::rung::{LEFT_OUT_VARIABLE, RUNG_VARIABLE};

use crate::cache::{self, Cache};
use crate::test::TestProgram;

/// The oldest interpreter, the newest, and one between them whose frames are of the third kind: an
/// interpreter's layout does not depend on the kernel.
const MINORS: &[(u8, u8)] = &[(3, 8), (3, 12), (3, 15)];

/// The programs of tests that run there: that all loads, ticks, walks, writes and follows. The others
/// judge shares of time or how often something is met, or take hours: an emulated machine is some ten
/// times slower, and its clocks do not allow that.
const PROGRAMS: &[&str] = &["bad_input", "commands", "kernels", "lineage"];

/// How many times as long as usual an emulated machine may take.
const PATIENCE: &str = "10";

/// Where the guest has the folder of the job.
const HERE: &str = "/run/job";

/// The programs and how they are run.
#[derive(Debug)]
pub(super) struct Job {
    binary: PathBuf,
    programs: Vec<TestProgram>,
    filters: Vec<String>,
}

impl Job {
    /// Of all the programs those that run there.
    pub(super) fn new(binary: PathBuf, programs: Vec<TestProgram>, filters: &[String]) -> Self {
        Self {
            binary,
            programs: programs
                .into_iter()
                .filter(|program| PROGRAMS.contains(&program.name.as_str()))
                .collect(),
            filters: filters.to_vec(),
        }
    }

    /// Writes the script into `folder`, which the guest sees.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let place = folder.join("job.sh");
        fs::write(&place, self.script()?).with_context(|| format!("`{}`", place.display()))
    }

    fn script(&self) -> Result<String> {
        let mut script = String::new();
        let mut set = |name: &str, value: &str| writeln!(script, "export {name}={}", quoted(value));
        for name in ["HOME", "PATH", "PYENV_ROOT"] {
            if let Ok(value) = std::env::var(name) {
                set(name, &value)?;
            }
        }
        set("PROFILER_CACHE", &cache::folder().to_string_lossy())?;
        set("RUST_BACKTRACE", "0")?;
        set(RUNG_VARIABLE, "3")?;
        set(LEFT_OUT_VARIABLE, &format!("{HERE}/left-out"))?;
        set(
            tests::profiler::BIN_VARIABLE,
            &self.binary.to_string_lossy(),
        )?;
        set(PYTHONS_VARIABLE, &interpreters())?;
        set(PATIENCE_VARIABLE, PATIENCE)?;
        let sid = Cache::open()?.sid();
        if sid.exists() {
            let sid = quoted(&sid.to_string_lossy());
            writeln!(script, "mount -t proc proc {sid}/proc")?;
            writeln!(script, "mount --bind /dev {sid}/dev")?;
        }
        let root = cache::workspace_root().join("tests");
        writeln!(script, "cd {}", quoted(&root.to_string_lossy()))?;
        writeln!(script, "uname -v >{HERE}/version")?;
        writeln!(
            script,
            "{} doctor >{HERE}/doctor 2>&1; echo $? >{HERE}/doctor.status",
            quoted(&self.binary.to_string_lossy())
        )?;
        let arguments: Vec<String> = self.filters.iter().map(|it| quoted(it)).collect();
        for program in &self.programs {
            writeln!(script, "echo '== {}'", program.name)?;
            writeln!(
                script,
                "{} --test-threads 1 {} 2>&1 | tee {HERE}/{}.log",
                quoted(&program.executable.to_string_lossy()),
                arguments.join(" "),
                program.name
            )?;
        }
        Ok(script)
    }
}

/// What the variable says, else one interpreter of each of [`MINORS`].
fn interpreters() -> String {
    std::env::var(PYTHONS_VARIABLE).unwrap_or_else(|_| {
        let chosen = MINORS.iter().filter_map(|minor| {
            let of_minor = |python: &&pythons::Python| python.minor() == *minor;
            pythons::all().iter().rfind(of_minor)
        });
        let commands: Vec<String> = chosen.map(|python| python.command.join(" ")).collect();
        commands.join(":")
    })
}

/// A word for the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
