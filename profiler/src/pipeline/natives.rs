//! The native frames of one process: unwound when a sample comes, named and put between its Python
//! frames when it counts.
//!
//! The same chain on the same Python stack is the same stack: a warm sample costs its unwinding
//! and two lookups.

use std::sync::Arc;

use rustc_hash::FxHashMap;
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
        interleave::{NativeChain, Part, PythonChain, Rung, Why, interleave, roles},
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
    end: UnwindEnd,
}

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
        }
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
    by_frames: FxHashMap<(Box<[u64]>, Above), NativeId>,
    /// By the stack without native frames, how many frames of its chain are not in it, and the
    /// native chain.
    joined: FxHashMap<(StackId, usize, NativeId), Joined>,
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
        self.learn(above, end)
    }

    /// The chain of a thread that is off the CPU; `kernel` is the system call that it is in, if it
    /// is in one, or nothing if it was preempted in user mode.
    pub(super) fn of_standing(
        &mut self,
        hold: &Hold,
        standing: Standing,
        kernel: Option<Option<u32>>,
    ) -> NativeId {
        let (unwinder, target) = (&mut self.unwinder, target(hold));
        let end =
            self.standstill
                .unwind(unwinder, &target, standing, STANDING_STACK, &mut self.ips);
        self.learn(kernel.map_or(Above::User, Above::Kernel), end)
    }

    fn learn(&mut self, above: Above, end: UnwindEnd) -> NativeId {
        let addrs: Box<[u64]> = self.ips.iter().map(|ip| ip.addr.0).collect();
        let key = (addrs, above);
        if let Some(id) = self.by_frames.get(&key) {
            return *id;
        }
        let id = NativeId(self.known.len() as u32);
        self.remembered += self.ips.len() * 4 + 16;
        self.known.push(Known {
            ips: self.ips.as_slice().into(),
            above: key.1.clone(),
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
        let key = (base.stack, base.left_out.len(), id);
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
        let roles = roles(named.iter().map(|(frames, piece)| (&**frames, *piece)));
        let native = NativeChain {
            roles: &roles,
            is_whole: known.end.is_root(),
            by_frame_pointer: known.ips.iter().any(|ip| ip.found == Found::FramePointer),
            leaf_evaluator: None,
        };
        let into_c = base.chain.map_or_else(Vec::new, |chain| {
            let frames = chain.frames.iter();
            frames
                .map(|frame| base.each_in_c || frame.called_into_c())
                .collect()
        });
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
                let frames = named.get(index).map(|(frames, _)| Arc::clone(frames));
                let frames = frames.iter().flat_map(|frames| frames.iter());
                frames.map(|frame| builder.frame(frame.into())).collect()
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
        self.joined.insert(key, joined);
        joined
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
                    ids.push(builder.frame(Frame::kernel(format!("{words} [k]"))));
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
    mut native: impl FnMut(usize) -> Vec<FrameId>,
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
mod tests {
    use super::*;
    use crate::pystack::Chain;
    use profiler_common::walk::RawFrame;

    const P: fn(usize) -> Part = Part::Python;
    const N: fn(usize) -> Part = Part::Native;

    /// A chain of so many frames, of which `missing` are missing before `cut_at`.
    fn chain(frames: usize, missing: u32, cut_at: usize) -> Chain {
        let raw = vec![RawFrame::default(); frames];
        let depth = frames as u32 + missing;
        Chain::from_record(&raw, depth, cut_at as u32, 0)
    }

    /// The stack of frames numbered from 0 on, where a native frame `n` is 100 + n and the kernel's
    /// are from 200 on.
    #[track_caller]
    fn check(base: &Base<'_>, of_base: u32, above: u32, parts: &[Part], expected: &[u32]) {
        let of_base: Vec<FrameId> = (0..of_base).map(FrameId).collect();
        let above: Vec<FrameId> = (200..200 + above).map(FrameId).collect();
        let mut stack = Vec::new();
        put_together(base, &of_base, &above, parts, &mut stack, |index| {
            vec![FrameId(100 + index as u32)]
        });
        let stack: Vec<u32> = stack.iter().map(|frame| frame.0).collect();
        assert_eq!(stack, expected);
    }

    #[test]
    fn what_a_stack_has_beside_python_frames_stays_where_it_was() {
        let (two, three, cut) = (chain(2, 0, 2), chain(3, 0, 3), chain(4, 7, 2));
        let of = |chain| Base {
            chain: Some(chain),
            ..Base::bare(StackId(0))
        };
        let between = [N(0), P(0), N(1), P(1)];
        check(&of(&two), 2, 0, &between, &[100, 0, 101, 1]);
        // The kernel is above all.
        check(&of(&two), 2, 2, &between, &[200, 201, 100, 0, 101, 1]);
        // The collector is above even that.
        let collecting = Base {
            collecting: true,
            ..of(&two)
        };
        check(&collecting, 3, 1, &between, &[0, 200, 100, 1, 101, 2]);
        // A cut is before the frame after it.
        let parts = [N(0), P(0), P(1), P(2), P(3), N(5)];
        check(&of(&cut), 5, 0, &parts, &[100, 0, 1, 2, 3, 4, 105]);
        // A task, or why a chain ended early, is at the root.
        check(&of(&two), 4, 0, &[P(0), N(0), P(1)], &[0, 100, 1, 2, 3]);
        // What there is without Python is what native frames replace.
        check(
            &Base::bare(StackId(0)),
            1,
            1,
            &[N(0), N(1)],
            &[200, 100, 101],
        );
        // A frame that is still being set up has no place.
        let entering = Base {
            left_out: &[0],
            ..of(&three)
        };
        let parts = [P(0), N(0), P(1), N(1), P(2)];
        check(&entering, 2, 0, &parts, &[100, 0, 101, 1]);
    }
}
