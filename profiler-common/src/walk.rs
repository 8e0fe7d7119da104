//! The one walk of a Python frame chain, over any reader of the target's memory.
//!
//! It runs in the kernel at the tick (over `bpf_probe_read_user`), in user space (over
//! `process_vm_readv`) and over recorded memory in tests. So it takes no slice it could
//! overrun, allocates nothing, and stops by itself: after [`MAX_WALK`] frames, at a frame that
//! leads back into the chain, at a pointer that cannot be one.
//!
//! It knows no names and reads no code objects: a frame is a pair of numbers.
//!
//! If the plan asks for it, it notes beside the frames which of them are a generator's (or a
//! coroutine's, which to a frame is the same), and the last frame of all.

pub use crate::block::{BLOCK_BYTES, BLOCK_WORDS, Block, Reader};
pub use crate::first::{First, first_frame};
use crate::plan::{GENERATORS_NONE, GENERATORS_POINTED, NO_FIELD, WalkPlan};

/// Most frames a record keeps: half from the leaf, half from the root when the chain is longer.
pub const MAX_FRAMES: usize = 1024;
/// Most frames a walk follows before it gives up reaching the root.
pub const MAX_WALK: u32 = 4096;
/// Most generators a walk notes, from the leaf on.
pub const MAX_GENERATORS: usize = 64;

/// The chain was followed to its root.
pub const END_COMPLETE: u32 = 0;
/// The walk was not tried: no interpreter, or user space is to walk.
pub const END_NOT_TRIED: u32 = 1;
/// The thread has no Python thread state.
pub const END_NO_THREAD_STATE: u32 = 2;
/// The thread state has no frame: the thread runs no Python now.
pub const END_NO_FRAME: u32 = 3;
/// A page of the chain was not resident, or the pointer leads nowhere.
pub const END_UNREADABLE: u32 = 4;
/// The chain leads back into itself.
pub const END_CYCLE: u32 = 5;
/// More than [`MAX_WALK`] frames: the root was not reached.
pub const END_TOO_DEEP: u32 = 6;
/// A pointer of the chain is not aligned to a word, so it is none.
pub const END_BAD_POINTER: u32 = 7;

/// A frame as the chain has it: which code object, and where in it.
///
/// `instr` is `f_lasti` sign-extended (to 3.10) or the instruction's address (3.11+).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RawFrame {
    /// Address of the code object.
    pub code: u64,
    /// `f_lasti`, or an instruction's address.
    pub instr: u64,
}

const _: () = assert!(size_of::<RawFrame>() == 16);

/// In [`RawFrame::instr`], when the plan asks for it: this frame called into C, and from there the
/// frame before it was entered. No address of user space has the bit.
pub const INTO_C: u64 = 1 << 63;

impl RawFrame {
    /// Whether it has the mark. An index of -1, which has all bits, has not.
    #[must_use]
    #[inline(always)]
    pub const fn called_into_c(self) -> bool {
        self.instr >> 62 == INTO_C >> 62
    }

    /// The same without the mark.
    #[must_use]
    #[inline(always)]
    pub const fn unmarked(self) -> Self {
        Self {
            instr: if self.called_into_c() {
                self.instr & !INTO_C
            } else {
                self.instr
            },
            ..self
        }
    }
}

/// A frame that is a generator's, as the chain has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RawGenerator {
    /// Address of the generator or coroutine.
    pub generator: u64,
    /// How many frames the chain had before this one: its index from the leaf, before the cut.
    pub frame: u32,
    /// Padding, zero.
    pub _pad: u32,
}

const _: () = assert!(size_of::<RawGenerator>() == 16);

/// What a walk came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walked {
    /// An `END_` constant.
    pub end: u32,
    /// Frames followed, shims not counted.
    pub depth: u32,
    /// Kept frames that are the leaf end, at the front of the buffer.
    pub leaf: u32,
    /// Kept frames in all. Those after the leaf end are a ring of the last ones seen.
    pub kept: u32,
    /// Generators that were noted.
    pub generators: u32,
    /// Generators for which there was no room.
    pub generators_missing: u32,
    /// Address of the last frame that was followed; 0 when nobody asked.
    pub root: u64,
    /// An address in the C frame of the evaluator that runs the first run of frames; 0 when nobody
    /// asked, or where it has none (to 3.10).
    pub entry: u64,
}

impl Walked {
    /// A walk that read nothing.
    #[inline(always)]
    pub const fn nothing(end: u32) -> Self {
        Self {
            end,
            depth: 0,
            leaf: 0,
            kept: 0,
            generators: 0,
            generators_missing: 0,
            root: 0,
            entry: 0,
        }
    }
}

