//! Pages of the target's memory, kept from one snapshot to the next: one that is read again is
//! compared with what it was, so that it is known which have changed since when.
//!
//! Each is read once for a snapshot. What nobody used of a snapshot is not kept for the next.

use rustc_hash::FxHashMap;

use crate::target::{Memory, Piece};
use crate::words::RemoteAddr;

pub(super) const PAGE: u64 = 4096;
/// Most pages that are kept at once (64 MiB).
const MAX_PAGES: usize = 1 << 14;
/// Most pages in one piece.
const MAX_RUN: usize = 64;
/// Most pages in one call: what was read is still in the processor's cache when it is compared.
const MAX_CALL: usize = 128;

/// A page nobody foresaw is brought with its neighbours: of so many pages, and so many at most in a
/// snapshot.
const AHEAD: u64 = 16;
const MAX_AHEAD: usize = MAX_PAGES / 4;

/// A page.
#[derive(Debug)]
struct Held {
    page: u64,
    /// None: it could not be read whole.
    bytes: Option<Box<[u8]>>,
    /// The snapshots with which it was last read, found otherwise than before, and used.
    read: u64,
    changed: u64,
    used: u64,
}

/// A page as somebody finds it who knows it from a snapshot before.
pub(super) enum Found<'a> {
    /// It has not changed since.
    Same,
    /// It has, or was not known then.
    Bytes(&'a [u8]),
    /// It cannot be read whole.
    Hole,
}

/// Where a page was the last time, which spares looking for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hint(u32);

/// The pages.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// The number of the snapshot.
    now: u64,
    held: Vec<Held>,
    index: FxHashMap<u64, u32>,
    last: Hint,
    /// How many may still be brought unasked.
    ahead: usize,
    /// There were too many for all to be held at once.
    overflowed: bool,
}

impl Pages {
    /// Begins a snapshot.
    pub(super) const fn begin(&mut self) {
        self.now += 1;
        self.ahead = MAX_AHEAD;
    }

    /// Ends a snapshot.
    pub(super) fn end(&mut self) {
        // Then the next one finds others than it needs first.
        if std::mem::take(&mut self.overflowed) {
            self.clear();
        }
        let now = self.now;
        self.drop_but(|held| held.used == now);
    }

    /// The number of the snapshot that was begun.
    pub(super) const fn now(&self) -> u64 {
        self.now
    }

    /// Whether some were let go of since the snapshot was begun.
    pub(super) const fn has_overflowed(&self) -> bool {
        self.overflowed
    }

    /// Brings all again that are held.
    pub(super) fn bring_all_again(&mut self, memory: &dyn Memory) {
        let pages = self.held.iter().map(|held| held.page).collect();
        self.bring(memory, pages);
    }

    /// Brings the pages of all these places, as far as they can be read, in a few calls.
    pub(super) fn fetch(
        &mut self,
        memory: &dyn Memory,
        places: impl Iterator<Item = (RemoteAddr, u32)>,
    ) {
        let mut wanted = Vec::new();
        for (addr, len) in places {
            let last = addr.0.saturating_add(u64::from(len).max(1) - 1);
            // No object that is looked at is longer than a page.
            for page in [addr.0 / PAGE, last / PAGE] {
                if wanted.last() != Some(&page) && !self.is_read(page) {
                    wanted.push(page);
                }
            }
        }
        self.bring(memory, wanted);
    }

    /// The bytes of a page, which is brought if need be; none if it cannot be read whole.
    pub(super) fn page(&mut self, memory: &dyn Memory, page: u64) -> Option<&[u8]> {
        let mut hint = self.last;
        let place = self.place(memory, page, &mut hint)?;
        self.last = hint;
        let now = self.now;
        let held = self.held.get_mut(place)?;
        held.used = now;
        held.bytes.as_deref()
    }

