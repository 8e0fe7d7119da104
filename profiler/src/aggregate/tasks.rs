//! The accounts of tasks: how many there were, how they were read, and what was not.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Ledger, count, counted, percent};
use crate::sample::Mode;

/// What a run knows of the tasks of its processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskAccounts {
    /// Samples of tasks: one for each task and period in `wall` mode, ticks that met a task in `cpu`
    /// mode. Those of tasks that could not be read are among them.
    pub samples: u64,
    /// Of them, of tasks whose coroutine was on a thread's stack, and greenlets that ran.
    pub running: u64,
    /// Of tasks that waited for their turn in the loop.
    pub runnable: u64,
    /// Of tasks that waited for a future, and of greenlets that were suspended.
    pub waiting: u64,
    /// Of tasks that could not be read, by the reason.
    pub unreadable: BTreeMap<String, u64>,
    /// Samples that were read while a loop's thread ran: what they say may be torn. In `cpu` mode
    /// none are.
    pub estimated: u64,
    /// Samples whose task was over before it could be asked for its name, or that may have been
    /// another's by then: they have the name of their coroutine, or of a greenlet's first
    /// function.
    pub by_coroutine: u64,
    /// How often all tasks were read.
    pub snapshots: u64,
    /// How often they needed not be: no loop's thread had run.
    pub unchanged: u64,
    /// How often a list of tasks could not be read to its end: there may have been more.
    pub broken_lists: u64,
    /// Most tasks at one time.
    pub most: u64,
    /// Tasks with a number for a name (`Task-7`) of which samples are.
    pub numbered: u64,
    /// Those whose numbers were given away meanwhile and of which there is no sample, at least: they
    /// lived between two looks.
    pub between_looks: u64,
}

impl TaskAccounts {
    /// Samples of tasks that could not be read.
    #[must_use]
    pub fn unread(&self) -> u64 {
        self.unreadable.values().sum()
    }
}

impl Ledger {
    /// What a reader of the profile should know of its tasks: whether that casts doubt, and words.
    pub(super) fn of_tasks(&self) -> Vec<(bool, String)> {
        let Some(tasks) = &self.tasks else {
            return Vec::new();
        };
        let mut said = Vec::new();
        let unread = tasks.unread();
        if unread > 0 {
            let reasons: Vec<String> = tasks
                .unreadable
                .iter()
                .map(|(reason, n)| format!("{reason} {}", count(*n)))
                .collect();
            said.push((
                true,
                format!(
                    "{} of the tasks' samples ({}) are of tasks that could not be read: {}",
                    percent(unread, tasks.samples),
                    count(unread),
                    reasons.join(", ")
                ),
            ));
        }
        if tasks.broken_lists > 0 {
            said.push((
                true,
                format!(
                    "{} a list of tasks could not be read to its end, since it changed \
                     meanwhile: there may have been more tasks than are shown",
                    counted(tasks.broken_lists, "time", "times")
                ),
            ));
        }
        if tasks.estimated > 0 {
            said.push((
                true,
                format!(
                    "{} of the tasks' samples were read while their loop ran: what they say is \
                     estimated",
                    percent(tasks.estimated, tasks.samples)
                ),
            ));
        }
        if tasks.between_looks > 0 && self.mode == Mode::Wall.key() {
            said.push((
                false,
                format!(
                    "{} born and over between two looks, at least, without any sample",
                    counted(tasks.between_looks, "task was", "tasks were")
                ),
            ));
        }
        if tasks.by_coroutine > 0 {
            said.push((
                false,
                format!(
                    "{} of tasks that were not known by name yet, or not any more: they have that \
                     of their first function",
                    counted(tasks.by_coroutine, "sample is", "samples are")
                ),
            ));
        }
        // On the CPU nobody asks whether loops have rested.
        if tasks.snapshots > 0 && self.mode == Mode::Wall.key() {
            said.push((
                false,
                format!(
                    "{} of up to {} at a time, read {}; {} no loop had run since",
                    counted(tasks.samples, "sample", "samples"),
                    counted(tasks.most, "task", "tasks"),
                    counted(tasks.snapshots, "time", "times"),
                    counted(tasks.unchanged, "time", "times")
                ),
            ));
        }
        said
    }
}
