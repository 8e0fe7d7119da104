//! One tick, one sample: what the kernel saw, in the sample's words.

use crate::{
    sample::{Activity, Gc, Gil, Handling, Sample},
    wire::Tick,
    words::DurationNs,
};

/// What is known of the interpreter's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lock {
    /// Nothing, until the interpreter is found.
    Unknown,
    /// There is a GIL.
    Gil,
    /// There was none when it was asked last.
    NoGil,
}

/// The system call in which every lock waits.
const FUTEX: u32 = syscalls::Sysno::futex as u32;

/// The sample that a tick is.
pub(super) fn sample(tick: &Tick, weight: DurationNs, lock: Lock) -> Sample {
    let gil = gil(tick, lock);
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
        handling: Handling::Unknown,
        generation: tick.generation,
    }
}

/// A thread on a CPU either holds the GIL, or runs native code, or is on its short way into or
/// out of a wait for it. The last is in the futex call, where it cannot be told from a thread
/// that waits for any other lock, unless the interpreter records who asks (3.15).
fn gil(tick: &Tick, lock: Lock) -> Gil {
    match lock {
        Lock::Unknown => return Gil::Unknown,
        // It can be switched on at any time, and who holds it shows that it was.
        Lock::NoGil if tick.holds_gil() != Some(true) => return Gil::NoGil,
        Lock::NoGil | Lock::Gil => {}
    }
    if tick.thread_state.is_none() {
        return Gil::Neither;
    }
    match tick.holds_gil() {
        None => Gil::Unknown,
        Some(true) => Gil::Holds,
        Some(false) if tick.wants_gil() => Gil::Waits,
        Some(false) if tick.in_kernel() && tick.syscall == Some(FUTEX) => Gil::Unknown,
        Some(false) => Gil::Neither,
    }
}

/// The collector runs in whichever thread holds the GIL while the flag is up; where there is
/// none, the kernel's half has looked whose collection it is, or could not tell.
fn gc(tick: &Tick, gil: Gil) -> Gc {
    if tick.thread_state.is_none() {
        return Gc::Idle;
    }
    match (tick.collecting(), gil) {
        (None, _) | (Some(true), Gil::Unknown) => Gc::Unknown,
        (Some(true), Gil::Holds | Gil::NoGil) => Gc::Collecting,
        (Some(_), _) => Gc::Idle,
    }
}
