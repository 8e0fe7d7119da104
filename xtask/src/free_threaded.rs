//! A free-threaded CPython, built from Debian's source package: no distribution has one to
//! install.
//!
//! It is built without what takes long and no test needs: no profile-guided optimisation, none of
//! the modules that wrap libraries. It does not choose the version: Debian does.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache::Cache;
use crate::shell;

/// The version that Debian has the sources of, and the interpreter that comes of it.
const PACKAGE: &str = "python3.13";
const NAME: &str = "python3.13t";

/// Releases of Debian, the stable one first: its sources stay where they are.
const SUITES: &[&str] = &["trixie", "forky"];

/// Modules that no test needs and whose sources are large or want a library's headers.
const LEFT_OUT: &[&str] = &[
    "_bz2",
    "_codecs_cn",
    "_codecs_hk",
    "_codecs_iso2022",
    "_codecs_jp",
    "_codecs_kr",
    "_codecs_tw",
    "_curses",
    "_curses_panel",
    "_dbm",
    "_decimal",
    "_elementtree",
    "_gdbm",
    "_hashlib",
    "_lsprof",
    "_lzma",
    "_multibytecodec",
    "_sqlite3",
    "_ssl",
    "_tkinter",
    "_uuid",
    "pyexpat",
    "readline",
    "xxlimited",
    "xxlimited_35",
];

/// Makes the folder that holds it, unless it is there.
pub(crate) fn make(cache: &Cache) -> Result<()> {
    let place = cache.free_threaded();
    if is_for(&place) {
        return Ok(());
    }
    if !shell::is_there("apt-get") {
        eprintln!("this is not Debian: a free-threaded Python is left out; pyenv can make one");
        return Ok(());
    }
    // Beside its place, so that the rename is one step.
    let making = place.with_extension("making");
    remove(&making)?;
    let sources = sources(&making)?;
    let root = making.join("root");
    build(&sources, &making.join("build"), &place, &root)?;
    let installed = root.join(place.strip_prefix("/").unwrap_or(&place));
    let mut ask = Command::new(installed.join("bin").join(NAME));
    // An interpreter whose optional modules failed is built all the same.
    ask.args([
        "-I",
        "-c",
        "import asyncio, ctypes, select, socket, unicodedata, zlib",
    ]);
    shell::output(&mut ask).context("the new interpreter lacks a module")?;
    remove(&place)?;
    std::fs::rename(&installed, &place).with_context(|| format!("`{}`", place.display()))?;
    remove(&making)
}

/// Whether there is one in a folder that was made for it: a copy of its program looks for the
/// library there.
fn is_for(place: &Path) -> bool {
    let mut ask = Command::new(place.join("bin").join(NAME));
    ask.args(["-I", "-c"])
        .arg("import sysconfig; print(sysconfig.get_config_var('prefix'))");
    shell::output(&mut ask).is_ok_and(|told| Path::new(told.trim()) == place)
}

fn remove(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    std::fs::remove_dir_all(folder).with_context(|| format!("`{}`", folder.display()))
}

/// Debian's original sources, unpacked.
fn sources(making: &Path) -> Result<PathBuf> {
    let unpacked = making.join("sources");
    let create = |folder: &Path| {
        std::fs::create_dir_all(folder).with_context(|| format!("`{}`", folder.display()))
    };
    create(&unpacked)?;
    for suite in SUITES {
        // apt with lists of its own, so that the machine's stay as they are.
        let apt = making.join(suite);
        create(&apt.join("lists/partial"))?;
        create(&apt.join("cache/archives/partial"))?;
        let list = apt.join("sources.list");
        let line = format!("deb-src [trusted=yes] http://deb.debian.org/debian {suite} main\n");
        std::fs::write(&list, line).with_context(|| format!("`{}`", list.display()))?;
        let apt_get = || {
            let mut command = Command::new("apt-get");
            command.current_dir(&apt).arg("-q");
            for (name, value) in [
                ("Dir::Etc::SourceList", list.as_path()),
                ("Dir::Etc::SourceParts", Path::new("/dev/null")),
                ("Dir::State::Lists", &apt.join("lists")),
                ("Dir::Cache", &apt.join("cache")),
                ("APT::Sandbox::User", Path::new("root")),
                // The mirror may be a frozen one.
                ("Acquire::Check-Valid-Until", Path::new("false")),
            ] {
                command.arg("-o").arg(format!("{name}={}", value.display()));
            }
            command
        };
        let hint = "is Debian's mirror reached?";
        let fetched = shell::run(apt_get().arg("update"), hint).and_then(|()| {
            let mut source = apt_get();
            source.args(["--download-only", "--tar-only", "source", PACKAGE]);
            shell::run(&mut source, hint)
        });
        let archive = archive(&apt)?;
        let (Ok(()), Some(archive)) = (fetched, archive) else {
            continue;
        };
        let mut tar = Command::new("tar");
        tar.args(["--strip-components=1", "-xf"]).arg(archive);
        tar.arg("-C").arg(&unpacked);
        shell::run(&mut tar, "type `sudo apt-get install xz-utils`")?;
        return Ok(unpacked);
    }
    bail!(
        "Debian's sources of {PACKAGE} could not be fetched from {}: is its mirror reached? try \
         again",
        SUITES.join(" or ")
    )
}

/// The archive that apt has put into a folder.
fn archive(folder: &Path) -> Result<Option<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("`{}`", folder.display()))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(paths
        .filter(|path| path.to_string_lossy().contains(".orig.tar."))
        .min())
}

/// For its place, but installed below `root`.
fn build(sources: &Path, folder: &Path, place: &Path, root: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("`{}`", folder.display()))?;
    eprintln!("building {NAME}: some minutes, once");
    let mut configure = Command::new(sources.join("configure"));
    configure
        .current_dir(folder)
        .args(["-q", "--disable-gil", "--disable-test-modules"])
        .args(["--without-ensurepip", "OPT=-DNDEBUG -O2"])
        .arg(format!("--prefix={}", place.display()))
        .envs(
            LEFT_OUT
                .iter()
                .map(|name| (format!("py_cv_module_{name}"), "n/a")),
        );
    shell::run(&mut configure, "its `config.log` says why")?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut make = Command::new("nice");
    make.args(["-n", "10", "make", "-s", &format!("-j{jobs}"), "altinstall"])
        .arg(format!("DESTDIR={}", root.display()))
        .current_dir(folder);
    // What it installs is not for people; what goes wrong is on its standard error.
    make.stdout(std::process::Stdio::null());
    shell::run(&mut make, "the compiler's message is above")
}
