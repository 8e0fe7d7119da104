//! What is fuzzed: functions from any bytes to nothing, each of one door through which bytes
//! come from outside. They panic when a promise is broken.
//!
//! The fuzz targets (`tests/fuzz`) and the tests of this program run the same ones.

use std::io::{self, Cursor, Write as _};
use std::sync::OnceLock;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use profiler::assembler::Assembler;
use profiler::cpython::{self, MappedFile, OpenImage, ReadSeek, Version};
use profiler::pystack::Chain;
use profiler::pystack::lines::{LineFormat, Place};
use profiler::source::btf::Btf;
use profiler::source::offsets::kernel_offsets;
use profiler::target::{Image, Memory, ReadError, ReadErrorKind};
use profiler::wire::{self, Event};
use profiler::words::{MonotonicNs, RemoteAddr};
use profiler_common::walk::MAX_GENERATORS;

use super::images;
use super::lying::{Beyond, Lying};
use super::victim::{Victim, evil};

/// Its name and what it runs.
pub(crate) type Entry = (&'static str, fn(&[u8]));

/// All of them.
pub(crate) const ALL: [Entry; 6] = [
    ("walk", walk),
    ("wire", wire),
    ("line_tables", line_tables),
    ("image_file", image_file),
    ("elf", elf),
    ("btf", btf),
];

/// Takes numbers off the front; zeroes when nothing is left.
struct Feed<'a>(&'a [u8]);

impl Feed<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        let bytes = self.0.len().min(N);
        let (front, rest) = self.0.split_at(bytes);
        taken[..bytes].copy_from_slice(front);
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        let [byte] = self.take();
        byte
    }
}

/// An image, what lies beyond its bytes, and lies of eight bytes each: which word, how.
pub(crate) fn walk(data: &[u8]) {
    static VICTIMS: OnceLock<Vec<Victim>> = OnceLock::new();
    let victims = VICTIMS.get_or_init(|| images::all().into_iter().map(Victim::new).collect());
    let mut feed = Feed(data);
    let victim = &victims[usize::from(feed.byte()) % victims.len()];
    let memory = &victim.recorded.image.memory;
    let mut memory = Lying::new(memory).with_beyond(match feed.byte() % 8 {
        0 => Beyond::Zeroes,
        1 => Beyond::Selves,
        2 => Beyond::Noise,
        3 => Beyond::Turns([0x7FFF_0000_0000; 2]),
        _ => Beyond::Nothing,
    });
    while !feed.0.is_empty() {
        let (addr, word) = victim.word(u32::from_le_bytes(feed.take()) as usize);
        let how = feed.byte();
        let other = u32::from_le_bytes([feed.byte(), feed.byte(), feed.byte(), 0]);
        let (other_addr, other_word) = victim.word(other as usize);
        let lie = match how {
            0..100 => evil(how.into(), addr, word, other_addr),
            100..150 => other_word,
            150..200 => word.wrapping_add(other.into()),
            _ => u64::from_le_bytes(feed.take()),
        };
        memory = memory.with_word(addr, lie);
    }
    victim.survives(&memory, "a fuzzed lie");
}

/// A record of the ring.
pub(crate) fn wire(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    let Ok(event) = wire::decode(&bytes) else {
        return;
    };
    if let Event::Tick(tick) = &event {
        let frames: Vec<_> = tick.frames().collect();
        assert_eq!(frames.len(), tick.frame_count());
        assert_eq!(tick.frame_bytes().len(), 16 * frames.len());
        let chain = Chain::from_record(&frames, tick.depth, tick.leaf_frames, tick.walk_end);
        assert_eq!(chain.frames.len(), frames.len());
        assert!(chain.cut_at <= frames.len());
        let noted = tick.generators().count();
        assert!(noted <= MAX_GENERATORS);
        let chain = chain.with_notes(tick.generators(), tick.generators_missing, tick.root);
        assert!(chain.generators.len() <= noted);
        for generator in &chain.generators {
            let place = chain.place(generator.frame);
            assert!(place < Some(frames.len()));
        }
    }
    let mut assembler = Assembler::default();
    assembler.push(event);
    let settled = assembler.settled(MonotonicNs(u64::MAX)).count();
    assert_eq!(settled, 1);
}

