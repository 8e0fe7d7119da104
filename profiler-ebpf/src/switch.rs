//! The scheduler's accounts: for each thread of a target, how often it went on or off a CPU, for
//! how long, and why it went off.

use aya_ebpf::{helpers, programs::BtfTracePointContext};
use profiler_common::{
    account::{Account, STATE_DEAD},
    plan::Plan,
};

use crate::{
    life,
    maps::{self, ACCOUNTS, BEATS, OFFSETS, PLANS, SCRATCH},
    task::Task,
};

/// Entry: both sides of the switch are looked at, and most are nobody's.
#[inline(always)]
pub fn switch(ctx: &BtfTracePointContext) {
    // SAFETY: a helper without arguments.
    let now = unsafe { helpers::bpf_ktime_get_ns() };
    let prev = Task::from_argument(ctx.arg(1));
    let tgid = prev.tgid();
    // One after the other: joined, the compiler tests both pointers with one `or`, which the
    // verifier refuses.
    // SAFETY: see `tick::tick`.
    if let Some(plan) = unsafe { PLANS.get(&tgid) } {
        off(plan, prev, tgid, state(ctx, prev), now);
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
fn running(plan: &Plan, tgid: u32, tid: u32) -> Option<&'static mut Account> {
    if let Some(account) = ACCOUNTS.get_ptr_mut(&tid) {
        // SAFETY: the scheduler runs one switch of a thread at a time; user space only reads.
        let account = unsafe { &mut *account };
        if account.on_cpu == 0 {
            unseen(account);
        }
        return Some(account);
    }
    let switched = last_switch();
    let account = Account {
        tgid,
        on_cpu: 1,
        since: if switched > plan.since_ns {
            switched
        } else {
            plan.since_ns
        },
        ..Account::default()
    };
    if ACCOUNTS.insert(&tid, &account, 0).is_err()
        && let Some(counters) = maps::counters()
    {
        counters.accounts_full += 1;
    }
    // SAFETY: as above.
    ACCOUNTS
        .get_ptr_mut(&tid)
        .map(|account| unsafe { &mut *account })
}

/// The thread runs, though no switch put it on this CPU: it cannot have been here before the last
/// switch that was seen here, and that is when its account goes on.
#[inline(always)]
fn unseen(account: &mut Account) {
    let switched = last_switch();
    if switched > account.since {
        resume(account, switched);
    } else {
        resume(account, account.since);
    }
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
fn resume(account: &mut Account, now: u64) {
    let away = now.saturating_sub(account.since);
    if account.off_state == 0 {
        account.runnable_ns += away;
    } else {
        account.blocked_ns += away;
    }
    account.on_cpu = 1;
    account.generation += 1;
    account.since = now;
}

/// The account of the running thread for a tick: its generation, and its nanoseconds on a CPU up
/// to `now`. Opens the account if there is none.
#[inline(always)]
pub fn at_tick(plan: &Plan, tgid: u32, tid: u32, tls_base: u64, now: u64) -> (u64, u64) {
    let Some(account) = running(plan, tgid, tid) else {
        return (0, 0);
    };
    account.tls_base = tls_base;
    (account.generation, on_cpu_until(account, now))
}

/// An account's nanoseconds on a CPU, with the stretch that still runs.
#[inline(always)]
pub fn on_cpu_until(account: &Account, now: u64) -> u64 {
    if account.on_cpu == 0 {
        account.on_cpu_ns
    } else {
        account.on_cpu_ns + now.saturating_sub(account.since)
    }
}

#[inline(always)]
fn off(plan: &Plan, task: Task, tgid: u32, state: u32, now: u64) {
    if let Some(counters) = maps::counters() {
        counters.switches += 1;
    }
    let tid = task.tid();
    if state & STATE_DEAD != 0 {
        if let Some(account) = ACCOUNTS.get_ptr(&tid) {
            // SAFETY: as in `running`.
            life::gone(tgid, tid, now, on_cpu_until(unsafe { &*account }, now));
        }
        let _ = ACCOUNTS.remove(&tid);
        return;
    }
    let Some(account) = running(plan, tgid, tid) else {
        return;
    };
    if account.on_cpu != 0 {
        account.on_cpu_ns += now.saturating_sub(account.since);
    }
    account.on_cpu = 0;
    account.generation += 1;
    account.since = now;
    account.off_state = state;
    account.tls_base = task.tls_base();
    account.off_syscall = -1;
    if let Some(scratch) = SCRATCH.get_ptr_mut(1)
        // SAFETY: entry 1 is for the switch alone, which no other switch interrupts on its CPU.
        && let block = unsafe { &mut (*scratch).block }
        && task.user_registers(block)
    {
        account.off_syscall = block.u64(OFFSETS.load().regs_orig_ax) as i32;
    }
}

#[inline(always)]
fn on(task: Task, tgid: u32, now: u64) {
    let tid = task.tid();
    let Some(account) = ACCOUNTS.get_ptr_mut(&tid) else {
        let account = Account {
            tgid,
            on_cpu: 1,
            generation: 1,
            since: now,
            ..Account::default()
        };
        if ACCOUNTS.insert(&tid, &account, 0).is_err()
            && let Some(counters) = maps::counters()
        {
            counters.accounts_full += 1;
        }
        return;
    };
    // SAFETY: as in `running`.
    let account = unsafe { &mut *account };
    resume(account, now);
}
