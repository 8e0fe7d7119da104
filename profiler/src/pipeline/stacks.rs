//! From what a tick brought to a stack of the profile.
//!
//! The same raw chain is the same stack: a warm sample costs one lookup by the bytes that came
//! from the kernel. Names are read once per code object and compared with the target once a
//! batch; frames whose code was replaced within the batch say so instead of guessing.

use profiler_common::{plan::Plan, walk::RawFrame};
use rustc_hash::FxHashMap;

use super::natives::Base;
use crate::{
    aggregate::ProfileBuilder,
    cpython::Runtime,
    native::{LiveSymbols, Symbols},
    pystack::{Chain, ChainEnd, Changed, PyFrame, Resolver, Walker, cache::DEFAULT_CAPACITY},
    stack::{Frame, FrameId, FrameKind, StackId},
    target::Memory,
    wire::Tick,
    words::{CodeAddr, Pid, RemoteAddr, ThreadStateAddr},
};

/// Most bytes of raw chains that are remembered; beyond, all are learned anew.
const MAX_REMEMBERED: usize = 8 << 20;
/// What the children of a run may remember together, chains and codes each.
const CHILDREN_REMEMBER: usize = 64 << 20;

/// A chain that has come before.
#[derive(Debug)]
struct Known {
    chain: Chain,
    /// The indices of its frames that are not in the stack: they are still being set up.
    left_out: Box<[usize]>,
    /// Frames below its own.
    root: Box<[FrameId]>,
    collecting: bool,
    stack: StackId,
    /// Seen since the last comparison with the target.
    touched: bool,
}

/// A chain's place in the memory of chains, until the end of its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainId(u32);

/// The stacks of one interpreter.
#[derive(Debug)]
pub struct Stacks {
    resolver: Resolver,
    known: Vec<Known>,
    /// Those that came since the last comparison.
    touched: Vec<ChainId>,
    by_bytes: FxHashMap<Box<[u8]>, ChainId>,
    remembered: usize,
    room: usize,
    key: Vec<u8>,
}

impl Stacks {
    /// With nothing remembered.
    pub fn new(runtime: &Runtime) -> Self {
        Self {
            resolver: Resolver::new(runtime),
            known: Vec::new(),
            touched: Vec::new(),
            by_bytes: FxHashMap::default(),
            remembered: 0,
            room: MAX_REMEMBERED,
            key: Vec::new(),
        }
    }

    /// Those of a child that was just forked, one of `living` processes.
    pub(super) fn heir(&mut self, living: usize) -> Self {
        let room = (CHILDREN_REMEMBER / (living + 1)).min(MAX_REMEMBERED);
        Self {
            resolver: self.resolver.heir(room.min(DEFAULT_CAPACITY)),
            known: Vec::new(),
            touched: Vec::new(),
            by_bytes: FxHashMap::default(),
            remembered: 0,
            room,
            key: Vec::new(),
        }
    }

    /// Codes that a child of this process ran.
    pub(super) fn learn_codes(&mut self, memory: &dyn Memory, codes: &[CodeAddr]) {
        for code in codes {
            self.resolver.learn(memory, *code);
        }
    }

    /// Codes that were asked for and are not the parent's, as far as known.
    pub(super) fn take_unknown(&mut self) -> Vec<CodeAddr> {
        self.resolver.take_unknown()
    }

    /// The chain that came with a tick.
    pub fn of_tick(
        &mut self,
        memory: &dyn Memory,
        builder: &mut ProfileBuilder,
        tick: &Tick,
        collecting: bool,
    ) -> ChainId {
        self.key.clear();
        self.key.extend_from_slice(tick.frame_bytes());
        // Beside the frames, these decide what the stack looks like.
        let rest = [
            tick.depth,
            tick.leaf_frames,
            tick.walk_end,
            collecting.into(),
        ];
        self.key
            .extend(rest.iter().flat_map(|word| word.to_le_bytes()));
        if let Some(id) = self.again() {
            return id;
        }
        let frames: Vec<RawFrame> = tick.frames().collect();
        let chain = Chain::from_record(&frames, tick.depth, tick.leaf_frames, tick.walk_end);
        self.learn(memory, builder, chain, Vec::new(), collecting)
    }

    /// The chain of the key, if it has come before.
    fn again(&mut self) -> Option<ChainId> {
        let id = *self.by_bytes.get(self.key.as_slice())?;
        if !std::mem::replace(&mut self.known[id.0 as usize].touched, true) {
            self.touched.push(id);
        }
        Some(id)
    }

    /// A chain that was walked from user space.
    pub(super) fn of_walk(
        &mut self,
        memory: &dyn Memory,
        builder: &mut ProfileBuilder,
        chain: Chain,
        collecting: bool,
    ) -> ChainId {
        self.of_task(memory, builder, chain, Vec::new(), collecting)
    }

