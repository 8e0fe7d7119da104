//! Rung 3: the thread id that the C library keeps in its own control block.
//!
//! On x86-64 glibc's and musl's `pthread_self()` is the address of `struct pthread`, whose first
//! word is that address itself and which holds the thread id the kernel wrote there at `clone`
//! and clears at the end. The field's place is not part of any interface, so it is found on the
//! target: an offset is believed when what stands there names this very process's threads.

use std::collections::BTreeSet;

use crate::target::{Memory, Piece};
use crate::words::{InnerTid, PthreadId, RemoteAddr};

/// Where the thread id was seen: glibc 2.36 to 2.43, and musl 1.2.
const KNOWN: [u32; 2] = [0x2d0, 0x30];
/// How far another place is looked for; glibc's structure has 0x900 bytes.
const SEARCHED_BYTES: usize = 0x800;
/// In how many control blocks another place is looked for.
const MAX_SEARCHED: usize = 64;

/// Bytes from the control block's start to the thread id in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TidOffset(pub u32);

/// Find the offset on this process: the known ones first, then any.
///
/// `ids` are the pthread ids of its Python threads, `live` its threads as they number themselves.
pub(super) fn calibrate(
    memory: &impl Memory,
    ids: &[PthreadId],
    live: &BTreeSet<InnerTid>,
) -> Option<TidOffset> {
    KNOWN
        .into_iter()
        .map(TidOffset)
        .find(|&offset| fits(&read(memory, offset, ids), live))
        .or_else(|| search(memory, ids, live))
}

/// The thread id of each control block; none where there is no control block (any more), and
/// where the kernel has cleared it because its thread has ended.
pub(super) fn read(
    memory: &impl Memory,
    offset: TidOffset,
    ids: &[PthreadId],
) -> Vec<Option<InnerTid>> {
    let mut selves = vec![[0; 8]; ids.len()];
    let mut tids = vec![[0; 4]; ids.len()];
    let mut pieces: Vec<Piece<'_>> = ids
        .iter()
        .zip(selves.iter_mut().zip(tids.iter_mut()))
        .flat_map(|(&id, (own, tid))| {
            let block = RemoteAddr::from(id);
            [
                Piece::new(block, own),
                Piece::new(block.plus(u64::from(offset.0)), tid),
            ]
        })
        .collect();
    memory.read_many(&mut pieces);
    let readable: Vec<bool> = pieces
        .chunks_exact(2)
        .map(|pair| pair.iter().all(|piece| piece.result.is_ok()))
        .collect();
    let read = ids.iter().zip(readable).zip(selves.iter().zip(&tids));
    read.map(|((id, readable), (own, tid))| {
        let is_block = readable && u64::from_le_bytes(*own) == id.0;
        let tid = u32::from_le_bytes(*tid);
        (is_block && tid != 0).then_some(InnerTid(tid))
    })
    .collect()
}

/// Whether what stands at an offset are thread ids: each thread's at most once, and not more than
/// a quarter something else, as are those of threads that have ended since.
fn fits(tids: &[Option<InnerTid>], live: &BTreeSet<InnerTid>) -> bool {
    let blocks: Vec<InnerTid> = tids.iter().flatten().copied().collect();
    let named: Vec<InnerTid> = blocks
        .iter()
        .copied()
        .filter(|tid| live.contains(tid))
        .collect();
    let distinct: BTreeSet<InnerTid> = named.iter().copied().collect();
    !named.is_empty()
        && distinct.len() == named.len()
        && (blocks.len() - named.len()) * 4 <= blocks.len()
}

/// Any offset that fits, if only one does. With one thread a number may stand there by chance or
/// twice (the process id): then nothing is believed.
fn search(memory: &impl Memory, ids: &[PthreadId], live: &BTreeSet<InnerTid>) -> Option<TidOffset> {
    let blocks: Vec<Vec<u8>> = ids
        .iter()
        .take(MAX_SEARCHED)
        .filter_map(|&id| {
            let mut block = vec![0; SEARCHED_BYTES];
            memory.read(id.into(), &mut block).ok()?;
            let own = block.first_chunk().copied().map(u64::from_le_bytes)?;
            (own == id.0).then_some(block)
        })
        .collect();
    let mut fitting = (8..SEARCHED_BYTES).step_by(4).filter(|&offset| {
        let tids: Vec<Option<InnerTid>> = blocks
            .iter()
            .map(|block| {
                let word = block.get(offset..)?.first_chunk().copied()?;
                Some(InnerTid(u32::from_le_bytes(word)))
            })
            .collect();
        fits(&tids, live)
    });
    let offset = fitting.next()?;
    if fitting.next().is_some() {
        return None;
    }
    u32::try_from(offset).ok().map(TidOffset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::tests::Fake;

    const BLOCKS: [u64; 3] = [0x7000_0000, 0x7100_0000, 0x7200_0000];

    fn fake(offset: u64, tids: [u32; 3]) -> Fake {
        let mut fake = Fake::default();
        for (block, tid) in BLOCKS.into_iter().zip(tids) {
            fake.fill(block, 0x900);
            fake.word(block, block);
            fake.word(block + 0x10, block);
            fake.int(block + offset, tid);
        }
        fake
    }

    fn check(fake: &Fake, live: &[u32], expected: Option<u32>) {
        let live = live.iter().copied().map(InnerTid).collect();
        let found = calibrate(fake, &BLOCKS.map(PthreadId), &live);
        assert_eq!(found, expected.map(TidOffset));
    }

    #[test]
    fn the_offset_is_the_one_at_which_threads_of_the_process_are_named() {
        check(&fake(0x2d0, [10, 11, 12]), &[10, 11, 12, 13], Some(0x2d0));
        check(&fake(0x30, [10, 11, 12]), &[10, 11, 12], Some(0x30));
        check(&fake(0x1a4, [10, 11, 12]), &[10, 11, 12], Some(0x1a4));
    }

    #[test]
    fn numbers_that_name_nobody_or_one_thread_twice_are_not_believed() {
        check(&fake(0x2d0, [1, 2, 3]), &[10, 11, 12], None);
        check(&fake(0x2d0, [10, 10, 12]), &[10, 11, 12], None);
        check(&fake(0x2d0, [10, 99, 98]), &[10, 11, 12], None);
        check(&Fake::default(), &[10, 11, 12], None);
    }

    #[test]
    fn threads_that_have_ended_do_not_hide_the_offset() {
        check(&fake(0x2d0, [0, 11, 0]), &[10, 11], Some(0x2d0));
        check(&fake(0x2d0, [0, 0, 0]), &[10, 11], None);
    }

    #[test]
    fn a_place_that_is_no_control_block_names_nobody() {
        let mut fake = fake(0x2d0, [10, 11, 12]);
        fake.word(BLOCKS[1], 0);
        let tids = read(&fake, TidOffset(0x2d0), &BLOCKS.map(PthreadId));
        assert_eq!(tids, [Some(InnerTid(10)), None, Some(InnerTid(12))]);
    }
}
