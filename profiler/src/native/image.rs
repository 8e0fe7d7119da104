//! What unwinding needs of a program or library: its segments and its unwind information.
//!
//! Program headers alone lead there, so no `strip` or packer is in the way. The bytes are the
//! file's, or, where it cannot be opened, what the process has mapped of it: the vdso has no file
//! at all. An image is read once and shared by all processes that have it mapped. It keeps its file
//! open, so that it can still be named when the process is over.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, FrameDescriptionEntry, LittleEndian,
    RegisterRule, UnwindContext, UnwindSection, UnwindTable, X86_64,
};
use object::elf::{
    EM_X86_64, FileHeader64, PF_X, PT_GNU_EH_FRAME, PT_LOAD, PT_NOTE, ProgramHeader64,
};
use object::pod;
use rustc_hash::FxHashMap;

use crate::target::Memory;
use crate::words::RemoteAddr;

/// Most program headers; a file has about a dozen.
const MAX_HEADERS: usize = 256;
/// Most bytes of unwind information of one image. The largest known, of libraries with a hundred
/// megabytes of code, have about 30.
const MAX_UNWIND_BYTES: u64 = 64 << 20;
/// Most bytes of unwind information of all images together.
const MAX_ALL_BYTES: u64 = 256 << 20;
/// Most images, each of which keeps a file open.
const MAX_IMAGES: usize = 512;

const LE: object::LittleEndian = object::LittleEndian;

/// A part of the file that is loaded.
#[derive(Clone, Copy, Debug)]
struct Segment {
    offset: u64,
    bytes: u64,
    vaddr: u64,
    executable: bool,
}

/// A section and where it says that it is.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) vaddr: u64,
    pub(super) bytes: Arc<[u8]>,
}

/// The unwind information of an image.
#[derive(Clone, Debug)]
pub(super) struct UnwindSections {
    /// `.eh_frame_hdr`, the sorted table.
    pub(super) table: Section,
    /// `.eh_frame`, and whatever follows it in its segment.
    pub(super) frames: Section,
}

/// What of a function the unwind information tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cover {
    /// It can be unwound from this address.
    Function,
    /// The same, but it begins in the middle of a frame: it is a piece of a function that is
    /// elsewhere, such as one that the compiler found to be rarely run.
    Piece,
    /// Nothing is known of the code there.
    Nothing,
}

/// Code that has unwind information in common: a function, or a piece of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) range: Range<u64>,
    /// It begins in the middle of a frame.
    pub(super) is_piece: bool,
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Fde<'a> = FrameDescriptionEntry<Slice<'a>>;

