//! The perf maps of processes: found, followed as they grow, and asked for names.
//!
//! A process names the code that it makes in `/tmp/perf-PID.map`, by its own root and its own
//! number. Anyone may write there: the file is read if it is a plain one of the process's user, or
//! of root. What its lines mean: see [`super::perf_map`].

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::sync::Arc;

use nix::libc;
use rustc_hash::FxHashMap;

use super::alive::with_memory;
use super::frame::NativeFrame;
use super::perf_map::PerfMap;
use crate::words::{Pid, RemoteAddr};

/// Most bytes that are read of all maps together. Programs that make much code write some ten
/// million.
const MAX_BYTES: u64 = 64 << 20;
/// Bytes that are read at once.
const PIECE: usize = 1 << 16;
/// Most addresses of a process of which it is remembered that they were asked for.
const MAX_ASKED: usize = 1 << 16;

/// Those of all processes.
#[derive(Debug, Default)]
pub(super) struct PerfMaps {
    of: FxHashMap<Pid, Followed>,
    /// Bytes read of those that are followed.
    bytes: u64,
}

/// What a process says about an address.
pub(super) enum Said {
    /// It has no perf map.
    Nothing,
    /// Its perf map says nothing of the address, and why that may be.
    Unknown(&'static str),
    /// What is there.
    Known(NativeFrame),
}

/// The addresses whose names are others now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Renamed {
    /// None.
    #[default]
    None,
    /// These.
    Some(Vec<u64>),
    /// Any.
    All,
}

/// A map, as far as it was read.
#[derive(Debug, Default)]
struct Followed {
    file: Option<File>,
    read: u64,
    map: PerfMap,
    asked: BTreeSet<u64>,
    /// Of these, those that have another name since the last time they were told.
    renamed: BTreeSet<u64>,
    /// It is longer than is read.
    is_cut: bool,
}

impl PerfMaps {
    /// What a process says about an address.
    pub(super) fn ask(&mut self, pid: Pid, addr: RemoteAddr) -> Said {
        let budget = MAX_BYTES.saturating_sub(self.bytes);
        let followed = self.of.entry(pid).or_default();
        if followed.map.find(addr.0).is_none() {
            // Code that was made since the last look.
            self.bytes += followed.go_on(pid, budget);
        }
        if followed.asked.len() < MAX_ASKED {
            followed.asked.insert(addr.0);
        }
        followed.said(addr.0)
    }

    /// Reads what a process's map has grown by, if it was ever asked for; tells what was asked for
    /// and has another name now.
    pub(super) fn follow(&mut self, pid: Pid) -> Renamed {
        let budget = MAX_BYTES.saturating_sub(self.bytes);
        let Some(followed) = self.of.get_mut(&pid) else {
            return Renamed::None;
        };
        if followed.is_replaced() {
            let old = std::mem::take(followed);
            self.bytes = self.bytes.saturating_sub(old.read);
            return Renamed::All;
        }
        let grown = followed.go_on(pid, budget);
        self.bytes += grown;
        let renamed = std::mem::take(&mut followed.renamed);
        if followed.asked.len() >= MAX_ASKED && grown > 0 {
            followed.asked.clear();
            return Renamed::All;
        }
        match renamed.is_empty() {
            true => Renamed::None,
            false => Renamed::Some(renamed.into_iter().collect()),
        }
    }

    /// A process is over or runs another program.
    pub(super) fn forget(&mut self, pid: Pid) {
        let old = self.of.remove(&pid);
        let read = old.map_or(0, |followed| followed.read);
        self.bytes = self.bytes.saturating_sub(read);
    }
}

impl Followed {
    fn said(&self, addr: u64) -> Said {
        if self.file.is_none() {
            return Said::Nothing;
        }
        match self.map.find(addr) {
            Some(function) => Said::Known(NativeFrame::Known {
                function: Arc::clone(&function.name),
                module: None,
                file: None,
                line: None,
                bytes: Some(function.range.end - function.range.start),
            }),
            None if self.is_cut || self.map.refused > 0 => {
                Said::Unknown("not in the perf map, which is longer than is read")
            }
            None if self.map.malformed > 0 => {
                Said::Unknown("not in the perf map, which has malformed lines")
            }
            None => Said::Unknown("not in the perf map"),
        }
    }

    /// Whether the file is shorter than what was read of it: it was begun anew.
    fn is_replaced(&self) -> bool {
        let length = self.file.as_ref().and_then(|file| file.metadata().ok());
        length.is_some_and(|file| file.len() < self.read)
    }

