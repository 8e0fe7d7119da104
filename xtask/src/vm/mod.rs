//! `cargo xtask test --vm`: the tests of rung 3 on other kernels, each booted in a virtual machine.
//!
//! The machine has the host's own files under a layer in memory, so the interpreters and the tests
//! that were built here are simply there. One machine at a time; nothing is installed in it.

mod image;
mod job;
mod kernels;
mod machine;
mod table;

use anyhow::{Context, Result, ensure};

use crate::cache::Cache;
use crate::{setup, test};
use job::Job;
use kernels::Kernel;
use table::Outcome;

pub(crate) use kernels::ALL;

/// The programs that this needs, and Debian's packages that hold them.
const PROGRAMS: &[(&[&str], &[&str])] = &[
    (&["qemu-system-x86_64"], &["qemu-system-x86"]),
    (&["unxz"], &["xz-utils"]),
    (
        &["/usr/share/keyrings/debian-archive-keyring.gpg"],
        &["debian-archive-keyring"],
    ),
];

/// Boots each of the kernels that were asked for and runs the tests there.
pub(crate) fn run(asked: &[String], filters: &[String]) -> Result<()> {
    let kernels = kernels::asked(asked)?;
    setup::run(&setup::Options::default())?;
    setup::install_missing(PROGRAMS)?;
    let cache = Cache::open()?;
    let binary = test::build(false)?;
    let job = Job::new(binary, test::build_tests()?, filters);
    let mut outcomes = Vec::new();
    for kernel in kernels {
        outcomes.push(one(&cache, kernel, &job)?);
    }
    let whole = filters.is_empty() && asked.iter().any(|name| name == ALL);
    table::print(&outcomes, whole)?;
    let failed: Vec<&str> = outcomes
        .iter()
        .filter(|outcome| !outcome.is_well())
        .map(|outcome| outcome.kernel.as_str())
        .collect();
    ensure!(failed.is_empty(), "failed on Linux {}", failed.join(", "));
    Ok(())
}

fn one(cache: &Cache, kernel: &Kernel, job: &Job) -> Result<Outcome> {
    let image = {
        let _lock = cache.lock()?;
        image::of(cache, kernel)?
    };
    let folder = tempfile::Builder::new()
        .prefix("profiler-vm-")
        .tempdir()
        .context("a folder for what the machine says")?;
    job.write(folder.path())?;
    let took = machine::boot(&image, folder.path())
        .with_context(|| format!("the virtual machine with Linux {}", kernel.series))?;
    table::read(kernel, folder.path(), took)
}