/// A walk under way. It lives wherever its driver keeps it (the kernel's in a map), so that one
/// step needs nothing but it, a reader, a block and the buffer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    plan: WalkPlan,
    frame: u64,
    /// Where the first run of frames must lead while `unproven` is 1.
    caller: u64,
    unproven: u32,
    _pad: u32,
    /// Brent's cycle search: one remembered frame, remembered anew at powers of two.
    remembered: u64,
    next_memory: u32,
    steps: u32,
    depth: u32,
    /// Frames kept at either end.
    half: u32,
    /// Where in the root end's ring the next frame goes.
    ring: u32,
    end: u32,
    /// Generators met, those without room included.
    generators: u32,
    _pad_2: u32,
    /// The last frame noted.
    root: u64,
    /// [`INTO_C`] when the next frame called into C, else 0.
    into_c: u64,
    /// See [`Walked::entry`].
    entry: u64,
    /// What that is if the first run is stale.
    entry_of_caller: u64,
}

/// What is kept of a frame.
#[inline(always)]
pub fn frame_of(plan: &WalkPlan, block: &Block) -> RawFrame {
    RawFrame {
        code: block.u64(plan.frame_code) & plan.code_mask,
        instr: if plan.instr_bytes == 4 {
            i64::from(block.u32(plan.frame_instr) as i32) as u64
        } else {
            block.u64(plan.frame_instr)
        },
    }
}

/// Who owns a frame; 0 before 3.11.
#[inline(always)]
pub fn owner_of(plan: &WalkPlan, block: &Block) -> u32 {
    if plan.frame_owner == NO_FIELD {
        0
    } else {
        u32::from(block.u8(plan.frame_owner))
    }
}

impl Chain {
    /// Begin at `first`.
    #[inline(always)]
    pub fn start(plan: &WalkPlan, first: First) -> Self {
        // 3.11 alone; 3.12 has shims as well, and those tell it frame by frame.
        let by_cframe = if plan.into_c != 0 && plan.frame_entry != NO_FIELD {
            u64::MAX
        } else {
            0
        };
        Self {
            plan: *plan,
            frame: first.frame,
            caller: first.caller,
            unproven: first.unproven,
            _pad: 0,
            remembered: 0,
            next_memory: 16,
            steps: 0,
            depth: 0,
            half: (plan.max_frames / 2).clamp(1, MAX_FRAMES as u32 / 2),
            ring: 0,
            end: END_TOO_DEEP,
            generators: 0,
            _pad_2: 0,
            root: 0,
            into_c: 0,
            entry: first.cframes[0] & by_cframe,
            entry_of_caller: first.cframes[1] & by_cframe,
        }
    }

    /// Follow one link; false when the walk is over. The driver bounds the steps by [`MAX_WALK`].
    ///
    /// The leaf end fills the front half of `frames`; what comes after it goes round in the
    /// other half, so that the last ones stay. [`root_start`] tells where that ring begins.
    #[inline(always)]
    pub fn step<R: Reader>(
        &mut self,
        reader: &mut R,
        block: &mut Block,
        frames: &mut [RawFrame; MAX_FRAMES],
        generators: &mut [RawGenerator; MAX_GENERATORS],
    ) -> bool {
        let frame = self.frame;
        if frame == 0 {
            return self.stop(END_COMPLETE);
        }
        if frame & 7 != 0 {
            return self.stop(END_BAD_POINTER);
        }
        if frame == self.remembered {
            return self.stop(END_CYCLE);
        }
        if self.steps == self.next_memory {
            self.remembered = frame;
            self.next_memory <<= 1;
        }
        self.steps += 1;
        let plan = &self.plan;
        if !reader.block(frame, plan.frame_bytes, block) {
            // A page that is not there proves nothing of a pointer that may well be one.
            if is_user_address(frame) {
                self.end = END_UNREADABLE;
                return false;
            }
            return self.stop(END_UNREADABLE);
        }
        self.frame = block.u64(plan.frame_previous);
        let owner = owner_of(plan, block);
        if owner >= plan.shim_owner {
            // The shim lies in the C frame of its evaluator, which may have no other frame yet, or
            // none any more.
            if self.entry == 0 && self.depth > 0 && self.plan.into_c != 0 {
                self.entry = frame;
            }
            return self.entered();
        }
        let entry = plan.frame_entry != NO_FIELD && block.u8(plan.frame_entry) != 0;
        let slot = if self.depth < self.half {
            self.depth
        } else {
            let slot = self.half + self.ring;
            self.ring = if self.ring + 1 < self.half {
                self.ring + 1
            } else {
                0
            };
            slot
        };
        let mut kept = frame_of(plan, block);
        kept.instr |= self.into_c;
        self.into_c = 0;
        frames[slot as usize & (MAX_FRAMES - 1)] = kept;
        if plan.generators != GENERATORS_NONE {
            self.note(frame, owner, block, generators);
        }
        self.depth += 1;
        !entry || self.entered()
    }

