//! Births and deaths in the targets, sent at once: identity hangs on them.

use aya_ebpf::{helpers, programs::BtfTracePointContext};
use aya_log_ebpf::debug;
use profiler_common::plan::PLAN_NO_PYTHON;
use profiler_common::record::{KIND_EXEC, KIND_EXIT, KIND_FORK, KIND_GONE, LifeRecord, RecordHead};

use crate::{
    maps::{self, ACCOUNTS, PLANS},
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
    maps::send_life(&LifeRecord {
        head,
        parent_tgid,
        _pad: 0,
        on_cpu_ns: 0,
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
    if old != tgid
        && let Some(account) = ACCOUNTS.get_ptr(&old)
    {
        // SAFETY: the thread is here, so no switch of it runs.
        let account = unsafe { *account };
        let _ = ACCOUNTS.insert(&tgid, &account, 0);
        let _ = ACCOUNTS.remove(&old);
    }
    if let Some(plan) = PLANS.get_ptr_mut(&tgid) {
        // SAFETY: only this one thread of the process is left at an exec; a tick sees either
        // value.
        unsafe { (*plan).flags |= PLAN_NO_PYTHON };
    }
    maps::send_life(&LifeRecord {
        head: head(KIND_EXEC, task),
        parent_tgid: tgid,
        _pad: 0,
        on_cpu_ns: 0,
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
    let on_cpu_ns = ACCOUNTS.get_ptr(&head.tid).map_or(0, |account| {
        // SAFETY: the thread is here, so no switch of it runs; user space only reads.
        switch::on_cpu_until(unsafe { &*account }, head.time_ns)
    });
    if head.tid == tgid {
        debug!(ctx, "main thread of target {} ends", tgid);
    }
    maps::send_life(&LifeRecord {
        head,
        parent_tgid: tgid,
        _pad: 0,
        on_cpu_ns,
    });
}

/// A thread of a target has left its CPU for the last time, with this account.
#[inline(always)]
pub fn gone(tgid: u32, tid: u32, now: u64, on_cpu_ns: u64) {
    let head = RecordHead {
        kind: KIND_GONE,
        bytes: size_of::<LifeRecord>() as u32,
        time_ns: now,
        tgid,
        tid,
    };
    maps::send_life(&LifeRecord {
        head,
        parent_tgid: tgid,
        _pad: 0,
        on_cpu_ns,
    });
}
