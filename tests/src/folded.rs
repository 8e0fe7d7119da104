//! Folded stacks as other tools read them: frames from the root on, `;` between, then a count.

use std::path::Path;

use anyhow::{Context, Result};

/// One line of a folded file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The frames' labels, root first.
    pub frames: Vec<String>,
    /// How many samples, or how much of the mode's weight.
    pub count: u64,
}

/// The lines of a folded file.
#[derive(Clone, Debug, Default)]
pub struct Folded {
    /// The stacks.
    pub stacks: Vec<Stack>,
}

/// What a check of callers and callees found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Torn {
    /// Samples in all.
    pub samples: u64,
    /// Samples in which one of the known functions occurs.
    pub known: u64,
    /// Samples with a mark in place of a frame: cut or not readable.
    pub marked: u64,
    /// Those of the known with an impossible caller and callee, or cut off at the root.
    pub impossible: u64,
}

impl Folded {
    /// Reads a folded file.
    ///
    /// # Errors
    ///
    /// When it cannot be read or a line has no count.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("no folded file at {}", path.display()))?;
        Self::parse(&text)
    }

    /// Parses the text of a folded file.
    ///
    /// # Errors
    ///
    /// When a line has no count.
    pub fn parse(text: &str) -> Result<Self> {
        let stack = |line: &str| {
            let (frames, count) = line.rsplit_once(' ')?;
            Some(Stack {
                frames: frames.split(';').map(str::to_owned).collect(),
                count: count.parse().ok()?,
            })
        };
        let stacks = text
            .lines()
            .map(|line| stack(line).with_context(|| format!("not a folded line: `{line}`")))
            .collect::<Result<_>>()?;
        Ok(Self { stacks })
    }

    /// The counts' sum.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.stacks.iter().map(|stack| stack.count).sum()
    }

    /// The counts of the stacks in which a function occurs.
    #[must_use]
    pub fn with(&self, function: &str) -> u64 {
        self.stacks
            .iter()
            .filter(|stack| stack.frames.iter().any(|frame| name(frame) == function))
            .map(|stack| stack.count)
            .sum()
    }

    /// Judges every stack by the callers and callees that are allowed.
    ///
    /// A function that is some pair's callee may have only the callers of its pairs, and one
    /// that is some pair's caller only their callees; a stack that holds one must come from a
    /// thread's start.
    #[must_use]
    pub fn torn(&self, pairs: &[(String, String)]) -> Torn {
        let mut torn = Torn::default();
        for stack in &self.stacks {
            torn.samples += stack.count;
            // The collector's frame is nobody's callee: any function can set it off.
            let frames = stack.frames.iter().filter(|frame| *frame != "<GC>");
            let names: Vec<&str> = frames.map(|frame| name(frame)).collect();
            let marked = names.iter().any(|name| is_mark(name));
            torn.marked += if marked { stack.count } else { 0 };
            let is_callee = |name: &str| pairs.iter().any(|(_, callee)| callee == name);
            if !names.iter().any(|name| is_callee(name)) {
                continue;
            }
            torn.known += stack.count;
            let allowed = |caller: &str, callee: &str| {
                pairs
                    .iter()
                    .any(|pair| pair.0 == caller && pair.1 == callee)
            };
            // `run` is every thread's: what else it calls is not this target's to say.
            let is_caller = |name: &str| name != "run" && pairs.iter().any(|pair| pair.0 == name);
            let impossible = names.windows(2).any(|pair| {
                !pair.iter().any(|name| is_mark(name))
                    && (is_callee(pair[1]) || is_caller(pair[0]))
                    && !allowed(pair[0], pair[1])
            });
            let rooted = names.contains(&"_bootstrap") || names.contains(&"<module>");
            if impossible || !(rooted || marked) {
                torn.impossible += stack.count;
            }
        }
        torn
    }
}

/// Whether a label stands in place of frames, as `[… 3 frames cut]` does.
#[must_use]
pub fn is_mark(label: &str) -> bool {
    label.starts_with('[')
}

/// The bare name of a function in a frame's label, `qualname (file:line)`: without its place and
/// without the class or function that holds it, since names are not qualified before 3.11.
#[must_use]
pub fn name(label: &str) -> &str {
    let qualified = label.split_once(" (").map_or(label, |(name, _)| name);
    match qualified.rsplit_once('.') {
        Some((_, last)) if !last.is_empty() => last,
        _ => qualified,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(text: &str) -> Torn {
        let pair = |caller: &str, callee: &str| (caller.to_owned(), callee.to_owned());
        let pairs = [pair("run", "work"), pair("work", "f"), pair("f", "g")];
        Folded::parse(text).unwrap().torn(&pairs)
    }

    #[test]
    fn a_label_is_reduced_to_the_bare_name() {
        let check = |label: &str, expected: &str| assert_eq!(name(label), expected);
        check("work (/tmp/a (b)/x.py:3)", "work");
        check("Thread._bootstrap (threading.py:1)", "_bootstrap");
        check("f.<locals>.g (x.py:1)", "g");
        check("<module> (x.py:1)", "<module>");
        check("f", "f");
    }

    #[test]
    fn an_impossible_caller_or_a_lost_root_is_torn() {
        let check = |stack: &str, known: u64, impossible: u64| {
            let marked = if stack.contains('[') { 3 } else { 0 };
            let expected = Torn {
                samples: 3,
                known,
                marked,
                impossible,
            };
            assert_eq!(judge(&format!("{stack} 3")), expected, "{stack}");
        };
        check("_bootstrap;run;work;f;g", 3, 0);
        check("_bootstrap;run;work", 3, 0);
        check("_bootstrap;run;other", 0, 0);
        check("<module>;main", 0, 0);
        check("_bootstrap;run;work;g", 3, 3);
        check("_bootstrap;run;f", 3, 3);
        check("_bootstrap;run;work;f;work", 3, 3);
        check("run;work;f", 3, 3);
        check("_bootstrap;run;work;f;<GC>", 3, 0);
        check("[unreadable: it is not resident];work;f", 3, 0);
        check("[unreadable: it is not resident]", 0, 0);
        check("_bootstrap;run;[… 2 frames cut];g", 3, 0);
        check("_bootstrap;run;g;[… 2 frames cut];g", 3, 3);
    }

    #[test]
    fn a_line_without_a_count_is_refused() {
        assert!(Folded::parse("a;b").is_err());
        assert!(Folded::parse("a;b x").is_err());
        assert_eq!(Folded::parse("a b;c 2\na 1\n").unwrap().total(), 3);
    }
}
