//! One tick, one sample: what the kernel saw, in the sample's words.

use crate::{
    sample::{Activity, Gc, Gil, Handling, Sample},
    wire::Tick,
    words::{DurationNs, RemoteAddr},
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

/// The futex word that a system call is about, and whether it is there to wait.
pub(super) fn futex_of(syscall: Option<u32>, args: [u64; 2]) -> Option<(RemoteAddr, bool)> {
    // `FUTEX_WAIT`, `FUTEX_WAIT_BITSET` and `FUTEX_LOCK_PI` of `include/uapi/linux/futex.h`; the
    // bits above say which clock and whose futex it is.
    const WAITING: [u64; 3] = [0, 9, 6];
    let [word, operation] = args;
    (syscall == Some(syscalls::Sysno::futex as u32))
        .then(|| (RemoteAddr(word), WAITING.contains(&(operation & 0x7f))))
}

/// The sample that a tick is.
pub(super) fn sample(
    tick: &Tick,
    weight: DurationNs,
    lock: Lock,
    in_gil: impl Fn(RemoteAddr) -> bool,
) -> Sample {
    let gil = gil(tick, lock, in_gil);
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
/// the interpreter (3.15). Who lets it go is in a futex call too, and may want it back at once.
fn gil(tick: &Tick, lock: Lock, in_gil: impl Fn(RemoteAddr) -> bool) -> Gil {
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
        Some(false) if tick.in_kernel() => match futex_of(tick.syscall, tick.syscall_args) {
            Some((word, is_wait)) if in_gil(word) && is_wait => Gil::Waits,
            Some((word, _)) if in_gil(word) => Gil::Unknown,
            _ => Gil::Neither,
        },
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
