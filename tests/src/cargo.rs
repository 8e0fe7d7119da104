//! Where cargo put the `profiler` binary. It does not build it: `cargo xtask test` does.

use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

/// The variable that names the binary.
pub const BIN_VARIABLE: &str = "PROFILER_BIN";

static CHOSEN: OnceLock<PathBuf> = OnceLock::new();

/// Chooses the binary for this process; the first choice stays.
pub(crate) fn choose(path: PathBuf) {
    CHOSEN.get_or_init(|| path);
}

/// The built binary: chosen, named by the variable, or beside the running test.
pub(crate) fn profiler() -> Result<PathBuf> {
    if let Some(path) = CHOSEN.get() {
        return Ok(path.clone());
    }
    if let Some(path) = std::env::var_os(BIN_VARIABLE) {
        return Ok(PathBuf::from(path));
    }
    let test = std::env::current_exe().context("this program's own path")?;
    let beside = test
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("profiler"))
        .find(|path| path.is_file());
    match beside {
        Some(path) => Ok(path),
        None => bail!("there is no `profiler` binary: type `cargo build -p profiler`"),
    }
}
