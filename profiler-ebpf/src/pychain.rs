//! The Python frame chain of the thread that the tick interrupted, read in place.
//!
//! The thread cannot move while the interrupt holds its CPU, so what is read here is what was.
//! The walk itself is `profiler_common::walk`; this is its reader.

use aya_ebpf::helpers;
use profiler_common::{
    plan::Plan,
    walk::{
        self, BLOCK_BYTES, Block, Chain, MAX_FRAMES, MAX_GENERATORS, MAX_WALK, RawFrame,
        RawGenerator, Reader, Walked,
    },
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
/// # Safety
/// `scratch` is this CPU's scratch memory. It is a raw pointer because the steps reach the same
/// memory by their own way, which a reference would deny.
#[inline(always)]
pub unsafe fn walk(plan: &Plan, scratch: *mut Scratch) -> Walked {
    // SAFETY: as the caller promises; the borrow ends here.
    let first = walk::first_frame(&mut CurrentMemory, &plan.walk, unsafe { &(*scratch).block });
    let first = match first {
        Ok(first) => first,
        Err(end) => return Walked::nothing(end),
    };
    // SAFETY: as above.
    unsafe { (*scratch).chain = Chain::start(&plan.walk, first) };
    let mut strides = 0;
    while strides < MAX_WALK / STRIDE && walk_stride() == 0 {
        strides += 1;
    }
    // SAFETY: as above.
    unsafe { (*scratch).chain.walked() }
}

/// Steps of a stride.
const STRIDE: u32 = 64;
const _: () = assert!(MAX_WALK.is_multiple_of(STRIDE));

/// Some steps; 1 when the walk is over.
///
/// The verifier looks at a function that is visible from outside once and by itself, not again at
/// each call (Linux 5.6). So it follows two short loops around one step, and a walk of thousands of
/// frames is no harder for it than one of a few. Such a function takes nothing but numbers.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn walk_stride() -> u32 {
    let mut steps = 0;
    while steps < STRIDE {
        if walk_step() != 0 {
            return 1;
        }
        steps += 1;
    }
    0
}

/// One step; 1 when the walk is over. It looks the scratch memory up, which costs next to nothing.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn walk_step() -> u32 {
    let Some(scratch) = SCRATCH.get_ptr_mut(0) else {
        return 1;
    };
    // SAFETY: the CPU's own scratch memory; the tick that called holds no reference into it.
    let scratch = unsafe { &mut *scratch };
    let goes_on = scratch.chain.step(
        &mut CurrentMemory,
        &mut scratch.block,
        &mut scratch.frames,
        &mut scratch.generators,
    );
    u32::from(!goes_on)
}

const _: () = assert!(size_of::<RawFrame>() == size_of::<RawGenerator>());

/// Put the first `generators` of the scratch memory behind its first `frames` frames, where the
/// record has them; how many it put there. For the verifier, a function by itself like the walk's.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn put_generators(frames: u64, generators: u64) -> u64 {
    let Some(scratch) = SCRATCH.get_ptr_mut(0) else {
        return 0;
    };
    if frames > MAX_FRAMES as u64 {
        return 0;
    }
    // SAFETY: the CPU's own scratch memory; what is behind all the frames has room for all the
    // generators, so behind fewer of them there is no less.
    unsafe {
        let from = (&raw const (*scratch).generators).cast::<RawGenerator>();
        let to = (&raw mut (*scratch).frames).cast::<RawGenerator>();
        let to = to.add(frames as usize);
        let mut put = 0;
        while put < MAX_GENERATORS as u64 && put < generators {
            *to.add(put as usize) = *from.add(put as usize);
            put += 1;
        }
        put
    }
}
