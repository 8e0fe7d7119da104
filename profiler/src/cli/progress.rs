//! The progress line: on a terminal only, and never in the way of a pipe, which gets one line
//! when the ticks have begun, so that a script knows.

use std::{cell::RefCell, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{aggregate::count, pipeline::Progress};

/// A line that says that something happens.
#[derive(Debug)]
pub(super) struct Line {
    bar: ProgressBar,
    /// What a pipe is still to be told.
    word: RefCell<Option<String>>,
}

impl Line {
    /// A line about `what`; a silent one when `quiet` or when nobody watches.
    pub(super) fn new(what: &str, quiet: bool) -> Self {
        let target = if quiet {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} · {elapsed} · {msg}")
        {
            bar.set_style(style);
        }
        bar.set_prefix(what.to_owned());
        bar.set_message("Ctrl-C ends and writes");
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(250));
        }
        let word = (bar.is_hidden() && !quiet).then(|| what.to_owned());
        Self {
            bar,
            word: RefCell::new(word),
        }
    }

    /// Show how far it is.
    pub(super) fn show(&self, progress: Progress) {
        if self.bar.is_hidden() {
            if let Some(word) = self.word.take() {
                eprintln!("{word}");
            }
            return;
        }
        self.bar.set_message(if progress.python {
            format!("{} samples · Ctrl-C ends and writes", count(progress.ticks))
        } else {
            "no Python in it yet".to_owned()
        });
    }

    /// Take the line away.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
