//! The kernel half: programs that only observe.
//!
//! Entry points alone stand here. Each delegates to its room, and each room counts what it
//! gives up. Nothing is written into a target; nothing sleeps, waits or follows a name.
#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![expect(
    internal_features,
    reason = "`core` has no `fetch_add` for a target without compare-and-swap, though it has the instruction"
)]

mod accounts;
mod census;
mod life;
mod maps;
mod namespace;
mod native;
mod pychain;
mod state;
mod switch;
mod task;
mod tick;

use aya_ebpf::{
    macros::{btf_tracepoint, perf_event},
    programs::{BtfTracePointContext, PerfEventContext},
};

/// Every period, on every CPU.
#[perf_event]
pub fn tick(ctx: PerfEventContext) -> u32 {
    tick::tick(&ctx);
    0
}

/// Every context switch: `(preempt, prev, next[, prev_state])`.
#[btf_tracepoint(function = "sched_switch")]
pub fn switch(ctx: BtfTracePointContext) -> i32 {
    switch::switch(&ctx);
    0
}

/// Every wake-up: `(task)`.
#[btf_tracepoint(function = "sched_wakeup")]
pub fn wakeup(ctx: BtfTracePointContext) -> i32 {
    switch::wakeup(&ctx);
    0
}

/// Every task there is, when user space reads the iterator.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub extern "C" fn census(context: *mut census::Context) -> i32 {
    census::visit(context);
    0
}

/// A new thread or process: `(parent, child)`.
#[btf_tracepoint(function = "sched_process_fork")]
pub fn fork(ctx: BtfTracePointContext) -> i32 {
    life::fork(&ctx);
    0
}

/// A new program in a process: `(task, old_pid, bprm)`.
#[btf_tracepoint(function = "sched_process_exec")]
pub fn exec(ctx: BtfTracePointContext) -> i32 {
    life::exec(&ctx);
    0
}

/// The end of a thread: `(task)`.
#[btf_tracepoint(function = "sched_process_exit")]
pub fn exit(ctx: BtfTracePointContext) -> i32 {
    life::exit(&ctx);
    0
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // No panic survives the optimiser: the verifier would refuse this loop.
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
