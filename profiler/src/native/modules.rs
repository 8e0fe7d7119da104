//! The code that a process has mapped, and of which image each piece is.
//!
//! The mappings are read when an address is met that lies in none, at most every so often, and
//! when they were read long ago; an image is read when an address in it is met.

use std::fs::File;
use std::io;
use std::sync::Arc;

use crate::target::{Backing, Mapping, Maps, Memory, Process};
use crate::words::{MonotonicNs, RemoteAddr};

use super::image::{Bytes, Cover, FileKey, Image, Images};

/// The mappings are not read again before that for an address that lies in none.
const AGAIN_AFTER_NS: u64 = 50_000_000;
/// And are after that in any case: a library may have made room for another.
const STALE_AFTER_NS: u64 = 250_000_000;
/// Most mappings with code that are kept.
const MAX_AREAS: usize = 8192;

/// What a process has mapped, and the files behind it: the trait keeps unwinding testable.
pub trait Mapped {
    /// Its mappings now, if it still has any.
    fn maps(&self) -> Option<Maps>;

    /// The file behind a mapping.
    ///
    /// # Errors
    /// When it cannot be opened.
    fn open(&self, mapping: &Mapping) -> io::Result<File>;
}

impl Mapped for Process {
    fn maps(&self) -> Option<Maps> {
        Self::maps(self).ok()
    }

    fn open(&self, mapping: &Mapping) -> io::Result<File> {
        self.open_mapped(mapping)
    }
}

/// A process, to be asked for what is not known of it yet.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// Its mappings and files.
    pub mapped: &'a dyn Mapped,
    /// Its memory.
    pub memory: &'a dyn Memory,
    /// The time now.
    pub now: MonotonicNs,
}

impl std::fmt::Debug for Target<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").finish_non_exhaustive()
    }
}

/// Where code is: in which image, and at which of the image's own addresses.
#[derive(Clone, Debug)]
pub struct Place {
    /// The image; none for code of no file, such as a compiler's that runs in the process.
    pub image: Option<Arc<Image>>,
    /// The address as the image has it; the address itself where there is no image.
    pub vaddr: u64,
    pub(super) cover: Cover,
}

impl Place {
    /// Whether the code is a piece of a function that is elsewhere.
    #[must_use]
    pub fn is_piece(&self) -> bool {
        self.cover == Cover::Piece
    }
}

/// A mapping with code.
#[derive(Debug)]
pub(super) struct Area {
    pub(super) start: u64,
    pub(super) end: u64,
    mapping: Mapping,
    state: State,
}

#[derive(Debug)]
enum State {
    Unmet,
    Loaded { image: Arc<Image>, bias: u64 },
    Nameless,
}

impl Area {
    fn is_same(&self, mapping: &Mapping) -> bool {
        self.mapping == *mapping
    }

    /// Its image and what is to be added to the image's own addresses.
    pub(super) fn loaded(&self) -> Option<(&Arc<Image>, u64)> {
        match &self.state {
            State::Loaded { image, bias } => Some((image, *bias)),
            State::Unmet | State::Nameless => None,
        }
    }
}

/// The mappings with code of one process.
#[derive(Debug, Default)]
pub(super) struct Modules {
    images: Images,
    areas: Vec<Area>,
    read_at: Option<MonotonicNs>,
    vdso: Option<Arc<Image>>,
}

/// What a look for an address did.
pub(super) enum Met {
    /// Nothing is mapped there that may be run.
    Nothing,
    /// It is in the area of this index, whose image is known or is none.
    Area(usize),
}

impl Modules {
    pub(super) fn new(images: Images) -> Self {
        Self {
            images,
            ..Self::default()
        }
    }

    pub(super) fn area(&self, index: usize) -> Option<&Area> {
        self.areas.get(index)
    }

    pub(super) fn areas(&self) -> &[Area] {
        &self.areas
    }

    fn find(&self, addr: u64) -> Option<usize> {
        let behind = self.areas.partition_point(|area| area.start <= addr);
        let index = behind.checked_sub(1)?;
        (addr < self.areas.get(index)?.end).then_some(index)
    }

    /// Whether the mappings were read too long ago.
    pub(super) fn is_stale(&self, now: MonotonicNs) -> bool {
        let read_at = self.read_at;
        read_at.is_some_and(|at| now.0 >= at.0.saturating_add(STALE_AFTER_NS))
    }

