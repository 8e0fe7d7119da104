//! Code objects that were read, by address.
//!
//! Code objects die and their addresses are used again, so what was used is compared with the
//! target now and then ([`CodeCache::revalidate`]). Bounded by memory; the least recently used
//! half goes when it is full.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::code::{Code, Fingerprint, Lines, Position, Reading};
use super::copies::{self, Copies};
use crate::cpython::objects::{ObjectError, Objects};
use crate::cpython::{Layout, Runtime};
use crate::target::{Memory, Piece, ReadErrorKind};
use crate::words::{CodeAddr, Instr, RemoteAddr};

/// Bytes that the codes and their line tables may take, about.
pub const DEFAULT_CAPACITY: usize = 6 << 20;
/// Most positions that are remembered for one code.
const MAX_POSITIONS: usize = 512;
/// About what an entry costs beside its code, and a position.
const ENTRY_BYTES: usize = 160;
const POSITION_BYTES: usize = 32;
/// Most codes that are handed on from generation to generation.
const MAX_INHERITED: usize = 1 << 16;
/// Most codes of a batch that a parent is asked for.
const MAX_UNKNOWN: usize = 256;
/// Codes that are compared with the target in one call.
const BATCH: usize = 512;

/// A code that turned out to be another one, or none any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Where.
    pub addr: CodeAddr,
    /// What it was taken for since the last comparison: frames with it may be wrong.
    pub was: Arc<Code>,
}

/// What was read of one code. A fork keeps it where it is, so a process and its children share it.
struct Read {
    code: Arc<Code>,
    lines: Lines,
    print: Fingerprint,
}

struct Entry {
    read: Arc<Read>,
    copies: Copies,
    positions: FxHashMap<Instr, Position>,
    used: u64,
    /// Used since the last comparison.
    touched: bool,
}

/// The codes that a process had when it forked, as far as they had been read.
#[derive(Clone, Default)]
struct Heirloom(Arc<FxHashMap<CodeAddr, Arc<Read>>>);

/// The cache of one process.
pub struct CodeCache {
    layout: Layout,
    reading: Reading,
    /// The type `code`, once a code object has been seen.
    class: Option<RemoteAddr>,
    entries: FxHashMap<CodeAddr, Entry>,
    /// What the process had from its parent at its birth.
    inherited: Heirloom,
    /// Where it was seen to have something else since.
    disowned: FxHashSet<CodeAddr>,
    /// What it hands on itself, until another code is read or forgotten.
    heirloom: Option<Heirloom>,
    /// Codes that the process did not inherit: its parent had not been asked for them.
    unknown: Vec<CodeAddr>,
    is_heir: bool,
    files: FxHashSet<Arc<str>>,
    changed: Vec<Changed>,
    news: u64,
    clock: u64,
    bytes: usize,
    capacity: usize,
}

