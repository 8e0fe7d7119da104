//! What an ELF file says about CPython: the only place that knows the `object` crate.
//!
//! The bytes are a file's, or those of it that a process has mapped: of the latter the program
//! headers and the dynamic symbols are enough, which no `strip` takes away. Reads through a cache
//! of pieces, never the whole file, and refuses tables beyond a cap. Not here: which files are
//! looked at, and what the process itself says.

use std::ops::Range;

use object::elf::{self, FileHeader64, ProgramHeader64, SectionHeader64, Sym64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{LittleEndian, ReadCache, ReadRef};

use super::dynamic::Dynamic;
use super::{MappedFile, PAGE, ReadSeek};

/// Largest table of symbols or of their names that is read.
const MAX_TABLE: u64 = 16 << 20;
/// Most program and section headers.
const MAX_HEADERS: u64 = 4096;
/// Most loaded segments; a file has four or five.
const MAX_SEGMENTS: usize = 64;
/// Most tables of symbols of one kind that are read; an image has one.
const MAX_TABLES: usize = 2;
/// Longest name of a symbol or section that is compared; those that are looked for are shorter.
const MAX_NAME: usize = 64;
pub(super) const LE: LittleEndian = LittleEndian;

/// A part of the file that is loaded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) vaddr: u64,
    pub(super) writable: bool,
}

/// Where things are by the file's own addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct ImageFacts {
    /// What to add to the file's addresses: where a loaded segment was mapped, minus where it
    /// says it belongs. None when no mapping fits.
    pub(super) bias: Option<u64>,
    /// Symbol `_PyRuntime`.
    pub(super) runtime_symbol: Option<u64>,
    /// Section `.PyRuntime`.
    pub(super) runtime_section: Option<u64>,
    /// Section `.AsyncioDebug`.
    pub(super) asyncio_section: Option<u64>,
    /// Symbol `Py_Version`.
    pub(super) py_version: Option<u64>,
    /// Symbol `PyGILState_GetThisThreadState`.
    pub(super) gilstate_getter: Option<u64>,
    /// Symbol `_PyThreadState_Current`, which only versions without `_PyRuntime` have.
    pub(super) before_runtime: bool,
    /// Parts of the file that hold constants.
    pub(super) constants: Vec<Range<u64>>,
}

impl ImageFacts {
    /// Takes over a symbol, if it is one that is looked for; one already known stays.
    fn symbol(&mut self, name: &[u8], value: u64) {
        let place = match name {
            b"_PyRuntime" => &mut self.runtime_symbol,
            b"Py_Version" => &mut self.py_version,
            b"PyGILState_GetThisThreadState" => &mut self.gilstate_getter,
            b"_PyThreadState_Current" => {
                self.before_runtime = true;
                return;
            }
            _ => return,
        };
        place.get_or_insert(value);
    }
}

/// The symbols that are looked for by name.
const SYMBOLS: [&[u8]; 4] = [
    b"_PyRuntime",
    b"Py_Version",
    b"PyGILState_GetThisThreadState",
    b"_PyThreadState_Current",
];

/// How closely to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// The dynamic symbols by their hash table, and the sections' names: a few small reads.
    Names,
    /// Every symbol of every table too, which can be megabytes.
    Tables,
}

pub(super) type Cache<'a> = ReadCache<Box<dyn ReadSeek + 'a>>;
type Header = FileHeader64<LittleEndian>;
type Section = SectionHeader64<LittleEndian>;

