//! The scheduler's accounts: for each thread of a target, how often it went on or off a CPU, for
//! how long, and why it went off.

use aya_ebpf::{helpers, programs::BtfTracePointContext};
use profiler_common::{
    account::STATE_DEAD,
    offsets::{LOOK_AT_STACKS, LOOK_OFF_CPU},
    plan::{PLAN_NO_PYTHON, Plan},
};

use crate::{
    accounts::{self, Opening, Place, get, set},
    life,
    maps::{self, BEATS, Beat, OFFSETS, PLANS, SCRATCH, SETTINGS, Switched},
    state as thread_state,
    task::Task,
};

/// Entry: both sides of the switch are looked at, and most are nobody's.
///
/// Looking things up is nearly all of its cost. Whom the last switch put on this CPU, this one takes
/// off, so its account is known without; and whoever comes back to the CPU it left is known too.
#[inline(always)]
pub fn switch(ctx: &BtfTracePointContext) {
    let Some(beat) = BEATS.get_ptr_mut(0) else {
        return;
    };
    // SAFETY: the CPU's own value; what is called from here reads it by its own way, and writes
    // nothing of it.
    let Beat { on, off, .. } = unsafe { *beat };
    // SAFETY: a helper without arguments.
    let now = unsafe { helpers::bpf_ktime_get_ns() };
    let prev = Task::from_argument(ctx.arg(1));
    // Whose process was looked up last, and whether that is a target.
    let (tgid, mut is_target, left) = if let Some(place) = known(on, prev)
        && place.is_on_cpu()
    {
        let tgid = get!(place, tgid);
        take_off(place, prev, tgid, state(ctx, prev), now);
        (tgid, true, Some(on))
    } else {
        let tgid = prev.tgid();
        let (is_target, left) = takes_off(ctx, prev, tgid, now);
        (tgid, is_target, left)
    };
    let next = Task::from_argument(ctx.arg(2));
    // Its task's memory may be another's by now, and its id tells.
    let put = if let Some(place) = known(off, next)
        && !place.is_on_cpu()
        && next.tid() == off.tid
    {
        resume(place, now);
        Some(off)
    } else {
        let next_tgid = next.tgid();
        if next_tgid != tgid {
            // The idle task, the most frequent of all, is nobody's.
            // SAFETY: see `tick::tick`.
            is_target = next_tgid != 0 && unsafe { PLANS.get(&next_tgid) }.is_some();
        }
        if is_target {
            put_on(next, next_tgid, now)
        } else {
            None
        }
    };
    // SAFETY: as above.
    unsafe {
        (*beat).switched_ns = now;
        (*beat).on = put.unwrap_or(NOBODY);
        if let Some(left) = left {
            (*beat).off = left;
        }
    }
}

const NOBODY: Switched = Switched {
    task: 0,
    tid: 0,
    slot: 0,
};

/// The account of this thread, if it is the one that was switched here.
#[inline(always)]
fn known(switched: Switched, task: Task) -> Option<Place> {
    if switched.task != task.address() {
        return None;
    }
    accounts::at(switched.slot, switched.tid)
}

/// A thread goes off of which it is not known whose it is; whether it is a target's, and its
/// account.
#[inline(always)]
fn takes_off(
    ctx: &BtfTracePointContext,
    prev: Task,
    tgid: u32,
    now: u64,
) -> (bool, Option<Switched>) {
    if tgid == 0 {
        // Idle, as a rule. Or a thread of another namespace; or one that has ended and been
        // released, and then it is its account that knows whose it was.
        if SETTINGS.load().pid_namespace != 0 && state(ctx, prev) & STATE_DEAD != 0 {
            life::gone(prev, now);
        }
        return (false, None);
    }
    // SAFETY: see `tick::tick`.
    let Some(plan) = (unsafe { PLANS.get(&tgid) }) else {
        return (false, None);
    };
    let state = state(ctx, prev);
    if state & STATE_DEAD != 0 {
        // It may be one that was never seen to run.
        life::gone(prev, now);
        return (true, None);
    }
    let Some(slot) = running(plan, prev, tgid, prev.tid()) else {
        return (true, None);
    };
    let Some(place) = accounts::of_slot(slot) else {
        return (true, None);
    };
    take_off(place, prev, tgid, state, now);
    let left = Switched {
        task: prev.address(),
        tid: get!(place, tid),
        slot,
    };
    (true, Some(left))
}

