//! One thread's time, handed out to the looks at it.
//!
//! The scheduler counts that time exactly; a look, one each period, tells what the thread was
//! doing at one instant. Time of a kind belongs to the look at its end if that found this kind,
//! else to the look before it, else it waits in a pool. A look stands for all the time since the
//! one before, of the kind that it found: what of that it did not get is owed to it, and paid at
//! the end out of the pool (`Debts`). One that finds a thread in what it does all the time is owed
//! nothing; the more seldom it does that, the more. What passed unseen before a thread is found
//! waiting for a CPU is neither until it has got one, and the scheduler has counted how long that
//! took. So the weights of a thread sum to what the scheduler counted, and neither long nor short
//! stretches gain.

use crate::words::{DurationNs, MonotonicNs};

/// What a look found a thread to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Found {
    OnCpu,
    Runnable,
    Blocked,
}

impl Found {
    const fn could_run(self) -> bool {
        matches!(self, Self::OnCpu | Self::Runnable)
    }
}

/// What the scheduler had counted at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) at: MonotonicNs,
    pub(super) on_cpu: DurationNs,
    pub(super) run_delay: DurationNs,
}

/// Time by kind, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weights {
    pub(super) on_cpu: u64,
    pub(super) runnable: u64,
    pub(super) blocked: u64,
}

impl Weights {
    pub(super) fn on_cpu(on_cpu: u64) -> Self {
        Self {
            on_cpu,
            ..Self::default()
        }
    }

    pub(super) fn runnable(runnable: u64) -> Self {
        Self {
            runnable,
            ..Self::default()
        }
    }

    pub(super) fn blocked(blocked: u64) -> Self {
        Self {
            blocked,
            ..Self::default()
        }
    }

    pub(super) const fn plus(self, other: Self) -> Self {
        Self {
            on_cpu: self.on_cpu.saturating_add(other.on_cpu),
            runnable: self.runnable.saturating_add(other.runnable),
            blocked: self.blocked.saturating_add(other.blocked),
        }
    }
}

/// The time since the last look, to whom it belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Handed {
    /// To what the look before found.
    pub(super) before: Weights,
    /// To what this one found.
    pub(super) now: Weights,
    /// What the look before stood for and what it got, now that this is known.
    pub(super) stood_for: Weights,
    pub(super) got: Weights,
}

/// The same numbers of which some may run ahead of others, and are then below zero.
#[derive(Clone, Copy, Debug, Default)]
struct Signed {
    on_cpu: i64,
    runnable: i64,
    blocked: i64,
}

/// One thread's time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    began: Reading,
    last: Reading,
    found: Option<Found>,
    /// Since when it is seen to wait for a CPU: the scheduler counts that only once it has got
    /// one. How long it did before it was first seen to is not known until then.
    waits_since: Option<MonotonicNs>,
    /// All time by kind up to the last look.
    known: Signed,
    /// What of it was not handed out.
    pool: Signed,
    /// What the last look stands for, and what it got up to now.
    stands_for: Weights,
    got: Weights,
}

impl Shares {
    /// From a first reading.
    pub(super) fn new(began: Reading) -> Self {
        Self {
            began,
            last: began,
            found: None,
            waits_since: None,
            known: Signed::default(),
            pool: Signed::default(),
            stands_for: Weights::default(),
            got: Weights::default(),
        }
    }

    /// A look, or the end of all looks, when nothing was `found`.
    pub(super) fn hand_out(&mut self, reading: Reading, found: Option<Found>) -> Handed {
        let wall = reading.at.0.saturating_sub(self.last.at.0);
        let fresh = self.count(reading, found);
        let before = self.found;
        self.last = reading;
        self.found = found;

        let mut handed = Handed::default();
        let mut stands_for = Weights::default();
        let ran = fresh.on_cpu > 0;
        // Whom we found waiting for a CPU stands where it left off when it ran.
        let now_ran = found == Some(Found::OnCpu) || (found == Some(Found::Runnable) && ran);
        if now_ran {
            handed.now.on_cpu = take(&mut self.pool.on_cpu, fresh.on_cpu);
        } else if before.is_some_and(Found::could_run) {
            handed.before.on_cpu = take(&mut self.pool.on_cpu, fresh.on_cpu);
        }
        if found == Some(Found::Blocked) {
            handed.now.blocked = take(&mut self.pool.blocked, fresh.blocked);
        } else if before == Some(Found::Blocked) {
            handed.before.blocked = take(&mut self.pool.blocked, fresh.blocked);
        }
        if found == Some(Found::Runnable) {
            handed.now.runnable = take(&mut self.pool.runnable, fresh.runnable);
        } else if before == Some(Found::Runnable) {
            handed.before.runnable = take(&mut self.pool.runnable, fresh.runnable);
        } else if found == Some(Found::OnCpu) && before == found {
            // It lost its CPU meanwhile, as likely here as anywhere.
            handed.now.runnable = take(&mut self.pool.runnable, fresh.runnable);
        }
        match found {
            Some(Found::OnCpu) => stands_for.on_cpu = wall,
            Some(Found::Runnable) => stands_for.runnable = wall,
            Some(Found::Blocked) => stands_for.blocked = wall,
            None => {}
        }
        handed.stood_for = std::mem::replace(&mut self.stands_for, stands_for);
        let got = std::mem::replace(&mut self.got, handed.now);
        handed.got = got.plus(handed.before);
        handed
    }

