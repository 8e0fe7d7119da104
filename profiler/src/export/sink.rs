//! Output files: opened before the run, so that a bad path fails at once, and put in place
//! whole at its end.
//!
//! A regular file is written beside its name and renamed over it; a reader never sees half a
//! profile, and a run that fails leaves the old file. What is not a regular file (a terminal,
//! a pipe) is written to as it is; so is what the shell has opened (`/dev/stdout`, `/dev/fd/3`).
//! This is the only place of the room that touches the file system.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::process;

/// A place that a profile will be written to.
#[derive(Debug)]
pub struct Sink {
    /// As the user gave it.
    path: PathBuf,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// Written beside, then renamed over `to`.
    Beside { file: File, part: Part, to: PathBuf },
    /// Written to as it is; `truncate` when it is a regular file whose folder refuses a second.
    AsItIs { file: File, truncate: bool },
    /// Standard output.
    Stdout,
}

/// The unfinished file, removed unless it was renamed.
#[derive(Debug)]
struct Part(Option<PathBuf>);

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            // Nothing to be done about a failure, and the run's own outcome matters more.
            let _ = fs::remove_file(path);
        }
    }
}

impl Sink {
    /// Opens `path` for writing later; `-` is standard output, as `/dev/stdout` is. Opening a named
    /// pipe waits for its reader.
    ///
    /// # Errors
    /// When it could not be written to.
    pub fn open(path: &Path) -> Result<Self, SinkError> {
        let place = match path.to_str() {
            Some("-" | "/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1") => Ok(Place::Stdout),
            _ => place(path),
        };
        match place {
            Ok(place) => Ok(Self {
                path: path.to_path_buf(),
                place,
            }),
            Err(error) => Err(SinkError::new(path, &error)),
        }
    }

    /// The path as the user gave it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes everything by `write` and puts it in place. A reader that has gone away is not
    /// an error.
    ///
    /// # Errors
    /// When it cannot be written or renamed; a regular file is then as it was.
    pub fn finish(
        self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), SinkError> {
        let Self { path, place } = self;
        match put(place, write) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(SinkError::new(&path, &error))
            }
            _ => Ok(()),
        }
    }
}

fn put(place: Place, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    match place {
        Place::Beside { file, mut part, to } => {
            buffered(file, write)?;
            if let Some(from) = &part.0 {
                fs::rename(from, to)?;
            }
            part.0 = None;
            Ok(())
        }
        Place::AsItIs { file, truncate } => {
            if truncate {
                file.set_len(0)?;
            }
            buffered(file, write)
        }
        Place::Stdout => buffered(io::stdout().lock(), write),
    }
}

fn buffered(
    out: impl Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(64 << 10, out);
    let written = write(&mut out).and_then(|()| out.flush());
    // Dropping the buffer would try a failed write once more.
    let _ = out.into_parts();
    written
}

fn place(path: &Path) -> io::Result<Place> {
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let (file, part) = beside(path)?;
            let to = path.to_path_buf();
            return Ok(Place::Beside { file, part, to });
        }
        Err(error) => return Err(error),
    };
    // Opened by the name as given, not as resolved: where the kernel protects links in shared
    // folders, it is this call that it refuses.
    let file = OpenOptions::new().write(true).open(path)?;
    if is_descriptor(path) {
        // Whoever opened it may have written to it, and may go on.
        let file = OpenOptions::new().append(true).open(path)?;
        let truncate = false;
        return Ok(Place::AsItIs { file, truncate });
    }
    if !meta.is_file() {
        let truncate = false;
        return Ok(Place::AsItIs { file, truncate });
    }
    // The file behind a link is replaced, not the link.
    let to = fs::canonicalize(path)?;
    match beside(&to) {
        Ok((new, part)) => {
            new.set_permissions(fs::Permissions::from_mode(meta.mode() & 0o777))?;
            if fchown(&new, Some(meta.uid()), Some(meta.gid())).is_err() {
                // Another's file that we may write but not give away: keep it theirs.
                let truncate = true;
                return Ok(Place::AsItIs { file, truncate });
            }
            let file = new;
            Ok(Place::Beside { file, part, to })
        }
        Err(_) => {
            let truncate = true;
            Ok(Place::AsItIs { file, truncate })
        }
    }
}

/// Whether it is a file that this process has open, by its descriptor.
fn is_descriptor(path: &Path) -> bool {
    path == Path::new("/dev/stderr")
        || path.starts_with("/dev/fd")
        || path.starts_with("/proc/self/fd")
}

/// A new file in the folder of `path`, hidden, of a name that says what it is.
fn beside(path: &Path) -> io::Result<(File, Part)> {
    let name = path.file_name().ok_or(ErrorKind::IsADirectory)?;
    let mut last = io::Error::from(ErrorKind::AlreadyExists);
    // A run that was killed may have left its file; a few names are enough.
    for attempt in 0..16 {
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}-{attempt}.part", process::id()));
        let part = path.with_file_name(hidden);
        match OpenOptions::new().write(true).create_new(true).open(&part) {
            Ok(file) => return Ok((file, Part(Some(part)))),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Why a file cannot be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkError {
    path: PathBuf,
    kind: ErrorKind,
    text: String,
}

impl SinkError {
    fn new(path: &Path, error: &io::Error) -> Self {
        Self {
            path: path.to_path_buf(),
            kind: error.kind(),
            text: error.to_string(),
        }
    }

    fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        }
    }
}

impl fmt::Display for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        let folder = self.folder().display();
        if self.path == Path::new("-") {
            return write!(f, "cannot write to standard output: {}", self.text);
        }
        write!(f, "cannot write `{path}`: ")?;
        match self.kind {
            ErrorKind::NotFound if self.folder().is_dir() => {
                write!(
                    f,
                    "no file can be made in `{folder}`: choose another folder, as in `-o /tmp/profile.svg`"
                )
            }
            ErrorKind::NotFound => {
                write!(
                    f,
                    "there is no folder `{folder}`: make it with `mkdir -p {folder}`"
                )
            }
            ErrorKind::IsADirectory => {
                write!(f, "it is a folder: name a file, as in `{path}/profile.svg`")
            }
            ErrorKind::NotADirectory => {
                write!(
                    f,
                    "`{folder}` is not a folder: name another place with --output"
                )
            }
            ErrorKind::PermissionDenied => {
                write!(
                    f,
                    "permission denied: name a place you may write to with --output"
                )
            }
            ErrorKind::ReadOnlyFilesystem => {
                write!(
                    f,
                    "the file system is read-only: name another place with --output"
                )
            }
            ErrorKind::StorageFull => {
                write!(
                    f,
                    "the disk is full: make room, or name another place with --output"
                )
            }
            _ => write!(f, "{}: name another place with --output", self.text),
        }
    }
}

impl std::error::Error for SinkError {}
