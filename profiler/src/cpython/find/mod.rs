//! Where a process keeps its `_PyRuntime`, and which CPython that is.
//!
//! An image is chosen by what it holds, never by its name: an embedding program can be called
//! anything. Names only say where to look first. It is looked for in memory before any file is
//! opened, so a file that was renamed, replaced or deleted makes no difference. Not here: whether
//! the layout fits and the interpreter runs (see [`super::runtime`]).

mod asyncio;
mod budget;
mod checklist;
mod cookie;
mod dynamic;
mod image;
mod images;
mod mapped;
mod shape;
mod tls;
mod version;

pub use self::asyncio::asyncio_table;
pub use self::checklist::{CheckList, Tried};

use std::fmt;
use std::io::{self, Read, Seek};

use self::budget::Budget;
use self::image::{Depth, ImageFacts};
use self::images::Image;
use self::mapped::{Mapped, Metered};
use super::layout::debug_offsets::{self, HEAD_BYTES};
use super::version::Version;
use crate::target::Memory;
use crate::words::RemoteAddr;

const PAGE: u64 = 4096;
/// What opening a file counts as, beside what is read of it.
const OPENING: u64 = 64 << 10;

/// One mapping of the process; anonymous ones have an empty path and inode 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// The path, as the kernel shows it.
    pub path: String,
    /// Where it begins.
    pub start: RemoteAddr,
    /// Where it ends, exclusive.
    pub end: RemoteAddr,
    /// The offset in the file of its first byte.
    pub file_offset: u64,
    /// Its pages may be executed.
    pub executable: bool,
    /// Its pages may be written.
    pub writable: bool,
    /// The file's inode.
    pub inode: u64,
}

/// A stream of a file's bytes.
pub trait ReadSeek: Read + Seek {}

impl<T: Read + Seek> ReadSeek for T {}

/// Opens the files that a process has mapped, through its own root.
pub trait OpenImage {
    /// The file behind a mapping.
    ///
    /// # Errors
    /// When it cannot be opened.
    fn open(&self, file: &MappedFile) -> io::Result<Box<dyn ReadSeek>>;
}

/// By what the runtime was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// The symbol `_PyRuntime`.
    Symbol,
    /// The section `.PyRuntime`.
    Section,
    /// The table of debug offsets, seen in memory.
    Cookie,
    /// What it points to, seen in memory.
    Shape,
}

impl fmt::Display for FoundBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Symbol => "its symbol `_PyRuntime`",
            Self::Section => "its section `.PyRuntime`",
            Self::Cookie => "its table of offsets in memory",
            Self::Shape => "its interpreter in memory",
        })
    }
}

/// Whose threads the process has, for what lies behind the TLS base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Libc {
    /// The GNU C library.
    Glibc,
    /// musl.
    Musl,
}

/// A runtime, not yet attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Address of `_PyRuntime`.
    pub runtime: RemoteAddr,
    /// Its version; before 3.11 the patch may be 0 for "not known".
    pub version: Version,
    /// Built without the GIL.
    pub free_threaded: bool,
    /// The file that holds it, as the kernel shows its path.
    pub image: String,
    /// By what it was found.
    pub by: FoundBy,
    /// The C library.
    pub libc: Libc,
    /// From a thread's TLS base to its first state (3.15+): add, read a pointer, add, read. Empty
    /// before 3.15, which has a pthread key instead, and where the code that does it could not be
    /// decoded.
    pub gilstate_hops: Vec<i64>,
}

/// What a search came to.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// Every runtime found, the likeliest first.
    pub found: Vec<Found>,
    /// An interpreter older than 3.7, which has no `_PyRuntime`: its file.
    pub before_runtime: Option<String>,
    /// An interpreter that nothing leads into before it runs: its file and version.
    pub not_running: Option<(String, Version)>,
    /// What was looked at in vain.
    pub tried: CheckList,
}

/// The ways to look at an image, the cheapest first; each is tried on every image before the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Its exported symbols, in the process's memory.
    Memory,
    /// The same in its file, and the sections' names.
    File,
    /// Every symbol of the file that `strip` has left.
    Symbols,
}

