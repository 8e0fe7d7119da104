//! `cargo xtask setup`: installs what the tests need and is not there yet.
//!
//! Every step looks first, so a second run does nothing; a step that was broken off is done
//! again from its start. Nothing is installed by hand elsewhere, and no interpreter of the
//! machine is touched: Debian sid's and the free-threaded one go into folders of the cache.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::unistd::geteuid;

use tests::pythons::Python;

use crate::cache::Cache;
use crate::{free_threaded, kinds, shell};

/// What was typed.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Also install the peers that `cargo xtask bench` measures beside the profiler
    #[arg(long)]
    pub(crate) peers: bool,
}

/// The programs that the tests run, what else must be there, and Debian's packages that hold it.
const PROGRAMS: &[(&[&str], &[&str])] = &[
    (&["cc"], &["gcc", "libc6-dev"]),
    (&["python3"], &["python3"]),
    (&["make"], &["make"]),
    (&["xz"], &["xz-utils"]),
    (&["/usr/include/zlib.h"], &["zlib1g-dev"]),
    (
        &["/usr/include/x86_64-linux-gnu/ffi.h", "/usr/include/ffi.h"],
        &["libffi-dev"],
    ),
    (&["setpriv"], &["util-linux"]),
    (&["mmdebstrap"], &["mmdebstrap", "debian-archive-keyring"]),
    // pprof's own tool, which reads what is exported; a newer Go has none until it is asked.
    (
        &[
            "/usr/lib/go-1.19/pkg/tool/linux_amd64/pprof",
            "/usr/local/go/pkg/tool/linux_amd64/pprof",
            "pprof",
        ],
        &["golang-1.19-go"],
    ),
];

/// The interpreters that sid's folder holds.
const SID_PYTHONS: &[&str] = &["python3.13", "python3.14", "python3.15"];

/// The peers: the program, its name and version on PyPI.
pub(crate) const PEERS: &[(&str, &str)] = &[
    ("py-spy", "py-spy==0.4.3"),
    ("austin", "austin-dist==4.0.0"),
];

/// What targets import that no interpreter brings, by names and versions on PyPI: for one
/// interpreter, and for each of a minor version with a GIL, from this one on.
const PACKAGES: &[&str] = &["uvloop==0.23.0"];
const BLAS: &[&str] = &["numpy==2.3.4"];
const OF_EACH: &[(u8, [&str; 2])] = &[
    (8, ["greenlet==3.1.1", "gevent==24.2.1"]),
    (9, ["greenlet==3.2.5", "gevent==25.9.1"]),
    (10, ["greenlet==3.5.6", "gevent==26.9.0"]),
];

/// The interpreters on which the peers are compared: the most usual one, and the one whose own
/// sampler is a peer; and what a program that they watch imports.
pub(crate) const COMPARED: [&str; 2] = ["3.12", "3.15"];
const SERVICE: [&str; 4] = [
    "django==6.1.3",
    "asgiref==3.13.0",
    "sqlparse==0.6.1",
    "waitress==3.0.2",
];

pub(crate) fn run(options: &Options) -> Result<()> {
    let cache = Cache::open()?;
    let _lock = cache.lock()?;
    install_missing(PROGRAMS)?;
    sid(&cache)?;
    free_threaded::make(&cache)?;
    kinds::run(&cache)?;
    packages()?;
    if options.peers {
        peers(&cache)?;
        service();
    }
    let found = tests::pythons::all();
    let labels: Vec<&str> = found.iter().map(|python| python.label.as_str()).collect();
    eprintln!("interpreters: {}", labels.join(" "));
    Ok(())
}

/// Installs what is not there of programs and the packages that hold them.
pub(crate) fn install_missing(programs: &[(&[&str], &[&str])]) -> Result<()> {
    let is_here = |name: &&str| match Path::new(name).is_absolute() {
        true => Path::new(name).exists(),
        false => shell::is_there(name),
    };
    let missing: BTreeSet<&str> = programs
        .iter()
        .filter(|(names, _)| !names.iter().any(is_here))
        .flat_map(|(_, packages)| packages.iter().copied())
        .collect();
    install(&missing.into_iter().collect::<Vec<_>>())
}