/// A line table and a place in its code.
pub(crate) fn line_tables(data: &[u8]) {
    let mut feed = Feed(data);
    let version = Version::release(3, 8 + feed.byte() % 8, 0);
    let first_line = u32::from_le_bytes(feed.take());
    let offset = u64::from(u32::from_le_bytes(feed.take()));
    let (format, table) = (LineFormat::of(version), feed.0);
    let place = format.line(table, first_line, offset);
    // The end of the code is the same whatever is asked before it.
    if place == Some(Place::Outside) {
        let far = format.line(table, first_line, offset + (1 << 32));
        assert_eq!(far, place);
    }
}

/// An image's file, as it is and as what is packed in one.
pub(crate) fn image_file(data: &[u8]) {
    is_an_image_or_not(data);
    let mut packed = ZlibEncoder::new(b"PROFIMG\x01".to_vec(), Compression::fast());
    packed.write_all(data).expect("to memory");
    is_an_image_or_not(&packed.finish().expect("to memory"));
}

fn is_an_image_or_not(file: &[u8]) {
    let Ok(image) = Image::from_bytes(file) else {
        return;
    };
    let written = image.to_bytes().expect("it was read within the caps");
    assert_eq!(Image::from_bytes(&written).as_ref(), Ok(&image));
    for mapping in &image.meta.maps {
        let _ = image.memory.u64(mapping.start);
    }
}

/// Where the file is mapped.
const BASE: u64 = 0x5555_0000_0000;
const PAGE: u64 = 4096;

/// A file, mapped as a whole and nothing else.
struct Mapped<'a>(&'a [u8]);

impl Mapped<'_> {
    fn mapping(&self, name: &str, writable: bool) -> MappedFile {
        let pages = (self.0.len() as u64).next_multiple_of(PAGE).max(PAGE);
        MappedFile {
            path: name.to_owned(),
            start: RemoteAddr(BASE),
            end: RemoteAddr(BASE + pages),
            file_offset: 0,
            executable: true,
            writable,
            inode: 7,
        }
    }
}

impl OpenImage for Mapped<'_> {
    fn open(&self, _: &MappedFile) -> io::Result<Box<dyn ReadSeek>> {
        Ok(Box::new(Cursor::new(self.0.to_vec())))
    }
}

impl Memory for Mapped<'_> {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        let bytes = buf.len();
        let from = addr.0.wrapping_sub(BASE);
        let held = usize::try_from(from)
            .ok()
            .and_then(|from| self.0.get(from..from.checked_add(bytes)?));
        let kind = ReadErrorKind::Unmapped;
        buf.copy_from_slice(held.ok_or(ReadError { addr, bytes, kind })?);
        Ok(())
    }
}

/// The image of a process, whose first byte says what else is mapped.
pub(crate) fn elf(data: &[u8]) {
    let mut feed = Feed(data);
    let kind = feed.byte();
    let file = Mapped(feed.0);
    let mut files = vec![file.mapping("/usr/bin/python3", kind & 1 != 0)];
    if kind & 2 != 0 {
        files.push(file.mapping("/lib/ld-musl-x86_64.so.1", false));
    }
    if let Ok(runtime) = cpython::discover(&files, &file, &file) {
        let _ = cpython::thread_names(&runtime, &file);
    }
}

/// The kernel's type information.
pub(crate) fn btf(data: &[u8]) {
    let Ok(btf) = Btf::parse(data) else {
        return;
    };
    let _ = kernel_offsets(&btf);
    let _ = btf.offset_of(&["a", "b", "c"]);
    let _ = btf.tracepoint_arguments("a");
    let blanked = btf.with_attachments_only(&["a", "sched_switch"], &[]);
    Btf::parse(&blanked).expect("it is of our own making");
}
