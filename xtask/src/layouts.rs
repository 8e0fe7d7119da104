//! The layouts of CPython's structures: not measured here yet.

use anyhow::{Result, bail};

/// What was typed.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Check only
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    bail!("not here yet ({})", options.check)
}
