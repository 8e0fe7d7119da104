//! The images of a process: its mappings, gathered by file, the likeliest to be Python first.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::MappedFile;

/// Most images that are looked at.
const MAX_IMAGES: usize = 4096;

/// One file of which a process has mapped something.
pub(super) struct Image<'a> {
    /// Its mappings, lowest first; there is at least one.
    pub(super) mappings: Vec<&'a MappedFile>,
    /// None of its bytes may be executed: a file of data as a rule, and at best an image whose
    /// code was moved to larger pages.
    pub(super) is_unlikely: bool,
    /// What came of the last look.
    pub(super) outcome: String,
}

impl Image<'_> {
    /// Its path, as the kernel shows it.
    pub(super) fn path(&self) -> &str {
        &self.mappings[0].path
    }
}

/// Files called python first, then in the order of addresses, which begins with most executables,
/// at last those without code.
pub(super) fn in_order(files: &[MappedFile]) -> Vec<Image<'_>> {
    let mut images: Vec<Image<'_>> = Vec::new();
    let mut places = HashMap::new();
    let named = files.iter().filter(|file| file.path.starts_with('/'));
    for file in named.filter(|file| file.inode != 0) {
        let place = match places.entry((&file.path, file.inode)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                images.push(Image {
                    mappings: Vec::new(),
                    is_unlikely: true,
                    outcome: String::new(),
                });
                *new.insert(images.len() - 1)
            }
        };
        let image = &mut images[place];
        image.is_unlikely &= !file.executable;
        image.mappings.push(file);
    }
    // Without its own data there is no interpreter in it.
    images.retain(|image| !image.is_unlikely || image.mappings.iter().any(|file| file.writable));
    images.sort_by_key(|image| {
        let name = image.path().rsplit('/').next().unwrap_or_default();
        (image.is_unlikely, !name.contains("python"))
    });
    images.truncate(MAX_IMAGES);
    images
}
