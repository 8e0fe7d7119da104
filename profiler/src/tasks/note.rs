//! What was read for one task, which tells later whether anything of it has changed.

use super::pages::{Found, Hint, PAGE, Pages};
use crate::target::Memory;
use crate::words::RemoteAddr;

/// A longer note is not kept.
const MAX_NOTE: usize = 16 << 10;

/// A page of which something was read, and the first of its parts and bytes in the note.
#[derive(Clone, Copy, Debug)]
struct InPage {
    page: u64,
    hint: Hint,
    first_part: u16,
    first_byte: u16,
}

/// A part of a page.
#[derive(Clone, Copy, Debug)]
struct Part {
    from: u16,
    len: u16,
}

/// Where it was read, and what stood there with that snapshot.
#[derive(Debug)]
pub(super) struct Note {
    pages: Box<[InPage]>,
    parts: Box<[Part]>,
    bytes: Box<[u8]>,
    snapshot: u64,
}

impl Note {
    /// The pages in which it looked.
    pub(super) fn pages(&self) -> impl Iterator<Item = u64> {
        self.pages.iter().map(|it| it.page)
    }

    /// The snapshot with which it was last found to be so.
    pub(super) const fn snapshot(&self) -> u64 {
        self.snapshot
    }

    /// The pages in which it looked, each by a place.
    pub(super) fn places(&self) -> impl Iterator<Item = (RemoteAddr, u32)> {
        self.pages()
            .map(|page| (RemoteAddr(page.wrapping_mul(PAGE)), 1))
    }

    /// Whether everything still stands where it stood.
    pub(super) fn agrees(&mut self, memory: &dyn Memory, pages: &mut Pages) -> bool {
        let mut rest = &mut *self.pages;
        while let [first, behind @ ..] = rest {
            let found = pages.since(memory, first.page, self.snapshot, &mut first.hint);
            let end = behind
                .first()
                .map_or(self.parts.len(), |it| it.first_part.into());
            let parts = self.parts.get(first.first_part.into()..end);
            let bytes = self.bytes.get(first.first_byte.into()..);
            let stands = match (found, parts, bytes) {
                (Found::Same, ..) => true,
                (Found::Bytes(now), Some(parts), Some(bytes)) => {
                    all_stand(parts, bytes, |part, was| {
                        let from = usize::from(part.from);
                        now.get(from..from + was.len()) == Some(was)
                    })
                }
                // A recorded image need not hold whole pages.
                (Found::Hole, Some(parts), Some(bytes)) => {
                    let page = RemoteAddr(first.page.wrapping_mul(PAGE));
                    all_stand(parts, bytes, |part, was| {
                        let mut now = vec![0; was.len()];
                        let read = memory.read(page.plus(part.from.into()), &mut now);
                        read.is_ok() && now == was
                    })
                }
                _ => false,
            };
            if !stands {
                return false;
            }
            rest = behind;
        }
        self.snapshot = pages.now();
        true
    }

    /// Keeps its pages though nobody looks at them.
    pub(super) fn keep(&mut self, pages: &mut Pages) {
        for it in &mut self.pages {
            pages.keep(it.page, &mut it.hint);
        }
    }
}

fn all_stand(parts: &[Part], bytes: &[u8], stands: impl Fn(&Part, &[u8]) -> bool) -> bool {
    let mut bytes = bytes;
    parts.iter().all(|part| {
        let Some((was, behind)) = bytes.split_at_checked(part.len.into()) else {
            return false;
        };
        bytes = behind;
        stands(part, was)
    })
}

/// A note that is being written.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// Where, how much, and where its bytes begin.
    reads: Vec<(u64, u32, u32)>,
    bytes: Vec<u8>,
    /// Something could not be read, which may be otherwise the next time.
    failed: bool,
    // What becomes of it, kept for the next one's sake.
    pages: Vec<InPage>,
    parts: Vec<Part>,
    merged: Vec<u8>,
}

impl Draft {
    pub(super) fn clear(&mut self) {
        self.reads.clear();
        self.bytes.clear();
        self.failed = false;
    }

    pub(super) const fn fail(&mut self) {
        self.failed = true;
    }

