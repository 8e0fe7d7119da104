//! A small piece of the target's memory, and who reads it. Not here: what is in it.

/// Words of a [`Block`].
pub const BLOCK_WORDS: usize = 32;
/// Bytes of a [`Block`].
pub const BLOCK_BYTES: u32 = 256;

/// A small piece of the target, addressed by byte offsets that cannot leave it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// The bytes, as little-endian words.
    pub words: [u64; BLOCK_WORDS],
}

const _: () = assert!(size_of::<Block>() == BLOCK_BYTES as usize);

impl Block {
    /// All zero.
    pub const EMPTY: Self = Self {
        words: [0; BLOCK_WORDS],
    };

    /// The 64-bit word at `offset`, a multiple of 8; offsets wrap at the block's end.
    #[inline(always)]
    pub fn u64(&self, offset: u32) -> u64 {
        self.words[(offset as usize >> 3) & (BLOCK_WORDS - 1)]
    }

    /// The 32-bit word at `offset`, a multiple of 4.
    #[inline(always)]
    pub fn u32(&self, offset: u32) -> u32 {
        (self.u64(offset) >> ((offset & 4) * 8)) as u32
    }

    /// The byte at `offset`.
    #[inline(always)]
    pub fn u8(&self, offset: u32) -> u8 {
        (self.u64(offset) >> ((offset & 7) * 8)) as u8
    }
}

/// Reads the target's memory; a failure is a failure, never zeroes.
pub trait Reader {
    /// Fill the first `bytes` (1 ..= [`BLOCK_BYTES`]) of `block` from `addr`; false when any of it
    /// could not be read.
    fn block(&mut self, addr: u64, bytes: u32, block: &mut Block) -> bool;
    /// The word at `addr`.
    fn word(&mut self, addr: u64) -> Option<u64>;
}
