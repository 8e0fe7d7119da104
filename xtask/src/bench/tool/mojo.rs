//! austin's own form, MOJO 3: events of one byte, integers of 6 and then 7 bits, strings that end
//! in a zero.
//!
//! A frame is declared once and then named by its key; a stack's frames follow it root first, and
//! its time ends it. Only what a folded file needs is kept.

use std::collections::{BTreeMap, HashMap};

use ::tests::folded::{Folded, Stack};
use anyhow::{Context, Result, bail, ensure};

/// The stacks by their microseconds, and by their number.
pub(super) fn stacks(bytes: &[u8]) -> Result<(Folded, Folded)> {
    let mut read = Reader(bytes);
    ensure!(bytes.starts_with(b"MOJ"), "it is not austin's form");
    read.0 = &bytes[3..];
    let version = read.integer()?;
    ensure!(version == 3, "the form's version is {version}");
    let (mut strings, mut frames) = (HashMap::new(), HashMap::new());
    let mut stack: Vec<String> = Vec::new();
    let mut seen: BTreeMap<Vec<String>, (u64, u64)> = BTreeMap::new();
    while let Some(event) = read.byte() {
        match event {
            1 => drop((read.string()?, read.string()?)),
            2 => {
                // The process, the interpreter, the thread.
                let _ids = (read.integer()?, read.integer()?, read.string()?);
                stack.clear();
            }
            3 => {
                let (key, file, scope) = (read.integer()?, read.integer()?, read.integer()?);
                let line = read.integer()?;
                let _columns = (read.integer()?, read.integer()?, read.integer()?);
                let text = |key| strings.get(&key).map_or("?", String::as_str);
                frames.insert(key, format!("{} ({}:{line})", text(scope), text(file)));
            }
            4 => stack.push("[invalid]".to_owned()),
            5 => {
                let key = read.integer()?;
                let frame = frames.get(&key).context("a frame was not declared")?;
                stack.push(frame.clone());
            }
            6 => stack.push(read.string()?),
            // The collector, an idle thread.
            7 | 8 => {}
            9 => {
                let time = read.integer()?;
                let entry = seen.entry(std::mem::take(&mut stack)).or_default();
                entry.0 += time;
                entry.1 += 1;
            }
            10 => drop(read.integer()?),
            11 => {
                let key = read.integer()?;
                strings.insert(key, read.string()?);
            }
            // A file that was cut off in the middle ends so.
            _ if read.0.is_empty() => break,
            other => bail!("an event {other} in austin's file"),
        }
    }
    let folded = |count: fn(&(u64, u64)) -> u64| Folded {
        stacks: seen
            .iter()
            .map(|(frames, both)| Stack {
                frames: frames.clone(),
                count: count(both),
            })
            .collect(),
    };
    Ok((folded(|both| both.0), folded(|both| both.1)))
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The sign, bit 6 of the first byte, is only of what is not read here.
    fn integer(&mut self) -> Result<u64> {
        let mut byte = self.byte().context("it ends in a number")?;
        let (mut value, mut shift) = (u64::from(byte & 0x3f), 6);
        while byte & 0x80 != 0 {
            byte = self.byte().context("it ends in a number")?;
            ensure!(shift < 64, "a number has too many bytes");
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
        }
        Ok(value)
    }

    fn string(&mut self) -> Result<String> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let end = end.context("it ends in a string")?;
        let text = String::from_utf8_lossy(&self.0[..end]).into_owned();
        self.0 = &self.0[end + 1..];
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_samples_of_one_stack_are_one_line() {
        let mut bytes = b"MOJ\x03\x01mode\0wall\0".to_vec();
        bytes.extend(b"\x0b\x01a.py\0\x0b\x02f\0\x0b\x03g\0");
        // The frame `f` at line 64, `g` at 5; two stacks of them.
        bytes.extend(b"\x03\x0a\x01\x02\x80\x01\0\0\0\x03\x0b\x01\x03\x05\0\0\0");
        for _ in 0..2 {
            bytes.extend(b"\x02\x07\0ff\0\x05\x0a\x05\x0b\x09\xa1\x9d\x01");
        }
        let (times, counts) = stacks(&bytes).unwrap();
        assert_eq!(counts.stacks.len(), 1);
        assert_eq!(counts.stacks[0].frames, ["f (a.py:64)", "g (a.py:5)"]);
        assert_eq!(counts.total(), 2);
        assert_eq!(times.total(), 2 * (0x21 | 0x1d << 6 | 1 << 13));
        assert!(stacks(b"text").is_err());
    }
}