/// Looks through the images of a process until `enough` says so of one, and then only at what the
/// others have in memory; else at all of each.
pub fn search(
    files: &[MappedFile],
    images: &dyn OpenImage,
    memory: &dyn Memory,
    enough: impl FnMut(&Found) -> bool,
) -> Search {
    search_within(Budget::default(), files, images, memory, enough)
}

fn search_within(
    budget: Budget,
    files: &[MappedFile],
    images: &dyn OpenImage,
    memory: &dyn Memory,
    mut enough: impl FnMut(&Found) -> bool,
) -> Search {
    let mut search = Search::default();
    let mut hunt = Hunt {
        opener: images,
        memory,
        libc: libc_of(files),
        budget,
    };
    let mut images = images::in_order(files);
    for way in [Way::Memory, Way::File, Way::Symbols] {
        let mut done = false;
        for image in &mut images {
            match hunt.look(way, image, &mut search) {
                Ok(found) => {
                    done |= enough(&found);
                    search.found.push(found);
                }
                Err(outcome) => image.outcome = outcome,
            }
            if done && way != Way::Memory {
                break;
            }
        }
        if !search.found.is_empty() {
            return search;
        }
    }
    for image in images.iter().filter(|image| !image.is_unlikely) {
        let outcome = image.outcome.clone();
        search.tried.note(image.path(), WANTED, outcome);
    }
    hunt.by_cookie(files, &mut search);
    if search.found.is_empty() {
        hunt.by_shape(files, &images, &mut search);
    }
    for found in &search.found {
        if enough(found) {
            break;
        }
    }
    if hunt.budget.is_spent() {
        search.tried.cut_short();
    }
    search
}

const WANTED: &str = "symbol `_PyRuntime` or section `.PyRuntime`";

/// What a search looks with.
struct Hunt<'a> {
    opener: &'a dyn OpenImage,
    memory: &'a dyn Memory,
    libc: Libc,
    budget: Budget,
}

