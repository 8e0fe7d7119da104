//! What the kernel programs and the user-space walk need to know about one runtime, as numbers.
//!
//! Not here: anything about names or objects.

use profiler_common::plan::{
    FlagPlan, GENERATORS_AROUND, GENERATORS_NONE, GENERATORS_POINTED, GIL_BY_HOLDER, GIL_BY_WORD,
    GIL_UNKNOWN, MAX_HOPS, NO_FIELD, PLAN_GENERATORS, PLAN_INTO_C, PLAN_NO_PYTHON, Plan, StatePlan,
    WalkPlan,
};
use profiler_common::walk::{BLOCK_BYTES, MAX_FRAMES};

use super::find::Libc;
use super::layout::Layout;
use super::runtime::Runtime;
use super::version::{Build, Version};
use crate::target::Memory;
use crate::words::MonotonicNs;

/// What the caller decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// When the process became a target.
    pub since: MonotonicNs,
    /// The `PLAN_` bits.
    pub flags: u32,
    /// Keep at most this many frames of a stack.
    pub max_frames: u32,
}

/// The plan for a process in which no interpreter runs (yet).
#[must_use]
pub const fn plan_without_python(wishes: Wishes) -> Plan {
    Plan {
        since_ns: wishes.since.0,
        owner: 0,
        flags: wishes.flags | PLAN_NO_PYTHON,
        _pad: 0,
        walk: WalkPlan {
            first_frame: 0,
            cframe_current: NO_FIELD,
            cframe_previous: NO_FIELD,
            frame_entry: NO_FIELD,
            frame_bytes: 8,
            frame_code: 0,
            frame_previous: 0,
            frame_instr: 0,
            instr_bytes: 8,
            frame_owner: NO_FIELD,
            shim_owner: NO_FIELD,
            max_frames: wishes.max_frames,
            code_mask: u64::MAX,
            generators: GENERATORS_NONE,
            generator: 0,
            generator_owner: 0,
            into_c: 0,
        },
        state: StatePlan {
            hops: [0; MAX_HOPS],
            n_hops: 0,
            state_bytes: 8,
            thread_id: 0,
            interp: 0,
            holder_addr: 0,
        },
        flag: FlagPlan {
            gil: GIL_UNKNOWN,
            gil_word: NO_FIELD,
            gil_mask: 0,
            gil_wanted: NO_FIELD,
            gc_in_interp: NO_FIELD,
            world_stopper: NO_FIELD,
            gc_addr: 0,
            exc_info: NO_FIELD,
            exc_value: 0,
            exc_previous: 0,
            _pad: 0,
            none_addr: 0,
        },
    }
}

/// The plan for a runtime; none when its own table puts a field where one read does not reach.
#[must_use]
pub fn plan(runtime: &Runtime, memory: &dyn Memory, wishes: Wishes) -> Option<Plan> {
    let walk = walk_plan(runtime.layout(), runtime.version(), wishes)?;
    let flag = flag_plan(runtime, memory);
    let state = state_plan(runtime, memory, &walk, &flag)?;
    Some(Plan {
        since_ns: wishes.since.0,
        owner: 0,
        flags: wishes.flags,
        _pad: 0,
        walk,
        state,
        flag,
    })
}

/// A plan for walks from user space alone, which begin at a frame and note the root.
#[must_use]
pub fn plan_of_frames(layout: &Layout, version: Version) -> Option<Plan> {
    let wishes = Wishes {
        since: MonotonicNs(0),
        flags: PLAN_GENERATORS,
        max_frames: MAX_FRAMES as u32,
    };
    Some(Plan {
        walk: walk_plan(layout, version, wishes)?,
        ..plan_without_python(wishes)
    })
}

/// Bytes, a multiple of 8, that reach over fields at these offsets; none beyond a block.
fn reach(offsets: &[u32]) -> Option<u32> {
    let last = offsets.iter().filter(|offset| **offset != NO_FIELD).max()?;
    let bytes = (last & !7).checked_add(8)?;
    (bytes <= BLOCK_BYTES).then_some(bytes)
}

pub(crate) fn walk_plan(layout: &Layout, version: Version, wishes: Wishes) -> Option<WalkPlan> {
    let fields = &layout.frame;
    let owner = fields.owner.unwrap_or(NO_FIELD);
    let entry = fields.entry.unwrap_or(NO_FIELD);
    let (generators, generator) = generator_plan(layout, wishes);
    let pointed = if generators == GENERATORS_POINTED {
        generator
    } else {
        NO_FIELD
    };
    let words = [fields.code, fields.previous, pointed];
    if words.iter().any(|o| *o != NO_FIELD && o % 8 != 0) {
        return None;
    }
    Some(WalkPlan {
        first_frame: layout.tstate.first_frame,
        cframe_current: fields.cframe_current.unwrap_or(NO_FIELD),
        cframe_previous: fields.cframe_previous.unwrap_or(NO_FIELD),
        frame_entry: entry,
        frame_bytes: reach(&[
            fields.code,
            fields.previous,
            fields.instr,
            owner,
            entry,
            pointed,
        ])?,
        frame_code: fields.code,
        frame_previous: fields.previous,
        frame_instr: fields.instr,
        instr_bytes: if fields.owner.is_some() { 8 } else { 4 },
        frame_owner: owner,
        shim_owner: fields.shim_owner.unwrap_or(NO_FIELD),
        max_frames: wishes.max_frames,
        // From 3.14 on `f_executable` is a tagged reference, whose low two bits are flags.
        code_mask: if version.is_at_least(14) {
            !3
        } else {
            u64::MAX
        },
        generators,
        generator,
        generator_owner: fields.generator_owner.unwrap_or(0),
        // To 3.10 every frame is a C frame of its own.
        into_c: u32::from(wishes.flags & PLAN_INTO_C != 0 && fields.owner.is_some()),
    })
}