/// Debian's packages, by apt, for root; others are told what to type.
pub(crate) fn install(list: &[&str]) -> Result<()> {
    if list.is_empty() {
        return Ok(());
    }
    let hint = format!("type `sudo apt-get install {}`", list.join(" "));
    if !shell::is_there("apt-get") {
        bail!(
            "not here, and this is not Debian: install what holds {}",
            list.join(", ")
        );
    }
    if !geteuid().is_root() {
        bail!("packages are missing: {hint}");
    }
    eprintln!("installing {}", list.join(" "));
    shell::run(
        Command::new("apt-get").args(["update", "-q"]),
        "is there a network?",
    )?;
    let mut install = Command::new("apt-get");
    install
        .args(["install", "-y", "-q", "--no-install-recommends"])
        .args(list)
        .env("DEBIAN_FRONTEND", "noninteractive");
    shell::run(&mut install, &hint)
}

/// Debian sid's interpreters in a folder that is used as a root: as a container would have them.
fn sid(cache: &Cache) -> Result<()> {
    if !geteuid().is_root() {
        eprintln!(
            "not root: Debian sid's interpreters are left out (their folder is used by chroot)"
        );
        return Ok(());
    }
    let root = cache.sid();
    if !sid_is_whole(&root) {
        make_sid(&root)?;
    }
    mount(&root, "proc", "proc/self")?;
    mount(&root, "dev", "dev/null")?;
    for name in SID_PYTHONS {
        let mut ask = Command::new("chroot");
        ask.arg(&root)
            .args([name, "-I", "-c", ""])
            .env("LC_ALL", "C");
        shell::output(&mut ask).with_context(|| {
            format!(
                "`{name}` does not run in {0}: unmount {0}/proc and {0}/dev, remove the folder, and \
                 type `cargo xtask setup`",
                root.display()
            )
        })?;
    }
    Ok(())
}

fn sid_is_whole(root: &Path) -> bool {
    SID_PYTHONS
        .iter()
        .all(|name| root.join("usr/bin").join(name).exists())
}

fn make_sid(root: &Path) -> Result<()> {
    if root.exists() {
        bail!(
            "{0} lacks an interpreter: unmount {0}/proc and {0}/dev, remove the folder, and type \
             `cargo xtask setup`",
            root.display()
        );
    }
    let parent = root.parent().context("the cache folder has no parent")?;
    // Beside its place, so that the rename is one step; what a broken-off run left lies under a
    // name that nobody uses. Something may still be mounted in there, so `rm` is held to the
    // one file system.
    let making = parent.join("sid.making");
    let mut clear = Command::new("rm");
    clear.args(["-rf", "--one-file-system"]).arg(&making);
    shell::run(&mut clear, "unmount what is in it")?;
    std::fs::create_dir(&making).with_context(|| format!("`{}`", making.display()))?;
    eprintln!("making {} from Debian sid", root.display());
    let mut make = Command::new("mmdebstrap");
    make.args([
        "--variant=extract",
        "--mode=root",
        "--skip=check/qemu",
        // The mirror may be a frozen one.
        "--aptopt=Acquire::Check-Valid-Until \"false\"",
        "--include=python3.13,python3.14,python3.15,libpython3.15-testsuite,libstdc++6",
        "sid",
    ])
    .arg(&making)
    .arg("deb [trusted=yes] http://deb.debian.org/debian sid main");
    shell::run(&mut make, "is Debian's mirror reached? try again")?;
    for (link, to) in [
        ("bin", "usr/bin"),
        ("sbin", "usr/sbin"),
        ("lib", "usr/lib"),
        ("lib64", "usr/lib64"),
    ] {
        let link = making.join(link);
        if std::fs::symlink_metadata(&link).is_err() {
            std::os::unix::fs::symlink(to, &link)
                .with_context(|| format!("`{}`", link.display()))?;
        }
    }
    for (folder, mode) in [("proc", 0o755), ("dev", 0o755), ("tmp", 0o1777)] {
        let folder = making.join(folder);
        std::fs::create_dir_all(&folder).with_context(|| format!("`{}`", folder.display()))?;
        set_mode(&folder, mode)?;
    }
    set_mode(&making, 0o755)?;
    std::fs::rename(&making, root)
        .with_context(|| format!("the new folder could not become `{}`", root.display()))?;
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode))
        .with_context(|| format!("`{}`", path.display()))
}

