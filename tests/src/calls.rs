//! Stacks of Python, C and Rust held against the calls that their target allows.
//!
//! It judges every pair of neighbours on a stack, what is between them, the lines on which they
//! call, and whether each line is the function's that is named; how far a stack goes is counted, for
//! the ledger to explain.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};

use crate::profile::{Entry, Frame, Profile};
use crate::target::Target;

/// How the names of a target's own libraries begin.
const OWN: &str = "native_calls.";

/// What a target's own functions call one another through: the interpreter, ctypes, libffi.
const BETWEEN: &[&str] = &["python3", "libpython3", "_ctypes", "libffi"];

/// One function calls another.
#[derive(Clone, Debug)]
struct Call {
    caller: String,
    callee: String,
    /// What is in the source on the line that calls.
    words: String,
    /// Whether frames of others are between the two.
    through: bool,
}

/// The calls of a target.
#[derive(Debug)]
pub struct Calls {
    calls: Vec<Call>,
    /// By the file's name, its lines.
    sources: BTreeMap<String, Vec<String>>,
}

/// What can be wrong with a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    /// Somebody is on somebody who never calls them, or above the leaf.
    Edge,
    /// A function has a name that none of the target's has.
    Name,
    /// A line is not where the call is, or not in the function.
    Line,
}

/// What came of it, in samples.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// All.
    pub samples: u64,
    /// Those with at least one of the target's functions.
    pub known: u64,
    /// Of these, those in which one in Python is on one in another language, or the other way.
    pub crossing: u64,
    /// Those with something wrong, by what it is.
    pub wrong: BTreeMap<Wrong, u64>,
    /// Of these, those in which Python functions follow one another that have native ones between
    /// them.
    pub incomplete: u64,
    /// Stacks that cannot be, each with its count and why.
    pub impossible: Vec<String>,
    /// The calls that were seen, by their callers and callees.
    pub seen: BTreeMap<(String, String), u64>,
}

impl Calls {
    /// Those of a target that is ready.
    ///
    /// # Errors
    ///
    /// When it says none, or its sources are gone.
    pub fn of(target: &Target) -> Result<Self> {
        let pairs = target.ready()["pairs"].clone();
        let pairs: Vec<(String, String, String, bool)> =
            serde_json::from_value(pairs).context("the target's pairs")?;
        let calls = pairs
            .into_iter()
            .map(|(caller, callee, words, through)| Call {
                caller,
                callee,
                words,
                through,
            });
        let mut sources = BTreeMap::new();
        for name in ["native_calls.py", "native_calls.c", "native_calls.rs"] {
            let text = std::fs::read_to_string(target.folder().join(name))
                .with_context(|| format!("the source `{name}`"))?;
            sources.insert(name.to_owned(), text.lines().map(str::to_owned).collect());
        }
        Ok(Self {
            calls: calls.collect(),
            sources,
        })
    }

