//! A target's memory for tests, written with labels: a pointer in it is a name, not a number.

use std::collections::BTreeMap;

use super::find::{Found, FoundBy, Libc};
use super::layout::{self, Layout};
use super::version::{Build, Version};
use crate::target::{Memory, ReadError, ReadErrorKind};
use crate::words::RemoteAddr;

/// Far enough apart that no label's bytes reach the next one's.
const STRIDE: u64 = 1 << 32;

/// The memory. Each label has bytes of its own; everything else is unmapped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fake {
    labels: Vec<String>,
    bytes: BTreeMap<u64, Vec<u8>>,
}

impl Fake {
    /// The address of a label, which need not have bytes.
    pub(crate) fn at(&mut self, label: &str) -> RemoteAddr {
        let known = self.labels.iter().position(|known| known == label);
        let index = known.unwrap_or_else(|| {
            self.labels.push(label.to_owned());
            self.labels.len() - 1
        });
        RemoteAddr(STRIDE * (index as u64 + 1))
    }

    /// Writes bytes at an offset of a label.
    pub(crate) fn put(&mut self, label: &str, offset: u32, bytes: &[u8]) -> &mut Self {
        let at = self.at(label).0;
        let block = self.bytes.entry(at).or_default();
        let end = offset as usize + bytes.len();
        if block.len() < end {
            block.resize(end, 0);
        }
        block[offset as usize..end].copy_from_slice(bytes);
        self
    }

    /// Writes a word.
    pub(crate) fn word(&mut self, label: &str, offset: u32, word: u64) -> &mut Self {
        self.put(label, offset, &word.to_le_bytes())
    }

    /// Writes an int.
    pub(crate) fn int(&mut self, label: &str, offset: u32, int: u32) -> &mut Self {
        self.put(label, offset, &int.to_le_bytes())
    }

    /// Writes a pointer to another label.
    pub(crate) fn point(&mut self, label: &str, offset: u32, to: &str) -> &mut Self {
        let to = self.at(to).0;
        self.word(label, offset, to)
    }

    /// Takes a label's bytes away.
    pub(crate) fn unmap(&mut self, label: &str) -> &mut Self {
        let at = self.at(label).0;
        self.bytes.remove(&at);
        self
    }

    /// Lets the pages that begin with a label be there whole.
    pub(crate) fn fill_pages(&mut self) -> &mut Self {
        for bytes in self.bytes.values_mut() {
            bytes.resize(bytes.len().next_multiple_of(4096), 0);
        }
        self
    }

    /// An ASCII str.
    pub(crate) fn ascii(&mut self, label: &str, layout: &Layout, text: &str) -> &mut Self {
        let fields = &layout.unicode;
        let state = fields.ascii_mask | fields.compact_mask | kind_bits(layout, 1);
        self.point(label, layout.object.ob_type, "type str");
        self.word(label, fields.length, text.len() as u64);
        self.int(label, fields.state, state);
        self.put(label, fields.ascii_size, text.as_bytes())
    }

    /// A compact str of characters of `kind` bytes.
    pub(crate) fn wide(
        &mut self,
        label: &str,
        layout: &Layout,
        kind: u32,
        characters: &[u8],
    ) -> &mut Self {
        let fields = &layout.unicode;
        let length = characters.len() as u64 / u64::from(kind.max(1));
        self.word(label, fields.length, length);
        let state = fields.compact_mask | kind_bits(layout, kind);
        self.int(label, fields.state, state);
        self.put(label, fields.compact_size, characters)
    }

    /// A bytes object.
    pub(crate) fn binary(&mut self, label: &str, layout: &Layout, content: &[u8]) -> &mut Self {
        self.word(label, layout.bytes.size, content.len() as u64);
        self.put(label, layout.bytes.data, content)
    }

    /// A type with a name.
    pub(crate) fn class(&mut self, label: &str, layout: &Layout, name: &str) -> &mut Self {
        let text = format!("{label}, name");
        self.put(&text, 0, name.as_bytes()).put(&text, 0xFF, &[0]);
        self.point(label, layout.class.name, &text)
    }

