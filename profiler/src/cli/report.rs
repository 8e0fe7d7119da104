//! The end of a run, for people: the report when no file was asked for, and one line either way.

use std::{
    io::{self, IsTerminal as _, Write as _},
    path::PathBuf,
};

use anyhow::{Context as _, Result};

use super::voice::say;
use crate::{
    aggregate::Profile,
    export::{self, Options},
};

/// Whether to colour what goes to a stream that `is_terminal`.
fn style(is_terminal: bool) -> bool {
    is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Columns of the terminal, where there is one.
fn width() -> Option<usize> {
    let given = std::env::var("COLUMNS")
        .ok()
        .and_then(|given| given.parse().ok());
    let columns =
        given.or_else(|| terminal_size::terminal_size().map(|(width, _)| width.0.into()))?;
    (40..=400).contains(&columns).then_some(columns)
}

/// Print the report to standard output.
pub(super) fn print(profile: &Profile, options: &Options) -> Result<()> {
    let out = io::stdout();
    let options = Options {
        style: style(out.is_terminal()),
        width: width().unwrap_or(options.width),
        ..*options
    };
    let mut out = io::BufWriter::new(out.lock());
    let written = export::text::write(profile, &options, &mut out).and_then(|()| out.flush());
    // Dropping the buffer would try a failed write once more.
    let _ = out.into_parts();
    written.context(super::NO_STDOUT)
}

/// Say in a line or two what was done.
pub(super) fn summary(profile: &Profile, why: &str, written: &[PathBuf], report: bool) {
    let ledger = profile.ledger();
    // The report ends with the accounts itself.
    if report {
        say!("\n{why}");
    } else {
        say!("{why}: {}", ledger.sentence());
    }
    // What went to standard output was seen.
    for path in written.iter().filter(|path| path.as_os_str() != "-") {
        say!("wrote {}", path.display());
    }
    if !report {
        for remark in ledger.remarks().iter().filter(|remark| remark.warning) {
            say!("warning: {}", remark.text);
        }
    }
}