    /// The area of an address and whether what is known of others has changed by looking.
    pub(super) fn meet(&mut self, target: &Target<'_>, addr: RemoteAddr) -> (Met, bool) {
        let mut changed = false;
        if self.find(addr.0).is_none() {
            let is_fresh = self
                .read_at
                .is_some_and(|at| target.now.0 < at.0.saturating_add(AGAIN_AFTER_NS));
            if is_fresh {
                return (Met::Nothing, false);
            }
            changed = self.refresh(target);
        }
        let Some(index) = self.find(addr.0) else {
            return (Met::Nothing, changed);
        };
        if matches!(self.areas[index].state, State::Unmet) {
            let mapping = self.areas[index].mapping.clone();
            let state = self.load(target, &mapping);
            changed |= matches!(state, State::Loaded { .. });
            self.areas[index].state = state;
        }
        (Met::Area(index), changed)
    }

    /// Read the mappings anew; whether any with code has changed. What was known stays where the
    /// mapping is the same, and stays as a whole when the process has none any more.
    pub(super) fn refresh(&mut self, target: &Target<'_>) -> bool {
        self.read_at = Some(target.now);
        let Some(maps) = target.mapped.maps() else {
            return false;
        };
        let code = |mapping: &&Mapping| mapping.perms.execute && mapping.start.0 < 1 << 63;
        let new: Vec<&Mapping> = maps.iter().filter(code).take(MAX_AREAS).collect();
        let is_same = new.len() == self.areas.len()
            && new
                .iter()
                .zip(&self.areas)
                .all(|(mapping, area)| area.is_same(mapping));
        if is_same {
            return false;
        }
        let mut old = std::mem::take(&mut self.areas);
        for mapping in new {
            let known = old
                .binary_search_by_key(&mapping.start.0, |area| area.start)
                .ok()
                .filter(|index| old[*index].is_same(mapping));
            let state = known.map_or(State::Unmet, |index| {
                std::mem::replace(&mut old[index].state, State::Unmet)
            });
            self.areas.push(Area {
                start: mapping.start.0,
                end: mapping.end.0,
                mapping: mapping.clone(),
                state,
            });
        }
        true
    }

    fn load(&mut self, target: &Target<'_>, mapping: &Mapping) -> State {
        let image = match &mapping.backing {
            Backing::File { .. } => self.of_file(target, mapping),
            Backing::Special(name) if name == "vdso" => self.of_vdso(target, mapping),
            Backing::Anonymous | Backing::Special(_) => None,
        };
        let placed = image.and_then(|image| {
            let bias = image.bias(mapping.start, mapping.offset)?;
            Some(State::Loaded { image, bias })
        });
        placed.unwrap_or(State::Nameless)
    }

    fn of_file(&self, target: &Target<'_>, mapping: &Mapping) -> Option<Arc<Image>> {
        let key = FileKey {
            dev: mapping.dev,
            inode: mapping.inode,
        };
        let name = base_name(mapping)?;
        let by_file = self.images.get(key, || {
            let file = target.mapped.open(mapping).ok()?;
            let mut image = Image::read(Arc::clone(&name), &Bytes::File(&file), false)?;
            image.file = Some(file);
            Some(image)
        });
        by_file.or_else(|| {
            // The same file's mapping from its first byte on; a loader puts it below the others.
            let first = self.first_of(target, mapping)?;
            Image::read(name, &Bytes::Memory(target.memory, first), false).map(Arc::new)
        })
    }

    fn first_of(&self, target: &Target<'_>, mapping: &Mapping) -> Option<RemoteAddr> {
        let maps = target.mapped.maps()?;
        let is_first = |other: &&Mapping| {
            (other.dev, other.inode, other.offset) == (mapping.dev, mapping.inode, 0)
                && other.start <= mapping.start
        };
        maps.iter().rfind(is_first).map(|first| first.start)
    }

    fn of_vdso(&mut self, target: &Target<'_>, mapping: &Mapping) -> Option<Arc<Image>> {
        if self.vdso.is_none() {
            let bytes = Bytes::Memory(target.memory, mapping.start);
            self.vdso = Image::read("[vdso]".into(), &bytes, true).map(Arc::new);
        }
        self.vdso.clone()
    }

    /// What is at an address, as far as it has been met.
    pub(super) fn place(&self, addr: RemoteAddr, known: Option<Cover>) -> Option<Place> {
        let area = self.areas.get(self.find(addr.0)?)?;
        Some(match area.loaded() {
            Some((image, bias)) => {
                let vaddr = addr.0.wrapping_sub(bias);
                Place {
                    cover: known.unwrap_or_else(|| image.cover(vaddr)),
                    image: Some(Arc::clone(image)),
                    vaddr,
                }
            }
            None => Place {
                image: None,
                vaddr: addr.0,
                cover: Cover::Nothing,
            },
        })
    }
}

fn base_name(mapping: &Mapping) -> Option<Arc<str>> {
    let name = mapping.path()?.file_name()?.to_string_lossy();
    Some(
        name.chars()
            .filter(|char| !char.is_control())
            .collect::<String>()
            .into(),
    )
}
