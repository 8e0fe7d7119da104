//! The progress line: on a terminal only, and never in the way of a pipe, which gets one line
//! when the ticks have begun, so that a script knows.

use std::{
    cell::RefCell,
    io::{self, IsTerminal as _},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};

use super::voice::say;
use crate::{aggregate::count, pipeline::Progress};

/// A line that says that something happens.
#[derive(Debug)]
pub(super) struct Line {
    /// None when nobody watches.
    bar: Option<ProgressBar>,
    /// What a pipe is still to be told: scripts and the tests wait for it.
    word: RefCell<Option<String>>,
}

impl Line {
    /// A line about `what`; none when `quiet`, and one that does not move when the terminal is
    /// `shared` with a command that writes to it too.
    pub(super) fn new(what: &str, quiet: bool, shared: bool) -> Self {
        if quiet || shared || !io::stderr().is_terminal() {
            let word = (!quiet).then(|| what.to_owned());
            return Self {
                bar: None,
                word: RefCell::new(word),
            };
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} · {elapsed} · {msg}")
        {
            bar.set_style(style);
        }
        bar.set_prefix(what.to_owned());
        bar.set_message("Ctrl-C ends and writes");
        bar.enable_steady_tick(Duration::from_millis(250));
        Self {
            bar: Some(bar),
            word: RefCell::new(None),
        }
    }

    /// Let something else be written meanwhile.
    pub(super) fn beside(&self, write: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// The ticks have begun.
    pub(super) fn begin(&self) {
        if let Some(word) = self.word.take() {
            say!("{word}");
        }
    }

    /// Show how far it is.
    pub(super) fn show(&self, progress: Progress) {
        if let Some(bar) = &self.bar {
            bar.set_message(if progress.python {
                format!("{} samples · Ctrl-C ends and writes", count(progress.ticks))
            } else {
                "no Python in it yet".to_owned()
            });
        }
    }

    /// Take the line away.
    pub(super) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