    /// Reads on, at most `budget` bytes; gives how many there were.
    fn go_on(&mut self, pid: Pid, budget: u64) -> u64 {
        if self.file.is_none() {
            self.file = open(pid);
        }
        let Some(file) = &self.file else { return 0 };
        let mut piece = vec![0; PIECE];
        let mut grown = 0;
        while let Ok(count @ 1..) = file.read_at(&mut piece, self.read) {
            let count = count.min(usize::try_from(budget - grown).unwrap_or(PIECE));
            if count == 0 {
                self.is_cut = true;
                break;
            }
            self.read += count as u64;
            grown += count as u64;
            let (asked, renamed) = (&self.asked, &mut self.renamed);
            self.map.add(&piece[..count], |range| {
                renamed.extend(asked.range(range.clone()));
            });
        }
        grown
    }
}

fn open(pid: Pid) -> Option<File> {
    let who = with_memory(pid);
    let status = std::fs::read_to_string(format!("/proc/{who}/status")).ok()?;
    let numbers = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let words = line.into_iter().flat_map(str::split_ascii_whitespace);
        words
            .map_while(|word| word.parse().ok())
            .collect::<Vec<u32>>()
    };
    // The last is its number as it has it itself.
    let own = *numbers("NStgid:").last()?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(format!("/proc/{who}/root/tmp/perf-{own}.map"))
        .ok()?;
    let found = file.metadata().ok()?;
    let is_its = found.uid() == 0 || numbers("Uid:").contains(&found.uid());
    (found.is_file() && is_its).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    use tempfile::NamedTempFile;

    /// A map of a process that is nobody's, in a file that grows.
    fn followed(pid: Pid) -> (PerfMaps, File) {
        let (file, path) = NamedTempFile::new().unwrap().into_parts();
        let mut maps = PerfMaps::default();
        let begun = Followed {
            file: Some(File::open(&path).unwrap()),
            ..Followed::default()
        };
        maps.of.insert(pid, begun);
        (maps, file)
    }

    fn said(maps: &mut PerfMaps, pid: Pid, addr: u64) -> String {
        match maps.ask(pid, RemoteAddr(addr)) {
            Said::Nothing => String::new(),
            Said::Unknown(why) => format!("unknown: {why}"),
            Said::Known(frame) => frame.function().unwrap_or_default().to_owned(),
        }
    }

    #[test]
    fn a_map_is_followed_as_it_grows_and_tells_what_is_renamed() {
        let pid = Pid(u32::MAX);
        let (mut maps, mut file) = followed(pid);
        let unknown = "unknown: not in the perf map";
        assert_eq!(said(&mut maps, pid, 0x10), unknown);
        file.write_all(b"10 8 one\n20 8 other\n").unwrap();
        // Asked, it looks for what it does not have yet.
        assert_eq!(said(&mut maps, pid, 0x10), "one");
        assert_eq!(maps.follow(pid), Renamed::Some(vec![0x10]));
        assert_eq!(maps.follow(pid), Renamed::None);
        file.write_all(b"20 8 nobody asked\nwhat\n10 8 two\n")
            .unwrap();
        assert_eq!(maps.follow(pid), Renamed::Some(vec![0x10]));
        assert_eq!(said(&mut maps, pid, 0x10), "two");
        // What is read for the sake of another address is told too.
        file.write_all(b"10 8 three\n").unwrap();
        assert!(said(&mut maps, pid, 0x28).starts_with(unknown));
        assert_eq!(maps.follow(pid), Renamed::Some(vec![0x10]));
        assert_eq!(said(&mut maps, pid, 0x10), "three");
        assert!(said(&mut maps, pid, 0x30).ends_with("malformed lines"));
        file.set_len(0).unwrap();
        assert_eq!(maps.follow(pid), Renamed::All);
        assert_eq!(maps.bytes, 0);
        assert_eq!(maps.follow(Pid(1)), Renamed::None);
        maps.forget(pid);
        assert_eq!(maps.follow(pid), Renamed::None);
    }

    #[test]
    fn a_map_is_read_no_further_than_all_may_be() {
        let pid = Pid(u32::MAX);
        let (mut maps, mut file) = followed(pid);
        file.write_all(b"10 8 one\n20 8 other\n").unwrap();
        maps.bytes = MAX_BYTES - 9;
        assert_eq!(said(&mut maps, pid, 0x10), "one");
        assert!(said(&mut maps, pid, 0x20).ends_with("longer than is read"));
    }
}
