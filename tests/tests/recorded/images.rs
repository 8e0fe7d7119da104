//! The images of `tests/images`.

use std::fs;
use std::path::{Path, PathBuf};

use profiler::cpython::CpythonError;
use profiler::cpython::find::Found;
use profiler::target::{Image, Memory};

use super::reading::{self, Reading};

/// A recorded process.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// Such as `python-3.12.1`.
    pub(crate) name: String,
    /// The image.
    pub(crate) image: Image,
    /// Where its runtime is.
    pub(crate) found: Found,
}

impl Recorded {
    fn load(path: &Path) -> Self {
        let file = fs::read(path).expect("an image can be read");
        let image = Image::from_bytes(&file).expect("it is an image");
        let found = reading::found(&image.meta.facts).expect("its facts tell the find");
        let name = path.file_stem().expect("a name").to_string_lossy();
        Self {
            name: name.into_owned(),
            image,
            found,
        }
    }

    /// Reads it over its own memory, or over one made of it.
    pub(crate) fn read(&self, memory: &dyn Memory) -> Result<Reading, CpythonError> {
        reading::read(memory, &self.image.meta, self.found.clone())
    }
}

/// Where the images are.
pub(crate) fn folder() -> PathBuf {
    // The fuzz targets' package lies within the tests'.
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let folder = folders.find_map(|it| Some(it.join("images")).filter(|it| it.is_dir()));
    folder.expect("the folder of images")
}

/// All of them, by name.
pub(crate) fn all() -> Vec<Recorded> {
    let files = fs::read_dir(folder()).expect("the folder of images");
    let mut paths: Vec<PathBuf> = files.flatten().map(|file| file.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|it| it == "img"));
    paths.sort();
    paths.iter().map(|path| Recorded::load(path)).collect()
}
