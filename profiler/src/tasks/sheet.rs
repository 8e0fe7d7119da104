//! A sheet over the target's memory: whole pages, each read once for a snapshot, and a note of what
//! was read of them for one task.
//!
//! Tasks and coroutines lie side by side by the thousand, so a few calls of the kernel's bring all
//! of them. The note is what tells later that nothing of the task has changed.

use std::cell::{Cell, RefCell};

use rustc_hash::FxHashMap;

use crate::target::{Memory, Piece, ReadError, ReadErrorKind};
use crate::words::RemoteAddr;

const PAGE: u64 = 4096;
/// Most pages that are kept at once (64 MiB).
const MAX_PAGES: usize = 1 << 14;
/// Most bytes that are read for one task; one of C takes a few hundred.
const MAX_OF_TASK: u64 = 1 << 20;
/// Most bytes that are read for all tasks of a snapshot.
const MAX_OF_ALL: u64 = 4 << 30;
/// A longer note is not kept.
const MAX_NOTE: usize = 16 << 10;
/// Longer reads are of tables, which nobody reads twice.
const MAX_HELD: usize = 4 * PAGE as usize;
/// Most pages in one piece.
const MAX_RUN: u64 = 64;

/// What was read for one task: where, and what stood there.
#[derive(Clone, Debug, Default)]
pub(super) struct Note {
    places: Vec<(RemoteAddr, u32)>,
    bytes: Vec<u8>,
    /// Something could not be read, which may be otherwise the next time.
    failed: bool,
}

impl Note {
    /// Where it looked.
    pub(super) fn places(&self) -> &[(RemoteAddr, u32)] {
        &self.places
    }

    /// The same with what lies side by side as one place: the fields of an object are read one
    /// after the other.
    fn merged(&self) -> Self {
        let mut starts = Vec::with_capacity(self.places.len());
        let mut start = 0;
        for (addr, len) in &self.places {
            starts.push((addr.0, *len, start));
            start += *len as usize;
        }
        starts.sort_unstable();
        let mut merged = Self::default();
        for (addr, len, start) in starts {
            let end = merged.places.last();
            let end = end.map(|(at, len)| at.0.saturating_add(u64::from(*len)));
            // How much of it is there already.
            let known = match end {
                Some(end) if end >= addr => (end - addr).min(len.into()) as u32,
                _ => {
                    merged.places.push((RemoteAddr(addr), 0));
                    0
                }
            };
            let new = self.bytes.get(start + known as usize..start + len as usize);
            merged.bytes.extend_from_slice(new.unwrap_or_default());
            if let Some((_, whole)) = merged.places.last_mut() {
                *whole += len - known;
            }
        }
        merged.bytes.shrink_to_fit();
        merged.places.shrink_to_fit();
        merged
    }
}

type Page = Option<Box<[u8]>>;

/// The sheet. What it holds is of one moment; it lives for one snapshot.
pub(super) struct Sheet<'a> {
    memory: &'a dyn Memory,
    pages: RefCell<FxHashMap<u64, Page>>,
    note: RefCell<Note>,
    notes: Cell<bool>,
    left_of_task: Cell<u64>,
    left_of_all: Cell<u64>,
}

impl<'a> Sheet<'a> {
    pub(super) fn new(memory: &'a dyn Memory) -> Self {
        Self {
            memory,
            pages: RefCell::default(),
            note: RefCell::default(),
            notes: Cell::new(false),
            left_of_task: Cell::new(MAX_OF_TASK),
            left_of_all: Cell::new(MAX_OF_ALL),
        }
    }

    /// From here on all that is read belongs to one task.
    pub(super) fn begin_note(&self) {
        self.note.take();
        self.notes.set(true);
        self.left_of_task.set(MAX_OF_TASK);
    }

    /// What was read since; none if not all of it could be read.
    pub(super) fn end_note(&self) -> Option<Note> {
        self.notes.set(false);
        let note = self.note.take();
        (!note.failed).then(|| note.merged())
    }

    /// Takes from what may be read; the target says how long its lists are.
    fn spend(&self, bytes: u64) -> bool {
        // A read that is short costs something as well.
        let bytes = bytes.max(32);
        let enough = |left: &Cell<u64>| match left.get().checked_sub(bytes) {
            Some(rest) => {
                left.set(rest);
                true
            }
            None => false,
        };
        enough(&self.left_of_all) && (!self.notes.get() || enough(&self.left_of_task))
    }

    /// Whether everything still stands where it stood.
    pub(super) fn agrees(&self, note: &Note) -> bool {
        let mut rest = &*note.bytes;
        note.places.iter().all(|(addr, len)| {
            let Some((was, behind)) = rest.split_at_checked(*len as usize) else {
                return false;
            };
            rest = behind;
            self.stands(*addr, was).unwrap_or_else(|| {
                let mut now = vec![0; was.len()];
                self.read(*addr, &mut now).is_ok() && now == was
            })
        })
    }

    /// Whether these bytes stand there; none where a page is not held.
    fn stands(&self, addr: RemoteAddr, mut was: &[u8]) -> Option<bool> {
        let pages = self.pages.borrow();
        let mut at = addr.0;
        while !was.is_empty() {
            let page = pages.get(&(at / PAGE))?.as_deref()?;
            let now = page.get((at % PAGE) as usize..)?;
            let count = now.len().min(was.len());
            let (part, behind) = was.split_at_checked(count)?;
            if now.get(..count)? != part {
                return Some(false);
            }
            was = behind;
            at = at.checked_add(count as u64)?;
        }
        Some(true)
    }

