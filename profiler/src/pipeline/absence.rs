//! One thread's time off the CPU, handed out to the looks that met it there.
//!
//! The scheduler counts that time exactly; looks, one each period, tell what the thread was doing
//! in it. A stretch that lasts longer than any two looks are apart is met for certain, so it gets
//! exactly its own length. Shorter ones are met by chance, and those that are met stand for those
//! that are not: the more so, the less likely they were to be met. So the weights of a thread sum
//! to what the scheduler counted, and no kind of stretch gains by being long or short.

use profiler_common::account::Account;

use crate::words::{DurationNs, Generation, MonotonicNs};

/// Looks are this far apart, in periods: equally likely anything between.
pub(super) const GAPS: std::ops::Range<f64> = 0.5..1.5;

/// How likely a look falls into a stretch of `length`.
fn chance(length: u64, period: DurationNs) -> f64 {
    let periods = length as f64 / period.0.max(1) as f64;
    if periods <= GAPS.start {
        periods
    } else if periods < GAPS.end {
        // One minus the mean of what a gap is longer, over the mean gap.
        1.0 - (GAPS.end - periods).powi(2) / 2.0
    } else {
        1.0
    }
}

/// Off-CPU time by what the scheduler says of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Away {
    pub(super) blocked: u64,
    pub(super) runnable: u64,
}

impl Away {
    fn sum(self) -> u64 {
        self.blocked.saturating_add(self.runnable)
    }

    /// Since `before`; an account that went back is a new one.
    fn since(self, before: Self) -> Self {
        Self {
            blocked: self.blocked.saturating_sub(before.blocked),
            runnable: self.runnable.saturating_sub(before.runnable),
        }
    }

    /// All of an account, the stretch that still lasts at `now` included.
    pub(super) fn until(account: &Account, now: MonotonicNs) -> Self {
        let mut away = Self::closed(account);
        if account.generation & 1 == 0 {
            let current = Self::current(account, now);
            away.blocked += current.blocked;
            away.runnable += current.runnable;
        }
        away
    }

    fn closed(account: &Account) -> Self {
        Self {
            blocked: account.blocked_ns,
            runnable: account.runnable_ns,
        }
    }

    /// The stretch that still lasts.
    fn current(account: &Account, now: MonotonicNs) -> Self {
        let all = now.0.saturating_sub(account.since);
        let blocked = if account.off_state == 0 {
            0
        } else if account.woken_ns == 0 {
            all
        } else {
            account.woken_ns.saturating_sub(account.since).min(all)
        };
        Self {
            blocked,
            runnable: all - blocked,
        }
    }
}

/// What has become of a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// How much time its looks stand for.
    pub(super) weight: Away,
    /// How long it lasted itself, where that is known.
    pub(super) length: Option<Away>,
}

/// A stretch that was met and is not over, as far as is known.
#[derive(Clone, Copy, Debug)]
struct Open {
    generation: Generation,
    met: Meeting,
}

/// How a look came upon a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meeting {
    /// It was blocked when the look was due.
    Blocked,
    /// It could run.
    Runnable,
    /// It ran, and the look itself took its CPU: such a stretch is met for certain, however short.
    Preempted,
}

/// The account of one thread's absences.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Absence {
    seen: Away,
    /// Counted and not handed out; below zero for a moment when a stretch was told before its
    /// time was counted.
    pool: (i64, i64),
    open: Option<Open>,
}

impl Absence {
    /// The thread was met in the stretch that the account shows. Whatever was open is settled.
    pub(super) fn meet(&mut self, account: &Account, met: Meeting) {
        self.open = Some(Open {
            generation: Generation(account.generation),
            met,
        });
    }

    /// The stretch that was met last, by what the account says by now, if it is over; at the end
    /// of all, with `end`, in any case.
    pub(super) fn settle(
        &mut self,
        account: &Account,
        end: Option<MonotonicNs>,
        period: DurationNs,
    ) -> Option<Stretch> {
        let total = match end {
            Some(now) => Away::until(account, now),
            None => Away::closed(account),
        };
        let open = self.open.map(|open| open.generation.0);
        let fresh = total.since(self.seen);
        let length = match open {
            // Nothing else can have been counted since.
            Some(met) if account.generation <= met + 2 && account.generation >= met => Some(fresh),
            Some(met) if account.marked == met | 1 => Some(Away {
                blocked: account.marked_blocked_ns,
                runnable: account.marked_runnable_ns,
            }),
            _ => None,
        };
        self.settle_at(total, length, period)
    }

    /// The same for a thread that has ended, by its last account.
    pub(super) fn settle_for_good(&mut self, total: Away, period: DurationNs) -> Option<Stretch> {
        self.settle_at(total, None, period)
    }

    fn settle_at(
        &mut self,
        total: Away,
        length: Option<Away>,
        period: DurationNs,
    ) -> Option<Stretch> {
        let fresh = total.since(self.seen);
        self.seen = total;
        self.pool.0 = self.pool.0.saturating_add_unsigned(fresh.blocked);
        self.pool.1 = self.pool.1.saturating_add_unsigned(fresh.runnable);
        let open = self.open.take()?;
        let weight = match length {
            Some(length)
                if open.met == Meeting::Preempted || chance(length.sum(), period) >= 1.0 =>
            {
                self.pool.0 = self.pool.0.saturating_sub_unsigned(length.blocked);
                self.pool.1 = self.pool.1.saturating_sub_unsigned(length.runnable);
                length
            }
            None if open.met == Meeting::Preempted => Away::default(),
            _ if open.met == Meeting::Runnable => Away {
                blocked: 0,
                runnable: share(&mut self.pool.1, length.map(|l| l.runnable), period),
            },
            _ => Away {
                blocked: share(&mut self.pool.0, length.map(|l| l.blocked), period),
                runnable: 0,
            },
        };
        Some(Stretch { weight, length })
    }

    /// What was counted and met by no look, at the end.
    pub(super) fn rest(&mut self) -> Away {
        Away {
            blocked: drain(&mut self.pool.0),
            runnable: drain(&mut self.pool.1),
        }
    }
}

/// What a stretch that was met by chance takes from the pool: what it stands for by itself, and of
/// what is left, the more, the more chance there was in it. Without its length, all.
fn share(pool: &mut i64, length: Option<u64>, period: DurationNs) -> u64 {
    let Some(length) = length.filter(|length| *length > 0) else {
        return drain(pool);
    };
    let held = u64::try_from(*pool).unwrap_or(0);
    let chance = chance(length, period);
    let own = length as f64 / chance;
    let taken = own + (1.0 - chance).powi(2) * (held as f64 - own);
    let taken = (taken.max(0.0) as u64).min(held);
    *pool = pool.saturating_sub_unsigned(taken);
    taken
}

/// What a pool holds; a debt stays.
fn drain(pool: &mut i64) -> u64 {
    match u64::try_from(*pool) {
        Ok(all) => {
            *pool = 0;
            all
        }
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests;
