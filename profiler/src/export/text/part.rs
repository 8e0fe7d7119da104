//! A part of a profile: the samples that a table is about, and what their shares are shares of.

use crate::aggregate::{Entry, Profile, seconds};
use crate::export::table::{Cell, Paint};
use crate::sample::Gil;
use crate::words::DurationNs;

pub(super) struct Part<'a> {
    pub(super) profile: &'a Profile,
    pub(super) entries: Vec<&'a Entry>,
    /// Nanoseconds of which everything is a share.
    pub(super) whole: u64,
}

impl<'a> Part<'a> {
    /// All samples, as shares of their sum.
    pub(super) fn all(profile: &'a Profile) -> Self {
        Self {
            profile,
            entries: profile.entries().iter().collect(),
            whole: profile.weight().0,
        }
    }

    /// The samples on one side of the GIL, as shares of the time that was watched.
    pub(super) fn of_gil(profile: &'a Profile, gil: Gil) -> Self {
        let entries = profile.entries().iter();
        Self {
            profile,
            entries: entries.filter(|entry| entry.gil == gil).collect(),
            whole: profile.duration().0,
        }
    }

    /// The time of those samples for which `is` is true.
    pub(super) fn weight_if(&self, is: impl Fn(&Entry) -> bool) -> u64 {
        let entries = self.entries.iter().filter(|entry| is(entry));
        entries.map(|entry| entry.weight.0).sum()
    }

    /// The time of all its samples.
    pub(super) fn weight(&self) -> u64 {
        self.weight_if(|_| true)
    }
}

/// A title of a column.
pub(super) fn title(text: &str) -> Cell {
    Cell(text.to_owned(), Paint::Bold)
}

/// A cell without emphasis.
pub(super) fn plain(text: impl Into<String>) -> Cell {
    Cell(text.into(), Paint::Plain)
}

/// A stretch of time, or nothing where there is none.
pub(super) fn time(ns: u64) -> Cell {
    plain(match ns {
        0 => String::new(),
        ns => seconds(DurationNs(ns)),
    })
}

/// How a share deserves to look.
pub(super) fn heat(part: u64, whole: u64) -> Paint {
    let share = part as f64 / whole.max(1) as f64;
    if share >= 0.2 {
        Paint::Hot
    } else if share >= 0.05 {
        Paint::Warm
    } else {
        Paint::Plain
    }
}
