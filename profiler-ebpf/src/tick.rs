//! The tick: who runs on this CPU, and where.

use aya_ebpf::{helpers, programs::PerfEventContext};
use profiler_common::{
    loss::{Counters, NO_SCRATCH, RING_FULL},
    plan::{PLAN_NO_PYTHON, PLAN_NO_WALK, Plan},
    record::{FLAG_IN_KERNEL, KIND_SAMPLE, MAX_RECORD_BYTES, RecordHead, SampleRecord},
    walk::{END_NO_THREAD_STATE, END_NOT_TRIED, RawFrame, RawGenerator, Walked},
};

use crate::{
    maps::{self, BEATS, OFFSETS, PLANS, SCRATCH, SETTINGS, Scratch},
    native, pychain, state, switch,
    task::{Task, USER_MODE},
};

/// Entry: everything that is no target returns after one lookup.
#[inline(always)]
pub fn tick(ctx: &PerfEventContext) {
    // SAFETY: a helper without arguments.
    let now = unsafe { helpers::bpf_ktime_get_ns() };
    let periods = beat(now);
    let Some(counters) = maps::counters() else {
        return;
    };
    let (tgid, tid) = ids();
    // SAFETY: user space replaces whole values; a plan torn by a concurrent update would at worst
    // send the walk to an unreadable place.
    let plan = unsafe { PLANS.get(&tgid) };
    let Some(plan) = plan.filter(|_| tgid != 0) else {
        counters.elsewhere += u64::from(periods);
        return;
    };
    let Some(scratch) = SCRATCH.get_ptr_mut(0) else {
        counters.ticks += u64::from(periods);
        counters.losses[NO_SCRATCH as usize] += u64::from(periods);
        return;
    };
    sample(ctx, counters, plan, scratch, now, periods, tgid, tid);
}

/// The ids of the thread on this CPU. The initial namespace's come at the least cost.
#[inline(always)]
fn ids() -> (u32, u32) {
    if SETTINGS.load().pid_namespace == 0 {
        let who = helpers::bpf_get_current_pid_tgid();
        ((who >> 32) as u32, who as u32)
    } else {
        let task = Task::current();
        (task.tgid(), task.tid())
    }
}

/// How many periods passed since this CPU's last tick. A timer that came late (the machine was
/// stolen by its host) stands for the periods it missed: the same task was on the CPU.
#[inline(always)]
fn beat(now: u64) -> u32 {
    let period = SETTINGS.load().period_ns;
    let Some(beat) = BEATS.get_ptr_mut(0) else {
        return 1;
    };
    if period == 0 {
        return 1;
    }
    // SAFETY: the CPU's own value.
    let beat = unsafe { &mut *beat };
    if beat.first_ns == 0 {
        beat.first_ns = now;
        return 1;
    }
    let index = (now.wrapping_sub(beat.first_ns) + period / 2) / period;
    // A tick is at least one period. When the very first came half a period late, all others seem
    // to fall now into one period, now into the next; then the sequence is what counts.
    let passed = if index > beat.last {
        index - beat.last
    } else {
        1
    };
    beat.last += passed;
    passed as u32
}

/// How many of the periods that a late tick stands for are this thread's: no more than it has been on
/// the CPU. Before that, the CPU was idle or another's.
#[inline(always)]
fn own_periods(periods: u32, stretch_ns: u64) -> u32 {
    let period = SETTINGS.load().period_ns;
    if periods <= 1 || period == 0 {
        return periods;
    }
    let most = stretch_ns / period + 1;
    if most < u64::from(periods) {
        most as u32
    } else {
        periods
    }
}

