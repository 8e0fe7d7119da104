//! A sheet over the target's memory: whole pages, each read once for a snapshot, and a note of what
//! was read of them for one task.
//!
//! Tasks and coroutines lie side by side by the thousand, so a few calls of the kernel's bring all
//! of them. The note is what tells later that nothing of the task has changed: where its pages have
//! not, nothing has, and else its bytes are compared.

use std::cell::{Cell, RefCell};

use super::known::Bundle;
use super::note::{Draft, Note};
use super::pages::{PAGE, Pages};
use crate::target::{Memory, ReadError, ReadErrorKind};
use crate::words::RemoteAddr;

/// Most bytes that are read for one task; one of C takes a few hundred.
const MAX_OF_TASK: u64 = 1 << 20;
/// Most bytes that are read for all tasks of a snapshot.
const MAX_OF_ALL: u64 = 4 << 30;
/// Longer reads are of tables, which nobody reads twice.
const MAX_HELD: usize = 4 * PAGE as usize;

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
    /// For a look at a few objects: no page is brought but those in which they are.
    pub(super) fn new(memory: &'a dyn Memory) -> Self {
        Self {
            memory,
            pages: RefCell::default(),
            draft: RefCell::default(),
            notes: Cell::new(false),
            left_of_task: Cell::new(MAX_OF_TASK),
            left_of_all: Cell::new(MAX_OF_ALL),
        }
    }

    /// For a snapshot, with the pages that were kept of the one before.
    pub(super) fn over(memory: &'a dyn Memory, mut pages: Pages) -> Self {
        pages.begin();
        Self {
            pages: RefCell::new(pages),
            ..Self::new(memory)
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
        draft.finish(self.pages.borrow().now())
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
        note.agrees(self.memory, &mut self.pages.borrow_mut())
    }

    /// Whether no page of these tasks has changed.
    pub(super) fn has_stayed(&self, bundle: &mut Bundle) -> bool {
        bundle.has_stayed(self.memory, &mut self.pages.borrow_mut())
    }

    /// Keeps for the next snapshot what a note is compared with, without bringing it.
    pub(super) fn keep(&self, note: &mut Note) {
        note.keep(&mut self.pages.borrow_mut());
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
            let Some(bytes) = pages.page(self.memory, at / PAGE) else {
                // What was copied so far is read once more, and may then be another.
                if at != addr.0 {
                    self.draft.borrow_mut().fail();
                }
                return None;
            };
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
                Err(_) => draft.fail(),
            }
        }
        result
    }
}
