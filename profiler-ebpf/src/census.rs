//! The threads that a target has when it becomes one: an account for each of them, also for those
//! that will never run while they are watched.
//!
//! Whoever has no account yet was not switched since the plan was set, so a thread found off the
//! CPU has been off since then, and one found on a CPU has been on it.

use core::ffi::c_void;

use profiler_common::offsets::LOOK_OFF_CPU;

use crate::{
    accounts::{self, Opening, set},
    maps::{PLANS, SETTINGS},
    switch,
    task::Task,
};

/// `struct bpf_iter__task` of the kernel: what the program gets for each task, null at the end.
#[repr(C)]
pub struct Context {
    _meta: *mut c_void,
    /// Not of its own type: in the object's BTF that would be there twice, in an order of chance.
    task: *mut c_void,
}

/// Entry: one task of the system.
#[inline(always)]
pub fn visit(context: *mut Context) {
    // SAFETY: the kernel hands a context of this shape.
    let task = unsafe { (*context).task };
    if task.is_null() || SETTINGS.load().flags & LOOK_OFF_CPU == 0 {
        return;
    }
    let task = Task::from_argument(task.cast());
    let tgid = task.tgid();
    // SAFETY: see `tick::tick`.
    let Some(plan) = (unsafe { PLANS.get(&tgid) }) else {
        return;
    };
    let tid = task.tid();
    let off_state = if task.is_on_cpu() {
        None
    } else {
        Some(task.state())
    };
    if accounts::slot_of(task, tgid, tid).is_some() {
        return;
    }
    let opening = Opening {
        tgid,
        tid,
        since: plan.since_ns,
        off_state,
    };
    accounts::open(task, opening, |place| {
        set!(place, tls_base, task.tls_base());
        if off_state.is_some() {
            switch::waits(place, task);
        }
    });
}
