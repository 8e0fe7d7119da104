//! When to look at the threads off the CPU: once a period on the average, at no fixed beat, so that
//! nothing in the target can keep step with it.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use nix::sys::{
    time::TimeSpec,
    timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
};
use tokio::io::{Interest, unix::AsyncFd};

use super::absence::GAPS;
use crate::{
    sys,
    words::{DurationNs, MonotonicNs},
};

/// A timer that goes off at random times, a period apart on the average.
///
/// The reactor's own timers are no finer than a millisecond.
#[derive(Debug)]
pub(super) struct Rounds {
    timer: TimerFd,
    ready: AsyncFd<OwnedFd>,
    period: DurationNs,
    steady: bool,
    due: MonotonicNs,
}

impl Rounds {
    /// Start; `steady` keeps a fixed beat all the same.
    pub(super) fn start(period: DurationNs, steady: bool) -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        #[expect(
            deprecated,
            reason = "what replaces it is unsafe, and an owned descriptor stays open"
        )]
        let ready =
            AsyncFd::with_interest(timer.as_fd().try_clone_to_owned()?, Interest::READABLE)?;
        let mut rounds = Self {
            timer,
            ready,
            period,
            steady,
            due: sys::monotonic(),
        };
        rounds.set_next()?;
        Ok(rounds)
    }

    fn set_next(&mut self) -> io::Result<()> {
        let gap = if self.steady {
            1.0
        } else {
            GAPS.start + fastrand::f64() * (GAPS.end - GAPS.start)
        };
        let ns = (self.period.0 as f64 * gap) as u64;
        // From when it was due, not from when we came: the rate is kept, unless a whole gap is lost.
        let now = sys::monotonic().0;
        self.due = MonotonicNs((self.due.0 + ns).max(now + 1));
        let next = TimeSpec::from_duration(Duration::from_nanos(self.due.0));
        let flags = TimerSetTimeFlags::TFD_TIMER_ABSTIME;
        Ok(self.timer.set(Expiration::OneShot(next), flags)?)
    }

    /// Wait for the next time, and tell it: this is later by what it took to get a CPU. A round
    /// that takes long puts off the one after it.
    pub(super) async fn next(&mut self) -> io::Result<MonotonicNs> {
        self.ready.readable().await?.clear_ready();
        let due = self.due;
        self.set_next()?;
        Ok(due)
    }
}
