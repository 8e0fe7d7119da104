//! The interpreters of this machine: pyenv's, the distribution's, and Debian sid's in a folder.
//!
//! An interpreter is asked for its version, never judged by its name. It does not install any:
//! `cargo xtask setup` does.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context as _, Result};

use crate::rung::{self, Rung, leave_out};

/// The variable that replaces the discovery: commands separated by `:`, words by blanks.
pub const PYTHONS_VARIABLE: &str = "PROFILER_TEST_PYTHONS";

/// The variable that lists the minor versions that must be there, such as `3.8,3.12,3.13t`.
pub const REQUIRE_VARIABLE: &str = "PROFILER_TEST_REQUIRE";

/// What an interpreter is asked.
const ASK: &str = "import sys; \
     print(*sys.version_info[:3], sys.version.split()[0], 't' in sys.abiflags)";

/// The oldest version that the profiler knows.
const OLDEST: (u8, u8) = (3, 8);

/// One interpreter.
#[derive(Clone, Debug)]
pub struct Python {
    /// The words that start it; a script's path and arguments follow.
    pub command: Vec<String>,
    /// Major, minor, micro.
    pub version: (u8, u8, u8),
    /// A build without the GIL.
    pub free_threaded: bool,
    /// The version as text, as the interpreter writes it.
    pub release: String,
    /// The release and, as in the names of such interpreters, a `t` for a build without the GIL:
    /// it names a case.
    pub label: String,
    /// Its root folder when that is not the machine's own.
    pub root: Option<PathBuf>,
}

impl Python {
    /// Major and minor.
    #[must_use]
    pub fn minor(&self) -> (u8, u8) {
        (self.version.0, self.version.1)
    }

    /// Major and minor as text, `3.13t` for a build without the GIL.
    #[must_use]
    pub fn series(&self) -> String {
        let suffix = if self.free_threaded { "t" } else { "" };
        format!("{}.{}{suffix}", self.version.0, self.version.1)
    }

    /// The folder that it sees as `/`.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.root.as_deref().unwrap_or(Path::new("/"))
    }

    /// The same interpreter with more words before the script's path.
    #[must_use]
    pub fn with(&self, words: &[&str]) -> Self {
        let mut python = self.clone();
        python.command.extend(words.iter().map(ToString::to_string));
        python
    }

    /// The interpreter that a command starts, by its own word; none when it does not run.
    pub(crate) fn ask(command: Vec<String>, root: Option<PathBuf>) -> Option<Self> {
        let (program, rest) = command.split_first()?;
        let output = Command::new(program)
            .args(rest)
            .args(["-I", "-c", ASK])
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let mut words = text.split_whitespace();
        let mut next = || words.next()?.parse().ok();
        let version = (next()?, next()?, next()?);
        // A build from a working copy says so with a `+`.
        let release = words.next()?.trim_end_matches('+').to_owned();
        let free_threaded = words.next()? == "True";
        let label = format!("{release}{}", if free_threaded { "t" } else { "" });
        Some(Self {
            command,
            version,
            free_threaded,
            release,
            label,
            root,
        })
    }
}

/// Switches the GIL of a free-threaded build on; to be told to [`Python::with`].
pub const WITH_GIL: [&str; 2] = ["-X", "gil=1"];

/// Every interpreter of this machine from 3.8 on, oldest first, one a version and build.
#[must_use]
pub fn all() -> &'static [Python] {
    static FOUND: OnceLock<Vec<Python>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let mut found: Vec<Python> = candidates()
            .into_iter()
            .filter_map(|(command, root)| Python::ask(command, root))
            .filter(|python| python.minor() >= OLDEST)
            .collect();
        found.sort_by_key(|python| (python.version, python.free_threaded));
        found.dedup_by_key(|python| (python.version, python.free_threaded));
        found
    })
}

/// Every interpreter, after the promise of [`REQUIRE_VARIABLE`] was held.
///
/// # Panics
///
/// When a required minor version is missing.
#[must_use]
pub fn required() -> &'static [Python] {
    let missing = missing(&std::env::var(REQUIRE_VARIABLE).unwrap_or_default(), all());
    assert!(
        missing.is_empty(),
        "no interpreter of version {} here: run `cargo xtask setup`, add them with pyenv, or name \
         those that must be there in {REQUIRE_VARIABLE}",
        missing.join(", ")
    );
    if all().is_empty() {
        leave_out("there is no Python from 3.8 on: run `cargo xtask setup`");
    }
    all()
}

/// The builds without the GIL; where there is none, that is said and counted.
#[must_use]
pub fn free_threaded() -> Vec<&'static Python> {
    let found: Vec<_> = required()
        .iter()
        .filter(|python| python.free_threaded)
        .collect();
    if found.is_empty() {
        leave_out("there is no free-threaded Python: run `cargo xtask setup`");
    }
    found
}

/// The interpreters of that minor version; where there is none, that is said and counted.
#[must_use]
pub fn of_minor(minor: (u8, u8)) -> Vec<&'static Python> {
    let found: Vec<_> = required()
        .iter()
        .filter(|python| python.minor() == minor)
        .collect();
    if found.is_empty() {
        leave_out(&format!("there is no Python {}.{}", minor.0, minor.1));
    }
    found
}

