//! The progress line: on a terminal only, and never in the way of a pipe.

use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};

use crate::{aggregate::count, pipeline::Progress};

/// A line that says that something happens; none when nobody watches.
#[derive(Debug)]
pub(super) struct Line(Option<ProgressBar>);

impl Line {
    /// A line about `what`; none when `quiet`.
    pub(super) fn new(what: &str, quiet: bool) -> Self {
        if quiet || !io::stderr().is_terminal() {
            return Self(None);
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} · {elapsed} · {msg}")
        {
            bar.set_style(style);
        }
        bar.set_prefix(what.to_owned());
        bar.set_message("Ctrl-C ends and writes");
        bar.enable_steady_tick(Duration::from_millis(250));
        Self(Some(bar))
    }

    /// Show how far it is.
    pub(super) fn show(&self, progress: Progress) {
        if let Some(bar) = &self.0 {
            bar.set_message(if progress.python {
                format!("{} samples · Ctrl-C ends and writes", count(progress.ticks))
            } else {
                "no Python in it yet".to_owned()
            });
        }
    }

    /// Take the line away.
    pub(super) fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
