//! A sheet over the target's memory: whole pages, each read once for a snapshot, and a note of what
//! was read of them for one task.
//!
//! Tasks and coroutines lie side by side by the thousand, so a few calls of the kernel's bring all
//! of them. The note is what tells later that nothing of the task has changed: where its pages have
//! not, nothing has, and else its bytes are compared.

use std::cell::{Cell, RefCell};

use super::pages::{Found, Hint, PAGE, Pages};
use crate::target::{Memory, ReadError, ReadErrorKind};
use crate::words::RemoteAddr;

/// Most bytes that are read for one task; one of C takes a few hundred.
const MAX_OF_TASK: u64 = 1 << 20;
/// Most bytes that are read for all tasks of a snapshot.
const MAX_OF_ALL: u64 = 4 << 30;
/// A longer note is not kept.
const MAX_NOTE: usize = 16 << 10;
/// Longer reads are of tables, which nobody reads twice.
const MAX_HELD: usize = 4 * PAGE as usize;

/// A place within one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    addr: RemoteAddr,
    len: u32,
    hint: Hint,
}

/// What was read for one task: where, and what stood there with that snapshot.
#[derive(Debug)]
pub(super) struct Note {
    places: Box<[Place]>,
    bytes: Box<[u8]>,
    snapshot: u64,
}

impl Note {
    /// Where it looked.
    pub(super) fn places(&self) -> impl Iterator<Item = (RemoteAddr, u32)> {
        self.places.iter().map(|place| (place.addr, place.len))
    }
}

/// A note that is being written.
#[derive(Debug, Default)]
struct Draft {
    /// Each with where its bytes begin.
    reads: Vec<(u64, u32, u32)>,
    bytes: Vec<u8>,
    /// Something could not be read, which may be otherwise the next time.
    failed: bool,
    merged_places: Vec<Place>,
    merged_bytes: Vec<u8>,
}

impl Draft {
    fn clear(&mut self) {
        self.reads.clear();
        self.bytes.clear();
        self.failed = false;
    }

    fn push(&mut self, addr: RemoteAddr, bytes: &[u8]) {
        if self.bytes.len() + bytes.len() > MAX_NOTE {
            self.failed = true;
            return;
        }
        let start = self.bytes.len() as u32;
        self.reads.push((addr.0, bytes.len() as u32, start));
        self.bytes.extend_from_slice(bytes);
    }

    /// The same with what lies side by side in a page as one place: the fields of an object are
    /// read one after the other.
    fn merged(&mut self, snapshot: u64) -> Note {
        self.reads.sort_unstable();
        self.merged_places.clear();
        self.merged_bytes.clear();
        let mut end = 0;
        for (addr, len, start) in &self.reads {
            // How much of it is there already.
            let known = end.max(*addr).min(addr.saturating_add(u64::from(*len))) - addr;
            let bytes = *start as usize + known as usize..(start + len) as usize;
            let mut bytes = self.bytes.get(bytes).unwrap_or_default();
            let mut at = addr.saturating_add(known);
            while !bytes.is_empty() {
                let in_page = (PAGE - at % PAGE) as usize;
                let (part, behind) = bytes.split_at(in_page.min(bytes.len()));
                match self.merged_places.last_mut() {
                    Some(last) if end == at && !at.is_multiple_of(PAGE) => {
                        last.len += part.len() as u32;
                    }
                    _ => self.merged_places.push(Place {
                        addr: RemoteAddr(at),
                        len: part.len() as u32,
                        hint: Hint::default(),
                    }),
                }
                self.merged_bytes.extend_from_slice(part);
                bytes = behind;
                at = at.saturating_add(part.len() as u64);
                end = at;
            }
        }
        Note {
            places: self.merged_places.as_slice().into(),
            bytes: self.merged_bytes.as_slice().into(),
            snapshot,
        }
    }
}

/// The sheet. What is read through it is of one moment; it lives for one snapshot.
pub(super) struct Sheet<'a> {
    memory: &'a dyn Memory,
    pages: RefCell<Pages>,
    draft: RefCell<Draft>,
    notes: Cell<bool>,
    left_of_task: Cell<u64>,
    left_of_all: Cell<u64>,
}

