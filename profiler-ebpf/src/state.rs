//! Which Python thread state is this thread's: the strongest answer that proves itself.
//!
//! A state counts as this thread's only when its own `thread_id` equals the TLS base, whatever
//! road led to it. The block then still holds the state for the walk.

use profiler_common::{
    plan::{GIL_BY_HOLDER, GIL_BY_WORD, MAX_HOPS, NO_FIELD, Plan, StateKey},
    record::{
        FLAG_EXCEPTION_HANDLED, FLAG_EXCEPTION_KNOWN, FLAG_GC_KNOWN, FLAG_GC_RUNNING,
        FLAG_GIL_HELD, FLAG_GIL_KNOWN, FLAG_GIL_WANTED, FLAG_STATE_FROM_HOLDER,
        FLAG_STATE_FROM_MAP, FLAG_STATE_FROM_TLS,
    },
    walk::{Block, Reader},
};

use crate::{maps::STATES, pychain::CurrentMemory};

/// A thread state and how it was found.
pub struct Found {
    pub addr: u64,
    pub flags: u32,
}

/// Find the state of the thread with this TLS base; `block` holds it afterwards.
#[inline(always)]
pub fn find(plan: &Plan, tgid: u32, tls_base: u64, block: &mut Block) -> Option<Found> {
    if tls_base == 0 {
        return None;
    }
    if let Some(addr) = from_tls(plan, tls_base)
        && is_of(plan, addr, tls_base, block)
    {
        return Some(Found {
            addr,
            flags: FLAG_STATE_FROM_TLS,
        });
    }
    if plan.state.holder_addr != 0
        && let Some(addr) = CurrentMemory.word(plan.state.holder_addr)
        && is_of(plan, addr, tls_base, block)
    {
        return Some(Found {
            addr,
            flags: FLAG_STATE_FROM_HOLDER,
        });
    }
    let key = StateKey {
        tgid,
        _pad: 0,
        tls_base,
    };
    // SAFETY: the value is copied at once; user space replaces whole values.
    let addr = unsafe { STATES.get(&key) }.copied()?;
    is_of(plan, addr, tls_base, block).then_some(Found {
        addr,
        flags: FLAG_STATE_FROM_MAP,
    })
}

/// Follow the hops from the TLS base.
#[inline(always)]
fn from_tls(plan: &Plan, tls_base: u64) -> Option<u64> {
    if plan.state.n_hops == 0 {
        return None;
    }
    let mut at = tls_base;
    let mut hop = 0;
    while hop < MAX_HOPS {
        if hop as u32 >= plan.state.n_hops {
            break;
        }
        at = CurrentMemory.word(at.wrapping_add(plan.state.hops[hop] as u64))?;
        hop += 1;
    }
    Some(at)
}

/// Read the state and check that it names this thread.
#[inline(always)]
fn is_of(plan: &Plan, addr: u64, tls_base: u64, block: &mut Block) -> bool {
    addr != 0
        && CurrentMemory.block(addr, plan.state.state_bytes, block)
        && block.u64(plan.state.thread_id) == tls_base
}

/// Whether the thread handles an exception: the newest entry that has one says so. Entries are as
/// many as generators run inside each other; beyond a few, it is not known.
#[inline(always)]
fn exception(plan: &Plan, block: &Block) -> u32 {
    const ENTRIES: usize = 4;
    if plan.flag.exc_info == NO_FIELD {
        return 0;
    }
    let mut entry = block.u64(plan.flag.exc_info);
    let mut looked = 0;
    while looked < ENTRIES {
        if entry == 0 {
            return FLAG_EXCEPTION_KNOWN;
        }
        let value = entry.wrapping_add(u64::from(plan.flag.exc_value));
        let Some(value) = CurrentMemory.word(value) else {
            return 0;
        };
        if value != 0 && value != plan.flag.none_addr {
            return FLAG_EXCEPTION_KNOWN | FLAG_EXCEPTION_HANDLED;
        }
        let previous = entry.wrapping_add(u64::from(plan.flag.exc_previous));
        let Some(previous) = CurrentMemory.word(previous) else {
            return 0;
        };
        entry = previous;
        looked += 1;
    }
    0
}

/// What the state, still in `block`, and the runtime say of the GIL and the collector.
#[inline(always)]
pub fn flags(plan: &Plan, addr: u64, block: &Block) -> u32 {
    let mut flags = 0;
    match plan.flag.gil {
        GIL_BY_HOLDER => {
            if let Some(holder) = CurrentMemory.word(plan.state.holder_addr) {
                flags |= FLAG_GIL_KNOWN;
                if holder == addr {
                    flags |= FLAG_GIL_HELD;
                }
            }
        }
        GIL_BY_WORD => {
            flags |= FLAG_GIL_KNOWN;
            if block.u32(plan.flag.gil_word) & plan.flag.gil_mask != 0 {
                flags |= FLAG_GIL_HELD;
            }
        }
        _ => {}
    }
    flags |= exception(plan, block);
    if plan.flag.gil_wanted != NO_FIELD && block.u32(plan.flag.gil_wanted) != 0 {
        flags |= FLAG_GIL_WANTED;
    }
    let interp = block.u64(plan.state.interp);
    let collecting = if plan.flag.gc_addr != 0 {
        plan.flag.gc_addr
    } else if plan.flag.gc_in_interp != NO_FIELD {
        interp.wrapping_add(u64::from(plan.flag.gc_in_interp))
    } else {
        return flags;
    };
    let Some(word) = CurrentMemory.word(collecting) else {
        return flags;
    };
    if word as u32 == 0 {
        return flags | FLAG_GC_KNOWN;
    }
    // Without a GIL others run beside the collector, but for while it has stopped them: then it
    // is the one that did, and else it cannot be told.
    let stopper = plan.flag.world_stopper;
    let here = stopper == NO_FIELD
        || CurrentMemory.word(interp.wrapping_add(u64::from(stopper))) == Some(addr);
    if here {
        flags |= FLAG_GC_KNOWN | FLAG_GC_RUNNING;
    }
    flags
}