/// Looks through one file, of which these are the mappings; the error is a phrase that says what
/// is wrong with it.
pub(super) fn examine(
    stream: Box<dyn ReadSeek + '_>,
    mappings: &[&MappedFile],
    depth: Depth,
) -> Result<ImageFacts, &'static str> {
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
    let programs = programs(header, data)?;
    let segments = segments(programs);
    // Addresses of such a file are final.
    let fixed = header.e_type(LE) == elf::ET_EXEC;
    let mut facts = ImageFacts {
        bias: if fixed {
            Some(0)
        } else {
            bias(&segments, mappings)
        },
        ..ImageFacts::default()
    };
    if let Some(table) = programs.iter().find(|p| p.p_type(LE) == elf::PT_DYNAMIC) {
        let place = (table.p_offset(LE), table.p_filesz(LE));
        let dynamic = Dynamic::read(data, place, &segments, facts.bias.unwrap_or(0));
        for name in SYMBOLS {
            if let Some(value) = dynamic.as_ref().and_then(|it| it.symbol(data, name)) {
                facts.symbol(name, value);
            }
        }
    }
    // Headers of sections serve no running program, so anything may stand there, or nothing.
    let sections = sections(header, data).unwrap_or_default();
    for section in sections {
        match name_of(header, sections, section, data) {
            Some(b".PyRuntime") => facts.runtime_section = Some(section.sh_addr(LE)),
            Some(b".AsyncioDebug") => facts.asyncio_section = Some(section.sh_addr(LE)),
            Some(b".rodata") => facts.constants.extend(file_range(section)),
            _ => {}
        }
    }
    if facts.constants.is_empty() {
        let constant = segments.iter().filter(|segment| !segment.writable);
        facts.constants = constant
            .filter_map(|it| Some(it.offset..it.offset.checked_add(it.bytes)?))
            .collect();
    }
    if depth == Depth::Tables && facts.runtime_symbol.is_none() {
        for kind in [elf::SHT_DYNSYM, elf::SHT_SYMTAB] {
            symbols(&mut facts, sections, kind, data);
        }
    }
    Ok(facts)
}

fn programs<'a>(
    header: &Header,
    data: &'a Cache<'_>,
) -> Result<&'a [ProgramHeader64<LittleEndian>], &'static str> {
    let count = u64::from(header.e_phnum(LE)).min(MAX_HEADERS) as usize;
    data.read_slice_at(header.e_phoff(LE), count)
        .map_err(|()| "its program headers cannot be read")
}

fn segments(programs: &[ProgramHeader64<LittleEndian>]) -> Vec<Segment> {
    let loaded = programs.iter().filter(|it| it.p_type(LE) == elf::PT_LOAD);
    let segments = loaded.take(MAX_SEGMENTS).map(|it| Segment {
        offset: it.p_offset(LE),
        bytes: it.p_filesz(LE),
        vaddr: it.p_vaddr(LE),
        writable: it.p_flags(LE) & elf::PF_W != 0,
    });
    segments.collect()
}

fn bias(segments: &[Segment], mappings: &[&MappedFile]) -> Option<u64> {
    let down = |addr: u64| addr & !(PAGE - 1);
    segments.iter().find_map(|segment| {
        let mapping = mappings
            .iter()
            .find(|file| file.file_offset == down(segment.offset))?;
        Some(mapping.start.0.wrapping_sub(down(segment.vaddr)))
    })
}

fn sections<'a>(header: &Header, data: &'a Cache<'_>) -> Option<&'a [Section]> {
    let count = u64::from(header.e_shnum(LE)).min(MAX_HEADERS) as usize;
    if header.e_shoff(LE) == 0 || count == 0 {
        return None;
    }
    data.read_slice_at(header.e_shoff(LE), count).ok()
}

fn file_range(section: &Section) -> Option<Range<u64>> {
    let (start, size) = section.file_range(LE)?;
    Some(start..start.checked_add(size)?)
}

fn name_of<'a>(
    header: &Header,
    sections: &[Section],
    section: &Section,
    data: &'a Cache<'_>,
) -> Option<&'a [u8]> {
    let names = bytes_of(sections.get(usize::from(header.e_shstrndx(LE)))?, data)?;
    c_string(names, section.sh_name(LE))
}

/// The content of a section that holds a table.
fn bytes_of<'a>(section: &Section, data: &'a Cache<'_>) -> Option<&'a [u8]> {
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
fn symbols(facts: &mut ImageFacts, sections: &[Section], kind: u32, data: &Cache<'_>) {
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
            if let Some(name) = c_string(names, symbol.st_name(LE)) {
                facts.symbol(name, symbol.st_value(LE));
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
