//! The names that a program gives to the code it makes: the lines of its perf map.
//!
//! A line is `START SIZE NAME`, both numbers hexadecimal. Programs append to the file as they make
//! code, and make code where other code was: of the lines that cover an address the last one
//! counts. A malformed line is counted and left out, and spoils no other.
//!
//! Pure: bytes come in pieces, as the file grows. Which file it is: see [`super::perf_maps`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Longest line that is taken, in bytes.
const MAX_LINE: usize = 8192;
/// Most functions that are kept.
const MAX_FUNCTIONS: usize = 1 << 18;

/// A function as its line has it, or a part of it that no later line covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    /// Where it is.
    pub(super) range: Range<u64>,
    /// Its name.
    pub(super) name: Arc<str>,
}

/// The functions of a perf map.
#[derive(Debug, Default)]
pub(super) struct PerfMap {
    /// Where a function, or a part of it, begins; behind it where the part ends. They never overlap.
    parts: BTreeMap<u64, (u64, Function)>,
    /// A line that is not whole yet.
    begun: Vec<u8>,
    /// The line that has begun is too long.
    is_overlong: bool,
    /// Lines that were left out because they say nothing.
    pub(super) malformed: u64,
    /// Lines that were left out because there are too many functions.
    pub(super) refused: u64,
}

impl PerfMap {
    /// The file goes on with these bytes; `covers` is told what each new line covers. What is not a
    /// whole line waits for the rest.
    pub(super) fn add(&mut self, bytes: &[u8], mut covers: impl FnMut(&Range<u64>)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let is_whole = piece.last() == Some(&b'\n');
            if self.begun.len() + piece.len() > MAX_LINE {
                self.is_overlong = true;
                self.begun.clear();
            } else {
                self.begun.extend_from_slice(piece);
            }
            if !is_whole {
                continue;
            }
            let line = std::mem::take(&mut self.begun);
            let is_overlong = std::mem::take(&mut self.is_overlong);
            let line = line.trim_ascii();
            match Function::of(line).filter(|_| !is_overlong) {
                Some(function) if self.parts.len() < MAX_FUNCTIONS => {
                    covers(&function.range);
                    self.put(function);
                }
                Some(_) => self.refused += 1,
                None if line.is_empty() && !is_overlong => {}
                None => self.malformed += 1,
            }
        }
    }

    /// The function at an address.
    pub(super) fn find(&self, addr: u64) -> Option<&Function> {
        let (_, (end, function)) = self.parts.range(..=addr).next_back()?;
        (addr < *end).then_some(function)
    }

    fn put(&mut self, new: Function) {
        let Range { start, end } = new.range;
        // What reaches over the new one keeps what is before it, and what is behind.
        let before = self.parts.range(..start).next_back();
        if let Some((from, (to, function))) = before.map(|(from, part)| (*from, part.clone()))
            && to > start
        {
            self.parts.insert(from, (start, function.clone()));
            if to > end {
                self.parts.insert(end, (to, function));
            }
        }
        while let Some((from, _)) = self.parts.range(start..end).next() {
            let from = *from;
            let part = self.parts.remove(&from);
            if let Some((to, function)) = part.filter(|(to, _)| *to > end) {
                self.parts.insert(end, (to, function));
            }
        }
        self.parts.insert(start, (end, new));
    }
}

impl Function {
    /// What a line says, without the break at its end; none when it is malformed.
    fn of(line: &[u8]) -> Option<Self> {
        let (start, rest) = word(line)?;
        let (size, name) = word(rest)?;
        let (start, size) = (number(start)?, number(size)?);
        let end = start.checked_add(size).filter(|_| size > 0)?;
        let name = String::from_utf8_lossy(name.trim_ascii());
        (!name.is_empty()).then(|| Self {
            range: start..end,
            name: name.into(),
        })
    }
}

/// The first word and what is behind it.
fn word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.trim_ascii_start();
    let ends = line.iter().position(u8::is_ascii_whitespace)?;
    line.split_at_checked(ends)
}