/// The build id among notes: each is three words, a name and a description, both padded to words.
fn build_id(notes: &[u8]) -> Option<Box<[u8]>> {
    const NT_GNU_BUILD_ID: u32 = 3;
    const MAX_BYTES: usize = 64;
    let mut rest = notes;
    loop {
        let word = |at: usize| {
            let bytes = rest.get(at..at + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        let (name, description, kind) = (word(0)?, word(4)?, word(8)?);
        let (name, description) = (name as usize, description as usize);
        let begins = 12_usize.checked_add(name.checked_next_multiple_of(4)?)?;
        let ends = begins.checked_add(description)?;
        let is_gnu = rest.get(12..)?.starts_with(b"GNU\0");
        if kind == NT_GNU_BUILD_ID && name == 4 && is_gnu && (2..=MAX_BYTES).contains(&description)
        {
            return Some(rest.get(begins..ends)?.into());
        }
        rest = rest.get(ends.checked_next_multiple_of(4)?..)?;
    }
}

/// A program or library.
#[derive(Debug)]
pub struct Image {
    pub(super) name: Arc<str>,
    pub(super) file: Option<File>,
    pub(super) is_vdso: bool,
    pub(super) unwind: Option<UnwindSections>,
    /// The number that its linker gave it, by which its debug information is found apart from it.
    pub(super) build_id: Option<Box<[u8]>>,
    segments: Vec<Segment>,
}

/// Where the bytes of an image come from.
pub(super) enum Bytes<'a> {
    /// The file, by offset.
    File(&'a File),
    /// The memory of a process; the file's first byte is mapped there.
    Memory(&'a dyn Memory, RemoteAddr),
}

impl Bytes<'_> {
    /// `count` bytes, which are at this offset of the file, and so far behind the first segment.
    fn read(&self, offset: u64, from_first: u64, count: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; count];
        match self {
            Self::File(file) => file.read_exact_at(&mut bytes, offset).ok()?,
            Self::Memory(memory, base) => memory.read(base.plus(from_first), &mut bytes).ok()?,
        }
        Some(bytes)
    }
}

impl Image {
    /// The image in these bytes; none when it is no program or library of this machine.
    pub(super) fn read(name: Arc<str>, bytes: &Bytes<'_>, is_vdso: bool) -> Option<Self> {
        let head = bytes.read(0, 0, size_of::<FileHeader64<object::LittleEndian>>())?;
        let (head, _) = pod::from_bytes::<FileHeader64<object::LittleEndian>>(&head).ok()?;
        let ident = &head.e_ident;
        let is_ours =
            ident.magic == [0x7f, b'E', b'L', b'F'] && ident.class == 2 && ident.data == 1;
        let entry = size_of::<ProgramHeader64<object::LittleEndian>>();
        let count = usize::from(head.e_phnum.get(LE));
        if !is_ours
            || head.e_machine.get(LE) != EM_X86_64
            || usize::from(head.e_phentsize.get(LE)) != entry
            || count > MAX_HEADERS
        {
            return None;
        }
        let offset = head.e_phoff.get(LE);
        let table = bytes.read(offset, offset, count * entry)?;
        let (headers, _) =
            pod::slice_from_bytes::<ProgramHeader64<object::LittleEndian>>(&table, count).ok()?;
        let mut image = Self {
            name,
            file: None,
            is_vdso,
            unwind: None,
            build_id: None,
            segments: Vec::new(),
        };
        let (mut table, mut notes) = (None, Vec::new());
        for header in headers {
            match header.p_type.get(LE) {
                PT_LOAD => image.segments.push(Segment {
                    offset: header.p_offset.get(LE),
                    bytes: header.p_filesz.get(LE),
                    vaddr: header.p_vaddr.get(LE),
                    executable: header.p_flags.get(LE) & PF_X != 0,
                }),
                PT_NOTE => notes.push((header.p_vaddr.get(LE), header.p_filesz.get(LE))),
                PT_GNU_EH_FRAME => {
                    table = Some((header.p_vaddr.get(LE), header.p_filesz.get(LE)));
                }
                _ => {}
            }
        }
        image.unwind = table.and_then(|(vaddr, bytes_of)| image.sections(bytes, vaddr, bytes_of));
        image.build_id = notes.into_iter().find_map(|(vaddr, size)| {
            let notes = image.section(bytes, vaddr, size)?;
            build_id(&notes.bytes)
        });
        Some(image)
    }

    /// Its debug information in a folder that has it by build ids.
    pub(super) fn debug_file(&self, folder: &Path) -> Option<PathBuf> {
        let (first, rest) = self.build_id.as_ref()?.split_first()?;
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = folder.join(format!("{first:02x}/{rest}.debug"));
        path.exists().then_some(path)
    }

    fn sections(&self, bytes: &Bytes<'_>, vaddr: u64, size: u64) -> Option<UnwindSections> {
        let table = self.section(bytes, vaddr, size)?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(vaddr);
        let parsed = EhFrameHdr::new(&table.bytes, LittleEndian)
            .parse(&bases, 8)
            .ok()?;
        let gimli::Pointer::Direct(start) = parsed.eh_frame_ptr() else {
            return None;
        };
        // How long it is only the section headers know; what lies behind it does no harm.
        let segment = self.segment_of(start)?;
        let frames = self.section(bytes, start, segment.vaddr + segment.bytes - start)?;
        Some(UnwindSections { table, frames })
    }

    fn section(&self, bytes: &Bytes<'_>, vaddr: u64, size: u64) -> Option<Section> {
        let segment = self.segment_of(vaddr)?;
        let first = self.segments.iter().map(|segment| segment.vaddr).min()?;
        let into = vaddr - segment.vaddr;
        if size == 0 || size > MAX_UNWIND_BYTES || into.checked_add(size)? > segment.bytes {
            return None;
        }
        let offset = segment.offset.checked_add(into)?;
        let count = usize::try_from(size).ok()?;
        // The first segment may begin in the middle of a page, but is mapped from its beginning.
        let from_first = vaddr.checked_sub(first & !0xfff)?;
        let bytes = bytes.read(offset, from_first, count)?;
        Some(Section {
            vaddr,
            bytes: bytes.into(),
        })
    }

    fn segment_of(&self, vaddr: u64) -> Option<&Segment> {
        self.segments.iter().find(|segment| {
            let end = segment.vaddr.checked_add(segment.bytes);
            segment.vaddr <= vaddr && end.is_some_and(|end| vaddr < end)
        })
    }

    /// What to add to the file's own addresses, given that code was mapped there from an offset
    /// of the file; wraps.
    pub(super) fn bias(&self, start: RemoteAddr, offset: u64) -> Option<u64> {
        let holds = |segment: &&Segment| {
            let end = segment.offset.saturating_add(segment.bytes);
            segment.executable && segment.offset & !0xfff <= offset && offset < end
        };
        let segment = self.segments.iter().find(holds)?;
        let file = start.0.wrapping_sub(offset);
        Some(
            file.wrapping_add(segment.offset)
                .wrapping_sub(segment.vaddr),
        )
    }

    /// What the unwind information knows of the code at one of the file's own addresses.
    pub(super) fn cover(&self, vaddr: u64) -> Cover {
        match self.span(vaddr) {
            None => Cover::Nothing,
            Some(span) if span.is_piece => Cover::Piece,
            Some(_) => Cover::Function,
        }
    }

    /// The code around an address that has unwind information in common.
    pub(super) fn span(&self, vaddr: u64) -> Option<Span> {
        self.with_rows(vaddr, |fde, rows| {
            let is_piece = match rows.next_row() {
                Ok(Some(row)) => match row.cfa() {
                    CfaRule::RegisterAndOffset { register, offset } => {
                        *register != X86_64::RSP || *offset != 8
                    }
                    // The entries of a procedure linkage table are written as one function.
                    CfaRule::Expression(_) => false,
                },
                _ => return None,
            };
            let start = fde.initial_address();
            Some(Span {
                range: start..start.checked_add(fde.len())?,
                is_piece,
            })
        })
    }

    /// The form of the frame at an address: from which register its end is counted, and how far.
    pub(super) fn frame_form(&self, vaddr: u64) -> Option<(u16, i64)> {
        self.with_rows(vaddr, |_, rows| {
            while let Ok(Some(row)) = rows.next_row() {
                if row.contains(vaddr) {
                    return match row.cfa() {
                        CfaRule::RegisterAndOffset { register, offset } => {
                            Some((register.0, *offset))
                        }
                        CfaRule::Expression(_) => None,
                    };
                }
            }
            None
        })
    }

    /// How far below its end the frame at an address has saved its lowest register.
    pub(super) fn lowest_saved(&self, vaddr: u64) -> Option<u64> {
        self.with_rows(vaddr, |_, rows| {
            while let Ok(Some(row)) = rows.next_row() {
                if row.contains(vaddr) {
                    let below = row.registers().filter_map(|(_, rule)| match rule {
                        RegisterRule::Offset(offset) => offset.checked_neg()?.try_into().ok(),
                        _ => None,
                    });
                    return below.max();
                }
            }
            None
        })
    }

    fn with_rows<T>(
        &self,
        vaddr: u64,
        read: impl FnOnce(&Fde<'_>, &mut UnwindTable<'_, '_, Slice<'_>>) -> Option<T>,
    ) -> Option<T> {
        let sections = self.unwind.as_ref()?;
        let bases = BaseAddresses::default()
            .set_eh_frame_hdr(sections.table.vaddr)
            .set_eh_frame(sections.frames.vaddr);
        let parsed = EhFrameHdr::new(&sections.table.bytes, LittleEndian)
            .parse(&bases, 8)
            .ok()?;
        let table = parsed.table()?;
        let mut frames = EhFrame::new(&sections.frames.bytes, LittleEndian);
        frames.set_address_size(8);
        let fde = table
            .fde_for_address(&frames, &bases, vaddr, EhFrame::cie_from_offset)
            .ok()?;
        let mut context = UnwindContext::new();
        let mut rows = fde.rows(&frames, &bases, &mut context).ok()?;
        read(&fde, &mut rows)
    }

    /// `count` bytes of code at one of the file's own addresses.
    pub(super) fn code(&self, vaddr: u64, count: u64) -> Option<Vec<u8>> {
        let file = self.file.as_ref()?;
        let segment = self.segment_of(vaddr)?;
        let into = vaddr - segment.vaddr;
        if into.checked_add(count)? > segment.bytes {
            return None;
        }
        let offset = segment.offset.checked_add(into)?;
        Bytes::File(file).read(offset, 0, usize::try_from(count).ok()?)
    }

    /// The file's name without its folders.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn unwind_bytes(&self) -> u64 {
        self.unwind.as_ref().map_or(0, |sections| {
            (sections.table.bytes.len() + sections.frames.bytes.len()) as u64
        })
    }
}