    /// A chain, by the key, that has not come before.
    fn learn(
        &mut self,
        memory: &dyn Memory,
        builder: &mut ProfileBuilder,
        chain: Chain,
        root: Vec<FrameId>,
        collecting: bool,
    ) -> ChainId {
        let (frames, left_out) = self.resolver.begun_frames(memory, &chain);
        let stack = intern(builder, &frames, &root, collecting, &[]);
        let id = ChainId(self.known.len() as u32);
        self.known.push(Known {
            // What was noted beside the frames is other the next time that they come.
            chain: chain.without_notes(),
            left_out: left_out.into(),
            root: root.into(),
            collecting,
            stack,
            touched: true,
        });
        self.touched.push(id);
        self.remembered += self.key.len() * 2;
        self.by_bytes.insert(self.key.as_slice().into(), id);
        id
    }

    /// A part of a chain that came with a tick, on top of other frames.
    pub(super) fn of_task(
        &mut self,
        memory: &dyn Memory,
        builder: &mut ProfileBuilder,
        chain: Chain,
        root: Vec<FrameId>,
        collecting: bool,
    ) -> ChainId {
        self.key.clear();
        for frame in &chain.frames {
            self.key.extend(frame.code.to_le_bytes());
            self.key.extend(frame.instr.to_le_bytes());
        }
        // One word more than a tick has: frames of a tick are in the order of its ring.
        let rest = [
            chain.missing,
            chain.cut_at as u32,
            chain.end.code(),
            collecting.into(),
            root.len() as u32,
        ];
        let root_words = root.iter().map(|frame| frame.0);
        let words = rest.into_iter().chain(root_words);
        self.key.extend(words.flat_map(u32::to_le_bytes));
        if let Some(id) = self.again() {
            return id;
        }
        self.learn(memory, builder, chain, root, collecting)
    }

    /// The same chain on top of other frames.
    pub(super) fn with_root(
        &mut self,
        memory: &dyn Memory,
        builder: &mut ProfileBuilder,
        id: ChainId,
        root: Vec<FrameId>,
    ) -> ChainId {
        let known = &self.known[id.0 as usize];
        let (chain, collecting) = (known.chain.clone(), known.collecting);
        self.of_task(memory, builder, chain, root, collecting)
    }

    /// A chain.
    pub(super) fn chain(&self, id: ChainId) -> &Chain {
        &self.known[id.0 as usize].chain
    }

    /// The frames of a chain that is not remembered; their codes are compared with the others'.
    pub(super) fn name(&mut self, memory: &dyn Memory, chain: &Chain) -> Vec<PyFrame> {
        self.resolver.frames(memory, chain)
    }

    /// The frames of a coroutine and of what it awaits, leaf first.
    pub(super) fn coroutines(&mut self, memory: &dyn Memory, frames: &[RawFrame]) -> Vec<PyFrame> {
        let named = frames.iter();
        named
            .map(|raw| self.resolver.coroutine(memory, *raw))
            .collect()
    }

    /// The stack of a chain.
    pub fn stack(&self, id: ChainId) -> StackId {
        self.known[id.0 as usize].stack
    }

    /// What a stack of a chain is made of; `each_in_c` is whether each frame is a C frame.
    pub(super) fn base(&self, stack: StackId, id: ChainId, each_in_c: bool) -> Base<'_> {
        let known = &self.known[id.0 as usize];
        Base {
            stack,
            chain: Some(&known.chain),
            left_out: &known.left_out,
            each_in_c,
            is_whole: known.root.is_empty() && known.chain.end == ChainEnd::Complete,
            collecting: known.collecting,
            may_be_anothers: false,
        }
    }

    /// How often a code was met that was not known before.
    pub(super) fn news(&self) -> u64 {
        self.resolver.news()
    }

    /// Before the first tick of a batch is told: what it ran may have taken another one's place
    /// since, and is there now to be read.
    pub(super) fn refresh(&mut self, memory: &dyn Memory, tick: &Tick) {
        for frame in tick.frames() {
            self.resolver.touch(CodeAddr(frame.code));
        }
        let changed = self.compare(memory);
        self.settle(&changed);
    }

    /// The end of a batch: compare the codes it used with the target. What is returned is other
    /// than it was taken for.
    pub fn compare(&mut self, memory: &dyn Memory) -> Vec<CodeAddr> {
        for id in self.touched.drain(..) {
            let known = &mut self.known[id.0 as usize];
            known.touched = false;
            for frame in &known.chain.frames {
                self.resolver.touch(CodeAddr(frame.code));
            }
        }
        self.resolver
            .revalidate(memory)
            .iter()
            .map(|Changed { addr, .. }| *addr)
            .collect()
    }

    /// The stack of a chain, given that `changed` codes are not what they were.
    pub(super) fn restated(
        &mut self,
        memory: &dyn Memory,
        builder: &mut ProfileBuilder,
        id: ChainId,
        changed: &[CodeAddr],
    ) -> StackId {
        let known = &self.known[id.0 as usize];
        if !known
            .chain
            .frames
            .iter()
            .any(|frame| changed.contains(&CodeAddr(frame.code)))
        {
            return known.stack;
        }
        let (frames, left_out) = self.resolver.begun_frames(memory, &known.chain);
        self.known[id.0 as usize].left_out = left_out.into();
        let known = &self.known[id.0 as usize];
        intern(builder, &frames, &known.root, known.collecting, changed)
    }

    /// Between batches: forget chains with a changed code, or all when they are too many.
    pub fn settle(&mut self, changed: &[CodeAddr]) {
        if !changed.is_empty() || self.remembered > self.room {
            self.known.clear();
            self.touched.clear();
            self.by_bytes.clear();
            self.remembered = 0;
        }
    }
}

