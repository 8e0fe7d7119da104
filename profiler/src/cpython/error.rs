//! Why a process cannot be profiled as a CPython, each with what to do next.

use std::fmt;

use super::find::CheckList;
use super::layout::debug_offsets::TableError;
use super::layout::{NEWEST_MINOR, OLDEST_MINOR};
use super::objects::ObjectError;
use super::version::Version;
use crate::target::ReadError;

/// What stands between a process and its Python stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpythonError {
    /// No interpreter in any of its images.
    NotFound(CheckList),
    /// An interpreter older than the tables; none when even its version cannot be told.
    TooOld {
        /// The file that holds it.
        image: String,
        /// Its version.
        version: Option<Version>,
    },
    /// An interpreter newer than the tables.
    TooNew {
        /// The file that holds it.
        image: String,
        /// Its version.
        version: Version,
    },
    /// It has not started yet, or has already ended: worth trying again in a moment.
    NotInitialised {
        /// The file that holds it.
        image: String,
        /// Its version.
        version: Version,
    },
    /// The layout does not fit this process.
    Mismatch {
        /// The file that holds it.
        image: String,
        /// Its version.
        version: Version,
        /// What should have been so.
        check: &'static str,
    },
    /// The target's own table of offsets cannot be believed.
    Table(TableError),
    /// Its memory could not be read.
    Read(ReadError),
    /// An object in it could not be read.
    Object(ObjectError),
    /// A list of it that never ends or changes faster than it can be read.
    Restless(&'static str),
}

impl CpythonError {
    /// The process may become profilable by itself in a moment.
    #[must_use]
    pub const fn is_worth_a_retry(&self) -> bool {
        matches!(self, Self::NotInitialised { .. } | Self::Restless(_))
    }
}

impl fmt::Display for CpythonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(list) => write!(
                f,
                "no Python interpreter in it: give the pid of the Python itself, which may be a \
                 child (`pgrep -a python` lists them). What was looked at:{list}"
            ),
            Self::TooOld {
                image,
                version: Some(version),
            } => write!(
                f,
                "`{image}` is Python {version}, older than 3.{OLDEST_MINOR}: run the program on \
                 3.{OLDEST_MINOR} or later"
            ),
            Self::TooOld {
                image,
                version: None,
            } => write!(
                f,
                "`{image}` is a Python older than 3.7: run the program on 3.{OLDEST_MINOR} or later"
            ),
            Self::TooNew { image, version } => write!(
                f,
                "`{image}` is Python {version}, newer than this profiler knows \
                 (3.{OLDEST_MINOR} to 3.{NEWEST_MINOR}): install a newer profiler"
            ),
            Self::NotInitialised { image, version } => write!(
                f,
                "Python {version} in `{image}` is not running yet, or no more: try again in a \
                 moment"
            ),
            Self::Mismatch {
                image,
                version,
                check,
            } => write!(
                f,
                "`{image}` says it is Python {version}, but its memory does not look like it \
                 ({check}): if it is patched or built `--with-trace-refs`, use an ordinary build"
            ),
            Self::Table(error) => error.fmt(f),
            Self::Read(error) => error.fmt(f),
            Self::Object(error) => error.fmt(f),
            Self::Restless(list) => write!(
                f,
                "the list of {list} kept changing while it was read: try again in a moment"
            ),
        }
    }
}

impl std::error::Error for CpythonError {}

impl From<ReadError> for CpythonError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl From<ObjectError> for CpythonError {
    fn from(error: ObjectError) -> Self {
        Self::Object(error)
    }
}

impl From<TableError> for CpythonError {
    fn from(error: TableError) -> Self {
        Self::Table(error)
    }
}