/// Entry: a thread that slept can run from now on.
#[inline(always)]
pub fn wakeup(ctx: &BtfTracePointContext) {
    let task = Task::from_argument(ctx.arg(0));
    // Only threads of targets have an account. One that is still on its CPU, about to sleep, will
    // not.
    if let Some(place) = accounts::find(task)
        && !place.is_on_cpu()
        && get!(place, woken_ns) == 0
    {
        // SAFETY: a helper without arguments.
        set!(place, woken_ns, unsafe { helpers::bpf_ktime_get_ns() });
    }
}

/// The state a task goes off with: 0 when it was preempted.
#[inline(always)]
fn state(ctx: &BtfTracePointContext, prev: Task) -> u32 {
    if ctx.arg::<u64>(0) as u8 != 0 {
        0
    } else if OFFSETS.load().switch_passes_state != 0 {
        ctx.arg::<u64>(3) as u32
    } else {
        prev.state()
    }
}

/// The account of a thread that is on a CPU; one first seen there has been since the start, or
/// since the last switch that was seen on this CPU. What is given is its number.
#[inline(always)]
fn running(plan: &Plan, task: Task, tgid: u32, tid: u32) -> Option<u32> {
    if let Some(slot) = accounts::slot_of(task, tgid, tid) {
        let place = accounts::of_slot(slot)?;
        if !place.is_on_cpu() {
            unseen(place);
        }
        return Some(slot);
    }
    let opening = Opening {
        tgid,
        tid,
        since: later(last_switch(), plan.since_ns),
        off_state: None,
    };
    accounts::open(task, opening, |_| ())
}

#[inline(always)]
fn later(a: u64, b: u64) -> u64 {
    if a > b { a } else { b }
}

/// The thread runs, though no switch put it on this CPU: it cannot have been here before the last
/// switch that was seen here, and that is when its account goes on.
#[inline(always)]
fn unseen(place: Place) {
    resume(place, later(last_switch(), get!(place, since)));
    if let Some(counters) = maps::counters() {
        counters.switches_unseen += 1;
    }
}

/// When this CPU switched last, as far as it was seen; 0 before the first time.
#[inline(always)]
fn last_switch() -> u64 {
    BEATS.get_ptr(0).map_or(0, |beat| {
        // SAFETY: the CPU's own value.
        unsafe { (*beat).switched_ns }
    })
}

/// Put a thread's account on a CPU at `now`.
#[inline(always)]
fn resume(place: Place, now: u64) {
    let generation = get!(place, generation);
    // First of all: from here on, nothing in it is of the stretch off the CPU.
    set!(place, generation, generation + 1);
    let since = get!(place, since);
    let woken = get!(place, woken_ns);
    let away = now.saturating_sub(since);
    let blocked = if get!(place, off_state) == 0 {
        0
    } else if woken != 0 && woken < now {
        woken.saturating_sub(since)
    } else {
        away
    };
    let runnable = away.saturating_sub(blocked);
    set!(place, blocked_ns, get!(place, blocked_ns) + blocked);
    set!(place, runnable_ns, get!(place, runnable_ns) + runnable);
    set!(place, since, now);
    if get!(place, marked) == generation {
        set!(place, marked_blocked_ns, blocked);
        set!(place, marked_runnable_ns, runnable);
        set!(place, marked, generation | 1);
    }
}

/// What the account of the running thread says at a tick.
#[derive(Clone, Copy)]
pub struct AtTick {
    /// The id it goes by.
    pub tid: u32,
    pub generation: u64,
    /// Nanoseconds on a CPU up to now.
    pub on_cpu_ns: u64,
    /// Since when it has been on this one.
    pub since: u64,
}