/// Put the frames into the profile.
fn intern(
    builder: &mut ProfileBuilder,
    frames: &[PyFrame],
    root: &[FrameId],
    collecting: bool,
    changed: &[CodeAddr],
) -> StackId {
    let mut ids = Vec::with_capacity(frames.len() + root.len() + 1);
    if collecting {
        ids.push(builder.frame(Frame::gc()));
    }
    for frame in frames {
        ids.push(builder.frame(frame_of(frame, changed)));
    }
    ids.extend(root);
    builder.stack(&ids)
}

/// A frame of the walk as a frame of the profile.
pub(super) fn frame_of(frame: &PyFrame, changed: &[CodeAddr]) -> Frame {
    const REPLACED: &str = "its code object was replaced";
    match frame {
        PyFrame::Known { code, .. } if changed.contains(&code.addr) => Frame::unreadable(REPLACED),
        PyFrame::Known { code, line } => Frame::python(
            code.name.as_ref(),
            code.file.clone(),
            Some(code.first_line),
            *line,
        ),
        PyFrame::Stale { .. } => Frame::unreadable(REPLACED),
        PyFrame::Unreadable { why, .. } => Frame::unreadable(why.kind()),
        PyFrame::Cut { frames } => Frame::cut(*frames),
        PyFrame::Broken { end } => Frame::unreadable(end),
    }
}

/// What a thread that runs no Python is in: its innermost native function, or why that has no
/// name.
pub(super) fn native_stack(
    builder: &mut ProfileBuilder,
    symbols: &mut LiveSymbols,
    pid: Pid,
    ip: RemoteAddr,
) -> StackId {
    let id = builder.frame(Frame::from(&symbols.name(pid, ip)));
    builder.stack(&[id])
}

/// Python frames that a walk from user space did not find any more.
pub(super) fn unread_stack(builder: &mut ProfileBuilder) -> StackId {
    let id = builder.frame(Frame::unreadable("its frames were not there to be read"));
    builder.stack(&[id])
}

/// Frames of a thread that was off the CPU and ran on each time they were read.
pub(super) fn moved_stack(builder: &mut ProfileBuilder) -> StackId {
    let id = builder.frame(Frame::unreadable("it ran on each time it was looked at"));
    builder.stack(&[id])
}

/// A thread that may run Python, and nobody knows yet as which of the interpreter's threads.
pub(super) fn unmatched_stack(builder: &mut ProfileBuilder) -> StackId {
    let id = builder.frame(Frame::unreadable("its Python thread is not matched yet"));
    builder.stack(&[id])
}

/// What a thread is in that runs no Python, seen from outside while it runs.
pub(super) fn unseen_stack(builder: &mut ProfileBuilder) -> StackId {
    let words = "where it runs without Python is not seen from outside";
    let id = builder.frame(Frame::unreadable(words));
    builder.stack(&[id])
}

/// What stands for the frames of a thread that has never run yet.
pub(super) fn unborn_stack(builder: &mut ProfileBuilder) -> StackId {
    let words = "[waits for its first CPU]";
    let id = builder.frame(Frame::words(FrameKind::Unknown, words));
    builder.stack(&[id])
}

/// What stands for the frames of a thread of the kernel's own.
pub(super) fn kernels_stack(builder: &mut ProfileBuilder) -> StackId {
    let words = "[the kernel's own work for io_uring]";
    let id = builder.frame(Frame::words(FrameKind::Unknown, words));
    builder.stack(&[id])
}

/// Where the time goes that no tick and no look met.
pub(super) fn between_looks(builder: &mut ProfileBuilder) -> StackId {
    let words = "[between two samples]";
    let id = builder.frame(Frame::words(FrameKind::Unknown, words));
    builder.stack(&[id])
}

/// Walk a thread from user space, now. It may be running: what comes out is an estimate.
pub(super) fn walk_now(
    walker: &mut Walker,
    memory: &dyn Memory,
    plan: &Plan,
    state: ThreadStateAddr,
) -> Option<Chain> {
    let chain = walker.chain(memory, plan, state);
    let nothing = chain.frames.is_empty() || chain.end == ChainEnd::NoFrame;
    (!nothing).then_some(chain)
}
