//! One target: its process, its memory, and the interpreter in it once there is one.

use std::sync::{Mutex, PoisonError};
use std::{fmt, io};

use crate::{
    cpython::{self, AsyncioTable, CpythonError, MappedFile, OpenImage, ReadSeek, Runtime},
    export::printable,
    target::{LiveMemory, Maps, Process, TargetError},
    words::Pid,
};

/// Most children of a process that are named when it has no interpreter itself.
const MAX_CHILDREN: usize = 4;
/// Most characters of a child's command.
const MAX_COMMAND: usize = 80;

/// Why a process cannot be profiled.
#[derive(Debug)]
pub enum AttachError {
    /// The process itself.
    Target(TargetError),
    /// Its interpreter.
    Python {
        /// The process.
        pid: Pid,
        /// Why.
        error: CpythonError,
    },
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(error) => error.fmt(f),
            Self::Python { pid, error } => write!(f, "process {pid}: {error}"),
        }
    }
}

impl std::error::Error for AttachError {}

impl AttachError {
    /// Whether the process is not there (any more).
    pub(super) fn is_absence(&self) -> bool {
        matches!(
            self,
            Self::Target(
                TargetError::NoSuchProcess { .. }
                    | TargetError::Gone { .. }
                    | TargetError::Zombie { .. }
            )
        )
    }
}

impl From<TargetError> for AttachError {
    fn from(error: TargetError) -> Self {
        Self::Target(error)
    }
}

/// A process under the profiler.
#[derive(Debug)]
pub struct Attached {
    /// The process.
    pub process: Process,
    /// Its memory.
    pub memory: LiveMemory,
    /// The files it had mapped when no interpreter was found in them.
    without_python: Mutex<Option<(Vec<MappedFile>, CpythonError)>>,
}

/// The files that a process has mapped, opened through its own root.
struct Images<'a> {
    process: &'a Process,
    maps: &'a Maps,
}

impl OpenImage for Images<'_> {
    fn open(&self, file: &MappedFile) -> io::Result<Box<dyn ReadSeek>> {
        let mapping = self.maps.at(file.start).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(self.process.open_mapped(mapping)?))
    }
}

fn mapped_files(maps: &Maps) -> Vec<MappedFile> {
    maps.iter()
        .map(|mapping| MappedFile {
            path: mapping
                .path()
                // The target names its files; what is shown of them must do no harm.
                .map(|path| printable(&path.to_string_lossy()).into_owned())
                .unwrap_or_default(),
            start: mapping.start,
            end: mapping.end,
            file_offset: mapping.offset,
            executable: mapping.perms.execute,
            // A loader maps an image's data privately. Of what is shared, a look would even bring pages
            // into being, or wait for whoever is to bring them.
            writable: mapping.perms.write && !mapping.perms.shared,
            inode: mapping.inode,
        })
        .collect()
}

impl Attached {
    /// Open a process; whether it runs Python is not asked yet.
    ///
    /// # Errors
    /// When there is no such process, or it may not be read.
    pub fn open(pid: Pid) -> Result<Self, AttachError> {
        let process = Process::open(pid)?;
        let memory = LiveMemory::new(&process);
        Ok(Self {
            process,
            memory,
            without_python: Mutex::default(),
        })
    }

    /// Find the interpreter that the process runs now.
    ///
    /// It may be asked again and again while a program has not loaded its Python yet: as long as
    /// no other files are mapped than the last time, nothing is looked through.
    ///
    /// # Errors
    /// When there is none, or none that can be profiled.
    pub fn discover(&self) -> Result<Runtime, AttachError> {
        let maps = self.process.maps()?;
        let images = Images {
            process: &self.process,
            maps: &maps,
        };
        let files = mapped_files(&maps);
        let found = self
            .known_to_lack_python(&files)
            .map_or_else(|| cpython::discover(&files, &images, &self.memory), Err);
        let runtime = found.map_err(|error| AttachError::Python {
            pid: self.process.pid(),
            error: self.remember(files, error),
        })?;
        for other in runtime.others() {
            log::warn!(
                "process {} runs a second interpreter, Python {} in {}, which is left out",
                self.process.pid(),
                other.version,
                other.image
            );
        }
        Ok(runtime)
    }

    /// The table of offsets of the `_asyncio` that the process has loaded (3.14+). A program may
    /// load it at any time.
    #[must_use]
    pub fn asyncio_table(&self, runtime: &Runtime) -> Option<AsyncioTable> {
        let maps = self.process.maps().ok()?;
        let images = Images {
            process: &self.process,
            maps: &maps,
        };
        cpython::asyncio_table(&mapped_files(&maps), &images, &self.memory, runtime)
    }

    fn known_to_lack_python(&self, files: &[MappedFile]) -> Option<CpythonError> {
        let before = self.without_python.lock();
        let before = before.unwrap_or_else(PoisonError::into_inner);
        let (before, error) = before.as_ref()?;
        before.iter().eq(of_files(files)).then(|| error.clone())
    }

    fn remember(&self, mut files: Vec<MappedFile>, mut error: CpythonError) -> CpythonError {
        if let CpythonError::NotFound(list) = &mut error {
            list.seen_from = self.elsewhere();
            list.children = self.children();
            files.retain(|file| file.inode != 0);
            let known = Some((files, error.clone()));
            *self
                .without_python
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = known;
        }
        error
    }

    fn children(&self) -> Vec<(Pid, String)> {
        let command = |pid: Pid| {
            let words = Process::open(pid).ok()?.command_line().ok()?;
            let command: String = words.join(" ").chars().take(MAX_COMMAND).collect();
            Some((pid, printable(&command).into_owned()))
        };
        let all = self.process.children().into_iter();
        all.take(MAX_CHILDREN).filter_map(command).collect()
    }

    /// Where paths of the process are, when they are not ours.
    fn elsewhere(&self) -> Option<String> {
        let pid = self.process.pid();
        let spaces = self.process.namespaces();
        let mut differs = Vec::new();
        if spaces.other_mounts == Some(true) {
            differs.push(String::from("its own mount namespace"));
        }
        if spaces.other_root == Some(true) {
            differs.push(format!("its own root (`/proc/{pid}/root`)"));
        }
        if spaces.other_pids == Some(true) {
            let inside = self.process.inner_pids().last();
            let inside = inside.map_or_else(String::new, |inside| format!(", as process {inside}"));
            differs.push(format!("its own pid namespace{inside}"));
        }
        (!differs.is_empty()).then(|| format!("process {pid}, which has {}", differs.join(", ")))
    }
}

fn of_files(files: &[MappedFile]) -> impl Iterator<Item = &MappedFile> {
    files.iter().filter(|file| file.inode != 0)
}
