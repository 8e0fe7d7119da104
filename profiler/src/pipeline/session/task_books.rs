//! What all processes of a run know of tasks together: their profile, and its accounts.

use rustc_hash::FxHashSet;

use crate::{
    aggregate::{ProfileBuilder, TaskAccounts},
    tasks::{Snapshot, Task, TaskName},
};

/// Most numbers of tasks that are remembered.
const MAX_NUMBERS: usize = 1 << 20;

/// The profile of tasks, beside that of threads, and its accounts.
#[derive(Clone, Debug)]
pub(in crate::pipeline) struct TaskBooks {
    pub(super) builder: ProfileBuilder,
    pub(super) accounts: TaskAccounts,
    /// Tasks with a number for a name that were seen.
    numbers: FxHashSet<u64>,
    /// The highest at the first snapshot, and of all.
    first: Option<u64>,
    highest: u64,
}

impl TaskBooks {
    pub(super) fn new(builder: ProfileBuilder) -> Self {
        Self {
            builder,
            accounts: TaskAccounts::default(),
            numbers: FxHashSet::default(),
            first: None,
            highest: 0,
        }
    }

    /// All tasks of a process were read.
    pub(super) fn read(&mut self, snapshot: &Snapshot) {
        let all = snapshot.tasks.len() + snapshot.unreadable.len();
        let all = (all as u64).saturating_add(snapshot.left_out);
        self.accounts.snapshots += 1;
        self.accounts.most = self.accounts.most.max(all);
        self.accounts.broken_lists += u64::from(!snapshot.broken_lists.is_empty());
        for number in snapshot.tasks.iter().filter_map(|task| number(task)) {
            self.highest = self.highest.max(number);
            if self.numbers.len() < MAX_NUMBERS {
                self.numbers.insert(number);
            }
        }
        self.first.get_or_insert(self.highest);
    }

    /// A task ran at a tick of so many periods, and whether it goes by its first function alone.
    pub(super) fn ran(&mut self, periods: u32, by_coroutine: bool) {
        let periods = u64::from(periods);
        self.accounts.samples += periods;
        self.accounts.running += periods;
        self.accounts.by_coroutine += periods * u64::from(by_coroutine);
    }

    /// Threads and processes have the same numbers in both profiles.
    pub(super) fn take_people(&mut self, of_threads: &ProfileBuilder) {
        if self.builder.thread_count() != of_threads.thread_count() {
            self.builder.take_people(of_threads);
        }
    }

    /// The profile and its accounts, at the end.
    pub(in crate::pipeline) fn close(
        mut self,
        of_threads: &ProfileBuilder,
    ) -> (ProfileBuilder, TaskAccounts) {
        self.builder.take_people(of_threads);
        let first = self.first.unwrap_or(0);
        let later = self
            .numbers
            .iter()
            .filter(|number| **number > first)
            .count() as u64;
        self.accounts.numbered = self.numbers.len() as u64;
        if self.numbers.len() < MAX_NUMBERS {
            let given = self.highest.saturating_sub(first);
            self.accounts.between_looks = given.saturating_sub(later);
        }
        (self.builder, self.accounts)
    }
}

/// The name that a task's program gave it.
pub(super) fn given_name(task: &Task) -> Option<&str> {
    match &task.name {
        TaskName::Given(name) if number(task).is_none() => Some(name),
        _ => None,
    }
}

/// The number in the name of a task to which its program gave none.
fn number(task: &Task) -> Option<u64> {
    match &task.name {
        TaskName::Numbered(number) => Some(*number),
        TaskName::Given(name) => name.strip_prefix("Task-")?.parse().ok(),
        TaskName::Unknown => None,
    }
}