    /// Note the frame in `block`, which is the last one so far, and whose generator it is.
    #[inline(always)]
    fn note(
        &mut self,
        frame: u64,
        owner: u32,
        block: &Block,
        generators: &mut [RawGenerator; MAX_GENERATORS],
    ) {
        self.root = frame;
        let plan = &self.plan;
        let generator = if plan.generators == GENERATORS_POINTED {
            block.u64(plan.generator)
        } else if owner == plan.generator_owner {
            frame.wrapping_sub(u64::from(plan.generator))
        } else {
            0
        };
        if generator == 0 {
            return;
        }
        if self.generators < MAX_GENERATORS as u32 {
            generators[self.generators as usize & (MAX_GENERATORS - 1)] = RawGenerator {
                generator,
                frame: self.depth,
                _pad: 0,
            };
        }
        self.generators += 1;
    }

    /// The run of frames ends here, entered from C: `frame` is its caller.
    #[inline(always)]
    fn entered(&mut self) -> bool {
        self.into_c = self.mark();
        if self.unproven != 0 {
            if self.frame != self.caller {
                return self.begin_at_caller();
            }
            self.unproven = 0;
        }
        true
    }

    /// The walk cannot go on; while its first run is unproven, that run was stale.
    #[inline(always)]
    fn stop(&mut self, end: u32) -> bool {
        if self.unproven != 0 {
            return self.begin_at_caller();
        }
        self.end = end;
        false
    }

    /// Forget the stale run and begin where it would have been entered from.
    #[inline(always)]
    fn begin_at_caller(&mut self) -> bool {
        self.unproven = 0;
        // Its call is under way, in C already.
        self.into_c = self.mark();
        self.frame = self.caller;
        self.depth = 0;
        self.ring = 0;
        self.remembered = 0;
        self.generators = 0;
        self.root = 0;
        self.entry = self.entry_of_caller;
        true
    }

    /// The mark of a frame that called into C.
    #[inline(always)]
    fn mark(&self) -> u64 {
        if self.plan.into_c != 0 { INTO_C } else { 0 }
    }

    /// What it came to.
    #[inline(always)]
    pub fn walked(&self) -> Walked {
        let both = self.half * 2;
        let noted = if self.generators < MAX_GENERATORS as u32 {
            self.generators
        } else {
            MAX_GENERATORS as u32
        };
        Walked {
            end: self.end,
            depth: self.depth,
            leaf: if self.depth < self.half {
                self.depth
            } else {
                self.half
            },
            kept: if self.depth < both { self.depth } else { both },
            generators: noted,
            generators_missing: self.generators - noted,
            root: self.root,
            entry: self.entry,
        }
    }
}

/// Whether a process can have memory there: not in the first 64 KiB, which the kernel keeps empty,
/// and in the lower half that programs get unless they ask for more.
#[inline(always)]
const fn is_user_address(addr: u64) -> bool {
    addr >= 1 << 16 && addr < 1 << 47
}

/// Follow the chain from `first` to its root and keep both ends in `frames`, and what generators
/// they are in `generators`: the driver for all who have a plain loop.
pub fn walk<R: Reader>(
    reader: &mut R,
    plan: &WalkPlan,
    first: First,
    block: &mut Block,
    frames: &mut [RawFrame; MAX_FRAMES],
    generators: &mut [RawGenerator; MAX_GENERATORS],
) -> Walked {
    let mut chain = Chain::start(plan, first);
    for _ in 0..MAX_WALK {
        if !chain.step(reader, block, frames, generators) {
            break;
        }
    }
    chain.walked()
}

/// Where in the root end's ring its leaf-most frame stands: rotate `frames[leaf..kept]` left by
/// this to have the frames in order.
#[inline(always)]
pub fn root_start(depth: u32, leaf: u32, kept: u32) -> u32 {
    let ring = kept - leaf;
    if ring == 0 || depth <= kept {
        0
    } else {
        (depth - leaf) % ring
    }
}

#[cfg(feature = "user")]
crate::pod!(RawFrame, RawGenerator, Block);
