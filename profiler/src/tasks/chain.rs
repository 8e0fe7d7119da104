//! From a task's coroutine to what it waits for in the end, coroutine by coroutine.
//!
//! A suspended generator that awaits something has that on top of its stack of values. Whether it
//! does, a state tells from 3.13 on; before, the instruction it stands at.

use profiler_common::walk::RawFrame;
use rustc_hash::FxHashSet;

use super::kinds::{Kind, Shape};
use super::reader::Eyes;
use super::{Leaf, MAX_CHAIN};
use crate::cpython::objects::{int_at, word_at};
use crate::cpython::{ObjectError, Version};
use crate::target::Memory as _;
use crate::words::{CoroutineAddr, RemoteAddr};

/// `YIELD_FROM` of 3.8 to 3.10 (`Include/opcode.h`).
const YIELD_FROM: u8 = 72;
/// The smallest argument of `RESUME` behind an await.
const RESUME_AFTER_YIELD_FROM: u8 = 2;
/// Bits of a frame's references that are flags (3.14+), or always 0.
const FLAGS: u64 = 3;
/// Most values in a frame.
const MAX_VALUES: u64 = 1 << 20;

/// How it is known that a generator awaits something, and where that is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Awaits {
    /// The next instruction is this one (to 3.10); an instruction's number counts so many bytes.
    NextIsYieldFrom { unit: u64 },
    /// It stands before a `RESUME` of this opcode, or of the other one it can turn into
    /// (3.11, 3.12: `Include/opcode.h`).
    BeforeResume([u8; 2]),
    /// Its state says so; it is so many words below the end of the stack (3.13+).
    State { below: u64 },
}

impl Awaits {
    pub(super) const fn of(version: Version) -> Self {
        match version.minor {
            ..=9 => Self::NextIsYieldFrom { unit: 1 },
            10 => Self::NextIsYieldFrom { unit: 2 },
            // Once it is warm it is `RESUME_QUICK`.
            11 => Self::BeforeResume([151, 150]),
            // While somebody traces it is `INSTRUMENTED_RESUME`.
            12 => Self::BeforeResume([151, 240]),
            13 | 14 => Self::State { below: 1 },
            // Above it is the function to call with what comes.
            _ => Self::State { below: 2 },
        }
    }
}

/// One generator.
struct Step {
    /// None when it has come to its end.
    frame: Option<RawFrame>,
    runs: bool,
    awaits: Option<RemoteAddr>,
}

/// A chain, leaf first.
pub(super) struct Chained {
    pub(super) frames: Vec<RawFrame>,
    /// The task's own coroutine is on a thread's stack.
    pub(super) runs: bool,
    /// The task's own coroutine is a generator.
    pub(super) is_known: bool,
    pub(super) leaf: Leaf,
}

