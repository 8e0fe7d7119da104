//! The metadata of an image as JSON: plain numbers and words, so that a person can read it and
//! an older image stays readable when a type of ours changes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::target::image_file::ImageError;
use crate::target::maps::{Backing, Mapping, Maps, Perms};
use crate::target::recorded::ImageMeta;
use crate::target::tasks::{TaskFacts, TaskState};
use crate::words::{DurationNs, InnerTid, Pid, RemoteAddr, StartTime, Tid};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Meta {
    pid: u32,
    recipe: String,
    maps: Vec<Map>,
    tasks: Vec<Task>,
    facts: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Map {
    start: u64,
    end: u64,
    perms: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    offset: u64,
    #[serde(default)]
    dev: (u32, u32),
    #[serde(default, skip_serializing_if = "is_zero")]
    inode: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<FilePath>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    deleted: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    special: Option<String>,
}

/// A path is text in nearly every image, and its bytes where it is not.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum FilePath {
    Text(String),
    Bytes(Vec<u8>),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    tid: u32,
    started: u64,
    inner: Option<u32>,
    name: String,
    state: char,
    cpu_ns: u64,
    start_stack: Option<u64>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

pub(super) fn to_json(meta: &ImageMeta) -> Result<Vec<u8>, ImageError> {
    let meta = Meta {
        pid: meta.pid.0,
        recipe: meta.recipe.clone(),
        maps: meta.maps.iter().map(Map::of).collect(),
        tasks: meta.tasks.iter().map(Task::of).collect(),
        facts: meta.facts.clone(),
    };
    serde_json::to_vec(&meta).map_err(|error| ImageError::Metadata(error.to_string()))
}

pub(super) fn from_json(json: &[u8]) -> Result<ImageMeta, ImageError> {
    let meta: Meta =
        serde_json::from_slice(json).map_err(|error| ImageError::Metadata(error.to_string()))?;
    Ok(ImageMeta {
        pid: Pid(meta.pid),
        recipe: meta.recipe,
        maps: Maps::new(
            meta.maps
                .into_iter()
                .map(Map::mapping)
                .collect::<Option<_>>()
                .ok_or(ImageError::Malformed(
                    "a mapping that ends before it begins",
                ))?,
        ),
        tasks: meta.tasks.into_iter().map(Task::facts).collect(),
        facts: meta.facts,
    })
}

impl Map {
    fn of(mapping: &Mapping) -> Self {
        let perms = mapping.perms;
        let letter = |set, letter| if set { letter } else { '-' };
        let (path, deleted, special) = match &mapping.backing {
            Backing::Anonymous => (None, false, None),
            Backing::Special(name) => (None, false, Some(name.clone())),
            Backing::File { path, deleted } => {
                let path = match path.to_str() {
                    Some(text) => FilePath::Text(text.to_owned()),
                    None => FilePath::Bytes(path.as_os_str().as_bytes().to_vec()),
                };
                (Some(path), *deleted, None)
            }
        };
        Self {
            start: mapping.start.0,
            end: mapping.end.0,
            perms: [
                letter(perms.read, 'r'),
                letter(perms.write, 'w'),
                letter(perms.execute, 'x'),
                if perms.shared { 's' } else { 'p' },
            ]
            .iter()
            .collect(),
            offset: mapping.offset,
            dev: mapping.dev,
            inode: mapping.inode,
            path,
            deleted,
            special,
        }
    }

    fn mapping(self) -> Option<Mapping> {
        let backing = match (self.path, self.special) {
            (Some(FilePath::Text(text)), _) => file(PathBuf::from(text), self.deleted),
            (Some(FilePath::Bytes(bytes)), _) => {
                file(PathBuf::from(OsString::from_vec(bytes)), self.deleted)
            }
            (None, Some(name)) => Backing::Special(name),
            (None, None) => Backing::Anonymous,
        };
        let has = |letter| self.perms.contains(letter);
        (self.start < self.end).then_some(Mapping {
            start: RemoteAddr(self.start),
            end: RemoteAddr(self.end),
            perms: Perms {
                read: has('r'),
                write: has('w'),
                execute: has('x'),
                shared: has('s'),
            },
            offset: self.offset,
            dev: self.dev,
            inode: self.inode,
            backing,
        })
    }
}

fn file(path: PathBuf, deleted: bool) -> Backing {
    Backing::File { path, deleted }
}

impl Task {
    fn of(facts: &TaskFacts) -> Self {
        Self {
            tid: facts.tid.0,
            started: facts.started.0,
            inner: facts.inner.map(|inner| inner.0),
            name: facts.name.clone(),
            state: facts.state.letter(),
            cpu_ns: facts.cpu.0,
            start_stack: facts.start_stack.map(|addr| addr.0),
        }
    }

    fn facts(self) -> TaskFacts {
        TaskFacts {
            tid: Tid(self.tid),
            started: StartTime(self.started),
            inner: self.inner.map(InnerTid),
            name: self.name,
            state: TaskState::of(self.state),
            cpu: DurationNs(self.cpu_ns),
            start_stack: self.start_stack.map(RemoteAddr),
            is_kernels: false,
        }
    }
}
