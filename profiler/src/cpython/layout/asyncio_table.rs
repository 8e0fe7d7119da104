//! The table of offsets that the module `_asyncio` carries (3.14+), decoded and laid over the
//! measured layout.
//!
//! It is right for that very binary, whatever its build options. Its fields are those of
//! `Modules/_asynciomodule.c`, the same in 3.14 and 3.15.

use super::Layout;

/// Bytes of the table: 13 words.
pub const TABLE_BYTES: usize = 104;
/// The largest offset that is believed of an interpreter or a thread's state.
const MAX_OFFSET: u64 = 1 << 24;
/// The largest one of a task.
const MAX_SMALL_OFFSET: u64 = 1 << 9;

/// The table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncioTable {
    name: u32,
    awaited_by: u32,
    awaited_by_is_set: u32,
    coro: u32,
    node: u32,
    interp_tasks: u32,
    running_loop: u32,
    running_task: u32,
    thread_tasks: u32,
}

impl AsyncioTable {
    /// Decodes it; none when it holds what cannot be offsets.
    #[must_use]
    pub fn decode(bytes: &[u8; TABLE_BYTES]) -> Option<Self> {
        let word = |index: usize, most: u64| {
            let word = bytes.get(8 * index..)?.first_chunk::<8>()?;
            let word = u64::from_le_bytes(*word);
            u32::try_from(word).ok().filter(|_| word < most)
        };
        // Each group begins with the size of its structure.
        Some(Self {
            name: word(1, MAX_SMALL_OFFSET)?,
            awaited_by: word(2, MAX_SMALL_OFFSET)?,
            awaited_by_is_set: word(4, MAX_SMALL_OFFSET)?,
            // The future that the task waits for is the word before.
            coro: word(5, MAX_SMALL_OFFSET).filter(|coro| *coro >= 8)?,
            node: word(6, MAX_SMALL_OFFSET)?,
            interp_tasks: word(8, MAX_OFFSET)?,
            running_loop: word(10, MAX_OFFSET)?,
            running_task: word(11, MAX_OFFSET)?,
            thread_tasks: word(12, MAX_OFFSET)?,
        })
    }

    /// Lays it over a layout.
    pub const fn overlay(&self, layout: &mut Layout) {
        layout.task.name = self.name;
        layout.task.coro = self.coro;
        layout.task.fut_waiter = self.coro - 8;
        layout.task.awaited_by = Some(self.awaited_by);
        layout.task.awaited_by_is_set = Some(self.awaited_by_is_set);
        layout.task.node = Some(self.node);
        layout.asyncio.interp_tasks = Some(self.interp_tasks);
        layout.asyncio.running_loop = Some(self.running_loop);
        layout.asyncio.running_task = Some(self.running_task);
        layout.asyncio.thread_tasks = Some(self.thread_tasks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpython::layout::of_version;
    use crate::cpython::{Build, Version};

    fn table(words: [u64; 13]) -> Option<AsyncioTable> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        AsyncioTable::decode(bytes.as_slice().try_into().expect("13 words"))
    }

    /// As a 3.15.2 of Debian's has it, but for its builder's other options.
    const OF_3_15_2: [u64; 13] = [
        168, 136, 96, 108, 109, 128, 152, 226_240, 10856, 1104, 1024, 1032, 1048,
    ];

    #[test]
    fn the_table_of_a_plain_build_says_what_was_measured() {
        let measured = of_version(Version::release(3, 15, 2), Build::Default).expect("a layout");
        let mut layout = measured;
        table(OF_3_15_2).expect("offsets").overlay(&mut layout);
        assert_eq!(layout, measured);
    }

    #[test]
    fn what_cannot_be_offsets_is_no_table() {
        for index in [1, 2, 4, 5, 6, 8, 10, 11, 12] {
            let mut words = OF_3_15_2;
            words[index] = 1 << 40;
            assert_eq!(table(words), None, "{index}");
        }
        let mut words = OF_3_15_2;
        words[5] = 0;
        assert_eq!(table(words), None);
    }
}