impl std::fmt::Debug for CodeCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CodeCache")
            .field("codes", &self.entries.len())
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl CodeCache {
    /// An empty cache of about `capacity` bytes.
    #[must_use]
    pub fn new(runtime: &Runtime, capacity: usize) -> Self {
        Self {
            layout: *runtime.layout(),
            reading: Reading::of(runtime.version(), runtime.layout()),
            class: None,
            entries: FxHashMap::default(),
            inherited: Heirloom::default(),
            disowned: FxHashSet::default(),
            heirloom: None,
            unknown: Vec::new(),
            is_heir: false,
            files: FxHashSet::default(),
            changed: Vec::new(),
            news: 0,
            clock: 0,
            bytes: 0,
            capacity,
        }
    }

    /// The cache of a child that was just forked, of about `capacity` bytes: what was read of the
    /// parent holds for it as long as its own memory does not say otherwise.
    #[must_use]
    pub fn heir(&mut self, capacity: usize) -> Self {
        Self {
            layout: self.layout,
            reading: self.reading,
            class: self.class,
            entries: FxHashMap::default(),
            inherited: self.heirloom(),
            disowned: FxHashSet::default(),
            heirloom: None,
            unknown: Vec::new(),
            is_heir: true,
            files: FxHashSet::default(),
            changed: Vec::new(),
            news: 0,
            clock: 0,
            bytes: 0,
            capacity,
        }
    }

    fn heirloom(&mut self) -> Heirloom {
        if let Some(kept) = &self.heirloom {
            return kept.clone();
        }
        let own = self.entries.iter();
        let own = own.map(|(at, entry)| (*at, Arc::clone(&entry.read)));
        let inherited = self.inherited.0.iter();
        let inherited = inherited
            .filter(|(at, _)| !self.disowned.contains(at))
            .map(|(at, read)| (*at, Arc::clone(read)))
            .take(MAX_INHERITED);
        let all = inherited.chain(own).collect();
        let kept = Heirloom(Arc::new(all));
        self.heirloom = Some(kept.clone());
        kept
    }

    /// The codes used since the last call that the process did not inherit; they are worth to be
    /// asked of its parent, for the children that come.
    pub fn take_unknown(&mut self) -> Vec<CodeAddr> {
        std::mem::take(&mut self.unknown)
    }

    /// Read a code that a child ran, for the children that come.
    pub fn learn(&mut self, memory: &dyn Memory, addr: CodeAddr) {
        if !self.entries.contains_key(&addr)
            && let Ok(read) = self.read(memory, addr)
        {
            self.keep(addr, read);
        }
    }

    fn keep(&mut self, addr: CodeAddr, read: Arc<Read>) {
        self.make_room();
        let entry = Entry {
            read,
            copies: Copies::default(),
            positions: FxHashMap::default(),
            used: self.clock,
            touched: false,
        };
        self.bytes += entry.weight();
        self.entries.insert(addr, entry);
        self.heirloom = None;
    }

    /// How often something was met that was not known: a code that was not read before, could not be
    /// read, or had been replaced.
    #[must_use]
    pub fn news(&self) -> u64 {
        self.news
    }

    /// Codes in the cache.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the cache is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The code at an address and where in it an instruction is.
    ///
    /// An instruction that the cached code does not have shows that it was replaced: it is read
    /// anew before the answer is [`Position::Elsewhere`].
    ///
    /// # Errors
    /// When what is there cannot be read or is no code object.
    pub fn look_up(
        &mut self,
        memory: &dyn Memory,
        addr: CodeAddr,
        instr: Instr,
    ) -> Result<(Arc<Code>, Position), ObjectError> {
        let (code, position, cached) = self.try_look_up(memory, addr, instr)?;
        if position != Position::Elsewhere || !cached {
            return Ok((code, position));
        }
        let was = self.forget(addr);
        let (fresh, position, _) = self.try_look_up(memory, addr, instr)?;
        let same_lines = match (&was, self.entries.get(&addr)) {
            (Some(was), Some(now)) => was.read.lines == now.read.lines,
            _ => false,
        };
        if fresh != code || !same_lines {
            self.changed.push(Changed { addr, was: code });
        }
        Ok((fresh, position))
    }

    fn try_look_up(
        &mut self,
        memory: &dyn Memory,
        addr: CodeAddr,
        instr: Instr,
    ) -> Result<(Arc<Code>, Position, bool), ObjectError> {
        self.clock += 1;
        let cached = self.entries.contains_key(&addr);
        if !cached {
            let read = self.read(memory, addr)?;
            self.keep(addr, read);
        }
        let Some(entry) = self.entries.get_mut(&addr) else {
            return Err(ObjectError::Null);
        };
        entry.used = self.clock;
        entry.touched = true;
        if entry.positions.len() == MAX_POSITIONS {
            self.bytes = self.bytes.saturating_sub(MAX_POSITIONS * POSITION_BYTES);
            entry.positions.clear();
        }
        if let Some(known) = entry.positions.get(&instr) {
            return Ok((Arc::clone(&entry.read.code), *known, cached));
        }
        let before = entry.weight();
        let lines = &entry.read.lines;
        let mut position = lines.position(&entry.copies, instr);
        if position == Position::Elsewhere
            && let Some(field) = self.layout.code.copies
            && let Ok(Some(start)) = copies::nearest(memory, addr, field, instr)
        {
            position = lines.position(&Copies::of(start), instr);
            if position != Position::Elsewhere && entry.note_copy(start) {
                let was = Arc::clone(&entry.read.code);
                self.changed.push(Changed { addr, was });
            }
        }
        entry.positions.insert(instr, position);
        self.bytes = (self.bytes + entry.weight()).saturating_sub(before);
        Ok((Arc::clone(&entry.read.code), position, cached))
    }

    fn read(&mut self, memory: &dyn Memory, addr: CodeAddr) -> Result<Arc<Read>, ObjectError> {
        self.news += 1;
        if addr.0 == 0 {
            return Err(ObjectError::Null);
        }
        let objects = Objects {
            memory,
            layout: &self.layout,
        };
        let no_code = ObjectError::WrongType {
            addr: addr.into(),
            expected: "code",
        };
        let inherited = self.inherited.0.get(&addr);
        let inherited = inherited.filter(|_| !self.disowned.contains(&addr));
        if inherited.is_none() && self.is_heir && self.unknown.len() < MAX_UNKNOWN {
            self.unknown.push(addr);
        }
        let head = match (self.reading.head(memory, addr), inherited) {
            (Ok(head), _) => head,
            // It ended before it could be asked.
            (Err(error), Some(read)) if error.kind == ReadErrorKind::Gone => {
                return Ok(Arc::clone(read));
            }
            (Err(error), _) => return Err(error.into()),
        };
        let print = self
            .reading
            .fingerprint(&self.layout, &head)
            .ok_or(no_code)?;
        if let Some(read) = inherited {
            if read.print == print {
                return Ok(Arc::clone(read));
            }
            self.disowned.insert(addr);
        }
        if self.class != Some(print.class) {
            let name = objects.name_of_type(print.class).map_err(|_| no_code)?;
            if self.class.is_some() || name != "code" {
                return Err(no_code);
            }
            self.class = Some(print.class);
        }
        let (mut code, lines) = self.reading.code(objects, addr, &head, print)?;
        match self.files.get(&code.file) {
            Some(known) => code.file = Arc::clone(known),
            None => {
                self.bytes += code.file.len();
                self.files.insert(Arc::clone(&code.file));
            }
        }
        Ok(Arc::new(Read {
            code: Arc::new(code),
            lines,
            print,
        }))
    }

    /// Notes that frames of this code came again without being looked up.
    pub fn touch(&mut self, addr: CodeAddr) {
        if let Some(entry) = self.entries.get_mut(&addr) {
            self.clock += 1;
            entry.used = self.clock;
            entry.touched = true;
        }
    }

    /// Compares every code that was used since the last call with the target, and tells which
    /// are others now. They are read anew when they are used next.
    pub fn revalidate(&mut self, memory: &dyn Memory) -> Vec<Changed> {
        let touched = self.entries.iter_mut().filter(|(_, entry)| entry.touched);
        let touched: Vec<(CodeAddr, Fingerprint)> = touched
            .map(|(addr, entry)| {
                entry.touched = false;
                (*addr, entry.read.print)
            })
            .collect();
        let bytes = self.reading.head_bytes();
        let mut buffer = vec![0; bytes * touched.len().min(BATCH)];
        for batch in touched.chunks(BATCH) {
            let mut pieces: Vec<Piece<'_>> = buffer
                .chunks_exact_mut(bytes)
                .zip(batch)
                .map(|(buf, (addr, _))| Piece::new((*addr).into(), buf))
                .collect();
            memory.read_many(&mut pieces);
            let stale: Vec<CodeAddr> = pieces
                .iter()
                .zip(batch)
                .filter(|(piece, (_, print))| {
                    let now = self.reading.fingerprint(&self.layout, piece.buf);
                    match piece.result {
                        // An ended process proves nothing about what it ran until then.
                        Err(error) => error.kind != ReadErrorKind::Gone,
                        Ok(()) => now != Some(*print),
                    }
                })
                .map(|(_, (addr, _))| *addr)
                .collect();
            for addr in stale {
                if self.inherited.0.contains_key(&addr) {
                    self.disowned.insert(addr);
                }
                if let Some(was) = self.forget(addr) {
                    let was = Arc::clone(&was.read.code);
                    self.changed.push(Changed { addr, was });
                }
            }
        }
        std::mem::take(&mut self.changed)
    }

    fn forget(&mut self, addr: CodeAddr) -> Option<Entry> {
        let entry = self.entries.remove(&addr)?;
        self.heirloom = None;
        self.bytes = self.bytes.saturating_sub(entry.weight());
        Some(entry)
    }

    fn make_room(&mut self) {
        if self.bytes <= self.capacity {
            return;
        }
        let mut ages: Vec<u64> = self.entries.values().map(|entry| entry.used).collect();
        let middle = ages.len() / 2;
        if ages.is_empty() {
            return;
        }
        let (_, median, _) = ages.select_nth_unstable(middle);
        let median = *median;
        self.entries.retain(|_, entry| entry.used > median);
        self.heirloom = None;
        self.files.retain(|file| Arc::strong_count(file) > 1);
        let codes = self.entries.values().map(Entry::weight).sum::<usize>();
        self.bytes = codes + self.files.iter().map(|file| file.len()).sum::<usize>();
    }
}

impl Entry {
    /// Notes a copy of the bytecode. True when it has taken the place of another one, to which
    /// instructions were given that may be this one's.
    fn note_copy(&mut self, start: u64) -> bool {
        let lines = &self.read.lines;
        let lost = self.copies.add(start, |low, high| lines.reaches(low, high));
        if lost {
            self.positions.clear();
        }
        lost
    }

    fn weight(&self) -> usize {
        let kept = self.read.code.weight() + self.read.lines.weight() + self.copies.weight();
        ENTRY_BYTES + kept + self.positions.len() * POSITION_BYTES
    }
}

#[cfg(test)]
mod tests;
