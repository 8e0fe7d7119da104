//! Reading dicts and the attributes of plain Python objects from outside.
//!
//! Best effort, for names and for finding modules: the dicts of a running target change while
//! they are read, and a torn one gives an error or fewer entries.

use rustc_hash::FxHashMap;

use super::objects::{ObjectError, Objects, int_at, not_null, word_at};
use crate::target::Piece;
use crate::words::RemoteAddr;

/// Most entries of a dict that are looked at.
pub const MAX_ENTRIES: u64 = 1 << 16;
/// A dict said to have more than this is taken for garbage.
const MAX_BELIEVED_ENTRIES: u64 = 1 << 32;
/// `Py_TPFLAGS_INLINE_VALUES` (3.13+).
const FLAG_INLINE_VALUES: u64 = 1 << 2;
/// `Py_TPFLAGS_MANAGED_DICT` (3.11+).
const FLAG_MANAGED_DICT: u64 = 1 << 4;

/// Where the attributes of an object are.
enum Attributes {
    None,
    Dict(RemoteAddr),
    Values {
        keys: RemoteAddr,
        values: RemoteAddr,
    },
}

/// Where the strs are that were found as keys. A name in a program's source is one str as a rule, the
/// same in all dicts, and stays where it is; but that is a guess, and the str is read again each time.
#[derive(Clone, Debug, Default)]
pub struct KnownKeys(FxHashMap<&'static str, RemoteAddr>);

/// An entry of a dict whose keys are not all strs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashedEntry {
    /// The key's hash, which an int below 2^61 - 1 is itself. None in a table that has none, whose
    /// keys are all strs.
    pub hash: Option<u64>,
    /// The key.
    pub key: RemoteAddr,
    /// The value.
    pub value: RemoteAddr,
}

