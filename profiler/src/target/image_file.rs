//! An image as a file: eight bytes of [`MAGIC`], then one zlib stream of the metadata as JSON
//! and the tables of ranges and failures.
//!
//! In the stream, numbers little-endian: `u32` bytes of JSON, the JSON; `u32` ranges, each `u64`
//! address and `u32` bytes, then the bytes of all of them one after the other; `u32` failures,
//! each `u64` address, `u32` bytes, `u32` kind and `i32` errno.
//!
//! A file may come from anywhere: every size is capped before anything is allocated for it, and
//! what does not fit is a typed error.

use std::fmt;
use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

use crate::target::image_meta;
use crate::target::memory::ReadErrorKind;
use crate::target::recorded::{Failure, Image, Range};
use crate::words::RemoteAddr;

/// How an image file begins; the last byte is the format's version.
const MAGIC: &[u8; 8] = b"PROFIMG\x01";
/// Most bytes of the metadata.
const MAX_META: usize = 16 << 20;
/// Most ranges, and most failures.
const MAX_ROWS: usize = 1 << 20;
/// Most bytes of memory.
const MAX_BYTES: usize = 128 << 20;

/// Why a file is no image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// It does not begin as one.
    NotAnImage,
    /// It is one of another version of the format.
    Version {
        /// The file's.
        found: u8,
    },
    /// The stream cannot be unpacked, or ends in the middle of something.
    Damaged(String),
    /// A size is above its cap.
    TooLarge {
        /// Of what.
        what: &'static str,
        /// What the file says.
        found: u64,
        /// The cap.
        cap: u64,
    },
    /// Rows are out of order or overlap, or a value has no meaning.
    Malformed(&'static str),
    /// The metadata is not what it should be.
    Metadata(String),
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnImage => f.write_str("this is not a recorded image"),
            Self::Version { found } => write!(
                f,
                "the image has format {found}, this program reads {}: \
                 record it again with `cargo xtask image`",
                MAGIC[7]
            ),
            Self::Damaged(why) => write!(f, "the image is damaged: {why}"),
            Self::TooLarge { what, found, cap } => {
                write!(f, "the image claims {found} {what}, more than {cap}")
            }
            Self::Malformed(what) => write!(f, "the image is malformed: {what}"),
            Self::Metadata(why) => write!(f, "the image's metadata cannot be read: {why}"),
        }
    }
}

impl std::error::Error for ImageError {}

impl Image {
    /// The image as a file holds it; the same image gives the same bytes.
    ///
    /// # Errors
    /// When it is larger than [`Image::from_bytes`] would accept.
    pub fn to_bytes(&self) -> Result<Vec<u8>, ImageError> {
        let meta = image_meta::to_json(&self.meta)?;
        let mut out = ZlibEncoder::new(MAGIC.to_vec(), Compression::best());
        let mut write = |bytes: &[u8]| out.write_all(bytes).map_err(|error| damaged(&error));
        write(&capped("bytes of metadata", meta.len(), MAX_META)?.to_le_bytes())?;
        write(&meta)?;
        let memory = &self.memory;
        capped("bytes of memory", memory.bytes(), MAX_BYTES)?;
        write(&capped("ranges", memory.ranges.len(), MAX_ROWS)?.to_le_bytes())?;
        for range in &memory.ranges {
            write(&range.addr.0.to_le_bytes())?;
            write(&capped("bytes of memory", range.bytes.len(), MAX_BYTES)?.to_le_bytes())?;
        }
        for range in &memory.ranges {
            write(&range.bytes)?;
        }
        write(&capped("failures", memory.failures.len(), MAX_ROWS)?.to_le_bytes())?;
        for failure in &memory.failures {
            write(&failure.addr.0.to_le_bytes())?;
            // A failed read larger than any image is kept as one of the cap's size.
            write(
                &u32::try_from(failure.bytes)
                    .unwrap_or(u32::MAX)
                    .to_le_bytes(),
            )?;
            let (kind, errno) = number_of(failure.kind);
            write(&kind.to_le_bytes())?;
            write(&errno.to_le_bytes())?;
        }
        out.finish().map_err(|error| damaged(&error))
    }

