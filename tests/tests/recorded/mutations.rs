//! Changes of bytes as a fuzzer makes them, but the same ones each time.

/// Words that are on the edge of something.
const EDGES: [u64; 10] = [
    0,
    1,
    7,
    0x7F,
    0xFF,
    0x7FFF_FFFF,
    0xFFFF_FFFF,
    1 << 47,
    u64::MAX >> 1,
    u64::MAX,
];

/// Numbers that look like chance (xorshift).
#[derive(Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// The same seed gives the same numbers.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, most: usize) -> usize {
        (self.next() >> 11) as usize % most.max(1)
    }

    /// The bytes with one to four changes.
    pub(crate) fn mutate(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.below(4) {
            self.change(&mut bytes);
        }
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len() + 1);
        let edge = EDGES[self.below(EDGES.len())].to_le_bytes();
        let width = 1 << self.below(4);
        match self.below(6) {
            0 => bytes.truncate(at),
            1 => {
                let tail = bytes.split_off(at);
                bytes.extend(&edge[..width]);
                bytes.extend(tail);
            }
            2 => {
                let end = (at + width).min(bytes.len());
                bytes.drain(at..end);
            }
            3 => {
                let bit = 1 << self.below(8);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= bit;
                }
            }
            4 => {
                let from = self.below(bytes.len() + 1);
                let piece: Vec<u8> = bytes.iter().skip(from).take(16).copied().collect();
                overwrite(bytes, at, &piece);
            }
            _ => overwrite(bytes, at, &edge[..width]),
        }
    }
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    for (byte, new) in bytes.iter_mut().skip(at).zip(with) {
        *byte = *new;
    }
}
