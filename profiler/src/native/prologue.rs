//! What a function's own instructions say of its frame, where unwind information does not.
//!
//! Its end, when it keeps a frame pointer and only its stack pointer is known:
//! A thread that stands still tells its stack pointer and nothing else, and what it called need
//! not have saved the frame pointer. How far its frame reaches, the function's first instructions
//! and its unwind information say together. That is a guess with two or three answers, which the
//! caller has to prove. Not here: functions that move their stack pointer later on (`alloca`).

/// What code that returns right behind a call does to the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Return {
    /// How many bytes above the stack pointer the return address is.
    pub(super) address: u64,
    /// The frame pointer is the word at the stack pointer.
    pub(super) pops_bp: bool,
}

impl Return {
    /// From the instructions behind a call; none if they do anything else first.
    pub(super) fn of(behind: [u8; 8]) -> Option<Self> {
        let (address, pops_bp) = match behind {
            [0xc3, ..] => (0, false),
            // pop %rbp; ret
            [0x5d, 0xc3, ..] => (8, true),
            // add $…, %rsp; ret
            [0x48, 0x83, 0xc4, bytes, 0xc3, ..] if bytes < 0x80 => (u64::from(bytes), false),
            _ => return None,
        };
        Some(Self { address, pops_bp })
    }
}

/// Bytes of a function's beginning that are looked at.
pub(super) const BEGINNING: usize = 96;

/// How many bytes above the stack pointer the frame may end, by the code that the function begins
/// with, up to where it is, and by how far below its end the lowest register is saved.
pub(super) fn ends(beginning: &[u8], lowest_saved: u64) -> Vec<u64> {
    // The frame pointer and the return address.
    const BOTH: u64 = 16;
    let mut ends = match room(beginning) {
        // Registers are pushed before room is made, or put into the room.
        Some(room) => vec![room + lowest_saved.max(BOTH), room + BOTH],
        None => vec![lowest_saved.max(BOTH)],
    };
    ends.dedup();
    ends
}

/// The bytes that `sub $…, %rsp` makes room for.
fn room(beginning: &[u8]) -> Option<u64> {
    beginning.windows(7).find_map(|code| match *code {
        [0x48, 0x83, 0xec, bytes, ..] if bytes < 0x80 => Some(u64::from(bytes)),
        [0x48, 0x81, 0xec, a, b, c, d] => Some(u64::from(u32::from_le_bytes([a, b, c, d]))),
        _ => None,
    })
}

/// Whether an address is where a call comes back to, by the eight bytes before it.
pub(super) fn follows_call(before: [u8; 8]) -> bool {
    // `call rel32`, or `call` through a register or memory: 0xff with 2 in the middle bits.
    let indirect = |length: usize| {
        let [code, form] = [before[8 - length], before[9 - length]];
        code == 0xff && (form >> 3) & 7 == 2
    };
    before[3] == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(indirect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_ends_where_its_beginning_says() {
        let check = |code: &[u8], lowest, expected: &[u64]| {
            assert_eq!(ends(code, lowest), expected, "{code:x?}");
        };
        // push %rbp; mov %rsp, %rbp; push %r12; push %rbx; sub $0x10, %rsp; nop; nop
        let pushed = [
            0x55, 0x48, 0x89, 0xe5, 0x41, 0x54, 0x53, 0x48, 0x83, 0xec, 0x10, 0x90, 0x90, 0x90,
        ];
        check(&pushed, 32, &[0x10 + 32, 0x10 + 16]);
        // push %rbp; mov %rsp, %rbp; sub $0x200, %rsp
        let large = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x81, 0xec, 0, 2, 0, 0];
        check(&large, 16, &[0x210]);
        check(&pushed[..7], 32, &[32]);
        check(&[], 0, &[16]);
    }

    #[test]
    fn code_that_returns_at_once_says_where_to() {
        let check = |code: &[u8], expected| {
            let mut behind = [0x90; 8];
            behind[..code.len()].copy_from_slice(code);
            let found = Return::of(behind).map(|found| (found.address, found.pops_bp));
            assert_eq!(found, expected, "{code:x?}");
        };
        check(&[0xc3], Some((0, false)));
        check(&[0x5d, 0xc3], Some((8, true)));
        check(&[0x48, 0x83, 0xc4, 0x08, 0xc3], Some((8, false)));
        check(&[0x48, 0x83, 0xc4, 0x88, 0xc3], None);
        check(&[0x48, 0x83, 0xc4, 0x08, 0x5b], None);
        check(&[], None);
    }

    #[test]
    fn a_call_is_told_from_what_is_none() {
        let check = |tail: &[u8], expected| {
            let mut before = [0x90; 8];
            before[8 - tail.len()..].copy_from_slice(tail);
            assert_eq!(follows_call(before), expected, "{tail:x?}");
        };
        check(&[0xe8, 1, 2, 3, 4], true);
        check(&[0xff, 0xd0], true);
        check(&[0x41, 0xff, 0xd4], true);
        check(&[0xff, 0x50, 0x18], true);
        check(&[0xff, 0x15, 1, 2, 3, 4], true);
        check(&[0xff, 0x94, 0x24, 1, 2, 3, 4], true);
        check(&[0xff, 0xe0], false);
        check(&[0x90], false);
    }
}
