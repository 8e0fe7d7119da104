//! `cargo xtask image`: records a target with known stacks on every interpreter, as the images
//! that the tests of rung 1 read.
//!
//! The recorder is an example of the tests' package, which may use the profiler's library; this
//! only starts it.

use anyhow::Result;

use crate::{setup, shell};

/// What was typed.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Beginnings of versions, such as 3.12; all that are here when none is named
    versions: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    setup::run(&setup::Options::default())?;
    let mut cargo = shell::cargo();
    cargo
        .args(["run", "--quiet", "--package", "tests"])
        .args(["--example", "record_image", "--"])
        .args(&options.versions);
    shell::run(&mut cargo, "an image could not be recorded")
}