/// What makes a file one and the same, whatever process has it mapped. The file is kept open, so
/// its number is given to no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileKey {
    pub(super) dev: (u32, u32),
    pub(super) inode: u64,
}

/// The images that have been read, for all processes of a run.
#[derive(Clone, Debug, Default)]
pub struct Images(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    images: FxHashMap<FileKey, Option<Arc<Image>>>,
    unwind_bytes: u64,
}

impl Images {
    /// The image of a file, read by `read` unless it is known; none when it is none, or when no
    /// more are kept.
    pub(super) fn get(
        &self,
        key: FileKey,
        read: impl FnOnce() -> Option<Image>,
    ) -> Option<Arc<Image>> {
        // What is known is whole at any time, so a panic elsewhere spoils nothing.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(image) = known.images.get(&key) {
            return image.clone();
        }
        if known.images.len() >= MAX_IMAGES {
            return None;
        }
        let mut image = read();
        if let Some(image) = &mut image {
            known.unwind_bytes += image.unwind_bytes();
            if known.unwind_bytes > MAX_ALL_BYTES {
                known.unwind_bytes -= image.unwind_bytes();
                image.unwind = None;
            }
        }
        let image = image.map(Arc::new);
        known.images.insert(key, image.clone());
        image
    }

    /// Bytes of unwind information that are held.
    #[must_use]
    pub fn unwind_bytes(&self) -> u64 {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.unwind_bytes
    }
}