/// Checks the interpreters of that minor version, if the rung is reached.
///
/// # Errors
///
/// The check's, with the interpreter.
pub fn check_each(
    rung: Rung,
    minor: (u8, u8),
    check: impl Fn(&Python) -> Result<()>,
) -> Result<()> {
    if !rung::reached(rung) {
        return Ok(());
    }
    for python in of_minor(minor) {
        check(python).with_context(|| format!("on {}", python.label))?;
    }
    Ok(())
}

/// One interpreter for tests whose subject is not the version: 3.12, or the newest with a GIL.
#[must_use]
pub fn any() -> Option<&'static Python> {
    let found = required();
    found
        .iter()
        .rfind(|python| python.minor() == (3, 12))
        .or(found.iter().rfind(|python| !python.free_threaded))
        .or(found.last())
}

fn missing(wanted: &str, found: &[Python]) -> Vec<String> {
    let here: BTreeSet<String> = found.iter().map(Python::series).collect();
    wanted
        .split([',', ' '])
        .filter(|minor| !minor.is_empty() && !here.contains(*minor))
        .map(str::to_owned)
        .collect()
}

type Candidate = (Vec<String>, Option<PathBuf>);

fn candidates() -> Vec<Candidate> {
    if let Ok(list) = std::env::var(PYTHONS_VARIABLE) {
        return list
            .split(':')
            .map(|command| command.split_whitespace().map(str::to_owned).collect())
            .map(|command: Vec<String>| {
                let root = (command.first().map(String::as_str) == Some("chroot"))
                    .then(|| command.get(1).map(PathBuf::from))
                    .flatten();
                (command, root)
            })
            .collect();
    }
    let mut found = Vec::new();
    for folder in pyenv_versions() {
        found.extend(interpreters(&folder.join("bin")).map(|path| (vec![path], None)));
    }
    found.extend(interpreters(Path::new("/usr/bin")).map(|path| (vec![path], None)));
    if let Some(cache) = cache() {
        let folder = cache.join("free-threaded/bin");
        found.extend(interpreters(&folder).map(|path| (vec![path], None)));
    }
    if let Some(root) = sid() {
        let names: Vec<String> = interpreters(&root.join("usr/bin")).collect();
        for path in names {
            let Some(name) = Path::new(&path).file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            let chroot = ["chroot", &root.to_string_lossy(), name].map(str::to_owned);
            found.push((chroot.to_vec(), Some(root.clone())));
        }
    }
    found
}

/// `python3.N` and `python3.Nt` of a folder: not `python3`, which is a link to one, nor `python3.N-config`.
fn interpreters(folder: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let minor = name.strip_prefix("python3.")?;
        let minor = minor.strip_suffix('t').unwrap_or(minor);
        minor.parse::<u8>().ok()?;
        entry.path().into_os_string().into_string().ok()
    })
}

fn pyenv_versions() -> Vec<PathBuf> {
    let root = std::env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    let Some(root) = root else {
        return Vec::new();
    };
    std::fs::read_dir(root.join("versions"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect()
}

/// The folder that `cargo xtask setup` made from Debian sid; only root can use it.
fn sid() -> Option<PathBuf> {
    let root = cache()?.join("sid");
    (root.is_dir() && nix::unistd::geteuid().is_root()).then_some(root)
}

/// The folder with a package from PyPI, as an interpreter sees it, if `cargo xtask setup` could fill
/// one.
#[must_use]
pub fn packages(python: &Python, package: &str) -> Option<String> {
    let folder = packages_folder(python)?;
    if !folder.join(package).is_dir() {
        return None;
    }
    let seen = match &python.root {
        Some(root) => Path::new("/").join(folder.strip_prefix(root).ok()?),
        None => folder,
    };
    Some(seen.to_string_lossy().into_owned())
}

/// Where packages from PyPI for an interpreter belong.
#[must_use]
pub fn packages_folder(python: &Python) -> Option<PathBuf> {
    let folder = match &python.root {
        Some(root) => root.join("opt/packages"),
        None => cache()?.join("packages"),
    };
    Some(folder.join(python.series()))
}

/// Where slow things are kept between builds: `PROFILER_CACHE`, or a folder of the user's cache.
#[must_use]
pub fn cache() -> Option<PathBuf> {
    let folder = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    folder("PROFILER_CACHE")
        .or_else(|| Some(folder("XDG_CACHE_HOME")?.join("profiler-build")))
        .or_else(|| Some(folder("HOME")?.join(".cache/profiler-build")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_required_minor_is_missing_only_when_no_interpreter_has_it() {
        let python = |minor, free_threaded| Python {
            command: vec!["python".into()],
            version: (3, minor, 1),
            free_threaded,
            release: format!("3.{minor}.1"),
            label: format!("3.{minor}.1"),
            root: None,
        };
        let found = [python(8, false), python(12, false), python(13, true)];
        let check = |wanted: &str, expected: &[&str]| assert_eq!(missing(wanted, &found), expected);
        check("", &[]);
        check("3.8,3.12,3.13t", &[]);
        check("3.8t 3.13", &["3.8t", "3.13"]);
        check("3.8, 3.1,3.15", &["3.1", "3.15"]);
    }
}
