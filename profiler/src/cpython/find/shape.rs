//! The last resort for 3.8 to 3.12 in a program that exports nothing and was stripped: look for
//! the runtime by what it points to.
//!
//! Two words side by side in an image's data are the first and the main interpreter, which is the
//! last of the list and has the number 0; it has a thread, whose state points back and belongs to a
//! thread that lives. Nothing else looks so. What is found is checked further by
//! [`Runtime::attach`](crate::cpython::Runtime::attach).

use super::MappedFile;
use super::budget::Budget;
use super::images::Image;
use crate::cpython::layout::{self, Layout};
use crate::cpython::objects::word_at;
use crate::cpython::version::{Build, Version};
use crate::target::{Memory, Piece};
use crate::words::RemoteAddr;

/// The version from which on a table of its own tells where everything is.
const HAS_TABLE: u8 = 13;
/// The words are looked through in pieces of this size.
const CHUNK: u64 = 64 * 1024;
/// Most bytes of one image's data.
const MAX_DATA: u64 = 64 << 20;
/// Most interpreters of a list.
const MAX_INTERPRETERS: usize = 64;
/// Interpreters that are read at once.
const BATCH: usize = 512;

/// Whether a version is found in this way.
pub(super) const fn is_for(version: Version) -> bool {
    version.is_at_least(layout::OLDEST_MINOR) && !version.is_at_least(HAS_TABLE)
}

/// The runtime in an image of this version's interpreter.
pub(super) fn scan(
    files: &[MappedFile],
    image: &Image<'_>,
    version: Version,
    memory: &dyn Memory,
    budget: &Budget,
) -> Option<RemoteAddr> {
    if !is_for(version) {
        return None;
    }
    let layout = layout::of_version(version, Build::Default)?;
    let mut left = MAX_DATA;
    let mut buffer = vec![0; CHUNK as usize];
    for region in data_of(files, image) {
        let mut at = region.start.0;
        while at < region.end.0 && left > 0 {
            let wanted = (region.end.0 - at).min(CHUNK);
            let chunk = &mut buffer[..wanted as usize];
            if !budget.spend(wanted) {
                return None;
            }
            if memory.read(RemoteAddr(at), chunk).is_ok()
                && let Some(place) = in_chunk(&layout, RemoteAddr(at), chunk, memory, budget)
            {
                let head = u64::from(layout.runtime.interpreters_head);
                return Some(RemoteAddr(place.0.wrapping_sub(head)));
            }
            left = left.saturating_sub(wanted);
            // The two words may lie across the end.
            at += if wanted < CHUNK { wanted } else { CHUNK - 8 };
        }
    }
    None
}

/// The image's own data: what is mapped of its file to be written, and the zeroes behind it.
fn data_of<'a>(
    files: &'a [MappedFile],
    image: &'a Image<'_>,
) -> impl Iterator<Item = &'a MappedFile> {
    let own = image.mappings.iter().copied().filter(|file| file.writable);
    let ends: Vec<RemoteAddr> = own.clone().map(|file| file.end).collect();
    let is_behind =
        move |file: &&MappedFile| file.inode == 0 && file.writable && ends.contains(&file.start);
    own.chain(files.iter().filter(is_behind))
}

/// The place of the first of the two words in some bytes of data.
fn in_chunk(
    layout: &Layout,
    start: RemoteAddr,
    chunk: &[u8],
    memory: &dyn Memory,
    budget: &Budget,
) -> Option<RemoteAddr> {
    let words = chunk.as_chunks::<8>().0;
    let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    let mut candidates = Vec::new();
    for (at, pair) in (start.0..).step_by(8).zip(words.windows(2)) {
        let (first, main) = (word(&pair[0]), word(&pair[1]));
        if is_pointer(first) && is_pointer(main) {
            candidates.push((RemoteAddr(at), RemoteAddr(main)));
        }
    }
    candidates
        .chunks(BATCH)
        .find_map(|batch| in_batch(layout, batch, memory, budget))
}

fn in_batch(
    layout: &Layout,
    batch: &[(RemoteAddr, RemoteAddr)],
    memory: &dyn Memory,
    budget: &Budget,
) -> Option<RemoteAddr> {
    let fields = &layout.interp;
    let bytes = fields.next.max(fields.id).max(fields.threads_head) as usize + 8;
    if !budget.spend((batch.len() * bytes) as u64) {
        return None;
    }
    let mut blocks = vec![0; batch.len() * bytes];
    let mut pieces: Vec<Piece<'_>> = batch
        .iter()
        .zip(blocks.chunks_mut(bytes))
        .map(|((_, main), block)| Piece::new(*main, block))
        .collect();
    memory.read_many(&mut pieces);
    let mains = batch.iter().zip(&pieces).filter(|(_, piece)| {
        let word = |offset: u32| word_at(piece.buf, offset as usize);
        piece.result.is_ok() && word(fields.next) == Some(0) && word(fields.id) == Some(0)
    });
    let mut found = mains.filter(|((place, main), piece)| {
        let thread = word_at(piece.buf, fields.threads_head as usize);
        thread.is_some_and(|thread| is_pointer(thread) && belongs(layout, thread, *main, memory))
            && leads_to(layout, *place, *main, memory)
    });
    found.next().map(|((place, _), _)| *place)
}