    /// The image in a file's bytes.
    ///
    /// # Errors
    /// When it is none, is damaged, or claims sizes above the caps.
    pub fn from_bytes(file: &[u8]) -> Result<Self, ImageError> {
        let Some((magic, packed)) = file.split_first_chunk::<8>() else {
            return Err(ImageError::NotAnImage);
        };
        if magic[..7] != MAGIC[..7] {
            return Err(ImageError::NotAnImage);
        }
        if magic[7] != MAGIC[7] {
            return Err(ImageError::Version { found: magic[7] });
        }
        let mut stream = Stream(ZlibDecoder::new(packed));
        let bytes = stream.count("bytes of metadata", MAX_META)?;
        let meta = image_meta::from_json(&stream.bytes(bytes)?)?;
        let ranges = stream.ranges()?;
        let failures = stream.failures()?;
        stream.end()?;
        Ok(Self::new(meta, ranges, failures))
    }
}

fn damaged(error: &io::Error) -> ImageError {
    ImageError::Damaged(error.to_string())
}

fn capped(what: &'static str, found: usize, cap: usize) -> Result<u32, ImageError> {
    if found > cap {
        return Err(ImageError::TooLarge {
            what,
            found: found as u64,
            cap: cap as u64,
        });
    }
    Ok(found as u32)
}

/// The unpacked stream. Nothing is allocated for a size before its bytes have arrived.
struct Stream<'a>(ZlibDecoder<&'a [u8]>);

impl Stream<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], ImageError> {
        let mut array = [0; N];
        self.0
            .read_exact(&mut array)
            .map_err(|error| damaged(&error))?;
        Ok(array)
    }

    fn u32(&mut self) -> Result<u32, ImageError> {
        self.array().map(u32::from_le_bytes)
    }

    fn addr(&mut self) -> Result<RemoteAddr, ImageError> {
        self.array().map(u64::from_le_bytes).map(RemoteAddr)
    }

    fn count(&mut self, what: &'static str, cap: usize) -> Result<usize, ImageError> {
        let found = self.u32()? as usize;
        capped(what, found, cap).map(|_| found)
    }

    fn bytes(&mut self, count: usize) -> Result<Vec<u8>, ImageError> {
        let mut bytes = Vec::new();
        (&mut self.0)
            .take(count as u64)
            .read_to_end(&mut bytes)
            .map_err(|error| damaged(&error))?;
        if bytes.len() < count {
            return Err(ImageError::Damaged("it ends too early".to_owned()));
        }
        Ok(bytes)
    }

    /// Nothing follows, and the checksum is right: it is looked at when the end is reached.
    fn end(&mut self) -> Result<(), ImageError> {
        match self.0.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(ImageError::Malformed("something follows its end")),
            Err(error) => Err(damaged(&error)),
        }
    }

    fn ranges(&mut self) -> Result<Vec<Range>, ImageError> {
        let rows = self.count("ranges", MAX_ROWS)?;
        let mut sizes = Vec::new();
        let mut total = 0;
        let mut free = Some(0);
        for _ in 0..rows {
            let addr = self.addr()?;
            let size = self.count("bytes of memory", MAX_BYTES)?;
            total += size;
            capped("bytes of memory", total, MAX_BYTES)?;
            let end = addr.0.checked_add(size as u64);
            if free.is_none_or(|free| addr.0 < free) || end.is_none() || size == 0 {
                return Err(ImageError::Malformed("its ranges are not in order"));
            }
            // Ranges that touch would be one: a byte lies between any two.
            free = end.and_then(|end| end.checked_add(1));
            sizes.push((addr, size));
        }
        let read = |(addr, size)| self.bytes(size).map(|bytes| Range { addr, bytes });
        sizes.into_iter().map(read).collect()
    }

    fn failures(&mut self) -> Result<Vec<Failure>, ImageError> {
        let rows = self.count("failures", MAX_ROWS)?;
        let mut failures: Vec<Failure> = Vec::new();
        for _ in 0..rows {
            let addr = self.addr()?;
            let bytes = self.u32()? as usize;
            let (kind, errno) = (self.u32()?, self.u32()?.cast_signed());
            let kind = kind_of(kind, errno).ok_or(ImageError::Malformed("a failure of no kind"))?;
            if let Some(last) = failures.last()
                && (last.addr, last.bytes) >= (addr, bytes)
            {
                return Err(ImageError::Malformed("its failures are not in order"));
            }
            failures.push(Failure { addr, bytes, kind });
        }
        Ok(failures)
    }
}

