//! The native frames of one process: unwound when a sample comes, named and put between its Python
//! frames when it counts.
//!
//! The same chain on the same Python stack is the same stack: a warm sample costs its unwinding
//! and two lookups.

use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHasher};
use syscalls::Sysno;

use super::hold::Hold;
use crate::{
    aggregate::ProfileBuilder,
    native::{
        Found, Images, LiveSymbols, NativeFrame, NativeIp, Registers, StackCopy, Standing,
        Standstill, Symbols as _, Target, UnwindEnd, Unwinder,
    },
    pystack::Chain,
    stack::{
        Frame, FrameId, StackId,
        interleave::{NativeChain, Part, PythonChain, Role, Rung, Why, entries, interleave},
    },
    sys,
    wire::{NativeStack, Tick},
    words::{Pid, RemoteAddr},
};

/// Most addresses of chains that are remembered; beyond, all are learned anew.
const MAX_REMEMBERED: usize = 1 << 20;
/// Most bytes of a stack that are read of a thread off the CPU.
const STANDING_STACK: usize = 1 << 18;

/// A native chain's place in the memory of chains, until the end of its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NativeId(u32);

/// What a thread did above its user stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Above {
    /// Nothing: it was in user mode.
    User,
    /// It was in the kernel, in this system call if in one.
    Kernel(Option<u32>),
    /// It was in the kernel, in these functions, leaf first.
    Frames(Box<[RemoteAddr]>),
}

/// A chain that has come before.
#[derive(Debug)]
struct Known {
    ips: Box<[NativeIp]>,
    above: Above,
    /// The evaluator of the innermost Python frames, where that is proven.
    evaluator: Option<usize>,
    end: UnwindEnd,
}

/// What tells one chain from another: its addresses, what is above them, where the evaluator of the
/// innermost Python frames is among them, and how it ended.
type Key = (Box<[u64]>, Above, Option<usize>, UnwindEnd);

/// What a stack is made of beside native frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base<'a> {
    /// Its stack without them.
    pub(super) stack: StackId,
    /// The Python chain on it; none where there is no Python.
    pub(super) chain: Option<&'a Chain>,
    /// The indices of its frames that are not in the stack.
    pub(super) left_out: &'a [usize],
    /// Whether each Python frame is a C frame of its own (to 3.10).
    pub(super) each_in_c: bool,
    /// Whether it is all the Python of its thread: not of a task alone, and followed to its root.
    pub(super) is_whole: bool,
    /// Whether its leaf is the collector.
    pub(super) collecting: bool,
    /// Whether another interpreter's frames, which are not in it, may be on the same C stack.
    pub(super) may_be_anothers: bool,
}

