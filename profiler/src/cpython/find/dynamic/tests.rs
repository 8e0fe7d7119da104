//! A file of nothing but what a dynamic linker needs, made by hand.

use std::io::Cursor;

use super::super::image::{Depth, ImageFacts, examine};
use super::*;

/// Where the segment says it belongs.
const VADDR: u64 = 0x1000;
/// What the segment holds, by its places in the file.
const TABLE: u64 = 0x100;
const SYMBOLS: u64 = 0x180;
const NAMES: u64 = 0x200;
const HASH: u64 = 0x280;
const BYTES: u64 = 0x400;

/// The names, and whether each is defined here. The first symbol is nobody's.
const DEFINED: [(&str, bool); 4] = [
    ("", false),
    ("Py_Version", true),
    ("_PyRuntime", true),
    ("PyGILState_GetThisThreadState", false),
];

struct File(Vec<u8>);

impl File {
    fn put(&mut self, at: u64, bytes: &[u8]) {
        let at = at as usize;
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn word(&mut self, at: u64, word: u64) {
        self.put(at, &word.to_le_bytes());
    }

    fn int(&mut self, at: u64, int: u32) {
        self.put(at, &int.to_le_bytes());
    }

    /// With a table of this kind, whose addresses are `moved` further than the segment says.
    fn new(hash: i64, moved: u64) -> Self {
        let mut file = Self(vec![0; BYTES as usize]);
        file.put(0, b"\x7fELF\x02\x01\x01");
        file.put(16, &elf::ET_DYN.to_le_bytes());
        file.put(18, &elf::EM_X86_64.to_le_bytes());
        file.word(32, 64);
        file.put(56, &2_u16.to_le_bytes());
        for (at, kind, offset, bytes) in [
            (64, elf::PT_LOAD, 0, BYTES),
            (120, elf::PT_DYNAMIC, TABLE, 0x50),
        ] {
            file.int(at, kind);
            file.word(at + 8, offset);
            file.word(at + 16, VADDR + offset);
            file.word(at + 32, bytes);
        }
        for (at, tag, place) in [
            (TABLE, elf::DT_STRTAB, NAMES),
            (TABLE + 16, elf::DT_SYMTAB, SYMBOLS),
            (TABLE + 32, hash, HASH),
        ] {
            file.word(at, tag.cast_unsigned());
            file.word(at + 8, VADDR + place + moved);
        }
        let mut name = NAMES;
        for (index, (text, defined)) in (0..).zip(DEFINED) {
            let symbol = SYMBOLS + 24 * index;
            file.int(symbol, (name - NAMES) as u32);
            file.put(symbol + 6, &[u8::from(defined), 0]);
            file.word(symbol + 8, 0x8000 + index);
            file.put(name, text.as_bytes());
            name += text.len() as u64 + 1;
        }
        file
    }

    /// Both kinds of table with one bucket, in which all symbols are.
    fn sysv(moved: u64) -> Self {
        let mut file = Self::new(elf::DT_HASH, moved);
        for (at, int) in (0..).zip([1, 4, 1, 0, 2, 3, 0]) {
            file.int(HASH + 4 * at, int);
        }
        file
    }

    fn gnu(moved: u64) -> Self {
        let mut file = Self::new(elf::DT_GNU_HASH, moved);
        // One bucket, the first symbol is 1, one word of the filter, which lets all through.
        for (at, int) in (0..).zip([1, 1, 1, 6, u32::MAX, u32::MAX, 1]) {
            file.int(HASH + 4 * at, int);
        }
        for (index, (text, _)) in (0..).zip(&DEFINED[1..]) {
            let last = u32::from(index == 2);
            let hash = elf::gnu_hash(text.as_bytes()) & !1 | last;
            file.int(HASH + 28 + 4 * index, hash);
        }
        file
    }

    fn facts(&self) -> ImageFacts {
        let mapping = super::super::MappedFile {
            path: "/some".to_owned(),
            start: crate::words::RemoteAddr(0x7000_0000),
            end: crate::words::RemoteAddr(0x7000_1000),
            file_offset: 0,
            executable: true,
            writable: false,
            inode: 1,
        };
        let stream = Box::new(Cursor::new(self.0.clone()));
        examine(stream, &[&mapping], Depth::Names).expect("an ELF file")
    }
}

#[test]
fn a_symbol_is_found_by_either_kind_of_hash_table() {
    for file in [File::sysv(0), File::gnu(0)] {
        let facts = file.facts();
        assert_eq!(facts.runtime_symbol, Some(0x8002));
        assert_eq!(facts.py_version, Some(0x8001));
        assert_eq!(facts.gilstate_getter, None, "it is only asked for");
        assert!(!facts.before_runtime);
    }
}

#[test]
fn tables_that_the_loader_has_made_final_are_understood() {
    let bias = File::gnu(0).facts().bias.expect("it is mapped");
    assert_eq!(bias, 0x7000_0000 - VADDR);
    for file in [File::sysv(bias), File::gnu(bias)] {
        assert_eq!(file.facts().runtime_symbol, Some(0x8002));
    }
    assert_eq!(File::gnu(bias + 0x10_0000).facts().runtime_symbol, None);
}

#[test]
fn a_filter_that_lets_nothing_through_hides_every_symbol() {
    let mut file = File::gnu(0);
    file.word(HASH + 16, 0);
    assert_eq!(file.facts().runtime_symbol, None);
}

#[test]
fn chains_without_an_end_are_given_up() {
    let mut file = File::sysv(0);
    // The third symbol's successor is the first.
    file.int(HASH + 4 * 6, 1);
    file.put(NAMES, &[b'x'; 64]);
    assert_eq!(file.facts().runtime_symbol, None);
}

#[test]
fn no_damage_to_the_tables_panics() {
    for good in [File::sysv(0), File::gnu(0)] {
        for at in 0..BYTES {
            for byte in [0, 1, 0x7F, 0x80, 0xFF] {
                let mut bad = File(good.0.clone());
                bad.put(at, &[byte]);
                let stream = Box::new(Cursor::new(bad.0));
                let _ = examine(stream, &[], Depth::Tables);
            }
        }
    }
}