    /// A page as it is found by who last looked at it with that snapshot.
    pub(super) fn since(
        &mut self,
        memory: &dyn Memory,
        page: u64,
        snapshot: u64,
        hint: &mut Hint,
    ) -> Found<'_> {
        let now = self.now;
        // Most often it is where it was, and nothing has changed.
        if let Some(held) = self.held.get_mut(hint.0 as usize)
            && (held.page, held.read) == (page, now)
            && held.changed <= snapshot
            && held.bytes.is_some()
        {
            held.used = now;
            return Found::Same;
        }
        let place = self.place(memory, page, hint);
        let Some(held) = place.and_then(|place| self.held.get_mut(place)) else {
            return Found::Hole;
        };
        held.used = now;
        match &held.bytes {
            Some(_) if held.changed <= snapshot => Found::Same,
            Some(bytes) => Found::Bytes(bytes),
            None => Found::Hole,
        }
    }

    /// Keeps a page for the next snapshot though nobody looks at it in this one.
    pub(super) fn keep(&mut self, page: u64, hint: &mut Hint) {
        let now = self.now;
        if let Some(held) = self.find(page, hint) {
            held.used = now;
        }
    }

    /// The place of a page that was read for this snapshot.
    fn place(&mut self, memory: &dyn Memory, page: u64, hint: &mut Hint) -> Option<usize> {
        let now = self.now;
        if self.find(page, hint).is_none_or(|held| held.read != now) {
            self.bring_with_others(memory, page);
            self.find(page, hint)?;
        }
        Some(hint.0 as usize)
    }

    fn find(&mut self, page: u64, hint: &mut Hint) -> Option<&mut Held> {
        let at = self.held.get(hint.0 as usize);
        if at.is_none_or(|held| held.page != page) {
            *hint = Hint(*self.index.get(&page)?);
        }
        self.held.get_mut(hint.0 as usize)
    }

    fn is_read(&self, page: u64) -> bool {
        let place = self.index.get(&page);
        let held = place.and_then(|place| self.held.get(*place as usize));
        held.is_some_and(|held| held.read == self.now)
    }

    /// Objects of one kind lie side by side: where one is wanted, others will be.
    fn bring_with_others(&mut self, memory: &dyn Memory, page: u64) {
        let run = self.not_read_around(page);
        let left = self.ahead.checked_sub(run.1);
        let has_room = self.held.len() + run.1 <= MAX_PAGES;
        if run.1 > 1
            && has_room
            && let Some(left) = left
        {
            self.ahead = left;
            if self.bring_runs(memory, &[run]).is_empty() {
                return;
            }
        }
        self.bring(memory, vec![page]);
    }

    fn not_read_around(&self, page: u64) -> (u64, usize) {
        let window = page - page % AHEAD..page - page % AHEAD + AHEAD;
        let is_new = |page: &u64| !self.is_read(*page);
        let first = (window.start..page).rev().take_while(is_new).last();
        let last = (page + 1..window.end).take_while(is_new).last();
        let first = first.unwrap_or(page);
        (first, (last.unwrap_or(page) - first + 1) as usize)
    }

    fn bring(&mut self, memory: &dyn Memory, mut wanted: Vec<u64>) {
        if wanted.is_empty() {
            return;
        }
        wanted.sort_unstable();
        wanted.dedup();
        if self.held.len() + wanted.len() > MAX_PAGES {
            self.make_room(&mut wanted);
        }
        let mut runs: Vec<(u64, usize)> = Vec::new();
        for page in wanted {
            match runs.last_mut() {
                Some((first, count)) if *first + *count as u64 == page && *count < MAX_RUN => {
                    *count += 1;
                }
                _ => runs.push((page, 1)),
            }
        }
        // Somewhere in these is a hole.
        let again = self.bring_runs(memory, &runs);
        let single = again.iter().flat_map(|(first, count)| {
            let first = *first;
            (0..*count as u64).map(move |page| (first + page, 1))
        });
        let single: Vec<(u64, usize)> = single.collect();
        for (page, _) in self.bring_runs(memory, &single) {
            self.take(page, None);
        }
    }

    /// Those that could not be read are returned.
    fn bring_runs(&mut self, memory: &dyn Memory, runs: &[(u64, usize)]) -> Vec<(u64, usize)> {
        let mut failed = Vec::new();
        let total: usize = runs.iter().map(|(_, count)| count).sum();
        let mut buffer = vec![0; total.min(MAX_CALL) * PAGE as usize];
        let mut runs = runs;
        while !runs.is_empty() {
            let mut rest = &mut *buffer;
            let mut pieces = Vec::new();
            for (first, count) in runs {
                let Some((buf, behind)) = rest.split_at_mut_checked(count * PAGE as usize) else {
                    break;
                };
                rest = behind;
                pieces.push(Piece::new(RemoteAddr(first.wrapping_mul(PAGE)), buf));
            }
            memory.read_many(&mut pieces);
            for (piece, run) in pieces.iter().zip(runs) {
                if piece.result.is_err() {
                    failed.push(*run);
                    continue;
                }
                for (page, bytes) in (run.0..).zip(piece.buf.chunks_exact(PAGE as usize)) {
                    self.take(page, Some(bytes));
                }
            }
            runs = runs.get(pieces.len().max(1)..).unwrap_or_default();
        }
        failed
    }

    /// Takes a page as it was read.
    fn take(&mut self, page: u64, bytes: Option<&[u8]>) {
        let now = self.now;
        let mut hint = self.last;
        // Most often they come in the order in which they came the last time.
        hint.0 = hint.0.wrapping_add(1);
        if let Some(held) = self.find(page, &mut hint) {
            held.read = now;
            match (&mut held.bytes, bytes) {
                (Some(was), Some(bytes)) if **was == *bytes => {}
                (Some(was), Some(bytes)) => {
                    was.copy_from_slice(bytes);
                    held.changed = now;
                }
                (was, bytes) => {
                    *was = bytes.map(Into::into);
                    held.changed = now;
                }
            }
        } else {
            hint.0 = self.held.len() as u32;
            self.index.insert(page, hint.0);
            self.held.push(Held {
                page,
                bytes: bytes.map(Into::into),
                read: now,
                changed: now,
                used: 0,
            });
        }
        self.last = hint;
    }

    fn make_room(&mut self, wanted: &mut Vec<u64>) {
        let has_room = |pages: &Self, wanted: &[u64]| {
            let new = wanted.iter().filter(|it| !pages.index.contains_key(it));
            pages.held.len() + new.count() <= MAX_PAGES
        };
        if has_room(self, wanted) {
            return;
        }
        let now = self.now;
        self.drop_but(|held| held.read == now);
        if !has_room(self, wanted) {
            self.clear();
            self.overflowed = true;
            wanted.truncate(MAX_PAGES);
        }
    }

    fn clear(&mut self) {
        self.held.clear();
        self.index.clear();
    }

    fn drop_but(&mut self, is_kept: impl Fn(&Held) -> bool) {
        let mut place = 0;
        while let Some(held) = self.held.get(place) {
            if is_kept(held) {
                place += 1;
                continue;
            }
            self.index.remove(&held.page);
            self.held.swap_remove(place);
            if let Some(moved) = self.held.get(place) {
                self.index.insert(moved.page, place as u32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::target::ReadError;

    /// A memory that is everywhere, and how much of it was read.
    #[derive(Default)]
    struct Endless(Cell<usize>);

    impl Memory for Endless {
        fn read(&self, _: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
            self.0.set(self.0.get() + buf.len());
            buf.fill(7);
            Ok(())
        }
    }

    #[test]
    fn only_what_was_used_is_brought_again() {
        let (memory, mut pages) = (Endless::default(), Pages::default());
        let shoot = |pages: &mut Pages, used: &[u64]| {
            let before = memory.0.get();
            pages.begin();
            pages.bring_all_again(&memory);
            for page in used {
                assert_eq!(pages.page(&memory, *page), Some(&[7; PAGE as usize][..]));
            }
            pages.end();
            (memory.0.get() - before) as u64 / PAGE
        };
        assert_eq!(shoot(&mut pages, &[3, 5, 9, 40]), 2 * AHEAD);
        assert_eq!(shoot(&mut pages, &[3, 5, 9, 40]), 4);
        assert_eq!(shoot(&mut pages, &[9, 40, 5]), 4);
        assert_eq!(shoot(&mut pages, &[]), 3);
        assert_eq!(shoot(&mut pages, &[]), 0);
    }

    #[test]
    fn no_more_pages_are_held_than_may_be() {
        let (memory, mut pages) = (Endless::default(), Pages::default());
        for last in [MAX_PAGES, MAX_PAGES + 100, 2 * MAX_PAGES, 10] {
            pages.begin();
            pages.bring_all_again(&memory);
            for page in 0..last as u64 {
                assert!(pages.page(&memory, page).is_some());
                assert!(pages.held.len() <= MAX_PAGES);
            }
            assert_eq!(pages.has_overflowed(), last > MAX_PAGES);
            pages.end();
            let held = if last > MAX_PAGES { 0 } else { last };
            assert_eq!((pages.held.len(), pages.index.len()), (held, held));
        }
        let places = (0..2 * MAX_PAGES as u64).map(|page| (RemoteAddr(page * PAGE), 1));
        pages.begin();
        pages.fetch(&memory, places);
        assert!(pages.has_overflowed());
        assert_eq!(pages.held.len(), MAX_PAGES);
    }
}