/// Whether the list that begins at a place comes to the main interpreter.
fn leads_to(layout: &Layout, place: RemoteAddr, main: RemoteAddr, memory: &dyn Memory) -> bool {
    let mut next = memory.pointer(place);
    for _ in 0..MAX_INTERPRETERS {
        match next {
            Ok(interpreter) if interpreter == main => return true,
            Ok(interpreter) if is_pointer(interpreter.0) => {
                next = memory.pointer(interpreter.plus(layout.interp.next.into()));
            }
            _ => return false,
        }
    }
    false
}

/// Whether this is a state of a thread that lives, of this interpreter.
fn belongs(layout: &Layout, state: u64, main: RemoteAddr, memory: &dyn Memory) -> bool {
    let state = RemoteAddr(state);
    let points_back = memory.pointer(state.plus(layout.tstate.interp.into())) == Ok(main);
    let thread = memory.pointer(state.plus(layout.tstate.thread_id.into()));
    points_back && thread.is_ok_and(|thread| memory.pointer(thread) == Ok(thread))
}

fn is_pointer(word: u64) -> bool {
    (0x1000..1 << 47).contains(&word) && word.is_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpython::fake::Fake;

    fn region(start: RemoteAddr, bytes: u64, inode: u64) -> MappedFile {
        MappedFile {
            path: if inode == 0 { "" } else { "/worker" }.to_owned(),
            start,
            end: start.plus(bytes),
            file_offset: 0,
            executable: false,
            writable: true,
            inode,
        }
    }

    fn scanned(fake: &Fake, files: &[MappedFile], minor: u8) -> Option<RemoteAddr> {
        let image = Image {
            mappings: files.iter().filter(|file| file.inode != 0).collect(),
            is_unlikely: false,
            outcome: String::new(),
        };
        let version = Version::release(3, minor, 1);
        scan(files, &image, version, fake, &Budget::default())
    }

    #[test]
    fn a_runtime_is_found_in_the_data_by_what_it_points_to() {
        let (mut fake, layout, found) = Fake::python_3_12();
        let head = layout.runtime.interpreters_head;
        fake.point("runtime", head + 8, "interp");
        fake.put("runtime", 0x2000, &[0]);
        let files = [region(found.runtime, 0x2000, 7)];
        assert_eq!(scanned(&fake, &files, 12), Some(found.runtime));
        assert_eq!(scanned(&fake, &files, 13), None, "it has a table");
        assert_eq!(scanned(&fake, &files, 9), None, "another layout");
        // In the zeroes behind the file's data, and with a second interpreter before the main one.
        fake.put("data", 0x1000, &[0]);
        let before = MappedFile {
            end: found.runtime,
            ..region(fake.at("data"), 0x1000, 7)
        };
        let files = [before, region(found.runtime, 0x2000, 0)];
        fake.point("runtime", head, "another interp");
        fake.point("another interp", layout.interp.next, "interp");
        assert_eq!(scanned(&fake, &files[1..], 12), None, "nobody's data");
        let mut near = files.clone();
        near[0].start = RemoteAddr(found.runtime.0 - 8);
        assert_eq!(scanned(&fake, &near, 12), Some(found.runtime));
    }

    #[test]
    fn what_is_not_quite_a_runtime_is_none() {
        let (good, layout, found) = Fake::python_3_12();
        let head = layout.runtime.interpreters_head;
        let check = |change: &dyn Fn(&mut Fake)| {
            let mut fake = good.clone();
            fake.point("runtime", head + 8, "interp");
            fake.put("runtime", 0x2000, &[0]);
            change(&mut fake);
            let files = [region(found.runtime, 0x2000, 7)];
            assert_eq!(scanned(&fake, &files, 12), None);
        };
        check(&|fake| {
            fake.word("interp", layout.interp.next, 8);
        });
        check(&|fake| {
            fake.word("interp", layout.interp.id, 1);
        });
        check(&|fake| {
            fake.word("interp", layout.interp.threads_head, 0);
        });
        check(&|fake| {
            fake.point("thread", layout.tstate.interp, "another interp");
        });
        check(&|fake| {
            fake.word("thread, pthread", 0, 1);
        });
        check(&|fake| {
            fake.unmap("interp");
        });
        // Another pair of words with the main interpreter in it.
        check(&|fake| {
            fake.point("runtime", head, "thread");
        });
        check(&|fake| {
            fake.point("runtime", head, "another interp");
            fake.point("another interp", layout.interp.next, "another interp");
        });
    }
}