fn number(word: &[u8]) -> Option<u64> {
    let word = std::str::from_utf8(word).ok()?;
    let digits = word.strip_prefix("0x").unwrap_or(word);
    // `from_str_radix` takes a sign too.
    let is_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digits
        .then(|| u64::from_str_radix(digits, 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn map_of(text: &[u8]) -> PerfMap {
        let mut map = PerfMap::default();
        map.add(text, |_| {});
        map
    }

    fn name(map: &PerfMap, addr: u64) -> &str {
        map.find(addr).map_or("", |function| &*function.name)
    }

    #[test]
    fn the_last_line_that_covers_an_address_names_it() {
        let check = |text: &str, malformed: u64, names: &[(u64, &str)]| {
            let map = map_of(text.as_bytes());
            assert_eq!(map.malformed, malformed, "{text}");
            for (addr, expected) in names {
                assert_eq!(name(&map, *addr), *expected, "{addr:#x} of {text}");
            }
        };
        let two = "10 8 one\n18 8 two, of a.py:3\n";
        check(
            two,
            0,
            &[
                (0xf, ""),
                (0x10, "one"),
                (0x17, "one"),
                (0x18, "two, of a.py:3"),
                (0x1f, "two, of a.py:3"),
                (0x20, ""),
            ],
        );
        // The same place again, and again; longer, shorter, from before.
        check("10 8 old\n10 8 new\n", 0, &[(0x10, "new"), (0x17, "new")]);
        check("10 8 old\n10 4 new\n", 0, &[(0x13, "new"), (0x14, "old")]);
        check("10 8 old\n10 c new\n", 0, &[(0x10, "new"), (0x1b, "new")]);
        check(
            "10 8 old\nc 8 new\n",
            0,
            &[(0xc, "new"), (0x14, "old"), (0x18, "")],
        );
        check(
            "10 4 a\n14 4 b\n18 4 c\n12 8 new\n",
            0,
            &[(0x11, "a"), (0x12, "new"), (0x19, "new"), (0x1a, "c")],
        );
        // Inside one that goes on.
        check(
            "10 10 out\n14 4 in\n",
            0,
            &[
                (0x13, "out"),
                (0x14, "in"),
                (0x17, "in"),
                (0x18, "out"),
                (0x1f, "out"),
            ],
        );
        check(
            "10 10 out\n14 4 in\n14 8 more\n",
            0,
            &[(0x13, "out"), (0x1b, "more"), (0x1c, "out")],
        );
        check(
            "10 10 out\n14 4 in\n10 2 new\n",
            0,
            &[(0x10, "new"), (0x12, "out"), (0x14, "in"), (0x18, "out")],
        );
        // Malformed lines spoil no other.
        for line in [
            "hello",
            "10",
            "10 8",
            "10 8 ",
            "xyz 8 name",
            "10 -8 name",
            "+10 8 name",
            "10 0 nothing",
            "ffffffffffffffff 8 over the end",
            "10000000000000000 8 too long a number",
            "\u{e9} 8 name",
        ] {
            check(
                &format!("10 8 one\n{line}\n18 8 two\n"),
                1,
                &[(0x10, "one"), (0x18, "two")],
            );
        }
        check("\r\n\n 0x10  0x8\tone \r\n", 0, &[(0x10, "one")]);
        check("ffffffffffffff00 ff last\n", 0, &[(u64::MAX - 1, "last")]);
        // What is not whole yet may be anything.
        check("10 8 one\n18 8 tw", 0, &[(0x10, "one"), (0x18, "")]);
    }

    #[test]
    fn a_line_that_comes_in_pieces_is_one_and_tells_what_it_covers() {
        let mut map = PerfMap::default();
        let mut covered = Vec::new();
        for piece in ["10 8 o", "ne", "\n18", " 8 two\n"] {
            map.add(piece.as_bytes(), |range| covered.push(range.clone()));
        }
        assert_eq!((name(&map, 0x10), name(&map, 0x18)), ("one", "two"));
        assert_eq!(covered, [0x10..0x18, 0x18..0x20]);
    }

    #[test]
    fn lines_and_functions_are_bounded() {
        let mut map = PerfMap::default();
        for _ in 0..100 {
            map.add(&[b'a'; 1000], |_| {});
            assert!(map.begun.len() <= MAX_LINE);
        }
        map.add(b"\n10 8 one\n", |_| {});
        assert_eq!((map.malformed, name(&map, 0x10)), (1, "one"));
        for index in 0..MAX_FUNCTIONS {
            map.add(format!("{:x} 8 f\n", 0x100 + index * 8).as_bytes(), |_| {});
        }
        assert_eq!((map.parts.len(), map.refused), (MAX_FUNCTIONS, 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() })]

        /// Against the plainest way to say it: every address on its own.
        #[test]
        fn it_is_as_if_each_address_were_written_anew(
            lines in proptest::collection::vec((0u64..64, 1u64..24), 0..40),
        ) {
            let mut map = PerfMap::default();
            let mut plain = vec![String::new(); 96];
            for (index, (start, size)) in lines.iter().enumerate() {
                map.add(format!("{start:x} {size:x} {index}\n").as_bytes(), |_| {});
                for addr in *start..start + size {
                    plain[addr as usize] = index.to_string();
                }
            }
            for (addr, expected) in plain.iter().enumerate() {
                prop_assert_eq!(name(&map, addr as u64), expected);
            }
        }

        #[test]
        fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..2000), cut in 0usize..2000) {
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            let mut map = PerfMap::default();
            map.add(first, |_| {});
            map.add(second, |_| {});
            let whole = map_of(&bytes);
            prop_assert_eq!(map.parts, whole.parts);
            prop_assert_eq!(map.malformed, whole.malformed);
        }
    }
}
