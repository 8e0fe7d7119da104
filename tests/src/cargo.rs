//! Where cargo put the `profiler` binary. It does not build it: `cargo xtask test` does.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// The variable that names the binary.
pub const BIN_VARIABLE: &str = "PROFILER_BIN";

/// The built binary: named by the variable, or beside the running test.
pub(crate) fn profiler() -> Result<PathBuf> {
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