    /// Brings the pages of all these places, as far as they can be read, in a few calls.
    pub(super) fn fetch(&self, places: impl Iterator<Item = (RemoteAddr, u32)>) {
        let mut pages = self.pages.borrow_mut();
        let mut wanted: Vec<u64> = places
            .flat_map(|(addr, len)| {
                let last = addr.0.saturating_add(u64::from(len).max(1) - 1);
                // No object that is looked at is longer than a page.
                [addr.0 / PAGE, last / PAGE]
            })
            .filter(|page| !pages.contains_key(page))
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        if pages.len() + wanted.len() > MAX_PAGES {
            pages.clear();
            wanted.truncate(MAX_PAGES);
        }
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for page in wanted {
            match runs.last_mut() {
                Some((first, count)) if *first + *count == page && *count < MAX_RUN => *count += 1,
                _ => runs.push((page, 1)),
            }
        }
        let mut again = Vec::new();
        self.fetch_runs(&runs, &mut pages, &mut again);
        // Somewhere in these is a hole.
        let single = again.iter().flat_map(|(first, count)| {
            let first = *first;
            (0..*count).map(move |page| (first + page, 1))
        });
        let single: Vec<(u64, u64)> = single.collect();
        let mut holes = Vec::new();
        self.fetch_runs(&single, &mut pages, &mut holes);
        pages.extend(holes.into_iter().map(|(page, _)| (page, None)));
    }

    fn fetch_runs(
        &self,
        runs: &[(u64, u64)],
        pages: &mut FxHashMap<u64, Page>,
        failed: &mut Vec<(u64, u64)>,
    ) {
        // As many at once as one call takes, and no more memory than that.
        for runs in runs.chunks(1024) {
            let total: u64 = runs.iter().map(|(_, count)| count).sum();
            let mut buffer = vec![0; (total * PAGE) as usize];
            let mut rest = &mut *buffer;
            let mut pieces = Vec::with_capacity(runs.len());
            for (first, count) in runs {
                let (buf, behind) = rest.split_at_mut((count * PAGE) as usize);
                rest = behind;
                pieces.push(Piece::new(RemoteAddr(first.wrapping_mul(PAGE)), buf));
            }
            self.memory.read_many(&mut pieces);
            for (piece, run) in pieces.iter().zip(runs) {
                if piece.result.is_err() {
                    failed.push(*run);
                    continue;
                }
                let whole = piece.buf.chunks_exact(PAGE as usize);
                pages.extend((run.0..).zip(whole.map(|page| Some(page.into()))));
            }
        }
    }

    /// From the pages; none when one of them cannot be read whole.
    fn held(&self, addr: RemoteAddr, buf: &mut [u8]) -> Option<()> {
        let mut at = addr.0;
        let mut rest = buf;
        while !rest.is_empty() {
            let page = at / PAGE;
            if !self.pages.borrow().contains_key(&page) {
                self.fetch([(RemoteAddr(at), 1)].into_iter());
            }
            let pages = self.pages.borrow();
            let bytes = pages.get(&page)?.as_deref()?;
            let bytes = bytes.get((at % PAGE) as usize..)?;
            let count = bytes.len().min(rest.len());
            let (part, behind) = rest.split_at_mut(count);
            part.copy_from_slice(bytes.get(..count)?);
            rest = behind;
            at = at.checked_add(count as u64)?;
        }
        Some(())
    }
}

impl Memory for Sheet<'_> {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        let result = if self.spend(buf.len() as u64) {
            let held = if buf.len() <= MAX_HELD {
                self.held(addr, buf)
            } else {
                None
            };
            // A recorded image need not hold whole pages.
            held.map_or_else(|| self.memory.read(addr, buf), Ok)
        } else {
            Err(ReadError {
                addr,
                bytes: buf.len(),
                kind: ReadErrorKind::TooMuch,
            })
        };
        if self.notes.get() {
            let mut note = self.note.borrow_mut();
            match (result, u32::try_from(buf.len())) {
                (Ok(()), Ok(len)) if note.bytes.len() + buf.len() <= MAX_NOTE => {
                    note.places.push((addr, len));
                    note.bytes.extend_from_slice(buf);
                }
                _ => note.failed = true,
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpython::fake::Fake;

    #[test]
    fn a_note_holds_each_byte_once_and_tells_when_one_changes() {
        let mut fake = Fake::default();
        let bytes: Vec<u8> = (0..64).collect();
        fake.put("a", 0, &bytes).put("b", 0, &bytes);
        let (a, b) = (fake.at("a"), fake.at("b"));
        let reads = [
            (b, 4, 8),
            (a, 8, 8),
            (a, 0, 8),
            (a, 4, 20),
            (a, 5, 2),
            (a, 40, 1),
        ];
        let note = {
            let sheet = Sheet::new(&fake);
            sheet.begin_note();
            for (label, from, len) in reads {
                let mut buf = vec![0; len];
                sheet.read(label.plus(from), &mut buf).expect("mapped");
            }
            sheet.end_note().expect("all was read")
        };
        assert_eq!(note.places(), [(a, 24), (a.plus(40), 1), (b.plus(4), 8)]);
        assert_eq!(note.bytes.len(), 33);
        let agrees = |fake: &Fake| Sheet::new(fake).agrees(&note);
        assert!(agrees(&fake));
        for (label, at, is_part) in [
            ("a", 0, true),
            ("a", 23, true),
            ("a", 24, false),
            ("a", 40, true),
            ("b", 3, false),
            ("b", 11, true),
        ] {
            let mut changed = fake.clone();
            changed.put(label, at, &[99]);
            assert_eq!(agrees(&changed), !is_part, "{label} {at}");
        }
        fake.unmap("b");
        assert!(!agrees(&fake));
    }
}