impl Objects<'_> {
    /// Keys and values of a dict, at most [`MAX_ENTRIES`], in the order of insertion.
    ///
    /// # Errors
    /// When its memory cannot be read or a size in it is absurd.
    pub fn dict_entries(
        &self,
        dict: RemoteAddr,
    ) -> Result<Vec<(RemoteAddr, RemoteAddr)>, ObjectError> {
        let (keys, values) = self.tables(dict)?;
        self.entries(keys, values)
    }

    /// The same with the keys' hashes.
    ///
    /// # Errors
    /// As [`Self::dict_entries`].
    pub fn hashed_entries(&self, dict: RemoteAddr) -> Result<Vec<HashedEntry>, ObjectError> {
        let (keys, values) = self.tables(dict)?;
        let mut entries = Vec::new();
        self.each_entry(keys, values, |entry| entries.push(entry))?;
        Ok(entries)
    }

    /// The table of a dict's keys, and that of its values if it is apart, else null.
    fn tables(&self, dict: RemoteAddr) -> Result<(RemoteAddr, RemoteAddr), ObjectError> {
        not_null(dict)?;
        let fields = &self.layout.dict;
        let keys = not_null(self.memory.pointer(dict.plus(fields.keys.into()))?)?;
        let values = self.memory.pointer(dict.plus(fields.values.into()))?;
        Ok((keys, values))
    }

    /// The value under a key that is an ASCII str.
    ///
    /// # Errors
    /// As [`Self::dict_entries`].
    pub fn dict_get(
        &self,
        dict: RemoteAddr,
        name: &str,
    ) -> Result<Option<RemoteAddr>, ObjectError> {
        let entries = self.dict_entries(dict)?;
        Ok(self.pick(&entries, name))
    }

    /// The `__dict__` of a module.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn module_dict(&self, module: RemoteAddr) -> Result<RemoteAddr, ObjectError> {
        // `PyModuleObject.md_dict` is the first field after the object's header.
        let field = not_null(module)?.plus(self.layout.object.size.into());
        not_null(self.memory.pointer(field)?)
    }

    /// Names and values of the attributes kept in an instance of a plain Python class, at most
    /// [`MAX_ENTRIES`].
    ///
    /// # Errors
    /// When its memory cannot be read or a size in it is absurd.
    pub fn attribute_entries(
        &self,
        object: RemoteAddr,
    ) -> Result<Vec<(RemoteAddr, RemoteAddr)>, ObjectError> {
        match self.attributes(object)? {
            Attributes::None => Ok(Vec::new()),
            Attributes::Dict(dict) => self.dict_entries(dict),
            Attributes::Values { keys, values } => self.entries(keys, values),
        }
    }

    fn attributes(&self, object: RemoteAddr) -> Result<Attributes, ObjectError> {
        let class = self.type_of(object)?;
        let fields = &self.layout.class;
        let flags = self.memory.u64(class.plus(fields.flags.into()))?;
        let before = |bytes: u64| RemoteAddr(object.0.wrapping_sub(bytes));
        if self.layout.keys.kind.is_none() || flags & FLAG_MANAGED_DICT == 0 {
            let offset = self.memory.u64(class.plus(fields.dictoffset.into()))?;
            // Negative offsets count from the end of objects of varying size, which no instance
            // that is looked at here is.
            if offset == 0 || offset > 1 << 20 {
                return Ok(Attributes::None);
            }
            return dict_or_none(self.memory.pointer(object.plus(offset))?);
        }
        let shared = |values: RemoteAddr| -> Result<Attributes, ObjectError> {
            let keys = self.memory.pointer(class.plus(fields.cached_keys.into()))?;
            Ok(Attributes::Values {
                keys: not_null(keys)?,
                values,
            })
        };
        match self.managed_dict() {
            ManagedDict::TwoWords => {
                let values = self.memory.pointer(before(32))?;
                if values != RemoteAddr(0) {
                    return shared(values);
                }
                dict_or_none(self.memory.pointer(before(24))?)
            }
            ManagedDict::TaggedWord => {
                let word = self.memory.u64(before(24))?;
                if word & 1 == 1 {
                    return shared(RemoteAddr(word.wrapping_add(1)));
                }
                dict_or_none(RemoteAddr(word))
            }
            ManagedDict::Inline => {
                let dict = self.memory.pointer(before(self.before_inline()))?;
                if dict != RemoteAddr(0) || flags & FLAG_INLINE_VALUES == 0 {
                    return dict_or_none(dict);
                }
                let basicsize = self.memory.u64(class.plus(fields.basicsize.into()))?;
                let values = object.plus(basicsize);
                // Byte 3 of the values' header says whether they are in force.
                let mut head = [0; 4];
                self.memory.read(values, &mut head)?;
                if head[3] == 0 {
                    return Ok(Attributes::None);
                }
                shared(values)
            }
        }
    }

    /// From an object of 3.13 or later down to the pointer to its dict (`MANAGED_DICT_OFFSET` in
    /// `Include/internal/pycore_object.h`): behind it is the collector's header, which objects
    /// with the long header of free-threaded builds do not have.
    const fn before_inline(&self) -> u64 {
        if self.layout.object.size > 16 { 8 } else { 24 }
    }

    /// Which of the three ways of 3.11, 3.12 and 3.13+ the layout is of.
    fn managed_dict(&self) -> ManagedDict {
        let layout = self.layout;
        match (layout.dict.first_value, layout.tstate.status_active_mask) {
            (Some(1..), _) => ManagedDict::Inline,
            (_, Some(_)) => ManagedDict::TaggedWord,
            _ => ManagedDict::TwoWords,
        }
    }

    fn entries(
        &self,
        keys: RemoteAddr,
        values: RemoteAddr,
    ) -> Result<Vec<(RemoteAddr, RemoteAddr)>, ObjectError> {
        let mut entries = Vec::new();
        self.each_entry(keys, values, |entry| entries.push((entry.key, entry.value)))?;
        Ok(entries)
    }

    /// Entries of a table of keys; `values` is null when they hold the values themselves.
    fn each_entry(
        &self,
        keys: RemoteAddr,
        values: RemoteAddr,
        mut take: impl FnMut(HashedEntry),
    ) -> Result<(), ObjectError> {
        let fields = &self.layout.keys;
        let mut head = [0; 64];
        let head_bytes = (fields.indices as usize).min(head.len());
        let head = &mut head[..head_bytes];
        self.memory.read(keys, head)?;
        let absurd = |length| ObjectError::TooLong {
            addr: keys,
            length,
            cap: MAX_BELIEVED_ENTRIES,
        };
        let count = word_at(head, fields.nentries as usize).unwrap_or(u64::MAX);
        if count > MAX_BELIEVED_ENTRIES {
            return Err(absurd(count));
        }
        let count = count.min(MAX_ENTRIES) as usize;
        let byte = |offset: Option<u32>| offset.and_then(|offset| head.get(offset as usize));
        let index_bytes = match (byte(fields.log2_index_bytes), fields.size) {
            (Some(log2 @ 0..=40), _) => 1 << log2,
            (None, Some(size)) => {
                let slots = word_at(head, size as usize).unwrap_or(u64::MAX);
                let width = match slots {
                    0..=0xFF => 1,
                    0x100..=0xFFFF => 2,
                    0x1_0000..=0xFFFF_FFFF => 4,
                    _ => return Err(absurd(slots)),
                };
                slots * width
            }
            _ => return Err(absurd(u64::MAX)),
        };
        let (size, key, value) = match (
            byte(fields.kind),
            fields.str_entry_size,
            fields.str_entry_key,
            fields.str_entry_value,
        ) {
            (Some(1..), Some(size), Some(key), Some(value)) => (size, key, value),
            _ => (fields.entry_size, fields.entry_key, fields.entry_value),
        };
        // `me_hash` comes first where there is one.
        let has_hashes = key >= 8;
        let first = keys.plus(u64::from(fields.indices) + index_bytes);
        let mut raw = vec![0; count * size as usize];
        self.memory.read(first, &mut raw)?;
        let mut apart = vec![
            0;
            if values == RemoteAddr(0) {
                0
            } else {
                count * 8
            }
        ];
        if !apart.is_empty() {
            let first_value = self.layout.dict.first_value.unwrap_or(0);
            self.memory
                .read(values.plus(first_value.into()), &mut apart)?;
        }
        for (index, entry) in raw.chunks_exact(size.max(1) as usize).enumerate() {
            let value = if apart.is_empty() {
                word_at(entry, value as usize)
            } else {
                word_at(&apart, index * 8)
            };
            // A deleted entry has no key, an unset shared attribute has no value.
            if let (Some(key @ 1..), Some(value @ 1..)) = (word_at(entry, key as usize), value) {
                take(HashedEntry {
                    hash: word_at(entry, 0).filter(|_| has_hashes),
                    key: RemoteAddr(key),
                    value: RemoteAddr(value),
                });
            }
        }
        Ok(())
    }

    /// As [`Self::pick`], but first where the key was found last time: that takes one short read
    /// where the other takes one for each entry.
    pub fn pick_known(
        &self,
        entries: &[(RemoteAddr, RemoteAddr)],
        name: &'static str,
        known: &mut KnownKeys,
    ) -> Option<RemoteAddr> {
        let guess = known.0.get(name);
        let guess = guess.and_then(|at| entries.iter().find(|(key, _)| key == at));
        if let Some(entry) = guess
            && let Some(value) = self.pick(std::slice::from_ref(entry), name)
        {
            return Some(value);
        }
        let &(key, value) = entries.get(self.place_of(entries, name)?)?;
        known.0.insert(name, key);
        Some(value)
    }

    /// The value whose key is the ASCII str `name`; keys are read all at once.
    #[must_use]
    pub fn pick(&self, entries: &[(RemoteAddr, RemoteAddr)], name: &str) -> Option<RemoteAddr> {
        let place = self.place_of(entries, name)?;
        entries.get(place).map(|(_, value)| *value)
    }

    fn place_of(&self, entries: &[(RemoteAddr, RemoteAddr)], name: &str) -> Option<usize> {
        let fields = &self.layout.unicode;
        let (header, bytes) = (fields.ascii_size as usize, name.len());
        let mut buffer = vec![0; entries.len() * (header + bytes)];
        let mut pieces: Vec<Piece<'_>> = buffer
            .chunks_exact_mut((header + bytes).max(1))
            .zip(entries)
            .map(|(buf, (key, _))| Piece::new(*key, buf))
            .collect();
        self.memory.read_many(&mut pieces);
        let is_name = |piece: &Piece<'_>| {
            let state = int_at(piece.buf, fields.state as usize).unwrap_or(0);
            let wanted = fields.ascii_mask | fields.compact_mask;
            piece.result.is_ok()
                && state & wanted == wanted
                && word_at(piece.buf, fields.length as usize) == Some(bytes as u64)
                && piece.buf.get(header..) == Some(name.as_bytes())
        };
        pieces.iter().position(is_name)
    }
}

enum ManagedDict {
    /// 3.11: a pointer to values and a pointer to a dict before the object.
    TwoWords,
    /// 3.12: one word, odd for values.
    TaggedWord,
    /// 3.13+: a pointer to a dict, and values behind the object.
    Inline,
}

fn dict_or_none(dict: RemoteAddr) -> Result<Attributes, ObjectError> {
    Ok(if dict == RemoteAddr(0) {
        Attributes::None
    } else {
        Attributes::Dict(dict)
    })
}

#[cfg(test)]
mod tests;