impl Eyes<'_> {
    /// The chain from a task's coroutine.
    pub(super) fn chain(&self, coro: CoroutineAddr) -> Result<Chained, ObjectError> {
        let mut chained = Chained {
            frames: Vec::new(),
            runs: false,
            is_known: true,
            leaf: Leaf::Coroutine,
        };
        let mut seen = FxHashSet::default();
        let mut at = RemoteAddr::from(coro);
        loop {
            if seen.len() == MAX_CHAIN {
                chained.leaf = Leaf::TooDeep;
                break;
            }
            if !seen.insert(at) {
                chained.leaf = Leaf::Cycle;
                break;
            }
            match self.link(at, &mut chained, seen.len() == 1) {
                Ok(Some(next)) => at = next,
                Ok(None) => break,
                // The task is there all the same, if its own coroutine is.
                Err(error) if seen.len() > 1 => {
                    chained.leaf = Leaf::Unreadable(error);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        chained.frames.reverse();
        Ok(chained)
    }

    /// Looks at one object of the chain; what comes next, if anything does.
    fn link(
        &self,
        at: RemoteAddr,
        chained: &mut Chained,
        first: bool,
    ) -> Result<Option<RemoteAddr>, ObjectError> {
        let kind = self.kind(at)?;
        match kind.shape {
            Shape::Generator => {
                let step = self.step(at)?;
                chained.frames.extend(step.frame);
                chained.runs |= first && step.runs;
                Ok(step.awaits)
            }
            Shape::Wrapper => self.first_word(at).map(Some),
            Shape::FutureIter => {
                let future = self.first_word(at)?;
                // It lets go of the future when that is done.
                if future != RemoteAddr(0) {
                    let kind = self.kind(future)?;
                    chained.leaf = Leaf::Awaits(self.awaited(future, &kind));
                }
                Ok(None)
            }
            _ => {
                chained.is_known = !first;
                chained.leaf = Leaf::Awaits(self.awaited(at, &kind));
                Ok(None)
            }
        }
    }

    /// The first word behind an object's header.
    pub(super) fn first_word(&self, object: RemoteAddr) -> Result<RemoteAddr, ObjectError> {
        let size = self.layout.object.size;
        Ok(self.memory.pointer(object.plus(size.into()))?)
    }

    pub(super) fn kind(&self, object: RemoteAddr) -> Result<Kind, ObjectError> {
        self.kinds.of(self.objects(), self.types, object)
    }

    fn step(&self, generator: RemoteAddr) -> Result<Step, ObjectError> {
        let fields = &self.layout.generator;
        let frame_fields = &self.layout.frame;
        let beyond = [
            Some(frame_fields.code),
            Some(frame_fields.instr),
            fields.frame_state,
            fields.stack_top,
            fields.stack_depth,
            fields.value_stack,
        ];
        let beyond = beyond.into_iter().flatten().max().unwrap_or(0) as usize + 8;
        let mut block = [0; 512];
        let absurd = ObjectError::TooLong {
            addr: generator,
            length: beyond as u64,
            cap: block.len() as u64,
        };
        let own = generator.plus(fields.frame.into());
        let (frame, state) = match fields.state {
            // From 3.11 on the frame is in the generator.
            Some(state) => {
                let mut byte = [0];
                self.memory.read(generator.plus(state.into()), &mut byte)?;
                (own, u32::from(byte[0]))
            }
            None => (self.memory.pointer(own)?, 0),
        };
        let over = Step {
            frame: None,
            runs: false,
            awaits: None,
        };
        if frame == RemoteAddr(0) {
            return Ok(over);
        }
        let block = block.get_mut(..beyond).ok_or(absurd)?;
        self.memory.read(frame, block)?;
        let word = |offset: u32| word_at(block, offset as usize).unwrap_or(0);
        let int = |offset: u32| int_at(block, offset as usize).unwrap_or(0);
        let code = word(frame_fields.code) & !FLAGS;
        let by_frame = fields.frame_state.map(|offset| int(offset) & 0xFF);
        let runs = match (fields.state, by_frame, fields.executing) {
            (Some(_), _, executing) => Some(state) == executing,
            (None, Some(state), Some(executing)) => state == executing,
            (None, state, _) => state != Some(0),
        };
        let waits = [fields.suspended, fields.awaiting, fields.awaiting_locked];
        let is_alive = match (fields.state, fields.executing) {
            // 3.10 and before clear the pointer to the frame instead.
            (None, _) => true,
            (Some(_), _) => runs || waits.contains(&Some(state)) || self.is_new(state),
        };
        if !is_alive {
            return Ok(over);
        }
        // Its sign tells, in an int, that a frame of 3.10 or before has not begun.
        let instr = match fields.state {
            Some(_) => word(frame_fields.instr),
            None => i64::from(int(frame_fields.instr).cast_signed()).cast_unsigned(),
        };
        let awaits = match self.awaits {
            _ if runs => false,
            Awaits::NextIsYieldFrom { unit } => self.next_is_yield_from(code, instr, unit)?,
            Awaits::BeforeResume(opcodes) => {
                Some(state) == fields.suspended && self.is_before_resume(instr, opcodes)?
            }
            Awaits::State { .. } => {
                [fields.awaiting, fields.awaiting_locked].contains(&Some(state))
            }
        };
        let below = match self.awaits {
            Awaits::State { below } => below,
            Awaits::NextIsYieldFrom { .. } | Awaits::BeforeResume(_) => 1,
        };
        let end = match (fields.stack_top, fields.stack_depth) {
            (Some(top), _) => Some(RemoteAddr(word(top))),
            (None, Some(depth)) => {
                let depth = u64::from(int(depth));
                let values = match (fields.value_stack, fields.localsplus) {
                    (Some(values), _) => Some(RemoteAddr(word(values))),
                    (None, Some(locals)) => Some(frame.plus(locals.into())),
                    (None, None) => None,
                };
                let values = values.filter(|_| (1..MAX_VALUES).contains(&depth));
                values.map(|values| values.plus(8 * depth))
            }
            (None, None) => None,
        };
        let awaits = match end.filter(|end| awaits && end.0 != 0) {
            Some(end) => {
                let value = RemoteAddr(end.0.wrapping_sub(8 * below));
                Some(RemoteAddr(self.memory.u64(value)? & !FLAGS)).filter(|it| it.0 != 0)
            }
            None => None,
        };
        Ok(Step {
            frame: Some(RawFrame { code, instr }),
            runs,
            awaits,
        })
    }

    /// Whether the state is that of a frame which has not begun: the number before the first one
    /// of those that wait.
    fn is_new(&self, state: u32) -> bool {
        let suspended = self.layout.generator.suspended;
        suspended.is_some_and(|suspended| state == suspended.wrapping_sub(1) & 0xFF)
    }

    fn next_is_yield_from(&self, code: u64, instr: u64, unit: u64) -> Result<bool, ObjectError> {
        let (Some(bytecode), 0..0x1000_0000) = (self.layout.code.bytecode, instr) else {
            return Ok(false);
        };
        let bytecode = self
            .memory
            .pointer(RemoteAddr(code).plus(bytecode.into()))?;
        let next = instr * unit + 2;
        let size = self
            .memory
            .u64(bytecode.plus(self.layout.bytes.size.into()))?;
        if next >= size {
            return Ok(false);
        }
        let mut opcode = [0];
        let at = bytecode.plus(u64::from(self.layout.bytes.data) + next);
        self.memory.read(at, &mut opcode)?;
        Ok(opcode == [YIELD_FROM])
    }

    fn is_before_resume(&self, instr: u64, opcodes: [u8; 2]) -> Result<bool, ObjectError> {
        let mut unit = [0; 2];
        self.memory.read(RemoteAddr(instr).plus(2), &mut unit)?;
        let [opcode, argument] = unit;
        Ok(opcodes.contains(&opcode) && argument >= RESUME_AFTER_YIELD_FROM)
    }
}