/// Binds a folder of the machine into the root, unless its witness is already seen there. A
/// restart of the machine takes the mount away, so this is looked at each time.
fn mount(root: &Path, name: &str, witness: &str) -> Result<()> {
    let place = root.join(name);
    std::fs::create_dir_all(&place).with_context(|| format!("`{}`", place.display()))?;
    if is_mounted(&place)? && root.join(witness).exists() {
        return Ok(());
    }
    let mut mount = Command::new("mount");
    mount
        .arg("--bind")
        .arg(Path::new("/").join(name))
        .arg(&place);
    shell::run(
        &mut mount,
        "may this root mount? a container's often may not",
    )
}

/// `mountinfo` and not the device number: a bind within one file system keeps that.
fn is_mounted(place: &Path) -> Result<bool> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").context("the table of mounts")?;
    let place = place.to_string_lossy().replace(' ', "\\040");
    Ok(table
        .lines()
        .any(|line| line.split(' ').nth(4) == Some(place.as_str())))
}

/// Into a folder for each minor version, by the `pip` of one interpreter: it takes wheels for others
/// too, and writes each file where it belongs only once it has it all.
fn packages() -> Result<()> {
    let Some(by) = tests::pythons::any() else {
        return Ok(());
    };
    install_packages(by, by, "uvloop", PACKAGES);
    install_packages(by, by, "numpy", BLAS);
    for python in tests::pythons::all() {
        let minor = python.version.1;
        let all = OF_EACH.iter().rfind(|(first, _)| *first <= minor);
        if let Some((_, packages)) = all.filter(|_| !python.free_threaded) {
            install_packages(by, python, "gevent", packages);
        }
    }
    Ok(())
}

/// What the web service among the benches' programs is made of.
fn service() {
    let Some(by) = tests::pythons::any() else {
        return;
    };
    for python in tests::pythons::all() {
        if COMPARED.contains(&&*python.series()) {
            install_packages(by, python, "django", &SERVICE);
        }
    }
}

/// The last of the packages to come stands for all.
fn install_packages(by: &Python, python: &Python, last: &str, packages: &[&str]) {
    let Some(folder) = tests::pythons::packages_folder(python) else {
        return;
    };
    let Some((program, words)) = by.command.split_first() else {
        return;
    };
    if folder.join(last).exists() {
        return;
    }
    eprintln!("installing {} for {}", packages.join(" "), python.label);
    let (major, minor) = python.minor();
    let mut pip = Command::new(program);
    pip.args(words)
        .args(["-m", "pip", "install", "-q", "--only-binary", ":all:"])
        .args(["--implementation", "cp"])
        .args(["--python-version", &format!("{major}.{minor}")])
        .arg("--target")
        .arg(&folder)
        .args(packages);
    // The tests say what they leave out without them.
    if let Err(error) = shell::run(&mut pip, "is PyPI reached? try again") {
        eprintln!("they are left out: {error:#}");
    }
}

/// The virtual environment is made in place: `venv` and `pip` repair what was broken off. A peer
/// that cannot be had is left out; the benches report it as missing.
fn peers(cache: &Cache) -> Result<()> {
    let folder = cache.peers();
    let missing: Vec<&str> = PEERS
        .iter()
        .filter(|(program, _)| !folder.join("bin").join(program).exists())
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut ask = Command::new("python3");
    if shell::output(ask.args(["-c", "import ensurepip"])).is_err() {
        install(&["python3-venv"])?;
    }
    eprintln!("installing {} into {}", missing.join(" "), folder.display());
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv"]).arg(&folder);
    shell::run(&mut venv, "type `sudo apt-get install python3-venv`")?;
    for package in missing {
        let mut pip = Command::new(folder.join("bin/python"));
        pip.args(["-m", "pip", "install", "-q", package]);
        if let Err(error) = shell::run(&mut pip, "is PyPI reached? try again") {
            eprintln!("it is left out: {error:#}");
        }
    }
    Ok(())
}