    /// A dict whose keys are ASCII, of 3.11 and later.
    pub(crate) fn dict(
        &mut self,
        label: &str,
        layout: &Layout,
        entries: &[(&str, &str)],
    ) -> &mut Self {
        let keys = format!("{label}, keys");
        self.class("type dict", layout, "dict");
        self.point(label, layout.object.ob_type, "type dict");
        self.point(label, layout.dict.keys, &keys);
        self.word(label, layout.dict.values, 0);
        let fields = layout.keys;
        let log2 = 3;
        self.put(&keys, fields.log2_index_bytes.unwrap_or(0), &[log2, 1]);
        self.word(&keys, fields.nentries, entries.len() as u64);
        let mut at = fields.indices + (1 << log2);
        self.put(&keys, at, &[]);
        for (key, value) in entries {
            let text = format!("str {key}");
            self.ascii(&text, layout, key);
            self.point(&keys, at + fields.str_entry_key.unwrap_or(0), &text);
            self.point(&keys, at + fields.str_entry_value.unwrap_or(0), value);
            at += fields.str_entry_size.unwrap_or(0);
        }
        self
    }

    /// An interpreter of 3.12 with one thread, good enough to attach to.
    pub(crate) fn python_3_12() -> (Self, Layout, Found) {
        Self::python(Version::release(3, 12, 1), Build::Default)
    }

    /// The same of 3.14 without the GIL.
    pub(crate) fn python_3_14t() -> (Self, Layout, Found) {
        let version = Version::release(3, 14, 7);
        let (mut fake, layout, found) = Self::python(version, Build::FreeThreaded);
        let words = layout::recorded::V3_14_7T.iter();
        let words: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
        fake.put("runtime", 0, layout::debug_offsets::COOKIE);
        fake.put("runtime", 8, &words);
        fake.point("interp", layout.interp.gil.unwrap_or(0), "gil");
        fake.int("gil", layout.gil.enabled.unwrap_or(0), 0);
        (fake, layout, found)
    }

    fn python(version: Version, build: Build) -> (Self, Layout, Found) {
        let layout = layout::of_version(version, build).expect("a table");
        let mut fake = Self::default();
        fake.point("runtime", layout.runtime.interpreters_head, "interp");
        let key = layout.runtime.auto_tss_key.expect("a key");
        fake.int("runtime", key, 1).int("runtime", key + 4, 2);
        fake.word("interp", layout.interp.next, 0)
            .word("interp", layout.interp.id, 0)
            .point("interp", layout.interp.threads_head, "thread")
            .point("interp", layout.interp.modules, "modules");
        fake.thread("thread", &layout, "interp", None);
        fake.dict(
            "modules",
            &layout,
            &[("builtins", "builtins"), ("sys", "sys")],
        );
        fake.point("sys", layout.object.size, "sys dict");
        fake.dict("sys dict", &layout, &[("hexversion", "int")]);
        // One digit: tag is 1 << 3.
        fake.word("int", layout.long.tag, 8);
        let hex = 0x0300_00F0 | u32::from(version.minor) << 16 | u32::from(version.patch) << 8;
        fake.int("int", layout.long.digits, hex);
        let found = Found {
            runtime: fake.at("runtime"),
            version,
            free_threaded: build == Build::FreeThreaded,
            image: "/usr/bin/python3".to_owned(),
            by: FoundBy::Symbol,
            libc: Libc::Glibc,
            gilstate_hops: Vec::new(),
        };
        (fake, layout, found)
    }

    /// A thread state, and the control block of its thread.
    pub(crate) fn thread(
        &mut self,
        label: &str,
        layout: &Layout,
        interp: &str,
        next: Option<&str>,
    ) -> &mut Self {
        let block = format!("{label}, pthread");
        self.point(&block, 0, &block.clone());
        let fields = layout.tstate;
        self.word(label, fields.id, 1);
        self.point(label, fields.interp, interp);
        self.point(label, fields.thread_id, &block);
        self.word(label, fields.native_thread_id.unwrap_or(0), 4711);
        match next {
            Some(next) => self.point(label, fields.next, next),
            None => self.word(label, fields.next, 0),
        }
    }
}

fn kind_bits(layout: &Layout, kind: u32) -> u32 {
    kind << layout.unicode.kind_mask.trailing_zeros()
}

impl Memory for Fake {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        let held = self.bytes.range(..=addr.0).next_back();
        let held = held.and_then(|(start, bytes)| {
            let from = usize::try_from(addr.0 - start).ok()?;
            bytes.get(from..from.checked_add(buf.len())?)
        });
        match held {
            Some(bytes) => {
                buf.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(ReadError {
                addr,
                bytes: buf.len(),
                kind: ReadErrorKind::Unmapped,
            }),
        }
    }
}
