//! One tick, one sample: what the kernel saw, in the sample's words.

use crate::{
    sample::{Activity, Gc, Gil, Handling, Sample},
    wire::Tick,
    words::{DurationNs, RemoteAddr},
};

/// The system call in which every lock waits.
const FUTEX: u32 = syscalls::Sysno::futex as u32;

/// The sample that a tick is.
pub(super) fn sample(
    tick: &Tick,
    weight: DurationNs,
    python: bool,
    in_gil: impl Fn(RemoteAddr) -> bool,
) -> Sample {
    // Until the interpreter is found, nobody knows what its lock does.
    let gil = if python {
        gil(tick, in_gil)
    } else {
        Gil::Unknown
    };
    Sample {
        time: tick.time,
        pid: tick.pid,
        tid: tick.tid,
        cpu: Some(tick.cpu),
        ticks: tick.periods,
        weight,
        activity: Activity::OnCpu,
        gil,
        gc: gc(tick, gil),
        handling: match tick.handles_exception() {
            None => Handling::Unknown,
            Some(true) => Handling::Exception,
            Some(false) => Handling::Nothing,
        },
        generation: tick.generation,
    }
}

/// A thread on a CPU either holds the GIL, or runs native code, or is on its short way into or
/// out of a wait for it. The last is in the futex call for a word of the GIL's, or is recorded by
/// the interpreter (3.15).
fn gil(tick: &Tick, in_gil: impl Fn(RemoteAddr) -> bool) -> Gil {
    if tick.thread_state.is_none() {
        return Gil::Neither;
    }
    match tick.holds_gil() {
        None => Gil::Unknown,
        Some(true) => Gil::Holds,
        Some(false) if tick.wants_gil() => Gil::Waits,
        Some(false)
            if tick.in_kernel()
                && tick.syscall == Some(FUTEX)
                && in_gil(RemoteAddr(tick.syscall_arg)) =>
        {
            Gil::Waits
        }
        Some(false) => Gil::Neither,
    }
}

/// The collector runs in whichever thread holds the GIL while the flag is up.
fn gc(tick: &Tick, gil: Gil) -> Gc {
    if tick.thread_state.is_none() {
        return Gc::Idle;
    }
    match (tick.collecting(), gil) {
        (None, _) | (Some(true), Gil::Unknown) => Gc::Unknown,
        (Some(true), Gil::Holds) => Gc::Collecting,
        (Some(_), _) => Gc::Idle,
    }
}
