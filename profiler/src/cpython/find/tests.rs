//! Searches through processes that are nothing but mappings, of good and of ill will.

use std::cell::{Cell, RefCell};
use std::io::SeekFrom;
use std::rc::Rc;

use object::elf;

use super::image::tests::{Part, elf as elf_file};
use super::*;
use crate::target::{ReadError, ReadErrorKind};

/// A file that begins with these bytes and is a hundred megabytes of zeroes from there on.
struct Endless {
    begins: Rc<Vec<u8>>,
    at: u64,
    read: Rc<Cell<u64>>,
}

const ENDLESS: u64 = 100 << 20;

impl Read for Endless {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let begins = usize::try_from(self.at).unwrap_or(usize::MAX);
        let begins = self.begins.get(begins..).unwrap_or_default();
        let held = begins.len().min(buf.len());
        buf[..held].copy_from_slice(&begins[..held]);
        buf[held..].fill(0);
        self.at += buf.len() as u64;
        self.read.set(self.read.get() + buf.len() as u64);
        Ok(buf.len())
    }
}

impl Seek for Endless {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::End(by) => ENDLESS.saturating_add_signed(by),
            SeekFrom::Current(by) => self.at.saturating_add_signed(by),
        };
        Ok(self.at)
    }
}

/// Opens the same file whatever is asked for.
#[derive(Default)]
struct Opener {
    begins: Rc<Vec<u8>>,
    read: Rc<Cell<u64>>,
    opened: RefCell<Vec<String>>,
}

impl OpenImage for Opener {
    fn open(&self, file: &MappedFile) -> io::Result<Box<dyn ReadSeek>> {
        self.opened.borrow_mut().push(file.path.clone());
        Ok(Box::new(Endless {
            begins: Rc::clone(&self.begins),
            at: 0,
            read: Rc::clone(&self.read),
        }))
    }
}

/// Memory that may not be read, or reads as zeroes, which are counted.
struct Zeroes {
    readable: bool,
    read: Cell<u64>,
}

impl Memory for Zeroes {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        self.read.set(self.read.get() + buf.len() as u64);
        buf.fill(0);
        self.readable.then_some(()).ok_or(ReadError {
            addr,
            bytes: buf.len(),
            kind: ReadErrorKind::Refused,
        })
    }
}

fn mapping(number: u64, bytes: u64, path: &str) -> MappedFile {
    let start = RemoteAddr(0x1_0000_0000 * (number + 1));
    MappedFile {
        path: path.to_owned(),
        start,
        end: start.plus(bytes),
        file_offset: 0,
        executable: true,
        writable: true,
        inode: number + 1,
    }
}

/// A process may map thousands of files, each with tables as large as they may be.
#[test]
fn one_budget_bounds_what_all_images_of_a_process_cost_together() {
    const BUDGET: u64 = 48 << 20;
    let table: Part<'_> = (".table", elf::SHT_SYMTAB, 0, &[], 2);
    let names: Part<'_> = (".names", elf::SHT_STRTAB, 0, &[], 0);
    let mut begins = elf_file(elf::ET_DYN, &[table, names]);
    // Both sections have 15 MB from the file's start on.
    let headers = begins.len() - 4 * 64;
    for section in [1, 2] {
        let at = headers + section * 64;
        begins[at + 24..at + 32].copy_from_slice(&0_u64.to_le_bytes());
        begins[at + 32..at + 40].copy_from_slice(&(15_u64 << 20).to_le_bytes());
    }
    let files: Vec<MappedFile> = (0..3000)
        .map(|number| mapping(number, 32 << 20, &format!("/lib/{number}.so")))
        .collect();
    // Of few files the tables use it up, of many their opening.
    let opener = Opener {
        begins: Rc::new(begins),
        ..Opener::default()
    };
    for (readable, count) in [(false, 100), (true, 100), (true, 3000)] {
        let files = &files[..count];
        opener.read.set(0);
        let memory = Zeroes {
            readable,
            read: Cell::new(0),
        };
        let budget = Budget::of(BUDGET);
        let found = search_within(budget, files, &opener, &memory, |_| false);
        assert!(found.found.is_empty());
        assert!(found.tried.cut_short, "{}", found.tried);
        assert!(opener.read.get() <= BUDGET, "{}", opener.read.get());
        assert!(memory.read.get() <= 2 * BUDGET, "{}", memory.read.get());
        let told = found.tried.to_string();
        assert!(told.contains("not everything was looked at"), "{told}");
        assert!(told.lines().count() < 20, "{told}");
    }
}

#[test]
fn files_called_python_come_first_and_no_device_or_file_of_data_is_opened() {
    let mut data = mapping(3, 4096, "/usr/share/locale");
    data.executable = false;
    let mut read_only = data.clone();
    (read_only.writable, read_only.inode) = (false, 77);
    let files = [
        mapping(0, 4096, "/usr/bin/worker"),
        mapping(1, 4096, "/dev/zero"),
        data,
        read_only,
        mapping(4, 4096, "/opt/libpython3.9.so"),
        mapping(5, 4096, "[heap]"),
        mapping(6, 4096, "/memfd:python (deleted)"),
    ];
    let opener = Opener::default();
    let memory = Zeroes {
        readable: true,
        read: Cell::new(0),
    };
    let found = search(&files, &opener, &memory, |_| false);
    let mut opened = opener.opened.into_inner();
    opened.dedup();
    let likely = [
        "/opt/libpython3.9.so",
        "/memfd:python (deleted)",
        "/usr/bin/worker",
    ];
    assert_eq!(opened[..3], likely);
    assert!(
        opened.iter().all(|it| likely.contains(&it.as_str())),
        "{opened:?}"
    );
    let told = found.tried.to_string();
    assert!(!told.contains("locale"), "{told}");
}