    /// Judges the stacks of some entries.
    pub fn judge<'a>(
        &self,
        profile: &'a Profile,
        entries: impl Iterator<Item = &'a Entry>,
    ) -> Judged {
        let mut judged = Judged::default();
        for entry in entries {
            judged.samples += entry.ticks;
            let stack: Vec<&Frame> = profile.stack(entry).collect();
            let stack: Vec<&Frame> = stack.into_iter().rev().collect();
            let is_estimated = entry.frames_from == "estimated";
            let all = self.judge_one(&stack, entry.ticks, is_estimated, &mut judged);
            if let Err((wrong, why)) = all {
                *judged.wrong.entry(wrong).or_default() += entry.ticks;
                let mut labels: Vec<&str> =
                    stack.iter().map(|frame| frame.label.as_str()).collect();
                labels.dedup();
                let from = &entry.frames_from;
                let text = format!("{} ({from}) × {why}: {}", entry.ticks, labels.join(";"));
                judged.impossible.push(text);
            }
        }
        judged
    }

    /// One stack, root first. Where Python frames are estimated, they may contradict each other, but
    /// nothing native may be between the wrong ones.
    fn judge_one(
        &self,
        stack: &[&Frame],
        ticks: u64,
        is_estimated: bool,
        judged: &mut Judged,
    ) -> Result<(), (Wrong, String)> {
        let edge = |why: String| (Wrong::Edge, why);
        // Only the leaf's end is the kernel's and the collector's.
        let is_above = |frame: &&&Frame| frame.kind == "kernel" || frame.kind == "gc";
        let own = stack.len() - stack.iter().rev().take_while(is_above).count();
        let stack = &stack[..own];
        if let Some(frame) = stack.iter().find(|frame| is_above(frame)) {
            return Err(edge(format!("`{}` is in the middle", frame.label)));
        }
        stack.iter().try_for_each(|frame| self.judge_frame(frame))?;
        let known: Vec<usize> = (0..stack.len())
            .filter(|index| self.is_known(stack[*index]))
            .collect();
        let (Some(first), Some(last)) = (known.first(), known.last()) else {
            return Ok(());
        };
        judged.known += ticks;
        let is_judged = |frame: &Frame| !is_estimated || frame.kind == "native";
        let (root, leaf) = (stack[*first], stack[*last]);
        // A stack whose root's end could not be read says so there.
        let is_cut_off = stack[..*first].iter().any(|frame| is_unreadable(frame));
        let has_caller = |frame: &Frame| self.calls.iter().any(|call| call.callee == short(frame));
        if is_judged(root) && !is_cut_off && has_caller(root) {
            return Err(edge(format!("`{}` is called by nobody", root.label)));
        }
        let (mut incomplete, mut crosses) = (false, false);
        for pair in known.windows(2) {
            let (caller, callee) = (stack[pair[0]], stack[pair[1]]);
            let between = &stack[pair[0] + 1..pair[1]];
            let is_judged = [caller, callee]
                .iter()
                .chain(between)
                .any(|frame| is_judged(frame));
            if !is_judged {
                continue;
            }
            incomplete |= !self.judge_pair(caller, callee, between)?;
            crosses |= caller.kind != callee.kind;
            let names = (short(caller).to_owned(), short(callee).to_owned());
            *judged.seen.entry(names).or_default() += ticks;
        }
        judged.incomplete += if incomplete { ticks } else { 0 };
        judged.crossing += if crosses { ticks } else { 0 };
        self.judge_leaf(leaf, &stack[last + 1..]).map_err(edge)
    }

    /// A function of the target's own source: its name is one of those in the calls or at least that
    /// of the function that its line is in, and its line is in it. One of its libraries without a
    /// name is no wrong one.
    fn judge_frame(&self, frame: &Frame) -> Result<(), (Wrong, String)> {
        let is_named = frame.kind == "python" || frame.kind == "native";
        let source = self.sources.get(file_name(frame)).filter(|_| is_named);
        let line = frame.line.and_then(|line| line.checked_sub(1));
        let Some((source, line)) = source.zip(line) else {
            return Ok(());
        };
        let above = source.get(..=line).unwrap_or_default();
        let around = above.iter().rev().find_map(|line| defined(line));
        let name = short(frame);
        match around {
            _ if frame.kind == "native" && !self.is_known(frame) && around != Some(name) => {
                Err((Wrong::Name, format!("`{}` is no function", frame.label)))
            }
            // What is at the module's level is behind a function in the file.
            Some(around) if around != name && !name.starts_with('<') => {
                let why = format!("`{}` is not there, but `{around}` is", frame.label);
                Err((Wrong::Line, why))
            }
            _ => Ok(()),
        }
    }

    /// Whether the pair is shown as it is, and not by its Python functions alone.
    fn judge_pair(
        &self,
        caller: &Frame,
        callee: &Frame,
        between: &[&Frame],
    ) -> Result<bool, (Wrong, String)> {
        let edge = |why: String| Err((Wrong::Edge, why));
        let names = (short(caller), short(callee));
        let is_it = |call: &&Call| call.caller == names.0 && call.callee == names.1;
        let Some(call) = self.calls.iter().find(is_it) else {
            let both_python = caller.kind == "python" && callee.kind == "python";
            return match both_python && between.is_empty() && self.leads_through_c(names) {
                true => Ok(false),
                false => edge(format!("`{}` never calls `{}`", names.0, names.1)),
            };
        };
        let may_be = |frame: &Frame| match call.through {
            // Frames that both ends of a deep stack were kept of.
            _ if frame.kind == "cut" => caller.kind == "python",
            true => is_between(frame),
            // The machinery of an interpreter without symbols cannot be told from other functions,
            // nor what of it has a name from what that calls.
            false => {
                let nameless = |other: &&&Frame| other.function.contains("+0x");
                let mut all = between.iter().filter(nameless);
                is_between(frame) && all.any(|other| other.module == frame.module)
            }
        };
        if let Some(frame) = between.iter().find(|frame| !may_be(frame)) {
            return edge(format!("`{}` below `{}`", frame.label, names.0));
        }
        let line = caller.line.and_then(|line| line.checked_sub(1));
        let source = self.sources.get(file_name(caller));
        let text = line.and_then(|line| source?.get(line));
        if !text.is_some_and(|text| text.contains(&call.words)) {
            let why = format!("`{}` does not call `{}` there", caller.label, names.1);
            return Err((Wrong::Line, why));
        }
        match call.through && between.is_empty() {
            false => Ok(true),
            true if caller.kind == "python" && callee.kind == "python" => Ok(false),
            true => edge(format!("nothing between `{}` and `{}`", names.0, names.1)),
        }
    }

    /// What may be above the last of the target's own functions.
    fn judge_leaf(&self, last: &Frame, above: &[&Frame]) -> Result<(), String> {
        // Code that ctypes makes has no name.
        let is_code = |frame: &&&Frame| matches!(frame.kind.as_str(), "native" | "unknown");
        if let Some(frame) = above.iter().find(|frame| !is_code(frame)) {
            return Err(format!("`{}` above `{}`", frame.label, last.label));
        }
        let calls_nobody = !self.calls.iter().any(|call| call.caller == short(last));
        match above.first() {
            Some(frame) if calls_nobody && last.kind == "native" => {
                Err(format!("`{}` above `{}`", frame.label, last.label))
            }
            _ => Ok(()),
        }
    }

    /// Whether a call leads from one Python function to another by native ones alone.
    fn leads_through_c(&self, (caller, callee): (&str, &str)) -> bool {
        let mut reached = BTreeSet::from([caller]);
        loop {
            let from = |call: &&Call| {
                reached.contains(call.caller.as_str())
                    && (call.caller == caller || !self.is_python(&call.caller))
            };
            let next: Vec<&str> = self
                .calls
                .iter()
                .filter(from)
                .map(|call| &*call.callee)
                .collect();
            let before = reached.len();
            reached.extend(next);
            if reached.len() == before {
                return reached.contains(callee);
            }
        }
    }

    fn is_python(&self, name: &str) -> bool {
        let is_here = |line: &String| line.contains(&format!("def {name}("));
        let source = self.sources.get("native_calls.py");
        source.is_some_and(|lines| lines.iter().any(is_here))
    }

    fn is_known(&self, frame: &Frame) -> bool {
        let name = short(frame);
        let is_named = |call: &Call| call.caller == name || call.callee == name;
        let is_own = match frame.kind.as_str() {
            "python" => file_name(frame) == "native_calls.py",
            "native" => is_of(frame, &[OWN]),
            _ => false,
        };
        is_own && self.calls.iter().any(is_named)
    }
}

