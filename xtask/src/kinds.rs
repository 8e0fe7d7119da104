//! Kinds of interpreters that no distribution installs by itself: a debug build, and a program
//! that PyInstaller has packed into one file.
//!
//! Both go into the cache, and nothing of the machine is touched. Each takes well under a minute.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache::{self, Cache};
use crate::shell;

/// PyInstaller, by its version on PyPI.
const PYINSTALLER: &str = "pyinstaller==6.22.3";

/// The target that is packed, and what it imports.
const PACKED: [&str; 2] = ["spin.py", "truth.py"];

pub(crate) fn run(cache: &Cache) -> Result<()> {
    debug(cache)?;
    packed(cache)
}

/// Debian's debug build of its own Python, unpacked.
fn debug(cache: &Cache) -> Result<()> {
    let place = cache.debug();
    if place.exists() {
        return Ok(());
    }
    if !shell::is_there("apt-get") {
        eprintln!("not Debian: its debug build of Python is left out");
        return Ok(());
    }
    let mut ask = Command::new("/usr/bin/python3");
    ask.args([
        "-c",
        "import sys; print('python%d.%d' % sys.version_info[:2])",
    ]);
    let name = shell::output(&mut ask)?;
    let package = format!("{}-dbg", name.trim());
    let making = fresh(&place)?;
    let mut download = Command::new("apt-get");
    download
        .args(["download", "-q", &package])
        .current_dir(&making);
    if shell::output(&mut download).is_err() {
        shell::run(
            Command::new("apt-get").args(["update", "-q"]),
            "is there a network?",
        )?;
        shell::run(&mut download, "is Debian's mirror reached? try again")?;
    }
    let archive = std::fs::read_dir(&making)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|it| it == "deb"))
        .with_context(|| format!("`apt-get download {package}` left no file"))?;
    let mut unpack = Command::new("dpkg");
    unpack.arg("-x").arg(&archive).arg(&making);
    shell::run(&mut unpack, "its package could not be unpacked")?;
    std::fs::remove_file(&archive)?;
    finish(&making, &place)
}

/// A target as a program of one file. It is packed again when the target has changed.
fn packed(cache: &Cache) -> Result<()> {
    let place = cache.packed();
    let targets = cache::workspace_root().join("tests/targets");
    let is_current = |name: &&str| {
        let kept = std::fs::read(place.join(name));
        kept.is_ok_and(|kept| std::fs::read(targets.join(name)).is_ok_and(|now| now == kept))
    };
    if PACKED.iter().all(is_current) && place.join("dist/spin").exists() {
        return Ok(());
    }
    let own = |python: &&tests::pythons::Python| python.root.is_none();
    let all = tests::pythons::all();
    let python = all
        .iter()
        .filter(own)
        .rfind(|python| python.minor() <= (3, 12))
        .or_else(|| all.iter().find(own));
    let Some(python) = python else {
        bail!("there is no Python to pack a program with: install `python3`");
    };
    let making = fresh(&place)?;
    for name in PACKED {
        std::fs::copy(targets.join(name), making.join(name))
            .with_context(|| format!("`{name}`"))?;
    }
    let mut venv = Command::new(&python.command[0]);
    venv.args(["-m", "venv"]).arg(making.join("venv"));
    shell::run(&mut venv, "type `sudo apt-get install python3-venv`")?;
    let program = |name: &str| Command::new(making.join("venv/bin").join(name));
    let mut pip = program("python");
    pip.args(["-m", "pip", "install", "-q", PYINSTALLER]);
    shell::run(&mut pip, "is PyPI reached? try again")?;
    // Not by its script, which would name the folder of the environment as it is now.
    let mut pack = program("python");
    pack.args([
        "-m",
        "PyInstaller",
        "--onefile",
        "--log-level",
        "WARN",
        PACKED[0],
    ])
    .current_dir(&making);
    shell::run(&mut pack, "the target could not be packed")?;
    for left in ["venv", "build"] {
        std::fs::remove_dir_all(making.join(left))?;
    }
    finish(&making, &place)
}

/// An empty folder beside the place, under a name that nobody uses.
fn fresh(place: &Path) -> Result<PathBuf> {
    let making = place.with_extension("making");
    if making.exists() {
        std::fs::remove_dir_all(&making).with_context(|| format!("`{}`", making.display()))?;
    }
    std::fs::create_dir(&making).with_context(|| format!("`{}`", making.display()))?;
    Ok(making)
}

fn finish(making: &Path, place: &Path) -> Result<()> {
    if place.exists() {
        std::fs::remove_dir_all(place).with_context(|| format!("`{}`", place.display()))?;
    }
    std::fs::rename(making, place)
        .with_context(|| format!("the new folder could not become `{}`", place.display()))
}
