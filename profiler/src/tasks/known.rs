//! What is known of tasks from the snapshot before.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Task;
use super::note::Note;
use crate::words::TaskAddr;

/// What is known of a task, and what was read to know it.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) addr: TaskAddr,
    /// None: it is finished.
    pub(super) task: Option<Arc<Task>>,
    pub(super) note: Note,
}

/// Those of one snapshot, in the order in which they were listed.
#[derive(Debug, Default)]
pub(super) struct KnownTasks {
    all: Vec<Option<Known>>,
    next: usize,
    /// Only made when they are listed in another order.
    index: FxHashMap<TaskAddr, u32>,
}

impl KnownTasks {
    pub(super) fn with_capacity(count: usize) -> Self {
        Self {
            all: Vec::with_capacity(count),
            ..Self::default()
        }
    }

    pub(super) fn push(&mut self, known: Known) {
        self.all.push(Some(known));
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Known> {
        self.all.iter().flatten()
    }

    /// Takes one out, quickest in the order of the snapshot before.
    pub(super) fn take(&mut self, addr: TaskAddr) -> Option<Known> {
        let is_it = |known: &Option<Known>| known.as_ref().is_some_and(|it| it.addr == addr);
        if !self.all.get(self.next).is_some_and(is_it) {
            if self.index.is_empty() {
                let all = self.all.iter().enumerate();
                self.index = all
                    .filter_map(|(place, known)| Some((known.as_ref()?.addr, place as u32)))
                    .collect();
            }
            self.next = *self.index.get(&addr)? as usize;
        }
        let known = self.all.get_mut(self.next)?.take_if(|it| it.addr == addr);
        self.next += 1;
        known
    }
}
