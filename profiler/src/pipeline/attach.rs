//! One target: its process, its memory, and the interpreter in it once there is one.

use std::{fmt, io};

use crate::{
    cpython::{self, CpythonError, MappedFile, OpenImage, ReadSeek, Runtime},
    target::{LiveMemory, Maps, Process, TargetError},
    words::Pid,
};

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
                .map(|path| path.to_string_lossy().into_owned())
                .unwrap_or_default(),
            start: mapping.start,
            end: mapping.end,
            file_offset: mapping.offset,
            executable: mapping.perms.execute,
            writable: mapping.perms.write,
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
        Ok(Self { process, memory })
    }

    /// Find the interpreter that the process runs now.
    ///
    /// # Errors
    /// When there is none, or none that can be profiled.
    pub fn discover(&self) -> Result<Runtime, AttachError> {
        let maps = self.process.maps()?;
        let images = Images {
            process: &self.process,
            maps: &maps,
        };
        cpython::discover(&mapped_files(&maps), &images, &self.memory).map_err(|error| {
            AttachError::Python {
                pid: self.process.pid(),
                error,
            }
        })
    }
}
