//! What a search looked at in vain, for those who read its failure.

use std::fmt;

use crate::words::Pid;

/// Most lines that are shown.
const MAX_SHOWN: usize = 12;
/// Most children that are shown.
const MAX_CHILDREN: usize = 4;

/// One thing that was looked at, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// A file or a kind of memory.
    pub place: String,
    /// What was looked for.
    pub wanted: &'static str,
    /// What came of it.
    pub outcome: String,
}

/// Everything that was looked at, shown as one line each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckList {
    /// In the order of the search.
    pub tried: Vec<Tried>,
    /// Whose view of files the places are in, where that is not the reader's own.
    pub seen_from: Option<String>,
    /// The search has read as much as it may, and stopped.
    pub cut_short: bool,
    /// Processes that this one has started, and their commands: one of them may be meant.
    pub children: Vec<(Pid, String)>,
}

impl CheckList {
    /// Notes what came of one place.
    pub(super) fn note(&mut self, place: &str, wanted: &'static str, outcome: String) {
        self.tried.push(Tried {
            place: place.to_owned(),
            wanted,
            outcome,
        });
    }

    /// Notes that not everything was looked at.
    pub(super) const fn cut_short(&mut self) {
        self.cut_short = true;
    }
}

impl fmt::Display for CheckList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(seen_from) = &self.seen_from {
            write!(f, "\n  paths are those of {seen_from}")?;
        }
        if self.tried.is_empty() {
            f.write_str("\n  it has no file mapped that could be looked at")?;
        }
        for tried in self.tried.iter().take(MAX_SHOWN) {
            let Tried {
                place,
                wanted,
                outcome,
            } = tried;
            write!(f, "\n  {place}: looked for {wanted}: {outcome}")?;
        }
        if let Some(more @ 1..) = self.tried.len().checked_sub(MAX_SHOWN) {
            write!(f, "\n  and {more} more without success")?;
        }
        if self.cut_short {
            f.write_str("\n  not everything was looked at: it has mapped more than is ever read")?;
        }
        for (pid, command) in self.children.iter().take(MAX_CHILDREN) {
            write!(
                f,
                "\n  its child {pid} was not looked at: `--pid {pid}` ({command})"
            )?;
        }
        Ok(())
    }
}
