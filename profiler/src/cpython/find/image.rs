//! What an ELF file says about CPython: the only place that knows the `object` crate.
//!
//! Reads through a cache of pieces, never the whole file, and refuses tables beyond a cap. Not
//! here: which files are looked at, and what the process itself says.

use std::ops::Range;

use object::elf::{self, FileHeader64, ProgramHeader64, SectionHeader64, Sym64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{LittleEndian, ReadCache, ReadRef};

use super::ReadSeek;

/// Largest table of symbols or of their names that is read.
const MAX_TABLE: u64 = 16 << 20;
/// Most program and section headers.
const MAX_HEADERS: u64 = 4096;
/// Most tables of symbols of one kind that are read; an image has one.
const MAX_TABLES: usize = 2;
/// Longest name of a symbol or section that is compared; those that are looked for are shorter.
const MAX_NAME: usize = 64;
const LE: LittleEndian = LittleEndian;

/// A part of the file that is loaded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) offset: u64,
    pub(super) vaddr: u64,
}

/// Where things are by the file's own addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct ImageFacts {
    /// Addresses are final (`ET_EXEC`): the load bias is 0.
    pub(super) fixed: bool,
    pub(super) segments: Vec<Segment>,
    /// Symbol `_PyRuntime`.
    pub(super) runtime_symbol: Option<u64>,
    /// Section `.PyRuntime`.
    pub(super) runtime_section: Option<u64>,
    /// Symbol `Py_Version`.
    pub(super) py_version: Option<u64>,
    /// Symbol `PyGILState_GetThisThreadState`.
    pub(super) gilstate_getter: Option<u64>,
    /// Symbol `_PyThreadState_Current`, which only versions without `_PyRuntime` have.
    pub(super) before_runtime: bool,
    /// Parts of the file that hold constants.
    pub(super) constants: Vec<Range<u64>>,
}

type Cache = ReadCache<Box<dyn ReadSeek>>;
type Header = FileHeader64<LittleEndian>;
type Section = SectionHeader64<LittleEndian>;

/// Looks through one file; the error is a phrase that says what is wrong with it.
pub(super) fn examine(stream: Box<dyn ReadSeek>) -> Result<ImageFacts, &'static str> {
    let cache = ReadCache::new(stream);
    let data = &cache;
    let header: &Header = data
        .read_at(0)
        .map_err(|()| "too short to be an ELF file")?;
    if header.e_ident().magic != elf::ELFMAG {
        return Err("not an ELF file");
    }
    if !header.is_class_64() || !header.is_little_endian() {
        return Err("not a 64-bit little-endian ELF file");
    }
    if header.e_machine(LE) != elf::EM_X86_64 {
        return Err("not for x86-64");
    }
    let mut facts = ImageFacts {
        fixed: header.e_type(LE) == elf::ET_EXEC,
        segments: segments(header, data)?,
        ..ImageFacts::default()
    };
    let sections = sections(header, data)?;
    for section in sections {
        match name_of(header, sections, section, data) {
            Some(b".PyRuntime") => facts.runtime_section = Some(section.sh_addr(LE)),
            Some(b".rodata") => facts.constants.extend(file_range(section)),
            _ => {}
        }
    }
    symbols(&mut facts, sections, elf::SHT_DYNSYM, data);
    if facts.runtime_symbol.is_none() && facts.runtime_section.is_none() {
        symbols(&mut facts, sections, elf::SHT_SYMTAB, data);
    }
    Ok(facts)
}

fn segments(header: &Header, data: &Cache) -> Result<Vec<Segment>, &'static str> {
    const BROKEN: &str = "its program headers cannot be read";
    let count = u64::from(header.e_phnum(LE)).min(MAX_HEADERS) as usize;
    let headers: &[ProgramHeader64<LittleEndian>] = data
        .read_slice_at(header.e_phoff(LE), count)
        .map_err(|()| BROKEN)?;
    let loaded = headers
        .iter()
        .filter(|header| header.p_type(LE) == elf::PT_LOAD);
    let segments = loaded.map(|header| Segment {
        offset: header.p_offset(LE),
        vaddr: header.p_vaddr(LE),
    });
    Ok(segments.collect())
}

fn sections<'a>(header: &Header, data: &'a Cache) -> Result<&'a [Section], &'static str> {
    let count = u64::from(header.e_shnum(LE)).min(MAX_HEADERS) as usize;
    if header.e_shoff(LE) == 0 || count == 0 {
        return Ok(&[]);
    }
    data.read_slice_at(header.e_shoff(LE), count)
        .map_err(|()| "its section headers cannot be read")
}

fn file_range(section: &Section) -> Option<Range<u64>> {
    let (start, size) = section.file_range(LE)?;
    Some(start..start.checked_add(size)?)
}

fn name_of<'a>(
    header: &Header,
    sections: &[Section],
    section: &Section,
    data: &'a Cache,
) -> Option<&'a [u8]> {
    let names = bytes_of(sections.get(usize::from(header.e_shstrndx(LE)))?, data)?;
    c_string(names, section.sh_name(LE))
}

/// The content of a section that holds a table.
fn bytes_of<'a>(section: &Section, data: &'a Cache) -> Option<&'a [u8]> {
    let (start, size) = section.file_range(LE)?;
    if size > MAX_TABLE {
        return None;
    }
    data.read_bytes_at(start, size).ok()
}

/// The name at an offset; none when it is too long to be one that is looked for, so that a
/// table without an end to its names is not gone through for each of its symbols.
fn c_string(table: &[u8], offset: u32) -> Option<&[u8]> {
    let rest = table.get(offset as usize..)?;
    let rest = &rest[..rest.len().min(MAX_NAME)];
    let end = rest.iter().position(|byte| *byte == 0)?;
    rest.get(..end)
}

/// Takes over the symbols of one kind of table; those already known stay.
fn symbols(facts: &mut ImageFacts, sections: &[Section], kind: u32, data: &Cache) {
    let tables = sections
        .iter()
        .filter(|section| section.sh_type(LE) == kind);
    for section in tables.take(MAX_TABLES) {
        let names = sections
            .get(section.sh_link(LE) as usize)
            .and_then(|section| bytes_of(section, data));
        let symbols = section.file_range(LE).and_then(|(start, size)| {
            let count = size.min(MAX_TABLE) as usize / size_of::<Sym64<LittleEndian>>();
            let symbols: &[Sym64<LittleEndian>] = data.read_slice_at(start, count).ok()?;
            Some(symbols)
        });
        let (Some(names), Some(symbols)) = (names, symbols) else {
            continue;
        };
        for symbol in symbols {
            if symbol.st_shndx(LE) == elf::SHN_UNDEF {
                continue;
            }
            let place = match c_string(names, symbol.st_name(LE)) {
                Some(b"_PyRuntime") => &mut facts.runtime_symbol,
                Some(b"Py_Version") => &mut facts.py_version,
                Some(b"PyGILState_GetThisThreadState") => &mut facts.gilstate_getter,
                Some(b"_PyThreadState_Current") => {
                    facts.before_runtime = true;
                    continue;
                }
                _ => continue,
            };
            place.get_or_insert(symbol.st_value(LE));
        }
    }
}

#[cfg(test)]
mod tests;
