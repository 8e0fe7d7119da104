//! Small ELF files made by hand, and what a hostile one can do.

use std::io::Cursor;

use super::*;

/// A section: name, type, address, content, index of the section it links to.
pub(in crate::cpython::find) type Part<'a> = (&'a str, u32, u64, &'a [u8], u32);

/// An ELF file of one segment and these sections.
pub(in crate::cpython::find) fn elf(kind: u16, parts: &[Part<'_>]) -> Vec<u8> {
    let mut names = vec![0];
    let mut contents: Vec<u8> = Vec::new();
    let mut headers = vec![[0_u8; 64]];
    let strings: Part<'_> = (".shstrtab", elf::SHT_STRTAB, 0, &[], 0);
    for (name, kind, addr, content, link) in parts.iter().chain([&strings]) {
        let name_at = names.len() as u32;
        names.extend(name.bytes().chain([0]));
        let content = if *name == ".shstrtab" {
            &names
        } else {
            *content
        };
        let mut header = [0; 64];
        header[..4].copy_from_slice(&name_at.to_le_bytes());
        header[4..8].copy_from_slice(&kind.to_le_bytes());
        header[16..24].copy_from_slice(&addr.to_le_bytes());
        header[24..32].copy_from_slice(&(120 + contents.len() as u64).to_le_bytes());
        header[32..40].copy_from_slice(&(content.len() as u64).to_le_bytes());
        header[40..44].copy_from_slice(&link.to_le_bytes());
        headers.push(header);
        contents.extend(content);
    }
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend(kind.to_le_bytes());
    file.extend(elf::EM_X86_64.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    let section_headers = 120 + contents.len() as u64;
    for word in [0, 64, section_headers] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    let count = headers.len() as u16;
    for half in [64, 56, 1, 64, count, count - 1] {
        file.extend(half.to_le_bytes());
    }
    file.extend(elf::PT_LOAD.to_le_bytes());
    file.extend(5_u32.to_le_bytes());
    for word in [0x2000_u64, 0x40_2000, 0, 0x100, 0x100, 0x1000] {
        file.extend(word.to_le_bytes());
    }
    file.extend(contents);
    file.extend(headers.concat());
    file
}

fn symbol(name: u32, section: u16, value: u64) -> Vec<u8> {
    let mut symbol = name.to_le_bytes().to_vec();
    symbol.extend([0x11, 0]);
    symbol.extend(section.to_le_bytes());
    symbol.extend(value.to_le_bytes());
    symbol.extend(8_u64.to_le_bytes());
    symbol
}

fn facts(file: &[u8]) -> Result<ImageFacts, &'static str> {
    examine(Box::new(Cursor::new(file.to_vec())), &[], Depth::Tables)
}

const NAMES: &[u8] = b"\0_PyRuntime\0Py_Version\0_PyThreadState_Current\0";

fn with_symbols(kind: u32, symbols: &[u8]) -> Vec<u8> {
    let parts: [Part<'_>; 3] = [
        (".table", kind, 0, symbols, 2),
        (".names", elf::SHT_STRTAB, 0, NAMES, 0),
        (".rodata", elf::SHT_PROGBITS, 0x5000, b"constants", 0),
    ];
    elf(elf::ET_DYN, &parts)
}

#[test]
fn the_runtime_is_found_by_either_table_of_symbols() {
    let symbols = [symbol(1, 5, 0x8000), symbol(12, 5, 0x9000)].concat();
    for kind in [elf::SHT_DYNSYM, elf::SHT_SYMTAB] {
        let facts = facts(&with_symbols(kind, &symbols)).expect("an ELF file");
        assert_eq!(facts.runtime_symbol, Some(0x8000));
        assert_eq!(facts.py_version, Some(0x9000));
        assert_eq!(facts.constants[0].end - facts.constants[0].start, 9);
        assert_eq!((facts.bias, facts.before_runtime), (None, false));
    }
}

#[test]
fn a_symbol_that_the_image_only_asks_for_is_not_in_it() {
    let file = with_symbols(elf::SHT_DYNSYM, &symbol(1, 0, 0x8000));
    assert_eq!(facts(&file).expect("an ELF file").runtime_symbol, None);
}

#[test]
fn the_runtime_is_found_by_its_section_where_symbols_are_stripped() {
    let part: Part<'_> = (".PyRuntime", elf::SHT_PROGBITS, 0x7000, &[0; 32], 0);
    let facts = facts(&elf(elf::ET_EXEC, &[part])).expect("an ELF file");
    assert_eq!(
        (facts.runtime_symbol, facts.runtime_section),
        (None, Some(0x7000))
    );
    assert_eq!(facts.bias, Some(0));
}

#[test]
fn an_interpreter_before_the_runtime_is_known_by_its_symbol() {
    let file = with_symbols(elf::SHT_DYNSYM, &symbol(23, 5, 0x8000));
    assert!(facts(&file).expect("an ELF file").before_runtime);
}

#[test]
fn what_is_no_elf_file_of_this_machine_says_so() {
    let good = elf(elf::ET_DYN, &[]);
    let check = |at: usize, byte: u8, wrong: &str| {
        let mut bad = good.clone();
        bad[at] = byte;
        assert_eq!(facts(&bad).err(), Some(wrong));
    };
    assert_eq!(
        facts(b"#!/bin/sh\n").err(),
        Some("too short to be an ELF file")
    );
    check(0, b'x', "not an ELF file");
    check(4, 1, "not a 64-bit little-endian ELF file");
    check(5, 2, "not a 64-bit little-endian ELF file");
    check(18, 183, "not for x86-64");
}

#[test]
fn no_damage_to_a_file_panics_or_allocates_without_bounds() {
    let symbols = [symbol(1, 5, 0x8000), symbol(12, 5, 0x9000)].concat();
    let good = with_symbols(elf::SHT_DYNSYM, &symbols);
    for length in 0..good.len() {
        let _ = facts(&good[..length]);
    }
    for at in 0..good.len() {
        for byte in [0, 1, 0x7F, 0x80, 0xFF] {
            let mut bad = good.clone();
            bad[at] = byte;
            let _ = facts(&bad);
        }
    }
}

/// A megabyte of names without an end, and tens of thousands of symbols that all begin there:
/// each name by itself would be a megabyte to go through.
#[test]
fn names_without_an_end_are_not_gone_through() {
    let names = vec![b'_'; 1 << 20];
    let symbols = symbol(1, 5, 0x8000).repeat(1 << 15);
    let parts: [Part<'_>; 2] = [
        (".table", elf::SHT_DYNSYM, 0, &symbols, 2),
        (".names", elf::SHT_STRTAB, 0, &names, 0),
    ];
    let start = std::time::Instant::now();
    let facts = facts(&elf(elf::ET_DYN, &parts)).expect("an ELF file");
    assert_eq!(facts.runtime_symbol, None);
    assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
}

/// Each table may be 16 MB, and holes in a file cost nothing.
#[test]
fn of_very_many_tables_of_symbols_few_are_read() {
    let symbols = symbol(1, 5, 0x8000);
    let mut parts: Vec<Part<'_>> = vec![(".table", elf::SHT_DYNSYM, 0, b"", 6); MAX_TABLES];
    parts.extend(vec![(".table", elf::SHT_DYNSYM, 0, &*symbols, 6); 3]);
    parts.push((".names", elf::SHT_STRTAB, 0, NAMES, 0));
    let with = |parts: &[Part<'_>]| {
        let facts = facts(&elf(elf::ET_DYN, parts)).expect("an ELF file");
        facts.runtime_symbol
    };
    assert_eq!(with(&parts), None);
    parts.swap(0, MAX_TABLES);
    assert_eq!(with(&parts), Some(0x8000));
}