/// How a walk is to tell generators, if it is asked to, and at which offset.
fn generator_plan(layout: &Layout, wishes: Wishes) -> (u32, u32) {
    if wishes.flags & PLAN_GENERATORS == 0 {
        return (GENERATORS_NONE, 0);
    }
    match layout.frame.generator {
        Some(generator) => (GENERATORS_POINTED, generator),
        None => (GENERATORS_AROUND, layout.generator.frame),
    }
}

fn flag_plan(runtime: &Runtime, memory: &dyn Memory) -> FlagPlan {
    let layout = runtime.layout();
    let fields = &layout.tstate;
    let status_mask = fields.status_holds_gil_mask.or(fields.status_active_mask);
    let (gil, gil_word, gil_mask) = if runtime.holder_addr().is_some() {
        (GIL_BY_HOLDER, NO_FIELD, 0)
    } else if let Some(holds_gil) = fields.holds_gil {
        (GIL_BY_WORD, holds_gil, u32::MAX)
    } else if let (Some(status), Some(mask)) = (fields.status, status_mask) {
        (GIL_BY_WORD, status, mask)
    } else {
        (GIL_UNKNOWN, NO_FIELD, 0)
    };
    let in_runtime = layout.runtime.gc_collecting;
    let gc_addr = in_runtime.map(|offset| runtime.found().runtime.plus(offset.into()).0);
    // Beyond a block the kernel does not read a thread state.
    let handling = runtime.handling_plan(memory);
    let handling = handling.filter(|plan| reach(&[plan.newest]).is_some());
    FlagPlan {
        gil,
        gil_word,
        gil_mask,
        gil_wanted: fields.gil_requested.unwrap_or(NO_FIELD),
        gc_in_interp: layout.interp.gc_collecting.unwrap_or(NO_FIELD),
        world_stopper: match runtime.build() {
            Build::Default => NO_FIELD,
            Build::FreeThreaded => layout.interp.world_stopper.unwrap_or(NO_FIELD),
        },
        gc_addr: gc_addr.unwrap_or(0),
        exc_info: handling.map_or(NO_FIELD, |plan| plan.newest),
        exc_value: handling.map_or(0, |plan| plan.value),
        exc_previous: handling.map_or(0, |plan| plan.previous),
        _pad: 0,
        none_addr: handling.map_or(0, |plan| plan.none.0),
    }
}

fn state_plan(
    runtime: &Runtime,
    memory: &dyn Memory,
    walk: &WalkPlan,
    flag: &FlagPlan,
) -> Option<StatePlan> {
    let fields = &runtime.layout().tstate;
    let hops = hops(runtime, memory);
    let mut padded = [0; MAX_HOPS];
    padded[..hops.len()].copy_from_slice(&hops);
    Some(StatePlan {
        hops: padded,
        n_hops: hops.len() as u32,
        state_bytes: reach(&[
            walk.first_frame,
            fields.thread_id,
            fields.interp,
            flag.gil_word,
            flag.gil_wanted,
            flag.exc_info,
        ])?,
        thread_id: fields.thread_id,
        interp: fields.interp,
        holder_addr: runtime.holder_addr().map_or(0, |addr| addr.0),
    })
}

/// From a thread's TLS base to its thread state; empty when there is no known way.
///
/// To 3.14 the way is the pthread key that `PyGILState` uses, in the thread's control block:
/// glibc keeps 32 keys of 16 bytes at 0x310 (`struct pthread.specific_1stblock`, key's value at
/// +8) and the blocks of further ones by pointers from 0x510; musl an array behind a pointer
/// at 0x80 (`struct pthread.tsd`). 3.15 has a thread-local variable in place of the key.
pub(super) fn hops(runtime: &Runtime, memory: &dyn Memory) -> Vec<i64> {
    let layout = runtime.layout();
    let Some(key) = layout.runtime.auto_tss_key else {
        let hops = &runtime.found().gilstate_hops;
        return hops.iter().copied().take(MAX_HOPS).collect();
    };
    let place = runtime.found().runtime.plus(key.into());
    let made = memory.u32(place.plus(layout.tss.initialized.into()));
    let key = memory.u32(place.plus(layout.tss.key.into()));
    let (Ok(1..), Ok(key @ 0..1024)) = (made, key) else {
        return Vec::new();
    };
    let key = i64::from(key);
    match runtime.found().libc {
        Libc::Musl => vec![0x80, 8 * key],
        Libc::Glibc if key < 32 => vec![0x310 + 16 * key + 8],
        Libc::Glibc => vec![0x510 + 8 * (key / 32), 16 * (key % 32) + 8],
    }
}

#[cfg(test)]
mod tests;