    pub(super) fn push(&mut self, addr: RemoteAddr, bytes: &[u8]) {
        if self.bytes.len() + bytes.len() > MAX_NOTE {
            self.failed = true;
            return;
        }
        let start = self.bytes.len() as u32;
        self.reads.push((addr.0, bytes.len() as u32, start));
        self.bytes.extend_from_slice(bytes);
    }

    /// The note, in which each byte is once, and what lies side by side is one part: the fields of
    /// an object are read one after the other.
    pub(super) fn finish(&mut self, snapshot: u64) -> Option<Note> {
        if self.failed {
            return None;
        }
        self.reads.sort_unstable();
        self.pages.clear();
        self.parts.clear();
        self.merged.clear();
        let mut end = 0;
        for (addr, len, start) in &self.reads {
            // How much of it is there already.
            let known = end.max(*addr).min(addr.saturating_add(u64::from(*len))) - addr;
            let bytes = *start as usize + known as usize..(start + len) as usize;
            let mut bytes = self.bytes.get(bytes).unwrap_or_default();
            let mut at = addr.saturating_add(known);
            while !bytes.is_empty() {
                let (page, from) = (at / PAGE, (at % PAGE) as u16);
                let in_page = PAGE as usize - usize::from(from);
                let (part, behind) = bytes.split_at(in_page.min(bytes.len()));
                if self.pages.last().is_none_or(|last| last.page != page) {
                    self.pages.push(InPage {
                        page,
                        hint: Hint::default(),
                        first_part: self.parts.len() as u16,
                        first_byte: self.merged.len() as u16,
                    });
                }
                let len = part.len() as u16;
                match self.parts.last_mut() {
                    Some(last) if end == at && from != 0 => last.len += len,
                    _ => self.parts.push(Part { from, len }),
                }
                self.merged.extend_from_slice(part);
                bytes = behind;
                at = at.saturating_add(part.len() as u64);
                end = at;
            }
        }
        Some(Note {
            pages: self.pages.as_slice().into(),
            parts: self.parts.as_slice().into(),
            bytes: self.merged.as_slice().into(),
            snapshot,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::sheet::Sheet;
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
            let sheet = Sheet::over(&fake, Pages::default());
            sheet.begin_note();
            for (label, from, len) in reads {
                let mut buf = vec![0; len];
                sheet.read(label.plus(from), &mut buf).expect("mapped");
            }
            sheet.end_note().expect("all was read")
        };
        let parts: Vec<u64> = note.parts.iter().map(|it| it.len.into()).collect();
        assert_eq!(parts, [24, 1, 8]);
        assert_eq!(note.bytes.len(), 33);
        let mut agrees = |fake: &Fake| Sheet::over(fake, Pages::default()).agrees(&mut note);
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

    #[test]
    fn a_page_that_others_looked_at_meanwhile_hides_no_change() {
        let mut fake = Fake::default();
        fake.put("a", 0, &vec![0; PAGE as usize]);
        let a = fake.at("a");
        let look = |sheet: &Sheet<'_>, from: u64| {
            sheet.read(a.plus(from), &mut [0; 8]).expect("mapped");
        };
        let sheet = Sheet::over(&fake, Pages::default());
        sheet.begin_note();
        look(&sheet, 64);
        let mut note = sheet.end_note().expect("all was read");
        let mut pages = sheet.end();
        // What is written, who looks at the page then, and whether the note still holds.
        for (at, byte, looks, holds) in [
            (0, 1, true, Some(true)),
            (72, 1, true, Some(true)),
            (71, 1, true, None),
            (0, 2, true, None),
            (0, 3, false, None),
            (0, 4, false, Some(false)),
            (0, 4, true, Some(false)),
            (71, 0, true, Some(true)),
            (64, 1, true, None),
            (64, 0, true, None),
            (0, 4, false, Some(true)),
            (64, 1, false, Some(false)),
        ] {
            fake.put("a", at, &[byte]);
            let sheet = Sheet::over(&fake, pages);
            if looks {
                look(&sheet, 8);
            }
            match holds {
                Some(holds) => assert_eq!(sheet.agrees(&mut note), holds, "{at} {byte}"),
                None => sheet.keep(&mut note),
            }
            pages = sheet.end();
        }
    }
}
