//! Births and deaths in the targets, sent at once: identity hangs on them.
//!
//! A child that is followed is a target before it first runs: a fork keeps every address, so the
//! parent's plan is right for it until it replaces its program.

use aya_ebpf::{helpers, programs::BtfTracePointContext};
use aya_log_ebpf::debug;
use profiler_common::offsets::LOOK_OFF_CPU;
use profiler_common::plan::{PLAN_FOLLOW, PLAN_NO_PYTHON, Plan, StateKey};
use profiler_common::record::{
    KIND_EXEC, KIND_EXIT, KIND_FORK, KIND_GONE, LIFE_FOLLOWED, LIFE_LAST, LIFE_REPLACED,
    LifeRecord, RecordHead,
};

use crate::{
    accounts::{self, Opening, Place, get, set},
    maps::{self, PLANS, SETTINGS, STATES},
    switch,
    task::Task,
};

#[inline(always)]
fn is_target(tgid: u32) -> bool {
    PLANS.get_ptr(&tgid).is_some()
}

#[inline(always)]
fn head(kind: u32, tgid: u32, tid: u32) -> RecordHead {
    RecordHead {
        kind,
        bytes: size_of::<LifeRecord>() as u32,
        // SAFETY: a helper without arguments.
        time_ns: unsafe { helpers::bpf_ktime_get_ns() },
        tgid,
        tid,
    }
}

/// A target got a thread, or a child process.
#[inline(always)]
pub fn fork(ctx: &BtfTracePointContext) {
    let parent = Task::from_argument(ctx.arg(0));
    let child = Task::from_argument(ctx.arg(1));
    let parent_tgid = parent.tgid();
    // SAFETY: see `tick::tick`.
    let plan = unsafe { PLANS.get(&parent_tgid) };
    let tgid = child.tgid();
    let is_thread = tgid == parent_tgid;
    if !is_thread && is_target(tgid) {
        // Whoever had this id is over, though nobody has said so.
        let _ = PLANS.remove(&tgid);
    }
    let Some(plan) = plan else {
        return;
    };
    if !is_thread && (plan.flags & PLAN_FOLLOW == 0 || tgid == 0) {
        return;
    }
    let head = head(KIND_FORK, tgid, child.tid());
    if !is_thread && !follow(plan, parent, parent_tgid, child, &head) {
        return;
    }
    if SETTINGS.load().flags & LOOK_OFF_CPU != 0 {
        // It waits for its first CPU.
        let opening = Opening {
            tgid,
            tid: head.tid,
            since: head.time_ns,
            off_state: Some(0),
        };
        accounts::open(child, opening, |_| ());
    }
    maps::send_life(&LifeRecord {
        head,
        parent_tgid,
        flags: if is_thread { 0 } else { LIFE_FOLLOWED },
        ..LifeRecord::default()
    });
}

/// Make a child a target; it does not run yet.
#[inline(always)]
fn follow(plan: &Plan, parent: Task, parent_tgid: u32, child: Task, head: &RecordHead) -> bool {
    if PLANS.insert(&head.tgid, plan, 0).is_err() {
        if let Some(counters) = maps::counters() {
            counters.plans_full += 1;
        }
        return false;
    }
    let Some(own) = PLANS.get_ptr_mut(&head.tgid) else {
        return false;
    };
    // SAFETY: the value is of a process that does not run yet: nobody reads it.
    unsafe {
        (*own).since_ns = head.time_ns;
        (*own).owner = child.process();
    }
    if plan.state.n_hops == 0 {
        let tls_base = parent.tls_base();
        let key = |tgid| StateKey {
            tgid,
            _pad: 0,
            tls_base,
        };
        // SAFETY: the value is copied at once; user space replaces whole values.
        if let Some(state) = unsafe { STATES.get(&key(parent_tgid)) }.copied() {
            let _ = STATES.insert(&key(head.tgid), &state, 0);
        }
    }
    true
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
    let mut old_tid = tgid;
    if let Some(place) = accounts::find(task) {
        // A thread that was not the first has become it: same thread, another id, same account.
        old_tid = get!(place, tid);
        set!(place, tid, tgid);
        set!(place, thread_state, 0);
    }
    if let Some(plan) = PLANS.get_ptr_mut(&tgid) {
        // SAFETY: only this one thread of the process is left at an exec; a tick sees either
        // value.
        unsafe { (*plan).flags |= PLAN_NO_PYTHON };
    }
    maps::send_life(&LifeRecord {
        head: head(KIND_EXEC, tgid, tgid),
        parent_tgid: tgid,
        old_tid,
        name: task.name(),
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
    let place = accounts::find(task);
    // In an `exec`, the first thread may be on its way out under the id of the one that takes
    // its place.
    let tid = match place {
        Some(place) => get!(place, tid),
        None => task.tid(),
    };
    if tid == tgid {
        debug!(ctx, "main thread of target {} ends", tgid);
    }
    let mut record = ended(head(KIND_EXIT, tgid, tid), task, place);
    if task.process_ends() {
        record.flags = LIFE_LAST;
    }
    maps::send_life(&record);
}

/// A thread has left its CPU for the last time. Its ids may be somebody else's by now, so those of
/// its account count. Apart from the switch, which has it thrice and seldom needs it.
#[inline(never)]
pub fn gone(task: Task, now: u64) {
    let place = accounts::find(task);
    let (tgid, tid) = match place {
        Some(place) => (get!(place, tgid), get!(place, tid)),
        None => (task.tgid(), task.tid()),
    };
    // SAFETY: see `tick::tick`.
    let plan = unsafe { PLANS.get(&tgid) };
    if place.is_none() && plan.is_none() {
        return;
    }
    if let Some(counters) = maps::counters() {
        counters.switches += 1;
    }
    let head = RecordHead {
        time_ns: now,
        ..head(KIND_GONE, tgid, tid)
    };
    let mut record = ended(head, task, place);
    let owner = plan.map_or(0, |plan| plan.owner);
    if owner != 0 && owner != task.process() {
        record.flags = LIFE_REPLACED;
    } else if task.process_is_over() {
        record.flags = LIFE_LAST;
        let _ = PLANS.remove(&tgid);
    }
    // It is there only for some; the others cost a lookup as they end.
    let _ = STATES.remove(&StateKey {
        tgid,
        _pad: 0,
        tls_base: task.last_tls_base(),
    });
    maps::send_life(&record);
    accounts::close(task);
}

/// The record of an end, with the account so far.
#[inline(always)]
fn ended(head: RecordHead, task: Task, place: Option<Place>) -> LifeRecord {
    let mut record = LifeRecord {
        head,
        parent_tgid: head.tgid,
        exit_code: task.exit_code(),
        ..LifeRecord::default()
    };
    if let Some(place) = place {
        record.on_cpu_ns = switch::on_cpu_until(place, head.time_ns);
        record.runnable_ns = get!(place, runnable_ns);
        record.blocked_ns = get!(place, blocked_ns);
    }
    record
}
