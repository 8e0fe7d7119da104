//! Where a process keeps its `_PyRuntime`, and which CPython that is.
//!
//! An image is chosen by what it holds, never by its name: an embedding program can be called
//! anything. Names only say where to look first. Not here: whether the layout fits and the
//! interpreter runs (see [`super::runtime`]).

mod cookie;
mod image;
mod tls;
mod version;

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read, Seek};

use self::image::ImageFacts;
use super::layout::debug_offsets::{self, HEAD_BYTES};
use super::version::Version;
use crate::target::Memory;
use crate::words::RemoteAddr;

/// Most images that are opened.
const MAX_IMAGES: usize = 4096;
/// Most lines of the check-list that are shown.
const MAX_SHOWN: usize = 12;
const PAGE: u64 = 4096;

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
}

impl fmt::Display for FoundBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Symbol => "its symbol `_PyRuntime`",
            Self::Section => "its section `.PyRuntime`",
            Self::Cookie => "its table of offsets in memory",
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

/// One thing that was looked at, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// A file or a kind of memory.
    pub place: String,
    /// What was looked for.
    pub wanted: &'static str,
    /// What came of it.
    pub outcome: String,
}

/// Everything that was looked at, shown as one line each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckList(pub Vec<Tried>);

impl CheckList {
    /// What was looked for and in how many places, the first few by name.
    #[must_use]
    pub fn in_short(&self) -> String {
        const NAMED: usize = 3;
        let name = |place: &str| place.rsplit('/').next().unwrap_or(place).to_owned();
        let Some(first) = self.0.first() else {
            return String::from("an interpreter among its mapped files, of which it has none");
        };
        let names: Vec<String> = self.0.iter().take(NAMED).map(|t| name(&t.place)).collect();
        let more = match self.0.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{} in {}{more}", first.wanted, names.join(", "))
    }
}

impl fmt::Display for CheckList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for tried in self.0.iter().take(MAX_SHOWN) {
            let Tried {
                place,
                wanted,
                outcome,
            } = tried;
            write!(f, "\n  {place}: looked for {wanted}: {outcome}")?;
        }
        match self.0.len().saturating_sub(MAX_SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more without success"),
        }
    }
}

/// What a search came to.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// Every runtime found, the likeliest first.
    pub found: Vec<Found>,
    /// An interpreter older than 3.7, which has no `_PyRuntime`: its file.
    pub before_runtime: Option<String>,
    /// What was looked at in vain.
    pub tried: CheckList,
}

const WANTED: &str = "symbol `_PyRuntime` or section `.PyRuntime`";

/// Looks through the images of a process until `enough` says so of one, else through all.
pub fn search(
    files: &[MappedFile],
    images: &dyn OpenImage,
    memory: &dyn Memory,
    mut enough: impl FnMut(&Found) -> bool,
) -> Search {
    let libc = libc_of(files);
    let mut search = Search::default();
    for file in in_order(files) {
        let mut miss = |outcome: String| {
            search.tried.0.push(Tried {
                place: file.path.clone(),
                wanted: WANTED,
                outcome,
            });
        };
        let facts = match images.open(file).map(image::examine) {
            Ok(Ok(facts)) => facts,
            Ok(Err(broken)) => {
                miss(broken.to_owned());
                continue;
            }
            Err(error) => {
                miss(format!("cannot be opened: {error}"));
                continue;
            }
        };
        if facts.before_runtime {
            search.before_runtime.get_or_insert(file.path.clone());
        }
        let (vaddr, by) = match (facts.runtime_symbol, facts.runtime_section) {
            (Some(vaddr), _) => (vaddr, FoundBy::Symbol),
            (None, Some(vaddr)) => (vaddr, FoundBy::Section),
            (None, None) => {
                miss("neither".to_owned());
                continue;
            }
        };
        let Some(bias) = bias(&facts, file, files) else {
            miss("has it, but no mapping fits its program headers".to_owned());
            continue;
        };
        let at = |vaddr: u64| RemoteAddr(vaddr.wrapping_add(bias));
        let runtime = at(vaddr);
        let told = told_by_memory(memory, runtime, facts.py_version.map(at));
        let told = told.or_else(|| {
            let mut stream = images.open(file).ok()?;
            let version = version::from_constants(&mut *stream, &facts.constants)?;
            Some((version, false))
        });
        let Some((version, free_threaded)) = told else {
            miss("has it, but nothing tells its version".to_owned());
            continue;
        };
        let getter = facts.gilstate_getter.filter(|_| version.is_at_least(15));
        let found = Found {
            runtime,
            version,
            free_threaded,
            image: file.path.clone(),
            by,
            libc,
            gilstate_hops: getter
                .and_then(|vaddr| tls::hops(memory, at(vaddr), libc))
                .unwrap_or_default(),
        };
        let done = enough(&found);
        search.found.push(found);
        if done {
            return search;
        }
    }
    if search.found.is_empty() {
        by_cookie(files, memory, libc, &mut search);
        for found in &search.found {
            if enough(found) {
                break;
            }
        }
    }
    search
}

fn by_cookie(files: &[MappedFile], memory: &dyn Memory, libc: Libc, search: &mut Search) {
    for runtime in cookie::scan(files, memory) {
        let mapping = files
            .iter()
            .find(|file| file.start <= runtime && runtime < file.end);
        if let Some((version, free_threaded)) = told_by_memory(memory, runtime, None) {
            search.found.push(Found {
                runtime,
                version,
                free_threaded,
                image: mapping.map(|file| file.path.clone()).unwrap_or_default(),
                by: FoundBy::Cookie,
                libc,
                gilstate_hops: Vec::new(),
            });
        }
    }
    if search.found.is_empty() {
        search.tried.0.push(Tried {
            place: "writable memory".to_owned(),
            wanted: "the debug offsets of Python 3.13 and later",
            outcome: "none".to_owned(),
        });
    }
}

/// The images to open: one mapping of each file that has code, files called python first, then
/// in the order of addresses, which begins with most executables.
fn in_order(files: &[MappedFile]) -> Vec<&MappedFile> {
    let mut seen = BTreeSet::new();
    let mut images: Vec<&MappedFile> = files
        .iter()
        .filter(|file| file.executable && file.inode != 0)
        .filter(|file| file.path.starts_with('/') && !file.path.starts_with("/dev/"))
        .filter(|file| seen.insert((&file.path, file.inode)))
        .take(MAX_IMAGES)
        .collect();
    images.sort_by_key(|file| {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        !name.contains("python")
    });
    images
}

fn libc_of(files: &[MappedFile]) -> Libc {
    let musl = |file: &MappedFile| file.path.contains("/ld-musl-");
    if files.iter().any(musl) {
        Libc::Musl
    } else {
        Libc::Glibc
    }
}

/// What to add to the file's addresses: where a loaded segment was mapped, minus where it says
/// it belongs.
fn bias(facts: &ImageFacts, image: &MappedFile, files: &[MappedFile]) -> Option<u64> {
    if facts.fixed {
        return Some(0);
    }
    let down = |addr: u64| addr & !(PAGE - 1);
    facts.segments.iter().find_map(|segment| {
        let mapping = files
            .iter()
            .filter(|file| file.path == image.path && file.inode == image.inode)
            .find(|file| file.file_offset == down(segment.offset))?;
        Some(mapping.start.0.wrapping_sub(down(segment.vaddr)))
    })
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