    /// Count what has passed since the last look.
    fn count(&mut self, reading: Reading, found: Option<Found>) -> Signed {
        let ran = since(reading.on_cpu.0, self.last.on_cpu.0);
        self.waits_since = match (found, self.waits_since) {
            (Some(Found::Runnable) | None, Some(since)) if ran == 0 => Some(since),
            (Some(Found::Runnable), _) => Some(reading.at),
            _ => None,
        };
        let on_cpu = since(reading.on_cpu.0, self.began.on_cpu.0);
        let delay = since(reading.run_delay.0, self.began.run_delay.0);
        let all = since(reading.at.0, self.began.at.0);
        // Blocked, or what it waits still.
        let off = all.saturating_sub(on_cpu).saturating_sub(delay);
        let (waiting, blocked) = match self.waits_since {
            None => (0, off),
            Some(began) => {
                let waiting = since(reading.at.0, began.0);
                (waiting, self.known.blocked.min(off.saturating_sub(waiting)))
            }
        };
        let known = Signed {
            on_cpu,
            runnable: delay.saturating_add(waiting),
            blocked,
        };
        let fresh = Signed {
            on_cpu: known.on_cpu.saturating_sub(self.known.on_cpu),
            runnable: known.runnable.saturating_sub(self.known.runnable),
            blocked: known.blocked.saturating_sub(self.known.blocked),
        };
        self.known = known;
        self.pool.on_cpu = self.pool.on_cpu.saturating_add(fresh.on_cpu);
        self.pool.runnable = self.pool.runnable.saturating_add(fresh.runnable);
        self.pool.blocked = self.pool.blocked.saturating_add(fresh.blocked);
        fresh
    }

    /// The last look saw nothing of the thread but its counts: what follows is not its.
    pub(super) fn found_nothing(&mut self) {
        self.found = None;
        self.stands_for = Weights::default();
    }

    /// Of what was handed out as blocked, what was not: who is woken and waits for a CPU seems to
    /// sleep on until it has got one. At most so much is taken back.
    pub(super) fn take_back(&mut self, most: u64) -> u64 {
        let over = self.pool.blocked.min(0).unsigned_abs().min(most);
        self.pool.blocked = self.pool.blocked.saturating_add_unsigned(over);
        over
    }

    /// What is left of each kind when all is over.
    pub(super) fn rest(&mut self) -> Weights {
        // What came before it was seen to wait for a CPU nobody will tell any more.
        let all = since(self.last.at.0, self.began.at.0);
        let told = self.known.on_cpu.saturating_add(self.known.blocked);
        let open = all.saturating_sub(told.saturating_add(self.known.runnable));
        self.known.runnable = self.known.runnable.saturating_add(open.max(0));
        self.pool.runnable = self.pool.runnable.saturating_add(open.max(0));
        let Signed {
            on_cpu,
            runnable,
            blocked,
        } = self.pool;
        Weights {
            on_cpu: take(&mut self.pool.on_cpu, on_cpu),
            runnable: take(&mut self.pool.runnable, runnable),
            blocked: take(&mut self.pool.blocked, blocked),
        }
    }

    /// Everything that was counted, and how long that was.
    pub(super) fn totals(&self) -> (Weights, DurationNs) {
        let all = |ns: i64| u64::try_from(ns).unwrap_or(0);
        let totals = Weights {
            on_cpu: all(self.known.on_cpu),
            runnable: all(self.known.runnable),
            blocked: all(self.known.blocked),
        };
        let lived = self.last.at.0.saturating_sub(self.began.at.0);
        (totals, DurationNs(lived))
    }
}

fn since(now: u64, before: u64) -> i64 {
    i64::try_from(now.saturating_sub(before)).unwrap_or(i64::MAX)
}

/// So much of a pool, if it has that.
fn take(pool: &mut i64, wanted: i64) -> u64 {
    let taken = wanted.min(*pool).max(0);
    *pool -= taken;
    taken.unsigned_abs()
}

#[cfg(test)]
mod tests;
