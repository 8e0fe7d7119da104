//! Time and the profiler's own cost, as the kernel has them.

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_getres, clock_gettime};

use crate::words::{DurationNs, MonotonicNs, Pid, StartTime};

/// `CLOCK_MONOTONIC` now: the clock of the kernel's records.
#[must_use]
pub fn monotonic() -> MonotonicNs {
    // The clock exists on every Linux, so the call has no way to fail; 0 stands for "before all".
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| time.num_nanoseconds());
    MonotonicNs(u64::try_from(now).unwrap_or(0))
}

/// What all threads of a process were on a CPU so far, those that have ended included; none when
/// there is no such process.
#[must_use]
pub fn cpu_of(pid: Pid) -> Option<DurationNs> {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid.0).ok()?);
    let time = clock_gettime(ClockId::pid_cpu_clock_id(pid).ok()?).ok()?;
    u64::try_from(time.num_nanoseconds()).ok().map(DurationNs)
}

/// What the calling thread was on a CPU so far.
#[must_use]
pub fn thread_cpu() -> DurationNs {
    // As with the other clock, there is no way to fail.
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    let time = time.map_or(0, |time| time.num_nanoseconds());
    DurationNs(u64::try_from(time).unwrap_or(0))
}

/// The clock ticks of a `StartTime` as a point of `CLOCK_MONOTONIC`, which does not count the time
/// that the machine was suspended.
#[must_use]
pub fn since_boot(started: StartTime) -> MonotonicNs {
    let now = |clock| clock_gettime(clock).map_or(0, |time| time.num_nanoseconds());
    let suspended = now(ClockId::CLOCK_BOOTTIME).saturating_sub(now(ClockId::CLOCK_MONOTONIC));
    // `USER_HZ` is 100 on x86-64.
    let started = started.0.saturating_mul(10_000_000);
    MonotonicNs(started.saturating_sub(u64::try_from(suspended).unwrap_or(0)))
}

/// How often a second the kernel's own beat comes, by which it counts what may not be too often
/// (`CONFIG_HZ`): the coarse clock goes by it.
#[must_use]
pub fn beats_a_second() -> Option<u32> {
    let beat = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).ok()?;
    let beat = u64::try_from(beat.num_nanoseconds()).ok()?;
    u32::try_from(1_000_000_000_u64.checked_div(beat)?).ok()
}

/// What this process has cost so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnCost {
    /// Time on a CPU, in user mode and in the kernel, all threads.
    pub cpu: DurationNs,
    /// The most memory that was resident at any time, in bytes.
    pub peak_rss_bytes: u64,
}

/// What this process has cost so far; none when the kernel does not say.
#[must_use]
pub fn own_cost() -> Option<OwnCost> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let cpu = usage.user_time().num_nanoseconds() + usage.system_time().num_nanoseconds();
    Some(OwnCost {
        cpu: DurationNs(u64::try_from(cpu).ok()?),
        peak_rss_bytes: peak_rss_bytes()?,
    })
}

/// `VmHWM` of this program. `ru_maxrss` would be the largest of all that its process ever was, the
/// program that started it included.
fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    // The kernel counts it in KiB.
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

/// Let this process have as many files open as it may at all; what it starts later inherits that.
pub fn open_many_files() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // Where it is refused, files are opened again and again.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_does_not_go_back_and_the_cost_is_known() {
        let before = monotonic();
        assert!(before.0 > 0);
        let cost = own_cost().expect("getrusage works");
        assert!(cost.peak_rss_bytes > 0);
        assert!(monotonic() >= before);
        let ours = cpu_of(Pid(std::process::id())).expect("we are there");
        assert!(ours.0 > 0);
        assert_eq!(cpu_of(Pid(u32::MAX)), None);
        // What kernels are built with.
        assert!((24..=1_200).contains(&beats_a_second().expect("the clock is there")));
    }
}
