//! What is known of tasks from the snapshot before.
//!
//! They are in bundles: where of all the pages of one nothing has changed, and they are listed as
//! they were, nobody has to look at each.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Task;
use super::note::Note;
use super::pages::{Found, Hint, Pages};
use crate::target::Memory;
use crate::words::TaskAddr;

/// Most tasks of a bundle, and fewest for which one is worth it.
const MOST: usize = 64;
const FEWEST: usize = 16;

/// What is known of a task, and what was read to know it.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) addr: TaskAddr,
    /// None: it is finished.
    pub(super) task: Option<Arc<Task>>,
    pub(super) note: Note,
}

/// Tasks that were listed one after the other.
#[derive(Debug, Default)]
pub(super) struct Bundle {
    /// None: it was taken out.
    tasks: Vec<Option<Known>>,
    /// The pages of their notes, each once, as they were with that snapshot.
    pages: Vec<(u64, Hint)>,
    snapshot: u64,
}

impl Bundle {
    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.tasks.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Known> {
        self.tasks.iter().flatten()
    }

    /// Whether none of their pages has changed.
    pub(super) fn has_stayed(&mut self, memory: &dyn Memory, pages: &mut Pages) -> bool {
        let snapshot = self.snapshot;
        self.pages
            .iter_mut()
            .all(|(page, hint)| matches!(pages.since(memory, *page, snapshot, hint), Found::Same))
    }

    fn close(&mut self) {
        let notes = || self.tasks.iter().flatten().map(|it| &it.note);
        let mut pages: Vec<u64> = notes().flat_map(Note::pages).collect();
        pages.sort_unstable();
        pages.dedup();
        // Of those whose loop has rested nothing was compared since.
        self.snapshot = notes().map(Note::snapshot).min().unwrap_or(0);
        self.pages = pages.into_iter().map(|it| (it, Hint::default())).collect();
    }

    fn is_listed_so(&self, listed: &[TaskAddr]) -> bool {
        let listed = listed.get(..self.len()).unwrap_or_default();
        listed.len() >= FEWEST
            && listed.iter().zip(&self.tasks).all(|(addr, known)| {
                let known = known.as_ref();
                known.is_some_and(|known| known.addr == *addr)
            })
    }
}

/// Those of one snapshot, in the order in which they were listed.
#[derive(Debug, Default)]
pub(super) struct KnownTasks {
    bundles: Vec<Bundle>,
    /// Whether the last bundle takes more.
    is_open: bool,
    /// The bundle and the place in it that comes next.
    next: (usize, usize),
    /// Only made when they are listed in another order.
    index: Option<FxHashMap<TaskAddr, (usize, usize)>>,
}

impl KnownTasks {
    pub(super) fn push(&mut self, known: Known) {
        let last = self.bundles.last_mut();
        match last.filter(|last| self.is_open && last.len() < MOST) {
            Some(last) => last.tasks.push(Some(known)),
            None => {
                let mut bundle = Bundle::default();
                bundle.tasks.reserve(MOST);
                bundle.tasks.push(Some(known));
                self.bundles.push(bundle);
                self.is_open = true;
            }
        }
    }

    pub(super) fn push_bundle(&mut self, bundle: Bundle) {
        self.bundles.push(bundle);
        self.is_open = false;
    }

    /// All are in.
    pub(super) fn finish(&mut self) {
        for bundle in &mut self.bundles {
            if bundle.pages.is_empty() {
                bundle.tasks.shrink_to_fit();
                bundle.close();
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bundles.iter().map(Bundle::len).sum()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Known> {
        self.bundles.iter().flat_map(Bundle::iter)
    }

    /// Takes out the bundle that comes next, if these begin with all of it and it has stayed as it
    /// was.
    pub(super) fn take_bundle(
        &mut self,
        listed: &[TaskAddr],
        has_stayed: impl FnOnce(&mut Bundle) -> bool,
    ) -> Option<Bundle> {
        let (place, 0) = self.next else { return None };
        let bundle = self.bundles.get_mut(place)?;
        if !bundle.is_listed_so(listed) || !has_stayed(bundle) {
            return None;
        }
        self.next = (place + 1, 0);
        Some(std::mem::take(bundle))
    }

    /// Takes one out, quickest in the order of the snapshot before.
    pub(super) fn take(&mut self, addr: TaskAddr) -> Option<Known> {
        let known = self.at(self.next).and_then(|known| known.as_ref());
        if known.is_none_or(|known| known.addr != addr) {
            let bundles = &self.bundles;
            let index = self.index.get_or_insert_with(|| index_of(bundles));
            self.next = *index.get(&addr)?;
        }
        let (bundle, place) = self.next;
        let known = self.at(self.next)?.take_if(|it| it.addr == addr);
        self.next = match self.at((bundle, place + 1)) {
            Some(_) => (bundle, place + 1),
            None => (bundle + 1, 0),
        };
        known
    }

    fn at(&mut self, (bundle, place): (usize, usize)) -> Option<&mut Option<Known>> {
        self.bundles.get_mut(bundle)?.tasks.get_mut(place)
    }
}

fn index_of(bundles: &[Bundle]) -> FxHashMap<TaskAddr, (usize, usize)> {
    let bundles = bundles.iter().enumerate();
    let places = bundles.flat_map(|(index, bundle)| {
        let tasks = bundle.tasks.iter().enumerate();
        tasks.filter_map(move |(place, known)| Some((known.as_ref()?.addr, (index, place))))
    });
    places.collect()
}