#[inline(always)]
#[expect(
    clippy::too_many_arguments,
    reason = "a struct of them would be built on the stack"
)]
fn sample(
    ctx: &PerfEventContext,
    counters: &mut Counters,
    plan: &Plan,
    scratch: *mut Scratch,
    now: u64,
    periods: u32,
    tgid: u32,
    tid: u32,
) {
    let task = Task::current();
    let tls_base = task.tls_base();
    let account = switch::at_tick(plan, task, tgid, tid, tls_base, now);
    let own = own_periods(periods, now.saturating_sub(account.since));
    counters.elsewhere += u64::from(periods - own);
    counters.ticks += u64::from(own);
    let periods = own;
    // SAFETY: the CPU's own scratch memory, alive as long as the program; the borrow ends here.
    let record = unsafe { &mut (*scratch).record };
    *record = SampleRecord {
        head: RecordHead {
            kind: KIND_SAMPLE,
            bytes: 0,
            time_ns: now,
            tgid,
            tid: account.tid,
        },
        // SAFETY: a helper without arguments.
        cpu: unsafe { helpers::bpf_get_smp_processor_id() },
        periods,
        tls_base,
        generation: account.generation,
        on_cpu_ns: account.on_cpu_ns,
        ..SampleRecord::default()
    };
    registers(ctx, task, record);
    native::send(ctx, task, record);
    let walked = python(plan, scratch, record);
    record.walk_end = walked.end;
    record.depth = walked.depth;
    record.leaf_frames = walked.leaf;
    record.frames = walked.kept;
    record.root_frame = walked.root;
    record.entry = walked.entry;
    record.generators_missing = walked.generators_missing;
    const HEAD: u64 = size_of::<SampleRecord>() as u64;
    const FRAME: u64 = size_of::<RawFrame>() as u64;
    const GENERATOR: u64 = size_of::<RawGenerator>() as u64;
    let kept = u64::from(walked.kept);
    let mut bytes = HEAD + kept * FRAME;
    if walked.generators != 0 {
        let put = pychain::put_generators(kept, walked.generators.into());
        record.generators = put as u32;
        bytes += put * GENERATOR;
    }
    // It is no more anyway; the verifier wants to see it.
    let bytes = bytes.min(MAX_RECORD_BYTES as u64);
    record.head.bytes = bytes as u32;
    if maps::send_sample(scratch, bytes) {
        counters.samples += u64::from(periods);
    } else {
        counters.losses[RING_FULL as usize] += u64::from(periods);
    }
}

/// The user registers: those of the interrupt when it came in user mode, else those with which
/// the thread entered the kernel.
#[inline(always)]
fn registers(ctx: &PerfEventContext, task: Task, record: &mut SampleRecord) {
    // SAFETY: the context of a perf event program begins with the interrupted registers.
    let regs = unsafe { &(*ctx.ctx).regs };
    if regs.cs & USER_MODE == USER_MODE {
        record.user_ip = regs.rip;
        record.user_sp = regs.rsp;
        record.syscall = -1;
        return;
    }
    record.flags |= FLAG_IN_KERNEL;
    record.syscall = -1;
    let user = task.user_registers();
    if !user.are_of_user() {
        return;
    }
    let offsets = OFFSETS.load();
    record.user_ip = user.get(offsets.regs_ip);
    record.user_sp = user.get(offsets.regs_sp);
    record.syscall = user.get(offsets.regs_orig_ax) as i32;
    record.syscall_args = [user.get(offsets.regs_di), user.get(offsets.regs_si)];
}

/// Thread state, GIL, collector, frames.
#[inline(always)]
fn python(plan: &Plan, scratch: *mut Scratch, record: &mut SampleRecord) -> Walked {
    if plan.flags & PLAN_NO_PYTHON != 0 {
        return Walked::nothing(END_NOT_TRIED);
    }
    {
        // SAFETY: the CPU's own scratch memory; the borrow ends with this block.
        let block = unsafe { &mut (*scratch).block };
        let Some(found) = state::find(plan, record.head.tgid, record.tls_base, block) else {
            return Walked::nothing(END_NO_THREAD_STATE);
        };
        record.thread_state = found.addr;
        record.flags |= found.flags | state::flags(plan, found.addr, block);
    }
    if plan.flags & PLAN_NO_WALK != 0 {
        return Walked::nothing(END_NOT_TRIED);
    }
    // SAFETY: it is this CPU's scratch memory, and nothing borrows from it now.
    unsafe { pychain::walk(plan, scratch) }
}