impl Base<'_> {
    /// A stack without Python.
    pub(super) const fn bare(stack: StackId) -> Self {
        Self {
            stack,
            chain: None,
            left_out: &[],
            each_in_c: false,
            is_whole: true,
            collecting: false,
            may_be_anothers: false,
        }
    }

    /// For each frame of the Python chain, whether it called into C.
    fn calls(&self) -> impl Iterator<Item = bool> {
        let frames = self.chain.iter().flat_map(|chain| &chain.frames);
        frames.map(|frame| self.each_in_c || frame.called_into_c())
    }

    /// What two chains with the same names can differ in, as a number: where they called into C,
    /// and which of their frames are not in the stack.
    fn shape(&self) -> u64 {
        let mut hasher = FxHasher::default();
        self.is_whole.hash(&mut hasher);
        self.left_out.hash(&mut hasher);
        for into_c in self.calls() {
            into_c.hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// A stack with native frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joined {
    pub(super) stack: StackId,
    pub(super) rung: Rung,
    /// Why it has not all native frames.
    pub(super) why: Option<&'static str>,
}

/// Those of one process.
#[derive(Debug)]
pub(super) struct Natives {
    unwinder: Unwinder,
    standstill: Standstill,
    known: Vec<Known>,
    by_frames: FxHashMap<Key, NativeId>,
    /// By the stack without native frames, where its chain called into C, and the native chain.
    joined: FxHashMap<(StackId, u64, NativeId), Joined>,
    remembered: usize,
    ips: Vec<NativeIp>,
}

impl Natives {
    pub(super) fn new(images: Images) -> Self {
        Self {
            unwinder: Unwinder::new(images),
            standstill: Standstill::default(),
            known: Vec::new(),
            by_frames: FxHashMap::default(),
            joined: FxHashMap::default(),
            remembered: 0,
            ips: Vec::new(),
        }
    }

    /// The chain of a tick.
    pub(super) fn of_tick(&mut self, hold: &Hold, tick: &Tick, stack: &NativeStack) -> NativeId {
        let registers = Registers {
            ip: stack.ip,
            sp: stack.sp,
            bp: stack.bp,
        };
        let copy = StackCopy {
            from: stack.sp,
            bytes: stack.stack(),
        };
        let end = self
            .unwinder
            .unwind(&target(hold), registers, copy, &mut self.ips);
        let kernel: Box<[RemoteAddr]> = stack.kernel().collect();
        let above = if !tick.in_kernel() {
            Above::User
        } else if kernel.is_empty() {
            Above::Kernel(tick.syscall)
        } else {
            Above::Frames(kernel)
        };
        self.learn(above, tick.entry, end)
    }

    /// The chain of a thread that is off the CPU; `kernel` is the system call that it is in, if it
    /// is in one, or nothing if it was preempted in user mode.
    pub(super) fn of_standing(
        &mut self,
        hold: &Hold,
        standing: Standing,
        kernel: Option<Option<u32>>,
        entry: Option<RemoteAddr>,
    ) -> NativeId {
        let (unwinder, target) = (&mut self.unwinder, target(hold));
        let mut unwind = |unwinder: &mut Unwinder| {
            self.standstill
                .unwind(unwinder, &target, standing, STANDING_STACK, &mut self.ips)
        };
        let mut end = unwind(unwinder);
        // What is found now stands for as long as the thread does.
        if let UnwindEnd::NotMapped(_) = end {
            unwinder.refresh(&target);
            end = unwind(unwinder);
        }
        self.learn(kernel.map_or(Above::User, Above::Kernel), entry, end)
    }

    /// `entry` lies in the C frame of the evaluator of the innermost Python frames.
    fn learn(&mut self, above: Above, entry: Option<RemoteAddr>, end: UnwindEnd) -> NativeId {
        let addrs: Box<[u64]> = self.ips.iter().map(|ip| ip.addr.0).collect();
        let evaluator = entry.and_then(|entry| {
            let callers = self.ips.iter().position(|ip| ip.sp > entry)?;
            callers.checked_sub(1)
        });
        let key = (addrs, above, evaluator, end);
        if let Some(id) = self.by_frames.get(&key) {
            return *id;
        }
        let id = NativeId(self.known.len() as u32);
        self.remembered += self.ips.len() * 4 + 16;
        self.known.push(Known {
            ips: self.ips.as_slice().into(),
            above: key.1.clone(),
            evaluator,
            end,
        });
        self.by_frames.insert(key, id);
        id
    }

    /// A stack with the native frames of a chain in it.
    pub(super) fn join(
        &mut self,
        builder: &mut ProfileBuilder,
        symbols: &mut LiveSymbols,
        pid: Pid,
        base: Base<'_>,
        id: NativeId,
    ) -> Joined {
        let key = (base.stack, base.shape(), id);
        if let Some(joined) = self.joined.get(&key) {
            return *joined;
        }
        let Some(known) = self.known.get(id.0 as usize) else {
            return Joined {
                stack: base.stack,
                rung: Rung::PythonOnly,
                why: Some(UnwindEnd::NotTried.key()),
            };
        };
        let mut named: Vec<(Arc<[NativeFrame]>, bool)> = Vec::with_capacity(known.ips.len());
        for ip in &known.ips {
            let place = self.unwinder.place(ip.addr);
            let frames = symbols.frames(pid, ip.addr, place.as_ref());
            named.push((frames, place.is_some_and(|place| place.is_piece())));
        }
        let entries = entries(named.iter().map(|(frames, piece)| (&**frames, *piece)));
        let roles: Vec<Role> = entries.iter().map(|entry| entry.role).collect();
        let native = NativeChain {
            roles: &roles,
            is_whole: known.end.is_root(),
            by_frame_pointer: known.ips.iter().any(|ip| ip.found == Found::FramePointer),
            // The last of the functions at an address is the one whose code it is.
            leaf_evaluator: known
                .evaluator
                .and_then(|address| entries.iter().rposition(|entry| entry.address == address)),
        };
        let into_c: Vec<bool> = base.calls().collect();
        let python = PythonChain {
            into_c: &into_c,
            gap: base
                .chain
                .filter(|chain| chain.missing > 0)
                .map(|chain| chain.cut_at),
            is_whole: base.is_whole,
        };
        let merged = interleave(&native, &python);
        let above = above(builder, symbols, &known.above);
        let of_base = builder.frames_of(base.stack).to_vec();
        let mut stack = Vec::with_capacity(of_base.len() + named.len());
        put_together(
            &base,
            &of_base,
            &above,
            &merged.parts,
            &mut stack,
            |index| {
                let entry = entries.get(index)?;
                let (frames, _) = named.get(entry.address)?;
                Some(builder.frame(frames.get(entry.function)?.into()))
            },
        );
        let why = merged.why.map(|why| match why {
            // How it ended says more.
            Why::Ended => known.end.key(),
            other => other.key(),
        });
        let joined = Joined {
            stack: builder.stack(&stack),
            rung: merged.rung,
            why,
        };
        self.remembered += 16;
        self.joined.insert(key, joined);
        joined
    }

    /// Addresses have other names than before: stacks are to be made anew.
    pub(super) fn rename(&mut self) {
        self.joined.clear();
    }

    /// Between batches, when nothing waits: forget the chains if they are too many.
    pub(super) fn settle(&mut self) {
        if self.remembered > MAX_REMEMBERED {
            self.known.clear();
            self.by_frames.clear();
            self.joined.clear();
            self.remembered = 0;
        }
    }
}

fn target(hold: &Hold) -> Target<'_> {
    Target {
        mapped: hold,
        memory: hold.memory(),
        now: sys::monotonic(),
    }
}

