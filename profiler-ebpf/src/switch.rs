//! The scheduler's accounts: for each thread of a target, how often it went on or off a CPU, for
//! how long, and why it went off.

use aya_ebpf::{helpers, programs::BtfTracePointContext};
use profiler_common::{
    account::STATE_DEAD,
    offsets::LOOK_OFF_CPU,
    plan::{PLAN_NO_PYTHON, Plan},
};

use crate::{
    accounts::{self, Opening, Place, get, set},
    life,
    maps::{self, BEATS, OFFSETS, PLANS, SCRATCH, SETTINGS},
    state as thread_state,
    task::Task,
};

/// Entry: both sides of the switch are looked at, and most are nobody's.
#[inline(always)]
pub fn switch(ctx: &BtfTracePointContext) {
    // SAFETY: a helper without arguments.
    let now = unsafe { helpers::bpf_ktime_get_ns() };
    let prev = Task::from_argument(ctx.arg(1));
    let state = state(ctx, prev);
    // One after the other: joined, the compiler tests both pointers with one `or`, which the
    // verifier refuses.
    if state & STATE_DEAD != 0 {
        life::gone(prev, now);
    } else {
        let tgid = prev.tgid();
        // SAFETY: see `tick::tick`.
        if let Some(plan) = unsafe { PLANS.get(&tgid) } {
            off(plan, prev, tgid, state, now);
        }
    }
    let next = Task::from_argument(ctx.arg(2));
    let tgid = next.tgid();
    // SAFETY: as above.
    if unsafe { PLANS.get(&tgid) }.is_some() {
        on(next, tgid, now);
    }
    if let Some(beat) = BEATS.get_ptr_mut(0) {
        // SAFETY: the CPU's own value.
        unsafe { (*beat).switched_ns = now };
    }
}

/// Entry: a thread that slept can run from now on.
#[inline(always)]
pub fn wakeup(ctx: &BtfTracePointContext) {
    let task = Task::from_argument(ctx.arg(0));
    let tgid = task.tgid();
    // SAFETY: see `tick::tick`.
    if unsafe { PLANS.get(&tgid) }.is_none() {
        return;
    }
    // One that is still on its CPU, about to sleep, will not.
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
/// since the last switch that was seen on this CPU.
#[inline(always)]
fn running(plan: &Plan, task: Task, tgid: u32, tid: u32) -> Option<Place> {
    if let Some(place) = accounts::find_of(task, tgid, tid) {
        if !place.is_on_cpu() {
            unseen(place);
        }
        return Some(place);
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
}

/// Ask the account of the running thread; it is opened if there is none.
#[inline(always)]
pub fn at_tick(plan: &Plan, task: Task, tgid: u32, tid: u32, tls_base: u64, now: u64) -> AtTick {
    let Some(place) = running(plan, task, tgid, tid) else {
        return AtTick {
            tid,
            generation: 0,
            on_cpu_ns: 0,
        };
    };
    set!(place, tls_base, tls_base);
    AtTick {
        tid: get!(place, tid),
        generation: get!(place, generation),
        on_cpu_ns: on_cpu_until(place, now),
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
fn off(plan: &Plan, task: Task, tgid: u32, state: u32, now: u64) {
    if let Some(counters) = maps::counters() {
        counters.switches += 1;
    }
    let Some(place) = running(plan, task, tgid, task.tid()) else {
        return;
    };
    set!(place, on_cpu_ns, on_cpu_until(place, now));
    set!(place, since, now);
    set!(place, woken_ns, 0);
    set!(place, off_state, state);
    let tls_base = task.tls_base();
    set!(place, tls_base, tls_base);
    if SETTINGS.load().flags & LOOK_OFF_CPU != 0 {
        // SAFETY: entry 1 is for the switch alone, which no other switch interrupts on its CPU.
        if let Some(block) = SCRATCH
            .get_ptr_mut(1)
            .map(|scratch| unsafe { &mut (*scratch).block })
        {
            waits(place, task, block);
            if get!(place, thread_state) == 0
                && plan.flags & PLAN_NO_PYTHON == 0
                // The thread that goes off is still the current one, and so is its memory.
                && let Some(found) = thread_state::find(plan, tgid, tls_base, block)
            {
                set!(place, thread_state, found.addr);
            }
        }
    }
    set!(place, generation, get!(place, generation) + 1);
}

/// Note what a thread that is off the CPU waits for.
#[inline(always)]
pub fn waits(place: Place, task: Task, block: &mut profiler_common::walk::Block) {
    if !task.user_registers(block) {
        set!(place, off_syscall, -1);
        return;
    }
    let offsets = OFFSETS.load();
    set!(place, off_syscall, block.u64(offsets.regs_orig_ax) as i32);
    set!(
        place,
        off_args,
        [block.u64(offsets.regs_di), block.u64(offsets.regs_si)]
    );
    set!(place, off_ip, block.u64(offsets.regs_ip));
}

#[inline(always)]
fn on(task: Task, tgid: u32, now: u64) {
    let tid = task.tid();
    match accounts::find_of(task, tgid, tid) {
        Some(place) if !place.is_on_cpu() => resume(place, now),
        // It went off unseen.
        Some(_) => {}
        None => {
            let opening = Opening {
                tgid,
                tid,
                since: now,
                off_state: None,
            };
            accounts::open(task, opening, |_| ());
        }
    }
}
