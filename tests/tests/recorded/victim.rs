//! An image to be lied about: which of its words matter, what they can be made to say, and the
//! bounds that hold whatever they say.

use profiler::pystack::PyFrame;
use profiler::target::Memory;
use profiler::words::RemoteAddr;
use profiler_common::walk::MAX_GENERATORS;

use super::images::Recorded;
use super::lying::Lying;
use super::reading::{MAX_FRAMES, Reading};

/// Longest name or path that a frame may have, in bytes.
const MAX_TEXT: usize = 4 * 4096 + 4;
/// No reading may ask more often. Tables within tables, each as long as can be believed, come to a
/// little over a million.
const MAX_READS: u64 = 3_000_000;

/// An image and the words that a reading of it reads, the telling ones first.
pub(crate) struct Victim {
    /// The image.
    pub(crate) recorded: Recorded,
    /// The words.
    pub(crate) words: Vec<u64>,
    /// What is read of it as it is.
    pub(crate) truth: Reading,
}

impl Victim {
    /// Reads it once.
    pub(crate) fn new(recorded: Recorded) -> Self {
        let watched = Lying::new(&recorded.image.memory).watched();
        let truth = recorded.read(&watched).expect("it is whole");
        let mut words = watched.words_read();
        words.sort_by_cached_key(|&addr| (rank(&recorded, addr), scrambled(addr)));
        Self {
            recorded,
            words,
            truth,
        }
    }

    /// The address of a word and what it says.
    pub(crate) fn word(&self, index: usize) -> (u64, u64) {
        let addr = self.words[index % self.words.len()];
        let word = self.recorded.image.memory.u64(RemoteAddr(addr));
        (addr, word.unwrap_or(0))
    }

    /// Reads over a memory that lies, and holds what comes of it to its bounds.
    pub(crate) fn survives(&self, memory: &Lying<'_>, lie: &str) -> Option<Reading> {
        let reading = self.recorded.read(memory);
        let (asked, name) = (memory.asked(), &self.recorded.name);
        assert!(asked.reads < MAX_READS, "{name}, {lie}: {asked:?}");
        let reading = reading.ok()?;
        for thread in &reading.threads {
            let most = MAX_FRAMES as usize + 2;
            assert!(thread.frames.len() <= most, "{name}, {lie}");
            let texts = thread.frames.iter().filter_map(|frame| match frame {
                PyFrame::Known { code, .. } => Some([&*code.name, &*code.file]),
                _ => None,
            });
            let longest = texts.flatten().map(str::len).max();
            assert!(longest < Some(MAX_TEXT), "{name}, {lie}: {longest:?}");
            let noted = &thread.chain.generators;
            assert!(noted.len() <= MAX_GENERATORS, "{name}, {lie}");
            let frames = thread.chain.frames.len() + thread.chain.missing as usize;
            let beyond = noted.iter().any(|generator| generator.frame >= frames);
            assert!(!beyond, "{name}, {lie}: {noted:?}");
        }
        Some(reading)
    }
}

/// Pointers tell more than other words, and words of C stacks the least.
fn rank(recorded: &Recorded, addr: u64) -> u8 {
    let (memory, maps) = (&recorded.image.memory, &recorded.image.meta.maps);
    let on_stack = maps.at(RemoteAddr(addr));
    if on_stack.is_some_and(|mapping| mapping.path().is_none()) {
        return 2;
    }
    let leads = memory
        .pointer(RemoteAddr(addr))
        .is_ok_and(|to| memory.u64(to).is_ok());
    u8::from(!leads)
}

/// A fixed order that is none.
pub(crate) fn scrambled(number: u64) -> u64 {
    (number ^ 0x5DEE_CE66).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 17
}

/// How many ways there are to lie.
pub(crate) const EVILS: usize = 14;

/// What a word may be made to say.
pub(crate) fn evil(which: usize, addr: u64, word: u64, other: u64) -> u64 {
    match which % EVILS {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => addr,
        4 => other,
        5 => word.wrapping_add(1),
        6 => word.wrapping_add(8),
        7 => u64::MAX >> 1,
        8 => word | 0xFFFF_FFFF,
        9 => word ^ (1 << 63),
        10 => 0x7FFF_FFFF_F000,
        11 => word & !0xFFF,
        12 => (word & !0xFFFF_FFFF) | 0x8000_0000,
        _ => 0x0001_0000_0001_0000,
    }
}
