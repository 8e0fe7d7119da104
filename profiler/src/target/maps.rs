//! What is mapped where in a process, and the files behind it.
//!
//! Rows are parsed here and not by procfs, whose reader refuses the whole table for one path that
//! is no UTF-8 and trusts the shape of paths such as `/SYSV…`; a target chooses its paths.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc;
use nix::sys::stat::{major, minor};

use crate::target::error::TargetError;
use crate::target::process::Process;
use crate::words::RemoteAddr;

/// Most bytes of a table that are read: some 600,000 rows, ten times the kernel's usual limit.
const MAX_TABLE: u64 = 64 << 20;

/// What one may do with the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Perms {
    /// Read them.
    pub read: bool,
    /// Write them.
    pub write: bool,
    /// Execute them.
    pub execute: bool,
    /// Writes are seen by others.
    pub shared: bool,
}

/// Where the bytes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A file, by its path below the target's root.
    File {
        /// The path.
        path: PathBuf,
        /// The kernel marks it as deleted. (A file can also be called so.)
        deleted: bool,
    },
    /// Nothing: zeroes at first.
    Anonymous,
    /// Something the kernel has a word for: `heap`, `stack`, `vdso`.
    Special(String),
}

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its first byte.
    pub start: RemoteAddr,
    /// The byte after its last.
    pub end: RemoteAddr,
    /// What one may do with it.
    pub perms: Perms,
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// The file's device, major and minor.
    pub dev: (u32, u32),
    /// The file's number on its device; 0 when there is no file.
    pub inode: u64,
    /// Where the bytes come from.
    pub backing: Backing,
}

impl Mapping {
    /// Whether an address lies in it.
    #[must_use]
    pub fn contains(&self, addr: RemoteAddr) -> bool {
        self.start <= addr && addr < self.end
    }

    /// The path of the file behind it, if there is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.backing {
            Backing::File { path, .. } => Some(path),
            _ => None,
        }
    }

    /// `START-END PERMS OFFSET MAJOR:MINOR INODE PATH`, numbers but the inode in hex.
    fn parse(line: &[u8]) -> Option<Self> {
        let mut words = line.splitn(6, |&byte| byte == b' ');
        let mut word = || std::str::from_utf8(words.next()?).ok();
        let (start, end) = word()?.split_once('-')?;
        let perms = word()?.as_bytes();
        let offset = word()?;
        let (major, minor) = word()?.split_once(':')?;
        let inode = word()?.trim();
        let path = words.next().unwrap_or_default().trim_ascii_start();
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let hex32 = |text| u32::from_str_radix(text, 16).ok();
        let mapping = Self {
            start: RemoteAddr(hex(start)?),
            end: RemoteAddr(hex(end)?),
            perms: Perms {
                read: *perms.first()? == b'r',
                write: *perms.get(1)? == b'w',
                execute: *perms.get(2)? == b'x',
                shared: *perms.get(3)? == b's',
            },
            offset: hex(offset)?,
            dev: (hex32(major)?, hex32(minor)?),
            inode: inode.parse().ok()?,
            backing: Backing::parse(path),
        };
        (mapping.start < mapping.end).then_some(mapping)
    }
}

impl Backing {
    fn parse(path: &[u8]) -> Self {
        if path.is_empty() {
            return Self::Anonymous;
        }
        if let Some(name) = path
            .strip_prefix(b"[")
            .and_then(|name| name.strip_suffix(b"]"))
        {
            return Self::Special(String::from_utf8_lossy(name).into_owned());
        }
        let stripped = path.strip_suffix(b" (deleted)");
        Self::File {
            // The kernel writes a line feed in a path as `\012`, and nothing else so.
            path: PathBuf::from(OsString::from_vec(unescape(stripped.unwrap_or(path)))),
            deleted: stripped.is_some(),
        }
    }
}

fn unescape(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, behind)) = rest.split_first() {
        if let Some(behind) = rest.strip_prefix(br"\012") {
            plain.push(b'\n');
            rest = behind;
        } else {
            plain.push(byte);
            rest = behind;
        }
    }
    plain
}

/// All mappings of a process at one time, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maps(Vec<Mapping>);

impl Maps {
    /// Mappings in any order.
    #[must_use]
    pub fn new(mut mappings: Vec<Mapping>) -> Self {
        mappings.sort_by_key(|mapping| mapping.start);
        Self(mappings)
    }

    /// The mapping that holds an address.
    #[must_use]
    pub fn at(&self, addr: RemoteAddr) -> Option<&Mapping> {
        let behind = self.0.partition_point(|mapping| mapping.start <= addr);
        let mapping = self.0.get(behind.checked_sub(1)?)?;
        mapping.contains(addr).then_some(mapping)
    }

    /// All of them, lowest first.
    pub fn iter(&self) -> std::slice::Iter<'_, Mapping> {
        self.0.iter()
    }

    fn parse(table: &[u8]) -> Option<Self> {
        table
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(Mapping::parse)
            .collect::<Option<_>>()
            .map(Self::new)
    }
}

