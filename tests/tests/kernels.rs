//! Kernels that lack what the programs need: one sentence, before the first tick.
//!
//! How a run is on older kernels is tested on those: `cargo xtask test --vm`.

use std::process::Command;

use anyhow::{Result, ensure};
use tests::profiler::{self, Running};
use tests::rung::{self, Rung};

/// A mount namespace of its own, in which the folder of the kernel's type information is empty: as
/// it is where the kernel was built without.
const WITHOUT_TYPES: &str = "mount -t tmpfs -o ro none /sys/kernel/btf && exec \"$0\" \"$@\"";

#[test]
fn a_kernel_without_type_information_is_told_in_one_line() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    for arguments in [&["doctor"][..], &["run", "--quiet", "--", "true"]] {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", WITHOUT_TYPES])
            .arg(profiler::binary()?)
            .args(arguments);
        let finished = Running::spawn(command, tempfile::tempdir()?)?.finish()?;
        let said = format!("{}{}", finished.stdout, finished.stderr);
        let mut lines = said.lines();
        let about = lines.clone().filter(|line| {
            line.contains("this kernel shows no type information")
                && line.contains("CONFIG_DEBUG_INFO_BTF")
        });
        ensure!(about.count() == 1, "{arguments:?} said: {said}");
        ensure!(!lines.any(|line| line.contains("panicked")), "{said}");
        ensure!(!finished.status.success(), "{arguments:?} did not fail");
    }
    Ok(())
}
