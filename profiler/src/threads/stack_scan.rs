//! Rung 4: the pthread id on the thread's own stack.
//!
//! glibc and musl put a thread's control block at the top of the stack they make for it, and the
//! block's address is the pthread id. So the first control block above the stack pointer says
//! whose stack this is. Which hit is the right one was found by measuring:
//!
//! - A known id anywhere on the stack proves little: a thread that has started or joins others
//!   keeps *their* ids in its frames (the main thread's stack holds nobody else's but theirs).
//!   What counts is a known id that stands at its own address: the block's first word. Nothing
//!   but the block itself has that.
//! - The scan goes up from the stack pointer, not down from the mapping's end: under glibc 2.43
//!   neighbouring stacks share one mapping, whose end is the top of another thread's stack.
//!   Upwards the first block is the thread's own, since its frames lie below it and the next
//!   stack, with the next block, above.
//! - Upwards the scan must not walk out of its stack: it ends at a guard page (unreadable, also
//!   inside a shared mapping), at the stack pointer of another thread, and at a control block that
//!   is no known id, which is that of a native thread.
//!
//! The process's first stack is not scanned: its control block is elsewhere.

use crate::target::{Maps, Memory};
use crate::threads::facts::Look;
use crate::words::{PthreadId, RemoteAddr};

/// Most bytes that are scanned of one stack: twice the usual size of a whole one.
const MAX_SCAN: u64 = 16 << 20;
/// Most bytes that are scanned in one look, all stacks together.
const MAX_SCANS: u64 = 256 << 20;
/// Bytes of a page: what is readable is so by whole pages.
const PAGE: u64 = 4096;
/// Most bytes read at once.
const MAX_CHUNK: u64 = 64 << 10;
/// Most words of one chunk that may stand at their own address: each costs a read, and a stack
/// has a handful.
const MAX_SELVES: usize = 16;
/// In glibc's block the address stands a second time, here (`header.self`).
const SECOND_SELF: u64 = 0x10;

/// What the scan of one stack came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// The stack is the one of this id.
    Of(PthreadId),
    /// It is the process's first stack.
    First,
    /// No known id has its block on it.
    Nobodys,
    /// It was not scanned to its end.
    Unknown,
}

/// The stacks of a process, to be scanned one by one.
pub(super) struct Stacks<'a, M> {
    /// The process's memory.
    memory: &'a M,
    /// Its mappings.
    maps: &'a Maps,
    /// Where its first stack begins.
    start_stack: Option<RemoteAddr>,
    /// The nearest stack pointer above one, of those that are known.
    above: &'a dyn Fn(RemoteAddr) -> Option<RemoteAddr>,
    /// Whether a pthread id is known.
    is_known: &'a dyn Fn(PthreadId) -> bool,
    /// Bytes that may still be read.
    budget: u64,
}

impl<'a, M: Memory> Stacks<'a, M> {
    /// The stacks of the process that is looked at.
    pub(super) fn of(
        look: &Look<'a>,
        memory: &'a M,
        above: &'a dyn Fn(RemoteAddr) -> Option<RemoteAddr>,
        is_known: &'a dyn Fn(PthreadId) -> bool,
    ) -> Self {
        Self {
            memory,
            maps: look.maps,
            start_stack: look.start_stack,
            above,
            is_known,
            budget: MAX_SCANS,
        }
    }

    /// Scan the stack that `sp` points into.
    pub(super) fn scan(&mut self, sp: RemoteAddr) -> Scan {
        // No stack is in the kernel's half, and no sum below can overflow in the other.
        let Some(stack) = self.maps.at(sp).filter(|stack| stack.end.0 >> 63 == 0) else {
            return Scan::Unknown;
        };
        if self.start_stack.is_some_and(|start| stack.contains(start)) {
            return Scan::First;
        }
        let end = (self.above)(sp).unwrap_or(stack.end).min(stack.end);
        let mut at = sp.0 & !7;
        let mut chunk = PAGE;
        let stop = at.saturating_add(MAX_SCAN.min(self.budget));
        let mut buf = Vec::new();
        while at < end.0 {
            if at >= stop {
                return Scan::Unknown;
            }
            // To the end of a page, so that a guard page spoils no other.
            let to = ((at + chunk) & !(PAGE - 1)).min(end.0);
            buf.resize((to - at) as usize, 0);
            if self.memory.read(RemoteAddr(at), &mut buf).is_err() {
                if chunk == PAGE {
                    return Scan::Nobodys;
                }
                chunk = PAGE;
                continue;
            }
            self.budget = self.budget.saturating_sub(to - at);
            if let Some(found) = self.block_in(RemoteAddr(at), &buf) {
                return found;
            }
            at = to;
            chunk = (chunk * 2).min(MAX_CHUNK);
        }
        Scan::Nobodys
    }

    /// The first control block in some bytes of the stack.
    fn block_in(&self, start: RemoteAddr, bytes: &[u8]) -> Option<Scan> {
        let words = bytes
            .as_chunks::<8>()
            .0
            .iter()
            .copied()
            .map(u64::from_le_bytes);
        let own = (start.0..)
            .step_by(8)
            .zip(words)
            .filter(|(addr, word)| addr == word)
            .map(|(addr, _)| addr);
        for (count, addr) in own.enumerate() {
            let id = PthreadId(addr);
            if (self.is_known)(id) {
                return Some(Scan::Of(id));
            }
            if count == MAX_SELVES {
                return Some(Scan::Unknown);
            }
            // The head of an empty list points to itself as well, but has its neighbour do so.
            let second = self.memory.u64(RemoteAddr(addr).plus(SECOND_SELF));
            if second == Ok(addr) {
                return Some(Scan::Nobodys);
            }
        }
        None
    }
}
