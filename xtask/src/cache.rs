//! The folder for all that is slow to make, shared by every checkout of this machine.
//!
//! It names the places; who fills one makes it under another name and renames it, or does it so
//! that doing it again repairs it. A lock keeps two from filling the same place.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// `$PROFILER_CACHE`, else `profiler-build` in the user's cache folder, where the tests look for
/// it too.
pub(crate) fn folder() -> PathBuf {
    tests::pythons::cache().unwrap_or_else(|| workspace_root().join("target/cache"))
}

/// The workspace's top folder.
pub(crate) fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Where cargo builds.
pub(crate) fn target_dir(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// The folder and its places.
#[derive(Debug)]
pub(crate) struct Cache {
    root: PathBuf,
}

impl Cache {
    /// Opens the folder, making it when it is not there.
    pub(crate) fn open() -> Result<Self> {
        let root = folder();
        std::fs::create_dir_all(&root).with_context(|| {
            format!(
                "`{}` cannot be made: set PROFILER_CACHE to a folder that may be filled",
                root.display()
            )
        })?;
        Ok(Self { root })
    }

    /// Waits until no other process fills the folder, and keeps others waiting while it lives.
    pub(crate) fn lock(&self) -> Result<File> {
        let path = self.root.join("lock");
        let file = File::create(&path).with_context(|| format!("`{}`", path.display()))?;
        if file.try_lock().is_err() {
            eprintln!("waiting for another build to finish its setup");
            file.lock()
                .with_context(|| format!("`{}`", path.display()))?;
        }
        Ok(file)
    }

    /// A root folder with Debian sid's interpreters.
    pub(crate) fn sid(&self) -> PathBuf {
        self.root.join("sid")
    }

    /// A free-threaded interpreter, as it would be installed.
    pub(crate) fn free_threaded(&self) -> PathBuf {
        self.root.join("free-threaded")
    }

    /// Debian's debug build of its Python, unpacked.
    pub(crate) fn debug(&self) -> PathBuf {
        self.root.join("debug")
    }

    /// A target packed into one file.
    pub(crate) fn packed(&self) -> PathBuf {
        self.root.join("packed")
    }

    /// A folder for each kernel that is booted in a virtual machine.
    pub(crate) fn vm(&self) -> PathBuf {
        self.root.join("vm")
    }

    /// A virtual environment with the peers that are measured beside the profiler.
    pub(crate) fn peers(&self) -> PathBuf {
        self.root.join("peers")
    }

    /// What runs the benches that count instructions.
    pub(crate) fn gungraun(&self) -> PathBuf {
        self.root.join("gungraun")
    }
}