/// The frames of the kernel.
fn above(builder: &mut ProfileBuilder, symbols: &mut LiveSymbols, above: &Above) -> Vec<FrameId> {
    match above {
        Above::User => Vec::new(),
        Above::Kernel(syscall) => {
            let name = syscall.and_then(|number| Sysno::new(number as usize));
            let words = name.map_or_else(
                || "[kernel]".to_owned(),
                |name| format!("[kernel] {}", name.name()),
            );
            vec![builder.frame(Frame::kernel(words))]
        }
        Above::Frames(addrs) => {
            let mut ids = Vec::new();
            for addr in addrs {
                for frame in symbols.kernel(*addr).iter() {
                    let words = frame.function().unwrap_or("[kernel]");
                    ids.push(builder.frame(Frame::kernel(words)));
                }
            }
            ids
        }
    }
}

/// The frames of a stack, leaf first: those of `of_base` in their order, and between them the
/// native ones where `parts` has them. What the base has beside Python frames stays where it was:
/// the collector at the leaf, a cut before the frame after it, everything else at the root.
fn put_together(
    base: &Base<'_>,
    of_base: &[FrameId],
    above: &[FrameId],
    parts: &[Part],
    stack: &mut Vec<FrameId>,
    mut native: impl FnMut(usize) -> Option<FrameId>,
) {
    let mut rest = of_base.iter().copied();
    if base.collecting {
        stack.extend(rest.next());
    }
    stack.extend(above);
    let cut = base.chain.filter(|chain| chain.missing > 0);
    for part in parts {
        match part {
            Part::Native(index) => stack.extend(native(*index)),
            Part::Python(index) => {
                if cut.is_some_and(|chain| chain.cut_at == *index) {
                    stack.extend(rest.next());
                }
                if !base.left_out.contains(index) {
                    stack.extend(rest.next());
                }
            }
        }
    }
    if base.chain.is_some() {
        stack.extend(rest);
    }
}

#[cfg(test)]
mod tests;
