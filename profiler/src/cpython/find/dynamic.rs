//! A symbol by its name, the way a dynamic linker finds it: through the hash table that every
//! program with dynamic symbols carries, mapped into its memory.
//!
//! It takes a handful of small reads where going through a table takes megabytes. Not here: files
//! without such a table (see [`super::image`]).

use object::elf::{self, Dyn64, Sym64};
use object::read::elf::{Dyn, Sym};
use object::{LittleEndian, ReadRef, U32};

use super::image::{Cache, LE, Segment};

/// Most entries of the dynamic table; a program has some thirty.
const MAX_ENTRIES: u64 = 4096;
/// Most symbols that are followed under one hash.
const MAX_CHAIN: u32 = 4096;

/// The tables that lead from a name to a symbol, by their places in the file.
#[derive(Debug)]
pub(super) struct Dynamic<'a> {
    segments: &'a [Segment],
    symbols: u64,
    names: u64,
    hash: Hash,
}

/// Both begin with a number of buckets; an address is the file's own.
#[derive(Clone, Copy, Debug)]
enum Hash {
    Gnu(u64),
    Sysv(u64),
}

impl<'a> Dynamic<'a> {
    /// From the table at an offset in the file, of so many bytes.
    ///
    /// In memory its addresses may be final already: glibc adds the bias where it can write.
    pub(super) fn read(
        data: &Cache<'_>,
        (offset, bytes): (u64, u64),
        segments: &'a [Segment],
        bias: u64,
    ) -> Option<Self> {
        let count = (bytes / size_of::<Dyn64<LittleEndian>>() as u64).min(MAX_ENTRIES) as usize;
        let entries: &[Dyn64<LittleEndian>] = data.read_slice_at(offset, count).ok()?;
        let address = |tag: i64| {
            let mut tagged = entries.iter().filter(|it| it.d_tag(LE) == tag);
            let value = tagged.next()?.d_val(LE);
            let either = [value, value.wrapping_sub(bias)];
            either
                .into_iter()
                .find(|it| offset_of(segments, *it).is_some())
        };
        let hash = match (address(elf::DT_GNU_HASH), address(elf::DT_HASH)) {
            (Some(gnu), _) => Hash::Gnu(gnu),
            (None, Some(sysv)) => Hash::Sysv(sysv),
            (None, None) => return None,
        };
        Some(Self {
            segments,
            symbols: address(elf::DT_SYMTAB)?,
            names: address(elf::DT_STRTAB)?,
            hash,
        })
    }

    /// The value of the symbol of this name, if the image defines it.
    pub(super) fn symbol(&self, data: &Cache<'_>, name: &[u8]) -> Option<u64> {
        match self.hash {
            Hash::Gnu(table) => self.by_gnu_hash(data, table, name),
            Hash::Sysv(table) => self.by_sysv_hash(data, table, name),
        }
    }

    fn by_gnu_hash(&self, data: &Cache<'_>, table: u64, name: &[u8]) -> Option<u64> {
        let hash = elf::gnu_hash(name);
        let [buckets, first, blooms, shift] =
            [0, 4, 8, 12].map(|at| self.int(data, table.checked_add(at)?));
        let (buckets, first, blooms, shift) = (buckets?, first?, blooms?, shift?);
        let filter = table.checked_add(16)?;
        let bloom = filter.checked_add(8 * u64::from((hash / 64).checked_rem(blooms)?))?;
        let low = self.int(data, bloom)?;
        let high = self.int(data, bloom.checked_add(4)?)?;
        let bloom = u64::from(low) | u64::from(high) << 32;
        let bits = 1 << (hash % 64) | 1 << (hash.checked_shr(shift)? % 64);
        if bloom & bits != bits {
            return None;
        }
        let starts = filter.checked_add(8 * u64::from(blooms))?;
        let chains = starts.checked_add(4 * u64::from(buckets))?;
        let bucket = u64::from(hash.checked_rem(buckets)?);
        let start = self.int(data, starts.checked_add(4 * bucket)?)?;
        for index in start..start.saturating_add(MAX_CHAIN) {
            let chain = u64::from(index.checked_sub(first)?);
            let word = self.int(data, chains.checked_add(4 * chain)?)?;
            if word | 1 == hash | 1
                && let Some(value) = self.value_if_called(data, index, name)
            {
                return Some(value);
            }
            // The lowest bit marks the end of a chain.
            if word & 1 == 1 {
                return None;
            }
        }
        None
    }

    fn by_sysv_hash(&self, data: &Cache<'_>, table: u64, name: &[u8]) -> Option<u64> {
        let buckets = self.int(data, table)?;
        let bucket = u64::from(elf::hash(name).checked_rem(buckets)?);
        let starts = table.checked_add(8)?;
        let chains = starts.checked_add(4 * u64::from(buckets))?;
        let mut index = self.int(data, starts.checked_add(4 * bucket)?)?;
        for _ in 0..MAX_CHAIN {
            if index == 0 {
                return None;
            }
            if let Some(value) = self.value_if_called(data, index, name) {
                return Some(value);
            }
            index = self.int(data, chains.checked_add(4 * u64::from(index))?)?;
        }
        None
    }

    fn value_if_called(&self, data: &Cache<'_>, index: u32, name: &[u8]) -> Option<u64> {
        let size = size_of::<Sym64<LittleEndian>>() as u64;
        let place = self.symbols.checked_add(size * u64::from(index))?;
        let symbol: &Sym64<LittleEndian> = data.read_at(self.offset(place)?).ok()?;
        if symbol.st_shndx(LE) == elf::SHN_UNDEF {
            return None;
        }
        let place = self.names.checked_add(u64::from(symbol.st_name(LE)))?;
        let bytes = name.len() as u64 + 1;
        let called = data.read_bytes_at(self.offset(place)?, bytes).ok()?;
        (called.strip_suffix(&[0]) == Some(name)).then(|| symbol.st_value(LE))
    }

    fn int(&self, data: &Cache<'_>, address: u64) -> Option<u32> {
        let int: &U32<LittleEndian> = data.read_at(self.offset(address)?).ok()?;
        Some(int.get(LE))
    }

    fn offset(&self, address: u64) -> Option<u64> {
        offset_of(self.segments, address)
    }
}

/// Where in the file the byte of an address is.
fn offset_of(segments: &[Segment], address: u64) -> Option<u64> {
    segments.iter().find_map(|segment| {
        let within = address.checked_sub(segment.vaddr)?;
        (within < segment.bytes).then(|| segment.offset.checked_add(within))?
    })
}

#[cfg(test)]
mod tests;
