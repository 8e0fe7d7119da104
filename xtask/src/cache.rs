//! Where slow things are kept, outside the checkout.

use std::path::{Path, PathBuf};

/// `$PROFILER_CACHE`, else `profiler-build` in the user's cache folder.
pub fn folder() -> PathBuf {
    let own = std::env::var_os("PROFILER_CACHE").map(PathBuf::from);
    let xdg = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::home_dir().map(|home| home.join(".cache"));
    own.or_else(|| Some(xdg.or(home)?.join("profiler-build"))).unwrap_or_else(|| "target/cache".into())
}

/// The workspace's top folder.
pub fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap_or_else(|_| ".".into())
}

/// Where cargo builds.
pub fn target_dir(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}
