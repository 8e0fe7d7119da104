//! One thread's time off the CPU, handed out to the looks that met it there.
//!
//! The scheduler counts that time exactly; looks, one each period, tell what the thread was doing
//! in it. A stretch that lasts longer than any two looks are apart is met for certain, so it gets
//! exactly its own length. Shorter ones are met by chance, and those that are met stand for those
//! that are not: the more so, the less likely they were to be met. What a stretch stands for may not
//! have been counted yet; then it is owed the rest, and paid at the end out of what is left. So the
//! weights of a thread sum to what the scheduler counted, and no kind of stretch gains by being long
//! or short.

use std::hash::Hash;

use profiler_common::account::Account;
use rustc_hash::FxHashMap;

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
    const fn blocked(blocked: u64) -> Self {
        Self {
            blocked,
            runnable: 0,
        }
    }

    const fn runnable(runnable: u64) -> Self {
        Self {
            blocked: 0,
            runnable,
        }
    }

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
    /// How much time its looks stand for, as far as that was counted.
    pub(super) weight: Away,
    /// How much they stand for in all, where the stretch was met by chance.
    pub(super) due: Option<Away>,
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
        let mut due = None;
        let weight = match length {
            Some(length)
                if open.met == Meeting::Preempted || chance(length.sum(), period) >= 1.0 =>
            {
                self.pool.0 = self.pool.0.saturating_sub_unsigned(length.blocked);
                self.pool.1 = self.pool.1.saturating_sub_unsigned(length.runnable);
                length
            }
            None if open.met == Meeting::Preempted => Away::default(),
            _ => {
                let (pool, fresh, length, part): (_, _, _, fn(u64) -> Away) = match open.met {
                    Meeting::Runnable => (
                        &mut self.pool.1,
                        fresh.runnable,
                        length.map(|length| length.runnable),
                        Away::runnable,
                    ),
                    _ => (
                        &mut self.pool.0,
                        fresh.blocked,
                        length.map(|length| length.blocked),
                        Away::blocked,
                    ),
                };
                let (all, got) = share(pool, fresh, length, period);
                due = Some(part(all));
                part(got)
            }
        };
        Some(Stretch {
            weight,
            due,
            length,
        })
    }

    /// What was counted and not handed out, at the end.
    pub(super) fn rest(&mut self) -> Away {
        Away {
            blocked: drain(&mut self.pool.0),
            runnable: drain(&mut self.pool.1),
        }
    }
}

/// What a stretch that was met by chance stands for, and what of that the pool has. Where its length
/// is not known it is somewhere in what was counted since the look before.
fn share(pool: &mut i64, fresh: u64, length: Option<u64>, period: DurationNs) -> (u64, u64) {
    let due = match length {
        Some(length) if length > 0 => (length as f64 / chance(length, period)) as u64,
        _ => fresh,
    };
    let got = due.min(u64::try_from(*pool).unwrap_or(0));
    *pool = pool.saturating_sub_unsigned(got);
    (due, got)
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

/// What stretches met by chance stand for and did not get, by what they were met in.
#[derive(Clone, Debug)]
pub(super) struct Debts<K> {
    /// What they stand for, and what they got. One may get more than its own; that is then not
    /// owed to others of its kind.
    by_kind: FxHashMap<K, (u64, u64)>,
}

const fn owed((due, got): &(u64, u64)) -> u64 {
    due.saturating_sub(*got)
}

/// A thread is met in so many different ways at most; what is owed to others is lost to those.
const MAX_KINDS: usize = 1 << 12;

impl<K> Default for Debts<K> {
    fn default() -> Self {
        Self {
            by_kind: FxHashMap::default(),
        }
    }
}

impl<K: Copy + Eq + Hash> Debts<K> {
    /// A stretch of this kind stands for `due` and got `got`.
    pub(super) fn note(&mut self, kind: K, due: u64, got: u64) {
        let is_full = self.by_kind.len() >= MAX_KINDS;
        if due == 0 || is_full && !self.by_kind.contains_key(&kind) {
            return;
        }
        let sums = self.by_kind.entry(kind).or_default();
        sums.0 = sums.0.saturating_add(due);
        sums.1 = sums.1.saturating_add(got);
    }

    /// Hand out what is left: what is owed first, and what is more than that by what they stand
    /// for. It sums to `left`; nothing is handed out when nobody was met by chance.
    pub(super) fn pay(&self, left: u64, mut hand_out: impl FnMut(K, u64)) {
        let owed_to_all = self.by_kind.values().map(owed);
        let owed_to_all = owed_to_all.fold(0, u64::saturating_add).min(left);
        self.divide(owed_to_all, owed, &mut hand_out);
        self.divide(left - owed_to_all, |(due, _)| *due, &mut hand_out);
    }

    /// Hand out `left` in these parts.
    fn divide(
        &self,
        left: u64,
        part: impl Fn(&(u64, u64)) -> u64,
        mut hand_out: impl FnMut(K, u64),
    ) {
        let parts = self.by_kind.values().map(|sums| u128::from(part(sums)));
        let all: u128 = parts.sum();
        if left == 0 || all == 0 {
            return;
        }
        let (mut before, mut handed) = (0_u128, 0_u64);
        for (kind, sums) in &self.by_kind {
            before += u128::from(part(sums));
            let until = u64::try_from(u128::from(left) * before / all).unwrap_or(left);
            hand_out(*kind, until - handed);
            handed = until;
        }
    }

    /// Whether anybody was met by chance.
    pub(super) fn is_empty(&self) -> bool {
        self.by_kind.is_empty()
    }
}

#[cfg(test)]
mod tests;
