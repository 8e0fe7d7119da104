//! Births and deaths in the targets, sent at once: identity hangs on them.

use aya_ebpf::{helpers, programs::BtfTracePointContext};
use aya_log_ebpf::debug;
use profiler_common::offsets::LOOK_OFF_CPU;
use profiler_common::plan::PLAN_NO_PYTHON;
use profiler_common::record::{KIND_EXEC, KIND_EXIT, KIND_FORK, KIND_GONE, LifeRecord, RecordHead};

use crate::{
    accounts::{self, Opening, Place, get},
    maps::{self, PLANS, SETTINGS},
    switch,
    task::Task,
};

#[inline(always)]
fn is_target(tgid: u32) -> bool {
    PLANS.get_ptr(&tgid).is_some()
}

#[inline(always)]
fn head(kind: u32, task: Task) -> RecordHead {
    RecordHead {
        kind,
        bytes: size_of::<LifeRecord>() as u32,
        // SAFETY: a helper without arguments.
        time_ns: unsafe { helpers::bpf_ktime_get_ns() },
        tgid: task.tgid(),
        tid: task.tid(),
    }
}

/// A target got a thread, or a child process.
#[inline(always)]
pub fn fork(ctx: &BtfTracePointContext) {
    let parent = Task::from_argument(ctx.arg(0));
    let parent_tgid = parent.tgid();
    if !is_target(parent_tgid) {
        return;
    }
    let head = head(KIND_FORK, Task::from_argument(ctx.arg(1)));
    if SETTINGS.load().flags & LOOK_OFF_CPU != 0 && head.tgid == parent_tgid {
        // It waits for its first CPU.
        let opening = Opening {
            tgid: head.tgid,
            tid: head.tid,
            since: head.time_ns,
            off_state: Some(0),
        };
        accounts::open(opening, |_| ());
    }
    maps::send_life(&LifeRecord {
        head,
        parent_tgid,
        ..LifeRecord::default()
    });
}

/// A target runs another program from now on: what was known of its interpreter is void.
#[inline(always)]
pub fn exec(ctx: &BtfTracePointContext) {
    let task = Task::from_argument(ctx.arg(0));
    let tgid = task.tgid();
    if !is_target(tgid) {
        return;
    }
    debug!(ctx, "target {} replaced its program", tgid);
    // A thread that was not the first becomes it: same thread, another id, same account.
    let old = ctx.arg::<u64>(1) as u32;
    if old != tgid {
        accounts::rename(old, tgid);
    }
    if let Some(plan) = PLANS.get_ptr_mut(&tgid) {
        // SAFETY: only this one thread of the process is left at an exec; a tick sees either
        // value.
        unsafe { (*plan).flags |= PLAN_NO_PYTHON };
    }
    maps::send_life(&LifeRecord {
        head: head(KIND_EXEC, task),
        parent_tgid: tgid,
        ..LifeRecord::default()
    });
}

/// A thread of a target begins to end.
#[inline(always)]
pub fn exit(ctx: &BtfTracePointContext) {
    let task = Task::from_argument(ctx.arg(0));
    let tgid = task.tgid();
    if !is_target(tgid) {
        return;
    }
    let head = head(KIND_EXIT, task);
    if head.tid == tgid {
        debug!(ctx, "main thread of target {} ends", tgid);
    }
    maps::send_life(&ended(head, accounts::find(head.tid)));
}

/// A thread of a target has left its CPU for the last time, with this account.
#[inline(always)]
pub fn gone(tgid: u32, tid: u32, now: u64, place: Place) {
    let head = RecordHead {
        kind: KIND_GONE,
        bytes: size_of::<LifeRecord>() as u32,
        time_ns: now,
        tgid,
        tid,
    };
    maps::send_life(&ended(head, Some(place)));
}

/// The record of an end, with the account so far.
#[inline(always)]
fn ended(head: RecordHead, place: Option<Place>) -> LifeRecord {
    let mut record = LifeRecord {
        head,
        parent_tgid: head.tgid,
        ..LifeRecord::default()
    };
    if let Some(place) = place {
        record.on_cpu_ns = switch::on_cpu_until(place, head.time_ns);
        record.runnable_ns = get!(place, runnable_ns);
        record.blocked_ns = get!(place, blocked_ns);
    }
    record
}