fn number_of(kind: ReadErrorKind) -> (u32, i32) {
    match kind {
        ReadErrorKind::Unmapped => (0, 0),
        ReadErrorKind::Gone => (1, 0),
        ReadErrorKind::Refused => (2, 0),
        ReadErrorKind::NotRecorded => (3, 0),
        ReadErrorKind::Os(errno) => (4, errno),
        ReadErrorKind::TooMuch => (5, 0),
    }
}

fn kind_of(number: u32, errno: i32) -> Option<ReadErrorKind> {
    Some(match number {
        0 => ReadErrorKind::Unmapped,
        1 => ReadErrorKind::Gone,
        2 => ReadErrorKind::Refused,
        3 => ReadErrorKind::NotRecorded,
        4 => ReadErrorKind::Os(errno),
        5 => ReadErrorKind::TooMuch,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;
    use crate::target::{
        Backing, ImageMeta, Mapping, Maps, Memory, Perms, Piece, ReadError, Recorder, TaskFacts,
        TaskState,
    };
    use crate::words::{DurationNs, InnerTid, Pid, StartTime, Tid};

    /// Readable from 0x1000 to 0x3000, every byte the low half of its address.
    struct Ramp;

    impl Memory for Ramp {
        fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
            let bytes = buf.len();
            for (index, byte) in buf.iter_mut().enumerate() {
                let at = addr.plus(index as u64).0;
                if !(0x1000..0x3000).contains(&at) {
                    return Err(ReadError {
                        addr,
                        bytes,
                        kind: ReadErrorKind::Os(7),
                    });
                }
                *byte = at as u8;
            }
            Ok(())
        }
    }

    fn meta() -> ImageMeta {
        let mapping = |start, backing| Mapping {
            start: RemoteAddr(start),
            end: RemoteAddr(start + 0x1000),
            perms: Perms {
                read: true,
                shared: true,
                ..Perms::default()
            },
            offset: 0x2000,
            dev: (8, 1),
            inode: 77,
            backing,
        };
        let path = std::ffi::OsString::from_vec(b"/odd\xff".to_vec());
        ImageMeta {
            pid: Pid(7),
            recipe: "made up".to_owned(),
            maps: Maps::new(vec![
                mapping(0x1000, Backing::Anonymous),
                mapping(0x2000, Backing::Special("stack".to_owned())),
                mapping(
                    0x3000,
                    Backing::File {
                        path: path.into(),
                        deleted: true,
                    },
                ),
                mapping(
                    0x4000,
                    Backing::File {
                        path: "/x".into(),
                        deleted: false,
                    },
                ),
            ]),
            tasks: vec![TaskFacts {
                tid: Tid(7),
                started: StartTime(3),
                inner: Some(InnerTid(1)),
                name: "main".to_owned(),
                state: TaskState::Other('W'),
                cpu: DurationNs(10_000_000),
                start_stack: Some(RemoteAddr(0x2800)),
                is_kernels: false,
            }],
            facts: [("python".to_owned(), "3.12.1".to_owned())].into(),
        }
    }

    fn image() -> Image {
        let recorder = Recorder::new(Ramp);
        for (addr, bytes) in [
            (0x1008, 8),
            (0x1010, 0x41),
            (0x1004, 16),
            (0x2ffe, 2),
            (0x2fff, 2),
        ] {
            let _ = recorder.read(RemoteAddr(addr), &mut vec![0; bytes]);
        }
        let (mut good, mut bad) = ([0; 4], [0; 4]);
        recorder.read_many(&mut [
            Piece::new(RemoteAddr(0x2000), &mut good),
            Piece::new(RemoteAddr(0x9000), &mut bad),
        ]);
        recorder.image(meta())
    }

    fn check(memory: &impl Memory, addr: u64, expected: Result<&[u8], ReadErrorKind>) {
        let bytes = expected.map_or(4, <[u8]>::len);
        let mut buf = vec![0; bytes];
        let read = memory.read(RemoteAddr(addr), &mut buf);
        assert_eq!(
            read.map(|()| &buf[..]).map_err(|error| error.kind),
            expected,
            "{addr:#x}"
        );
    }

    #[test]
    fn an_image_comes_back_from_its_file_as_it_was() {
        let image = image();
        let file = image.to_bytes().expect("it is small");
        let back = Image::from_bytes(&file).expect("our own");
        assert_eq!(back, image);
        assert_eq!(back.to_bytes().expect("it is small"), file);
    }

    #[test]
    fn an_image_holds_what_was_read_and_nothing_else() {
        let memory = image().memory;
        // Reads that overlap and touch are one range.
        check(&memory, 0x1004, Ok(&(4..0x51).collect::<Vec<u8>>()));
        check(&memory, 0x2ffe, Ok(&[0xfe, 0xff]));
        check(&memory, 0x1002, Err(ReadErrorKind::NotRecorded));
        check(&memory, 0x1050, Err(ReadErrorKind::NotRecorded));
        check(&memory, 0x9000, Err(ReadErrorKind::Os(7)));
        check(&memory, u64::MAX, Err(ReadErrorKind::NotRecorded));
        assert_eq!(memory.bytes(), 0x4d + 4 + 2);
    }

    #[test]
    fn a_file_that_is_no_image_says_what_it_is() {
        let good = image().to_bytes().expect("it is small");
        let error = |file: &[u8]| Image::from_bytes(file).expect_err("no image");
        assert_eq!(error(b""), ImageError::NotAnImage);
        assert_eq!(error(b"\x7fELF\x02\x01\x01\0etc"), ImageError::NotAnImage);
        let mut newer = good.clone();
        newer[7] = 9;
        assert_eq!(error(&newer), ImageError::Version { found: 9 });
        for cut in 8..good.len() {
            assert!(
                matches!(error(&good[..cut]), ImageError::Damaged(_)),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn a_hostile_file_is_refused_without_harm() {
        let plain = {
            let mut plain = Vec::new();
            let file = image().to_bytes().expect("it is small");
            ZlibDecoder::new(&file[8..])
                .read_to_end(&mut plain)
                .expect("our own");
            plain
        };
        let decode = |plain: &[u8]| {
            let mut out = ZlibEncoder::new(MAGIC.to_vec(), Compression::fast());
            out.write_all(plain).expect("to memory");
            Image::from_bytes(&out.finish().expect("to memory"))
        };
        assert!(decode(&plain).is_ok());
        for at in 0..plain.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bad = plain.clone();
                bad[at] = value;
                // Whatever it gives, what it gives can be read.
                if let Ok(image) = decode(&bad) {
                    check(&image.memory, u64::MAX - 8, Err(ReadErrorKind::NotRecorded));
                }
            }
        }
        let claims = [&[2, 0, 0, 0][..], b"{}", &u32::MAX.to_le_bytes()].concat();
        assert!(matches!(decode(&claims), Err(ImageError::Metadata(_))));
        let too_large = u32::MAX.to_le_bytes();
        assert!(matches!(
            decode(&too_large),
            Err(ImageError::TooLarge { .. })
        ));
    }
}
