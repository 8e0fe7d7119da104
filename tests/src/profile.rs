//! The profile as a reader of the JSON format would declare it.
//!
//! As with the ledger, written from the documented form; keys it does not know are let through.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::folded::{Folded, Stack, name};
use crate::ledger::Ledger;

/// A profile.
#[derive(Clone, Debug, Deserialize)]
pub struct Profile {
    /// The frames.
    pub frames: Vec<Frame>,
    /// Indices of frames, leaf first.
    pub stacks: Vec<Vec<usize>>,
    /// The threads.
    pub threads: Vec<Thread>,
    /// The samples that are alike, added up.
    pub entries: Vec<Entry>,
    /// The accounts.
    pub ledger: Ledger,
}

/// One frame.
#[derive(Clone, Debug, Deserialize)]
pub struct Frame {
    /// `python`, `gc`, `unknown`, …
    pub kind: String,
    /// As a folded file has it.
    pub label: String,
    /// The function's qualified name.
    #[serde(default)]
    pub function: String,
    /// The source file, where it is known.
    #[serde(default)]
    pub file: String,
    /// The line.
    #[serde(default)]
    pub line: Option<usize>,
    /// The image of a native frame.
    #[serde(default)]
    pub module: Option<String>,
}

/// One thread.
#[derive(Clone, Debug, Deserialize)]
pub struct Thread {
    /// Its kernel id.
    pub tid: i64,
    /// Its name.
    pub name: String,
}

/// Samples of one thread that are alike in all they say.
#[derive(Clone, Debug, Deserialize)]
pub struct Entry {
    /// An index of the threads.
    pub thread: usize,
    /// An index of the stacks.
    pub stack: usize,
    /// `on_cpu`, `runnable`, `blocked` or `unknown`.
    pub state: String,
    /// What it is blocked in.
    pub reason: Option<String>,
    /// `holds`, `waits`, `neither`, `no_gil` or `unknown`.
    pub gil: String,
    /// `collecting`, `idle` or `unknown`.
    pub gc: String,
    /// The thread that holds the GIL it waits for.
    pub behind: Option<usize>,
    /// Where its frames came from.
    pub frames_from: String,
    /// Ticks and looks.
    pub ticks: u64,
    /// The time they stand for.
    pub weight_ns: u64,
}

impl Entry {
    /// The time it stands for, seconds.
    #[must_use]
    pub fn weight_s(&self) -> f64 {
        self.weight_ns as f64 / 1e9
    }

    /// Whether it is blocked in that.
    #[must_use]
    pub fn is_blocked_in(&self, reason: &str) -> bool {
        self.state == "blocked" && self.reason.as_deref() == Some(reason)
    }
}

impl Profile {
    /// Reads a JSON file.
    ///
    /// # Errors
    ///
    /// When it cannot be read or is of another form.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("no profile at {}", path.display()))?;
        serde_json::from_str(&text).context("the profile's JSON")
    }

    /// The entries of one thread.
    pub fn of(&self, tid: i64) -> impl Iterator<Item = &Entry> {
        let is_its = move |entry: &&Entry| {
            let thread = self.threads.get(entry.thread);
            thread.is_some_and(|thread| thread.tid == tid)
        };
        self.entries.iter().filter(is_its)
    }

    /// The time of a thread's entries of some kind, seconds.
    pub fn seconds(&self, tid: i64, counts: impl Fn(&Entry) -> bool) -> f64 {
        let counted = self.of(tid).filter(|entry| counts(entry));
        counted.map(Entry::weight_s).sum()
    }

    /// The frames of an entry, leaf first.
    pub fn stack(&self, entry: &Entry) -> impl Iterator<Item = &Frame> {
        let stack = self.stacks.get(entry.stack).into_iter().flatten();
        stack.filter_map(|index| self.frames.get(*index))
    }

    /// Whether a function is on the stack.
    #[must_use]
    pub fn is_in(&self, entry: &Entry, function: &str) -> bool {
        self.stack(entry)
            .any(|frame| name(&frame.label) == function)
    }

    /// The kernel id of the thread whose release of the GIL it waits for.
    #[must_use]
    pub fn behind(&self, entry: &Entry) -> Option<i64> {
        Some(self.threads.get(entry.behind?)?.tid)
    }

    /// Some of the entries as folded stacks, counted by ticks and looks.
    pub fn folded(&self, counts: impl Fn(&Entry) -> bool) -> Folded {
        let counted = self.entries.iter().filter(|entry| counts(entry));
        let stacks = counted.map(|entry| {
            let mut frames: Vec<String> = self.stack(entry).map(|it| it.label.clone()).collect();
            frames.reverse();
            Stack {
                frames,
                count: entry.ticks,
            }
        });
        Folded {
            stacks: stacks.collect(),
        }
    }
}
