//! What a machine boots: Debian's kernel, and a root in memory with the modules that are needed to
//! see the host's files. Both come from Debian's packages, which are not installed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::kernels::Kernel;
use crate::cache::Cache;
use crate::shell;

/// Below a release's `kernel`: the bus, the host's files and the layer above them. Where one is
/// missing, it is part of the kernel or of another folder.
const MODULES: &[&str] = &[
    "drivers/virtio",
    "fs/9p",
    "fs/fscache",
    "fs/netfs",
    "fs/overlayfs",
    "net/9p",
];

/// What the first process finds beside the modules: places to mount on.
const FOLDERS: &[&str] = &["bin", "dev", "lower", "proc", "root", "sys", "upper"];

const INIT: &str = include_str!("init.sh");

/// What one kernel needs, in a folder of the cache.
#[derive(Debug)]
pub(super) struct Image {
    folder: PathBuf,
}

impl Image {
    /// The compressed kernel.
    pub(super) fn kernel(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// Packs the first root into `place`.
    pub(super) fn pack(&self, place: &Path) -> Result<()> {
        let tree = self.tree();
        let init = tree.join("init");
        fs::write(&init, INIT).with_context(|| format!("`{}`", init.display()))?;
        fs::set_permissions(&init, PermissionsExt::from_mode(0o755))?;
        let archive = fs::File::create(place).with_context(|| format!("`{}`", place.display()))?;
        let mut list = Command::new("find")
            .arg(".")
            .current_dir(&tree)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .context("`find` could not be started")?;
        let names = list.stdout.take().context("`find` has no stdout")?;
        let packed = Command::new(tree.join("bin/busybox"))
            .args(["cpio", "-o", "-H", "newc"])
            .current_dir(&tree)
            .stdin(names)
            .stdout(archive)
            .stderr(std::process::Stdio::null())
            .status()
            .context("`busybox cpio` could not be started")?;
        ensure!(list.wait()?.success() && packed.success(), "not packed");
        Ok(())
    }

    fn tree(&self) -> PathBuf {
        self.folder.join("tree")
    }
}

/// A kernel's image, made when it is not there yet; the caller holds the cache's lock.
pub(super) fn of(cache: &Cache, kernel: &Kernel) -> Result<Image> {
    let folder = cache.vm().join(kernel.series);
    if !folder.exists() {
        eprintln!("making {} from Debian {}", folder.display(), kernel.suite);
        let making = cache.vm().join(format!("{}.making", kernel.series));
        if making.exists() {
            fs::remove_dir_all(&making).with_context(|| format!("`{}`", making.display()))?;
        }
        make(&making, kernel)?;
        fs::rename(&making, &folder).with_context(|| format!("`{}`", folder.display()))?;
    }
    Ok(Image { folder })
}

fn make(making: &Path, kernel: &Kernel) -> Result<()> {
    let packages = making.join("packages");
    let unpacked = making.join("unpacked");
    for folder in [&packages, &unpacked] {
        fs::create_dir_all(folder).with_context(|| format!("`{}`", folder.display()))?;
    }
    download(&packages, kernel)?;
    for entry in fs::read_dir(&packages)? {
        let package = entry?.path();
        if package.extension().is_some_and(|it| it == "deb") {
            let mut unpack = Command::new("dpkg-deb");
            unpack.arg("-x").arg(&package).arg(&unpacked);
            shell::output(&mut unpack)?;
        }
    }
    // Debian has moved both from the root into `usr`.
    let find = |names: [&str; 2]| {
        let mut places = names.iter().map(|name| unpacked.join(name));
        places
            .find(|place| place.exists())
            .context(names[0].to_owned())
    };
    let modules = only(&find(["lib/modules", "usr/lib/modules"])?, "")?;
    let busybox = find(["bin/busybox", "usr/bin/busybox"])?;
    let vmlinuz = only(&unpacked.join("boot"), "vmlinuz-")?;
    let tree = making.join("tree");
    plant(&tree, &modules, &busybox)?;
    fs::copy(vmlinuz, making.join("vmlinuz"))?;
    for folder in [&packages, &unpacked] {
        fs::remove_dir_all(folder)?;
    }
    Ok(())
}

/// The newest kernel of a release and a static busybox, by lists of their own: what the machine
/// knows and has installed plays no part, and stays as it is.
fn download(folder: &Path, kernel: &Kernel) -> Result<()> {
    let source = folder.join("sources.list");
    let text = format!(
        "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \
         http://deb.debian.org/debian {} main\n",
        kernel.suite
    );
    fs::write(&source, text)?;
    let apt = |program: &str| {
        let mut apt = Command::new(program);
        let place = folder.display();
        for option in [
            format!("Dir::Etc::sourcelist={}", source.display()),
            "Dir::Etc::sourceparts=/dev/null".to_owned(),
            "Dir::State::status=/dev/null".to_owned(),
            format!("Dir::State::lists={place}/lists"),
            format!("Dir::Cache={place}/cache"),
            // The mirror may be a frozen one.
            "Acquire::Check-Valid-Until=false".to_owned(),
            "Acquire::Languages=none".to_owned(),
            // Another user could not write here.
            "APT::Sandbox::User=root".to_owned(),
        ] {
            apt.args(["-o", &option]);
        }
        apt.current_dir(folder);
        apt
    };
    for part in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(folder.join(part))?;
    }
    let hint = "is Debian's mirror reached? try again";
    shell::run(apt("apt-get").args(["-q", "update"]), hint)?;
    let depends = shell::output(apt("apt-cache").args(["depends", "linux-image-amd64"]))?;
    let name = depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-image-"))
        .with_context(|| format!("Debian {} has no kernel", kernel.suite))?;
    let mut download = apt("apt-get");
    shell::run(
        download.args(["-q", "download", name, "busybox-static"]),
        hint,
    )
}

/// The one entry of a folder whose name begins so.
fn only(folder: &Path, beginning: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| format!("`{}`", folder.display()))?;
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().starts_with(beginning)
        })
        .with_context(|| format!("nothing in `{}`", folder.display()))
}

fn plant(tree: &Path, modules: &Path, busybox: &Path) -> Result<()> {
    for folder in FOLDERS {
        fs::create_dir_all(tree.join(folder))?;
    }
    fs::copy(busybox, tree.join("bin/busybox"))?;
    let release = modules.file_name().context("modules without a release")?;
    let kernel = tree.join("lib/modules").join(release).join("kernel");
    for folder in MODULES {
        let from = modules.join("kernel").join(folder);
        let to = kernel.join(folder);
        if from.is_dir() {
            fs::create_dir_all(&to)?;
            let mut copy = Command::new("cp");
            shell::output(copy.arg("-rT").arg(from).arg(to))?;
        }
    }
    let mut unpack = Command::new("find");
    unpack
        .arg(&kernel)
        .args(["-name", "*.xz", "-exec", "unxz", "{}", "+"]);
    shell::output(&mut unpack)?;
    let mut depmod = Command::new(tree.join("bin/busybox"));
    shell::output(depmod.arg("depmod").arg("-b").arg(tree).arg(release))?;
    Ok(())
}