impl<'a> Sheet<'a> {
    pub(super) fn new(memory: &'a dyn Memory) -> Self {
        Self::over(memory, Pages::default())
    }

    /// With pages that were kept of the snapshot before.
    pub(super) fn over(memory: &'a dyn Memory, mut pages: Pages) -> Self {
        pages.begin();
        Self {
            memory,
            pages: RefCell::new(pages),
            draft: RefCell::default(),
            notes: Cell::new(false),
            left_of_task: Cell::new(MAX_OF_TASK),
            left_of_all: Cell::new(MAX_OF_ALL),
        }
    }

    /// The pages to keep for the next snapshot.
    pub(super) fn end(self) -> Pages {
        let mut pages = self.pages.into_inner();
        pages.end();
        pages
    }

    /// From here on all that is read belongs to one task.
    pub(super) fn begin_note(&self) {
        self.draft.borrow_mut().clear();
        self.notes.set(true);
        self.left_of_task.set(MAX_OF_TASK);
    }

    /// What was read since; none if not all of it could be read.
    pub(super) fn end_note(&self) -> Option<Note> {
        self.notes.set(false);
        let mut draft = self.draft.borrow_mut();
        (!draft.failed).then(|| draft.merged(self.pages.borrow().now()))
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
    pub(super) fn agrees(&self, note: &mut Note) -> bool {
        let mut pages = self.pages.borrow_mut();
        let mut start = 0;
        for place in &mut note.places {
            let end = start + place.len as usize;
            let was = start..end;
            start = end;
            let page = place.addr.0 / PAGE;
            let stands = match pages.since(self.memory, page, note.snapshot, &mut place.hint) {
                Found::Same => true,
                Found::Bytes(bytes) => {
                    let from = (place.addr.0 % PAGE) as usize;
                    let now = bytes.get(from..from + was.len());
                    now.is_some() && now == note.bytes.get(was)
                }
                // A recorded image need not hold whole pages.
                Found::Hole => {
                    let mut now = vec![0; was.len()];
                    let read = self.memory.read(place.addr, &mut now);
                    read.is_ok() && note.bytes.get(was) == Some(&*now)
                }
            };
            if !stands {
                return false;
            }
        }
        note.snapshot = pages.now();
        true
    }

    /// Keeps for the next snapshot what a note is compared with, without bringing it.
    pub(super) fn keep(&self, note: &mut Note) {
        let mut pages = self.pages.borrow_mut();
        for place in &mut note.places {
            pages.keep(place.addr.0 / PAGE, &mut place.hint);
        }
    }

    /// Brings the pages of all these places, as far as they can be read, in a few calls.
    pub(super) fn fetch(&self, places: impl Iterator<Item = (RemoteAddr, u32)>) {
        self.pages.borrow_mut().fetch(self.memory, places);
    }

    /// Brings all pages that the snapshot before had a use for.
    pub(super) fn fetch_all_again(&self) {
        self.pages.borrow_mut().bring_all_again(self.memory);
    }

    /// Whether there are more pages than can be held at once.
    pub(super) fn has_overflowed(&self) -> bool {
        self.pages.borrow().has_overflowed()
    }

    /// From the pages; none when one of them cannot be read whole.
    fn held(&self, addr: RemoteAddr, buf: &mut [u8]) -> Option<()> {
        let mut pages = self.pages.borrow_mut();
        let mut at = addr.0;
        let mut rest = buf;
        while !rest.is_empty() {
            let bytes = pages.page(self.memory, at / PAGE)?;
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
            let mut draft = self.draft.borrow_mut();
            match result {
                Ok(()) => draft.push(addr, buf),
                Err(_) => draft.failed = true,
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
        let mut note = {
            let sheet = Sheet::new(&fake);
            sheet.begin_note();
            for (label, from, len) in reads {
                let mut buf = vec![0; len];
                sheet.read(label.plus(from), &mut buf).expect("mapped");
            }
            sheet.end_note().expect("all was read")
        };
        let places: Vec<(RemoteAddr, u32)> = note.places().collect();
        assert_eq!(places, [(a, 24), (a.plus(40), 1), (b.plus(4), 8)]);
        assert_eq!(note.bytes.len(), 33);
        let mut agrees = |fake: &Fake| Sheet::new(fake).agrees(&mut note);
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
