//! One stack from a native chain and a Python chain.
//!
//! Each evaluator frame on the C stack runs a run of Python frames: all up to the one that called
//! into C, which entered this evaluator. So, from either end, evaluators and runs correspond one to
//! one, and what lies between two evaluators belongs between their runs. An evaluator can be
//! without a run for a moment: before its frame is there, after it has left it, and while its last
//! frame is being cleared. So the two are counted, and where the counts do not prove which run an
//! evaluator has, nothing native is shown from there on. Python frames are never lost.
//!
//! Pure: addresses have their [`Role`] already, names and lines are the caller's.

mod fold;
mod matching;
mod roles;

use std::fmt;

pub use roles::{Home, NativeEntry, Role, entries};

/// A native chain, leaf first.
#[derive(Clone, Copy, Debug)]
pub struct NativeChain<'a> {
    /// What each frame is; see [`entries`].
    pub roles: &'a [Role],
    /// The last one is the thread's first function: the chain is whole.
    pub is_whole: bool,
    /// Some frame was found by its callee's frame pointer.
    pub by_frame_pointer: bool,
    /// The index of the evaluator that runs the innermost run, where something beside the counts
    /// proves it.
    pub leaf_evaluator: Option<usize>,
}

/// A Python chain, leaf first.
#[derive(Clone, Copy, Debug)]
pub struct PythonChain<'a> {
    /// For each frame, whether it called into C, which entered the frame before it; the first
    /// one's means nothing. Up to 3.10 all are true.
    pub into_c: &'a [bool],
    /// Where frames are missing: before this index.
    pub gap: Option<usize>,
    /// The chain leads to its root, and that is all the Python on this C stack: no other
    /// interpreter or greenlet has frames on it.
    pub is_whole: bool,
}

/// A frame of the merged stack: its index in the chain that it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Of the Python chain.
    Python(usize),
    /// Of the native chain.
    Native(usize),
}

/// How much of the native chain is in a merged stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rung {
    /// All of it.
    Full,
    /// All of it, some by frame pointers.
    FramePointers,
    /// That of the leaf end; towards the root it is Python alone.
    LeafEnd,
    /// Only what is above the innermost Python frame.
    TopOnly,
    /// None of it.
    PythonOnly,
}

impl Rung {
    /// The word for it in files.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::FramePointers => "frame_pointers",
            Self::LeafEnd => "leaf_end",
            Self::TopOnly => "top_only",
            Self::PythonOnly => "python_only",
        }
    }
}

/// Why a native chain is not shown as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// There is no native chain.
    NoChain,
    /// It ended before its root.
    Ended,
    /// Python frames are missing.
    PythonMissing,
    /// The leaf's evaluator may have no Python frame yet, or none any more.
    MayBeEntering,
    /// There are more evaluators than runs of Python frames, and nothing tells which has none.
    MoreEvaluators,
    /// There are fewer, and nothing tells which run's is without a name.
    FewerEvaluators,
}

impl Why {
    /// The word for it in files.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::NoChain => "no_native_chain",
            Self::Ended => "native_chain_ended",
            Self::PythonMissing => "python_frames_missing",
            Self::MayBeEntering => "may_be_entering_python",
            Self::MoreEvaluators => "more_evaluators_than_python",
            Self::FewerEvaluators => "fewer_evaluators_than_python",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoChain => "there is no native chain",
            Self::Ended => "the native chain ended before its root",
            Self::PythonMissing => "Python frames are missing",
            Self::MayBeEntering => "the innermost evaluator may not have its Python frame",
            Self::MoreEvaluators => "more evaluators than runs of Python frames",
            Self::FewerEvaluators => "fewer evaluators than runs of Python frames",
        })
    }
}

/// A merged stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The frames, leaf first.
    pub parts: Vec<Part>,
    /// How much of the native chain is in it.
    pub rung: Rung,
    /// Why it is not all; none when it is.
    pub why: Option<Why>,
}

/// The one stack of both chains.
#[must_use]
pub fn interleave(native: &NativeChain<'_>, python: &PythonChain<'_>) -> Merged {
    let full = if native.by_frame_pointer {
        Rung::FramePointers
    } else {
        Rung::Full
    };
    let all_python = (0..python.into_c.len()).map(Part::Python);
    if native.roles.is_empty() {
        return Merged {
            parts: all_python.collect(),
            rung: Rung::PythonOnly,
            why: Some(Why::NoChain),
        };
    }
    if python.into_c.is_empty() {
        return Merged {
            parts: fold::without_python(native.roles),
            rung: if native.is_whole { full } else { Rung::LeafEnd },
            why: (!native.is_whole).then_some(Why::Ended),
        };
    }
    let mut shown = fold::shown(native.roles);
    let matched = matching::matched(native, python, &shown);
    // A piece without a name that was found to be an evaluator folds what an evaluator does.
    let mut roles = native.roles.to_vec();
    for at in matched.evaluators() {
        roles[at] = Role::Evaluator;
    }
    if roles != native.roles {
        shown = fold::shown(&roles);
    }
    let parts = matched.parts(native.roles.len(), &shown);
    let has_native = parts.iter().any(|part| matches!(part, Part::Native(_)));
    let rung = match matched.why {
        None => full,
        Some(_) if matched.leaf > 1 => Rung::LeafEnd,
        Some(_) if matched.leaf == 1 || has_native => Rung::TopOnly,
        Some(_) => Rung::PythonOnly,
    };
    Merged {
        parts,
        rung,
        why: matched.why,
    }
}

#[cfg(test)]
mod tests;
