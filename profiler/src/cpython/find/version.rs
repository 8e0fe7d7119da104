//! The version of an interpreter that does not say it in a symbol (to 3.10): strings among the
//! constants of its file.
//!
//! The ABI tag `cpython-3N` names the minor version. `3.N.P` with its terminating NUL is there
//! too, often as the end of a longer string, for linkers merge common tails.

use std::io::{BufRead as _, SeekFrom};
use std::ops::Range;

use super::ReadSeek;
use crate::cpython::version::Version;

const CHUNK: usize = 64 * 1024;
/// Longer than any string that is looked for.
const OVERLAP: usize = 32;
/// Most bytes of constants that are looked through.
const MAX_BYTES: u64 = 128 << 20;

/// The version by the constants in `ranges` of a file; the patch is 0 when it cannot be told.
pub(super) fn from_constants(stream: &mut dyn ReadSeek, ranges: &[Range<u64>]) -> Option<Version> {
    let mut minors = Candidates::default();
    scan(stream, ranges, |chunk| abi_tags(chunk, &mut minors));
    let minor = minors.only()?;
    let mut patches = Candidates::default();
    scan(stream, ranges, |chunk| releases(chunk, minor, &mut patches));
    Some(Version::release(3, minor, patches.only().unwrap_or(0)))
}

/// Numbers seen, as a set.
#[derive(Default)]
struct Candidates(Vec<u8>);

impl Candidates {
    fn add(&mut self, number: u8) {
        if !self.0.contains(&number) {
            self.0.push(number);
        }
    }

    fn only(&self) -> Option<u8> {
        match self.0[..] {
            [number] => Some(number),
            _ => None,
        }
    }
}

/// Hands the ranges over in overlapping chunks; a part that cannot be read is passed over.
fn scan(stream: &mut dyn ReadSeek, ranges: &[Range<u64>], mut look: impl FnMut(&[u8])) {
    let mut buffer = vec![0; CHUNK];
    let mut left = MAX_BYTES;
    for range in ranges {
        let mut at = range.start;
        while at < range.end && left > 0 {
            let wanted = (range.end - at).min(CHUNK as u64) as usize;
            let chunk = &mut buffer[..wanted];
            if stream.seek(SeekFrom::Start(at)).is_err() || stream.read_exact(chunk).is_err() {
                break;
            }
            look(chunk);
            if wanted < CHUNK {
                break;
            }
            at += (CHUNK - OVERLAP) as u64;
            left = left.saturating_sub(CHUNK as u64);
        }
    }
}

/// The places at which `needle` stands, as the bytes that follow it and the byte before it.
///
/// Children come and go while this is looked for, so it goes from one last byte of the needle to the
/// next as fast as the standard library can.
fn each<'a>(
    chunk: &'a [u8],
    needle: &'a [u8],
) -> impl Iterator<Item = (Option<u8>, &'a [u8])> + 'a {
    let mut rest = chunk;
    std::iter::from_fn(move || {
        let last = *needle.last()?;
        while rest.skip_until(last).ok()? > 0 {
            let seen = &chunk[..chunk.len() - rest.len()];
            if let Some(before) = seen.strip_suffix(needle) {
                return Some((before.last().copied(), rest));
            }
        }
        None
    })
}

/// A decimal number of at most three digits and what follows it.
fn number(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit());
    let digits = digits.count();
    let (number, rest) = bytes.split_at(digits);
    let number = std::str::from_utf8(number).ok()?.parse().ok()?;
    Some((number, rest))
}

fn abi_tags(chunk: &[u8], minors: &mut Candidates) {
    for (_, rest) in each(chunk, b"cpython-3") {
        if let Some((minor, [end, ..])) = number(rest)
            && !end.is_ascii_digit()
        {
            minors.add(minor);
        }
    }
}

fn releases(chunk: &[u8], minor: u8, patches: &mut Candidates) {
    let needle = format!("3.{minor}.");
    for (before, rest) in each(chunk, needle.as_bytes()) {
        let within_word = before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
        if let Some((patch, [0 | b'+', ..])) = number(rest)
            && !within_word
        {
            patches.add(patch);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn check(constants: &[u8], expected: Option<(u8, u8)>) {
        let whole = 0..constants.len() as u64;
        let version = from_constants(&mut Cursor::new(constants.to_vec()), &[whole]);
        let got = version.map(|version| (version.minor, version.patch));
        assert_eq!(got, expected, "{}", String::from_utf8_lossy(constants));
    }

    #[test]
    fn the_abi_tag_and_the_release_give_the_version() {
        check(b"\0cpython-38\0x\x003.8.18\0", Some((8, 18)));
        check(
            b".cpython-310-x86_64-linux-gnu.so\x003.10.13\0",
            Some((10, 13)),
        );
        check(b"cpython-39\0/home/me/3.9.18\0", Some((9, 18)));
        check(b"cpython-37m\x003.7.16+\0", Some((7, 16)));
    }

    #[test]
    fn a_release_that_is_not_the_only_one_leaves_the_patch_open() {
        check(b"cpython-38\x003.8.1\x003.8.2\0", Some((8, 0)));
        check(b"cpython-38\0", Some((8, 0)));
        check(b"cpython-38\x0013.8.1\x003.8.14 \0", Some((8, 0)));
    }

    #[test]
    fn constants_without_one_abi_tag_give_no_version() {
        check(b"", None);
        check(b"3.8.18\0", None);
        check(b"cpython-38\0cpython-39\0", None);
        check(b"cpython-3", None);
        check(b"cpython-3999999\0", None);
    }

    #[test]
    fn strings_across_two_chunks_are_found() {
        for shift in 0..OVERLAP {
            let mut constants = vec![b'x'; CHUNK - shift];
            constants.extend(b"\0cpython-310\0");
            constants.extend(vec![b'y'; CHUNK]);
            constants.extend(b"\x003.10.4\0");
            let whole = 0..constants.len() as u64;
            let version = from_constants(&mut Cursor::new(constants), &[whole]);
            assert_eq!(version, Some(Version::release(3, 10, 4)), "{shift}");
        }
    }
}