impl<'a> IntoIterator for &'a Maps {
    type Item = &'a Mapping;
    type IntoIter = std::slice::Iter<'a, Mapping>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Process {
    /// Its mappings now.
    ///
    /// # Errors
    /// When it is gone, or the profiler may not look.
    pub fn maps(&self) -> Result<Maps, TargetError> {
        let mut table = self.read_living("maps", MAX_TABLE)?;
        if table.is_empty() {
            return Err(TargetError::Gone { pid: self.pid() });
        }
        // What the cap cut off in the middle of a row is no row.
        let rows = table
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |last| last + 1);
        table.truncate(rows);
        Maps::parse(&table)
            .ok_or_else(|| TargetError::malformed(self.pid(), "maps", "a row that is no mapping"))
    }

    /// Open the file behind a mapping, to be read: by its path below the target's root, or, when
    /// that is gone or is another file by now, by the mapping itself (which takes
    /// `CAP_CHECKPOINT_RESTORE` or `CAP_SYS_ADMIN`; the error says so where it is that).
    ///
    /// What the path leads to may be of the target's choosing, so it is compared with the mapping
    /// before it is opened: only the mapped regular file is, and never a pipe or a device.
    ///
    /// # Errors
    /// When neither way leads to the mapped file.
    pub fn open_mapped(&self, mapping: &Mapping) -> io::Result<File> {
        let Backing::File { path, deleted } = &mapping.backing else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "no file is mapped there",
            ));
        };
        let root = self.place("root");
        let below = |path: &Path| {
            let relative = path.strip_prefix("/").unwrap_or(path);
            open_same(&root.join(relative), mapping)
        };
        let by_path = below(path).or_else(|error| {
            // A file can bear the kernel's mark in its own name.
            if !deleted {
                return Err(error);
            }
            let mut marked = path.clone().into_os_string();
            marked.push(" (deleted)");
            below(Path::new(&marked))
        });
        by_path.or_else(|error| {
            let (start, end) = (mapping.start.0, mapping.end.0);
            // Only processes have this folder, but each thread can be named as if it were one.
            let who = self.stand_in().map_or(self.pid().0, |tid| tid.0);
            let link = format!("/proc/{who}/map_files/{start:x}-{end:x}");
            open_same(Path::new(&link), mapping).map_err(|by_link| match by_link.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    format!(
                        "{error}; as it is mapped it may be opened with CAP_SYS_ADMIN or \
                         CAP_CHECKPOINT_RESTORE: run the profiler with `sudo`"
                    ),
                ),
                _ => error,
            })
        })
    }
}

/// Open `path` if it is the mapped file. The look does not open it (`O_PATH`), and what is opened
/// afterwards is what was looked at.
fn open_same(path: &Path, mapping: &Mapping) -> io::Result<File> {
    let look = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(path)?;
    let found = look.metadata()?;
    let dev = (
        u32::try_from(major(found.dev())).unwrap_or(u32::MAX),
        u32::try_from(minor(found.dev())).unwrap_or(u32::MAX),
    );
    if !found.is_file() || found.ino() != mapping.inode || !same_device(dev, mapping.dev) {
        return Err(io::Error::other(
            "the file at its path is no longer the one that is mapped",
        ));
    }
    File::open(format!("/proc/self/fd/{}", look.as_raw_fd()))
}

/// Volumes of btrfs and layers of overlayfs show in `stat` another nameless device (major 0) than
/// in the table of mappings; there the inode has to do.
fn same_device(a: (u32, u32), b: (u32, u32)) -> bool {
    a == b || (a.0 == 0 && b.0 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Pid;

    const TABLE: &[u8] = b"\
00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/dbus-daemon
7f0000000000-7f0000001000 rw-p 00000000 00:00 0 
7f0000001000-7f0000002000 rw-s 00000000 00:05 7                          /SYSV
7f0000002000-7f0000003000 r--p 00000000 00:05 8                          /a\xff\\012b c (deleted)
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    #[test]
    fn every_kind_of_row_is_understood() {
        let maps = Maps::parse(TABLE).expect("a good table");
        let first = maps.at(RemoteAddr(0x45_1fff)).expect("in the first");
        assert_eq!(first.path(), Some(Path::new("/usr/bin/dbus-daemon")));
        assert_eq!(
            (first.offset, first.dev, first.inode),
            (0x1000, (8, 2), 173_521)
        );
        assert!(first.perms.execute && !first.perms.write && !first.perms.shared);
        assert_eq!(maps.at(RemoteAddr(0x45_2000)), None);
        assert_eq!(maps.at(RemoteAddr(0)), None);
        let at = |addr| &maps.at(RemoteAddr(addr)).expect("a mapping").backing;
        assert_eq!(at(0x7f00_0000_0000), &Backing::Anonymous);
        assert_eq!(at(0x7ffd_0000_0000), &Backing::Special("stack".to_owned()));
        assert_eq!(
            at(0x7f00_0000_2000),
            &Backing::File {
                path: PathBuf::from(OsString::from_vec(b"/a\xff\nb c".to_vec())),
                deleted: true,
            }
        );
    }

    #[test]
    fn a_row_that_is_no_mapping_is_refused() {
        for row in [
            "x",
            "1-2",
            "2-1 r--p 0 0:0 0",
            "1-2 r 0 0:0 0",
            "1-2 r--p 0 00 0",
            "1-2 r--p 0 0:0 x",
        ] {
            assert_eq!(Maps::parse(row.as_bytes()), None, "{row}");
        }
    }

    #[test]
    fn the_mapped_executable_can_be_opened_and_another_file_cannot() {
        let me = Process::open(Pid(std::process::id())).expect("ourselves");
        let maps = me.maps().expect("our mappings");
        let exe = me.exe().expect("our executable");
        let mapping = maps
            .iter()
            .find(|mapping| mapping.path() == Some(exe))
            .expect("it is mapped");
        assert!(me.open_mapped(mapping).is_ok());
        let other = Mapping {
            inode: mapping.inode + 1,
            start: RemoteAddr(0x1000),
            ..mapping.clone()
        };
        assert!(me.open_mapped(&other).is_err());
    }
}
