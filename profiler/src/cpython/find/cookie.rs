//! The last resort for 3.13 and later: look for the debug-offset table itself in writable memory.
//!
//! The table is initialised data of an image, so it is in a mapping of a file; heaps and stacks
//! are not read, which would also make pages of the target resident that it never used.

use super::MappedFile;
use super::budget::Budget;
use crate::cpython::layout::debug_offsets::{self, COOKIE, HEAD_BYTES};
use crate::target::Memory;
use crate::words::RemoteAddr;

const CHUNK: u64 = 64 * 1024;
/// A larger mapping is a file of data, not the data of an image.
const MAX_MAPPING: u64 = 64 << 20;

/// Addresses in writable mappings at which a believable table begins.
pub(super) fn scan(files: &[MappedFile], memory: &dyn Memory, budget: &Budget) -> Vec<RemoteAddr> {
    let mut found = Vec::new();
    let mut buffer = vec![0; CHUNK as usize];
    for mapping in files {
        let bytes = mapping.end.0.saturating_sub(mapping.start.0);
        if !mapping.writable || mapping.inode == 0 || bytes > MAX_MAPPING {
            continue;
        }
        let mut at = mapping.start.0;
        while at < mapping.end.0 && !budget.is_spent() {
            let wanted = (mapping.end.0 - at).min(CHUNK);
            let chunk = &mut buffer[..wanted as usize];
            if budget.spend(wanted) && memory.read(RemoteAddr(at), chunk).is_ok() {
                let words = chunk.chunks_exact(8).enumerate();
                let hits = words.filter(|(_, word)| word == COOKIE);
                found.extend(hits.map(|(index, _)| RemoteAddr(at + 8 * index as u64)));
            }
            at += wanted;
        }
    }
    found.retain(|addr| {
        let mut head = [0; HEAD_BYTES];
        memory.read(*addr, &mut head).is_ok() && debug_offsets::head(&head).is_some()
    });
    found
}
