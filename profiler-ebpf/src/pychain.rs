//! The Python frame chain of the thread that the tick interrupted, read in place.
//!
//! The thread cannot move while the interrupt holds its CPU, so what is read here is what was.
//! The walk itself is `profiler_common::walk`; this is its reader.

use core::ffi::c_void;

use aya_ebpf::helpers;
use profiler_common::{
    plan::Plan,
    walk::{self, BLOCK_BYTES, Block, Chain, MAX_WALK, MAX_WALK_UNROLLED, Reader, Walked},
};

use crate::maps::{SCRATCH, Scratch};

/// The user memory of the running task. Pages that are not resident fail.
pub struct CurrentMemory;

impl Reader for CurrentMemory {
    #[inline(always)]
    fn block(&mut self, addr: u64, bytes: u32, block: &mut Block) -> bool {
        if bytes == 0 || bytes > BLOCK_BYTES {
            return false;
        }
        // SAFETY: `bytes` is within the block; the helper checks the address and fails cleanly.
        unsafe {
            helpers::generated::bpf_probe_read_user(
                core::ptr::from_mut(block).cast(),
                bytes,
                addr as *const _,
            ) == 0
        }
    }

    #[inline(always)]
    fn word(&mut self, addr: u64) -> Option<u64> {
        // SAFETY: the helper checks the address and fails cleanly.
        unsafe { helpers::bpf_probe_read_user(addr as *const u64) }.ok()
    }
}

/// Walk from the thread state in `scratch.block` into `scratch.frames`.
///
/// `LOOPS` says that the kernel has `bpf_loop`, which lets the verifier look at one step instead
/// of at each of them.
///
/// # Safety
/// `scratch` is this CPU's scratch memory. It is a raw pointer because the loop's callback reaches
/// the same memory by its own way, which a reference would deny.
#[inline(always)]
pub unsafe fn walk<const LOOPS: bool>(plan: &Plan, scratch: *mut Scratch) -> Walked {
    // SAFETY: as the caller promises; the borrow ends here.
    let first = walk::first_frame(&mut CurrentMemory, &plan.walk, unsafe { &(*scratch).block });
    let first = match first {
        Ok(first) => first,
        Err(end) => return Walked::nothing(end),
    };
    // SAFETY: as above.
    unsafe { (*scratch).chain = Chain::start(&plan.walk, first) };
    if LOOPS {
        // SAFETY: the callback has the signature that the helper expects and uses no context.
        unsafe {
            helpers::generated::bpf_loop(MAX_WALK, step as *mut c_void, core::ptr::null_mut(), 0);
        }
    } else {
        let mut steps = 0;
        // SAFETY: as above.
        while steps < MAX_WALK_UNROLLED && step_of(unsafe { &mut *scratch }) {
            steps += 1;
        }
    }
    // SAFETY: as above.
    unsafe { (*scratch).chain.walked() }
}

#[inline(always)]
fn step_of(scratch: &mut Scratch) -> bool {
    scratch
        .chain
        .step(&mut CurrentMemory, &mut scratch.block, &mut scratch.frames)
}

/// One step for `bpf_loop`: 0 goes on, 1 stops. It looks the scratch memory up again, which costs
/// next to nothing and leaves the verifier no pointer to follow through the loop.
extern "C" fn step(_index: u32, _context: *mut c_void) -> i64 {
    let Some(scratch) = SCRATCH.get_ptr_mut(0) else {
        return 1;
    };
    // SAFETY: the CPU's own scratch memory; the tick that called holds no reference into it.
    i64::from(!step_of(unsafe { &mut *scratch }))
}