impl Hunt<'_> {
    /// Looks at one image; the error is what came of it.
    fn look(&mut self, way: Way, image: &Image<'_>, search: &mut Search) -> Result<Found, String> {
        let facts = self.facts(way, image)?;
        if facts.before_runtime {
            search.before_runtime.get_or_insert(image.path().to_owned());
        }
        let (vaddr, by) = match (facts.runtime_symbol, facts.runtime_section) {
            (Some(vaddr), _) => (vaddr, FoundBy::Symbol),
            (None, Some(vaddr)) => (vaddr, FoundBy::Section),
            (None, None) => return Err("neither".to_owned()),
        };
        let Some(bias) = facts.bias else {
            return Err("has it, but no mapping fits its program headers".to_owned());
        };
        let at = |vaddr: u64| RemoteAddr(vaddr.wrapping_add(bias));
        let runtime = at(vaddr);
        let told = told_by_memory(self.memory, runtime, facts.py_version.map(at));
        let told = told.or_else(|| Some((self.version_by_constants(image, &facts)?, false)));
        let Some((version, free_threaded)) = told else {
            return Err("has it, but nothing tells its version".to_owned());
        };
        let getter = facts.gilstate_getter.filter(|_| version.is_at_least(15));
        Ok(Found {
            runtime,
            version,
            free_threaded,
            image: image.path().to_owned(),
            by,
            libc: self.libc,
            gilstate_hops: getter
                .and_then(|vaddr| tls::hops(self.memory, at(vaddr), self.libc))
                .unwrap_or_default(),
        })
    }

    fn facts(&self, way: Way, image: &Image<'_>) -> Result<ImageFacts, String> {
        let depth = match way {
            Way::Symbols => Depth::Tables,
            Way::Memory | Way::File => Depth::Names,
        };
        let stream: Box<dyn ReadSeek + '_> = match way {
            Way::Memory => Box::new(self.mapped(image)),
            Way::File | Way::Symbols => self.file(image)?,
        };
        image::examine(stream, &image.mappings, depth).map_err(str::to_owned)
    }

    fn mapped<'b>(&'b self, image: &'b Image<'_>) -> Metered<'b, Mapped<'b>> {
        Metered {
            stream: Mapped::new(self.memory, &image.mappings),
            budget: &self.budget,
        }
    }

    /// The file itself. None is opened that would not be looked through to the end, and no
    /// device, whatever its name says it is.
    fn file(&self, image: &Image<'_>) -> Result<Box<dyn ReadSeek + '_>, String> {
        if image.path().starts_with("/dev/") || image.is_unlikely {
            return Err("not in memory, and its file is not opened".to_owned());
        }
        if !self.budget.spend(OPENING) {
            return Err("not in memory, and no more files are opened".to_owned());
        }
        let stream = self
            .opener
            .open(image.mappings[0])
            .map_err(|error| format!("not in memory, and its file cannot be opened: {error}"))?;
        Ok(Box::new(Metered {
            stream,
            budget: &self.budget,
        }))
    }

    /// The file's own constants, or those that are mapped of it.
    fn version_by_constants(&self, image: &Image<'_>, facts: &ImageFacts) -> Option<Version> {
        let by_file = self
            .file(image)
            .ok()
            .and_then(|mut file| version::from_constants(&mut *file, &facts.constants));
        by_file.or_else(|| version::from_constants(&mut self.mapped(image), &facts.constants))
    }

    fn by_cookie(&self, files: &[MappedFile], search: &mut Search) {
        for runtime in cookie::scan(files, self.memory, &self.budget) {
            let mapping = files
                .iter()
                .find(|file| file.start <= runtime && runtime < file.end);
            if let Some((version, free_threaded)) = told_by_memory(self.memory, runtime, None) {
                search.found.push(Found {
                    runtime,
                    version,
                    free_threaded,
                    image: mapping.map(|file| file.path.clone()).unwrap_or_default(),
                    by: FoundBy::Cookie,
                    libc: self.libc,
                    gilstate_hops: Vec::new(),
                });
            }
        }
        if search.found.is_empty() {
            search.tried.note(
                "writable memory",
                "the debug offsets of Python 3.13 and later",
                "none".to_owned(),
            );
        }
    }

    /// Only in the program itself: a library without exports serves nobody.
    fn by_shape(&self, files: &[MappedFile], images: &[Image<'_>], search: &mut Search) {
        let lowest = |image: &&Image<'_>| (image.is_unlikely, image.mappings[0].start);
        let Some(image) = images.iter().min_by_key(lowest) else {
            return;
        };
        let facts = self
            .facts(Way::File, image)
            .or_else(|_| self.facts(Way::Memory, image));
        let version = facts
            .ok()
            .and_then(|facts| self.version_by_constants(image, &facts));
        let outcome = match version {
            None => "no constant in it tells a version".to_owned(),
            Some(version) => match shape::scan(files, image, version, self.memory, &self.budget) {
                Some(runtime) => {
                    search.found.push(Found {
                        runtime,
                        version,
                        free_threaded: false,
                        image: image.path().to_owned(),
                        by: FoundBy::Shape,
                        libc: self.libc,
                        gilstate_hops: Vec::new(),
                    });
                    return;
                }
                None => format!("{version} by its constants, but none runs in it"),
            },
        };
        const WANTED: &str = "an interpreter of Python 3.8 to 3.12 in its data";
        search.tried.note(image.path(), WANTED, outcome);
    }
}

fn libc_of(files: &[MappedFile]) -> Libc {
    let musl = |file: &MappedFile| file.path.contains("/ld-musl-");
    if files.iter().any(musl) {
        Libc::Musl
    } else {
        Libc::Glibc
    }
}

/// The version by the process itself: its debug offsets, else the constant `Py_Version`.
fn told_by_memory(
    memory: &dyn Memory,
    runtime: RemoteAddr,
    py_version: Option<RemoteAddr>,
) -> Option<(Version, bool)> {
    let mut head = [0; HEAD_BYTES];
    if memory.read(runtime, &mut head).is_ok()
        && let Some(head) = debug_offsets::head(&head)
    {
        return Some((head.version, head.free_threaded));
    }
    let word = memory.u64(py_version?).ok()?;
    Some((Version::from_word(word)?, false))
}

#[cfg(test)]
mod tests;
