//! Where a thread's frame chain begins.

use crate::{
    block::{Block, Reader},
    plan::{NO_FIELD, WalkPlan},
    walk::{END_NO_FRAME, END_UNREADABLE},
};

/// Where a walk begins.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct First {
    /// The first frame.
    pub frame: u64,
    /// The frame that called into C, from which the first run of frames was entered.
    pub caller: u64,
    /// 1 when `frame` is to be believed only if its run of frames leads to `caller`.
    pub unproven: u32,
    /// Padding, zero.
    pub _pad: u32,
    /// The `_PyCFrame` from which `frame` was read, and the one before; 0 if there are none.
    pub cframes: [u64; 2],
}

/// The first frame of a thread, from its state.
///
/// 3.11 and 3.12 keep it in a `_PyCFrame` on the C stack, and for some instructions at each call
/// from C into Python that structure is already the thread's and not yet filled in
/// (`_PyEval_EvalFrameDefault` sets `tstate->cframe` before `cframe.current_frame`): what stands
/// there is stale. So the run of frames that begins there is proven by where it ends: it was
/// entered from the frame that the C frame before knows, which is also where the interpreter
/// itself still is in those instructions.
///
/// # Errors
/// An `END_` constant: there is no frame, or the hop over `_PyCFrame` could not be read.
#[inline(always)]
pub fn first_frame<R: Reader>(
    reader: &mut R,
    plan: &WalkPlan,
    state: &Block,
) -> Result<First, u32> {
    let first = state.u64(plan.first_frame);
    if first == 0 {
        return Err(END_NO_FRAME);
    }
    if plan.cframe_current == NO_FIELD {
        return Ok(First {
            frame: first,
            caller: 0,
            unproven: 0,
            _pad: 0,
            cframes: [0; 2],
        });
    }
    let current = u64::from(plan.cframe_current);
    let Some(frame) = reader.word(first.wrapping_add(current)) else {
        return Err(END_UNREADABLE);
    };
    let previous = reader.word(first.wrapping_add(u64::from(plan.cframe_previous)));
    let (caller, unproven) = match previous {
        None => return Err(END_UNREADABLE),
        // The first one of all is part of the thread state and not filled in by the evaluator.
        Some(0) => (0, 0),
        Some(previous) => match reader.word(previous.wrapping_add(current)) {
            None => return Err(END_UNREADABLE),
            Some(caller) => (caller, 1),
        },
    };
    if frame == 0 && unproven == 0 {
        return Err(END_NO_FRAME);
    }
    Ok(First {
        frame,
        caller,
        unproven,
        _pad: 0,
        cframes: [first, previous.unwrap_or(0)],
    })
}
