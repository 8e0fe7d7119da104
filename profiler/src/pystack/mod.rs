//! From a chain of numbers to Python frames with names and lines.
//!
//! Not here: who the thread is ([`crate::threads`]), and how frames are shown ([`crate::stack`]).

pub mod cache;
pub mod chain;
pub mod code;
mod copies;
pub mod lines;
mod part;

use std::sync::Arc;

use profiler_common::walk::RawFrame;

pub use cache::{Changed, CodeCache};
pub use chain::{Chain, ChainEnd, GeneratorFrame, Walker, one_frame};
pub use code::{Code, Position};

use crate::cpython::Runtime;
use crate::cpython::objects::ObjectError;
use crate::target::Memory;
use crate::words::{CodeAddr, Instr};

/// One frame of a Python stack, or what stands in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PyFrame {
    /// A frame of this code.
    Known {
        /// The code.
        code: Arc<Code>,
        /// The line it is at; none when the instruction belongs to no line.
        line: Option<u32>,
    },
    /// There is a frame, but its code object could not be read.
    Unreadable {
        /// Where the code object should be.
        code: CodeAddr,
        /// Why it could not be read.
        why: ObjectError,
    },
    /// There was a frame, but its code object has been replaced by another one since.
    Stale {
        /// Where the code object was.
        code: CodeAddr,
    },
    /// Frames that were left out between the leaf end and the root end.
    Cut {
        /// How many.
        frames: u32,
    },
    /// The callers from here on are missing: the walk stopped before the root.
    Broken {
        /// What stopped it.
        end: ChainEnd,
    },
}

/// Turns chains of one process into frames.
#[derive(Debug)]
pub struct Resolver {
    cache: CodeCache,
}

impl Resolver {
    /// With a cache of the default size.
    #[must_use]
    pub fn new(runtime: &Runtime) -> Self {
        Self {
            cache: CodeCache::new(runtime, cache::DEFAULT_CAPACITY),
        }
    }

    /// That of a child that was just forked: it has its parent's codes where its parent had them.
    #[must_use]
    pub fn heir(&mut self, capacity: usize) -> Self {
        Self {
            cache: self.cache.heir(capacity),
        }
    }

    /// The codes that were asked for since the last call and are not the parent's, as far as known.
    pub fn take_unknown(&mut self) -> Vec<CodeAddr> {
        self.cache.take_unknown()
    }

    /// Read a code that a child ran, so that the children that come inherit it.
    pub fn learn(&mut self, memory: &dyn Memory, code: CodeAddr) {
        self.cache.learn(memory, code);
    }

    /// The frames of a chain, leaf first. Frames that are still being set up are left out, as the
    /// interpreter itself leaves them out.
    pub fn frames(&mut self, memory: &dyn Memory, chain: &Chain) -> Vec<PyFrame> {
        self.begun_frames(memory, chain).0
    }

    /// The same, and the indices in the chain of those that were left out.
    pub fn begun_frames(
        &mut self,
        memory: &dyn Memory,
        chain: &Chain,
    ) -> (Vec<PyFrame>, Vec<usize>) {
        let mut frames = Vec::with_capacity(chain.frames.len() + 2);
        let mut left_out = Vec::new();
        let cut = (chain.missing > 0).then_some(PyFrame::Cut {
            frames: chain.missing,
        });
        let cut_at = chain.cut_at.min(chain.frames.len());
        for (index, raw) in chain.frames.iter().enumerate() {
            if index == cut_at {
                frames.extend(cut.clone());
            }
            let instr = Instr(raw.unmarked().instr);
            match self.frame(memory, CodeAddr(raw.code), instr) {
                Some(frame) => frames.push(frame),
                None => left_out.push(index),
            }
        }
        if cut_at == chain.frames.len() {
            frames.extend(cut);
        }
        if chain.end.is_early() {
            frames.push(PyFrame::Broken { end: chain.end });
        }
        (frames, left_out)
    }

    /// The frame of a coroutine by itself; one that has not begun is at its first line.
    pub fn coroutine(&mut self, memory: &dyn Memory, raw: RawFrame) -> PyFrame {
        let code = CodeAddr(raw.code);
        match self
            .cache
            .look_up(memory, code, Instr(raw.unmarked().instr))
        {
            Ok((code, Position::Line(line))) => PyFrame::Known { code, line },
            Ok((code, Position::Incomplete)) => PyFrame::Known {
                line: Some(code.first_line),
                code,
            },
            Ok((_, Position::Elsewhere)) => PyFrame::Stale { code },
            Err(why) => PyFrame::Unreadable { code, why },
        }
    }

    fn frame(&mut self, memory: &dyn Memory, code: CodeAddr, instr: Instr) -> Option<PyFrame> {
        Some(match self.cache.look_up(memory, code, instr) {
            Ok((code, Position::Line(line))) => PyFrame::Known { code, line },
            Ok((_, Position::Incomplete)) => return None,
            Ok((_, Position::Elsewhere)) => PyFrame::Stale { code },
            Err(why) => PyFrame::Unreadable { code, why },
        })
    }

    /// How often something was met that was not known before.
    #[must_use]
    pub fn news(&self) -> u64 {
        self.cache.news()
    }

    /// A chain that was resolved before came again: its codes are compared too.
    pub fn touch(&mut self, code: CodeAddr) {
        self.cache.touch(code);
    }

    /// Compares the codes used since the last call with the target. Frames with a code that is
    /// named here, made since then, may be of the code that was there before or after: the caller
    /// shows them as [`PyFrame::Stale`].
    pub fn revalidate(&mut self, memory: &dyn Memory) -> Vec<Changed> {
        self.cache.revalidate(memory)
    }
}