/// The name of a function without the module, class or function that holds it.
fn short(frame: &Frame) -> &str {
    let name = frame.function.rsplit("::").next().unwrap_or_default();
    name.rsplit('.').next().unwrap_or(name)
}

/// The function that a line of source begins, if it does.
fn defined(line: &str) -> Option<&str> {
    let head = line.split_once('(')?.0;
    let in_c =
        || line.ends_with('{') && line.starts_with(|first: char| first.is_ascii_alphabetic());
    let begins = ["def ", "fn "].iter().any(|word| head.contains(word)) || in_c();
    let name = head.rsplit([' ', '*']).next()?;
    begins.then_some(name).filter(|name| !name.is_empty())
}

fn file_name(frame: &Frame) -> &str {
    frame.file.rsplit('/').next().unwrap_or_default()
}

fn is_between(frame: &Frame) -> bool {
    // Code that ctypes makes has no name.
    frame.kind == "unknown" || (frame.kind == "native" && is_of(frame, BETWEEN))
}

fn is_unreadable(frame: &Frame) -> bool {
    frame.kind == "unknown" && frame.label.starts_with("[unreadable")
}

/// Whether a native frame is of an image whose name begins so.
#[must_use]
pub fn is_of(frame: &Frame, modules: &[&str]) -> bool {
    let module = frame.module.as_deref().unwrap_or_default();
    modules.iter().any(|name| module.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_begins_a_function_says_which() {
        let check = |line, expected| assert_eq!(defined(line), expected, "{line}");
        check("def a():", Some("a"));
        check("    def __del__(self):", Some("__del__"));
        check("async def in_task():", Some("in_task"));
        check("APART long c2(Back back, long count) {", Some("c2"));
        check("static void *c_thread(void *unused) {", Some("c_thread"));
        check("pub extern \"C\" fn r1(back: u64) -> u64 {", Some("r1"));
        check("    for _ in range(3):", None);
        check("    while (used(1)) {", None);
        check("    c_spin(count);", None);
        check("}", None);
    }

    /// `a` of Python calls `c1`, which calls `c2`, which calls `b` of Python by way of ctypes.
    fn calls() -> Calls {
        let call = |caller: &str, callee: &str, through| Call {
            caller: caller.to_owned(),
            callee: callee.to_owned(),
            words: format!("{callee}("),
            through,
        };
        let source = |text: &str| text.lines().map(str::to_owned).collect();
        Calls {
            calls: vec![
                call("a", "c1", false),
                call("c1", "c2", false),
                call("c2", "b", true),
            ],
            sources: BTreeMap::from([
                (
                    "native_calls.py".to_owned(),
                    source("def a():\n    c1()\ndef b():\n    pass"),
                ),
                (
                    "native_calls.c".to_owned(),
                    source("int c1(int n) {\n    c2();\n}\nint c2(int n) {\n    b();\n}"),
                ),
            ]),
        }
    }

    /// A frame of a function at a line of its file, or of another's library.
    fn frame(text: &str) -> Frame {
        let (function, line) = text.split_once(':').unwrap_or((text, "0"));
        let (kind, file, module) = match function {
            "a" | "b" => ("python", "native_calls.py", None),
            "ffi" => ("native", "", Some("libffi.so")),
            _ => ("native", "native_calls.c", Some("native_calls.c.so")),
        };
        Frame {
            kind: kind.to_owned(),
            label: text.to_owned(),
            function: function.to_owned(),
            file: file.to_owned(),
            line: line.parse().ok(),
            module: module.map(str::to_owned),
        }
    }

    #[test]
    fn what_is_wrong_with_a_stack_is_told() {
        let check = |stack: &str, expected: Option<Wrong>| {
            let frames: Vec<Frame> = stack.split(' ').map(frame).collect();
            let stack: Vec<&Frame> = frames.iter().collect();
            let mut judged = Judged::default();
            let wrong = calls().judge_one(&stack, 1, false, &mut judged);
            assert_eq!(wrong.err().map(|(what, _)| what), expected, "{frames:?}");
            if expected.is_none() {
                let crosses = frames.windows(2).any(|pair| pair[0].kind != pair[1].kind);
                assert_eq!(judged.crossing, u64::from(crosses), "{frames:?}");
            }
        };
        check("a:2 c1:2 c2:5 ffi b:4", None);
        check("a:2", None);
        // Without what is native between its Python functions: not whole, and not wrong.
        check("a:2 b:4", None);
        check("a:2 c2:5", Some(Wrong::Edge));
        check("a:2 c1:2 b:4", Some(Wrong::Edge));
        check("a:2 c1:2 c2:5 b:4", Some(Wrong::Edge));
        check("a:2 ffi c1:2 c2:5", Some(Wrong::Edge));
        check("c1:2 c2:5", Some(Wrong::Edge));
        check("a:1 c1:2", Some(Wrong::Line));
        check("a:2 c1:3 c2:5", Some(Wrong::Line));
        check("a:2 c1:2 c2:2", Some(Wrong::Line));
        check("a:2 c1:2 c3:5", Some(Wrong::Name));
        check("a:2 c1:2 c2:5 ffi b:2", Some(Wrong::Line));
    }
}