/// Ask the account of the running thread; it is opened if there is none.
#[inline(always)]
pub fn at_tick(plan: &Plan, task: Task, tgid: u32, tid: u32, tls_base: u64, now: u64) -> AtTick {
    let Some(place) = running(plan, task, tgid, tid).and_then(accounts::of_slot) else {
        return AtTick {
            tid,
            generation: 0,
            on_cpu_ns: 0,
            since: 0,
        };
    };
    set!(place, tls_base, tls_base);
    AtTick {
        tid: get!(place, tid),
        generation: get!(place, generation),
        on_cpu_ns: on_cpu_until(place, now),
        since: get!(place, since),
    }
}

/// An account's nanoseconds on a CPU, with the stretch that still runs.
#[inline(always)]
pub fn on_cpu_until(place: Place, now: u64) -> u64 {
    let before = get!(place, on_cpu_ns);
    if place.is_on_cpu() {
        before + now.saturating_sub(get!(place, since))
    } else {
        before
    }
}

#[inline(always)]
fn take_off(place: Place, task: Task, tgid: u32, state: u32, now: u64) {
    if state & STATE_DEAD != 0 {
        life::gone(task, now);
        return;
    }
    if let Some(counters) = maps::counters() {
        counters.switches += 1;
    }
    set!(place, on_cpu_ns, on_cpu_until(place, now));
    set!(place, since, now);
    set!(place, woken_ns, 0);
    set!(place, off_state, state);
    let tls_base = task.tls_base();
    set!(place, tls_base, tls_base);
    if tls_base == 0 {
        // It ends, or has not begun: what thread state it had is another's soon.
        set!(place, thread_state, 0);
    }
    if SETTINGS.load().flags & LOOK_OFF_CPU != 0 {
        waits(place, task);
        if tls_base != 0 && get!(place, thread_state) == 0 {
            find_state(place, tgid, tls_base);
        }
    }
    set!(place, generation, get!(place, generation) + 1);
}

/// Note the thread state of a thread that goes off: it is still the current one, and so is its
/// memory.
#[inline(always)]
fn find_state(place: Place, tgid: u32, tls_base: u64) {
    // SAFETY: see `tick::tick`; entry 1 of the scratch memory is for the switch alone, which no
    // other switch interrupts on its CPU.
    if let Some(plan) = unsafe { PLANS.get(&tgid) }
        && plan.flags & PLAN_NO_PYTHON == 0
        && let Some(scratch) = SCRATCH.get_ptr_mut(1)
        && let Some(found) =
            thread_state::find(plan, tgid, tls_base, unsafe { &mut (*scratch).block })
    {
        set!(place, thread_state, found.addr);
    }
}

/// Note what a thread that is off the CPU waits for.
#[inline(always)]
pub fn waits(place: Place, task: Task) {
    let user = task.user_registers();
    if !user.are_of_user() {
        return;
    }
    let offsets = OFFSETS.load();
    set!(place, off_syscall, user.get(offsets.regs_orig_ax) as i32);
    let args = [user.get(offsets.regs_di), user.get(offsets.regs_si)];
    set!(place, off_args, args);
    set!(place, off_ip, user.get(offsets.regs_ip));
    if SETTINGS.load().flags & LOOK_AT_STACKS != 0 {
        set!(place, off_sp, user.get(offsets.regs_sp));
        set!(place, off_bp, user.get(offsets.regs_bp));
    }
}

/// A thread goes on: its account.
#[inline(always)]
fn put_on(task: Task, tgid: u32, now: u64) -> Option<Switched> {
    let address = task.address();
    let tid = task.tid();
    let Some(slot) = accounts::slot_of(task, tgid, tid) else {
        let opening = Opening {
            tgid,
            tid,
            since: now,
            off_state: None,
        };
        let slot = accounts::open(task, opening, |_| ())?;
        return Some(Switched {
            task: address,
            tid,
            slot,
        });
    };
    let place = accounts::of_slot(slot)?;
    // Else it went off unseen.
    if !place.is_on_cpu() {
        resume(place, now);
    }
    Some(Switched {
        task: address,
        tid: get!(place, tid),
        slot,
    })
}
