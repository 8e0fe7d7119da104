//! Events in the order of their time.
//!
//! The ring keeps the order in which CPUs reserved room, which is nearly the order of time: a
//! CPU reserves at the end of its program. So what is younger than a short horizon waits for
//! the next batch, and the rest is sorted. It keeps no more than one batch.

use crate::{wire::Event, words::MonotonicNs};

/// Longer than any of the programs takes between reading the clock and reserving room.
const HORIZON_NS: u64 = 2_000_000;

/// Collects batches, hands on what is settled.
#[derive(Debug)]
pub struct Assembler {
    waiting: Vec<Event>,
    ready: Vec<Event>,
    horizon: u64,
}

impl Default for Assembler {
    fn default() -> Self {
        Self {
            waiting: Vec::new(),
            ready: Vec::new(),
            horizon: HORIZON_NS,
        }
    }
}

impl Assembler {
    /// From now on let nothing wait, or again what is too young to be in order.
    pub fn hurry(&mut self, hurry: bool) {
        self.horizon = if hurry { 0 } else { HORIZON_NS };
    }

    /// Take an event, in the ring's order.
    pub fn push(&mut self, event: Event) {
        self.waiting.push(event);
    }

    /// Whether the end of a process waits to be old enough.
    #[must_use]
    pub fn holds_an_end(&self) -> bool {
        let is_end = |event: &Event| {
            matches!(
                event,
                Event::Exit {
                    last: true,
                    process: Some(_),
                    ..
                }
            )
        };
        self.waiting.iter().any(is_end)
    }

    /// The events that are older than the horizon at `now`, oldest first; at the end of time,
    /// which is when nothing more will come, all of them.
    pub fn settled(&mut self, now: MonotonicNs) -> impl Iterator<Item = Event> {
        let horizon = match now {
            MonotonicNs(u64::MAX) => now,
            MonotonicNs(now) => MonotonicNs(now.saturating_sub(self.horizon)),
        };
        // Stable: events of one instant keep the ring's order.
        self.waiting.sort_by_key(Event::time);
        let settled = self
            .waiting
            .partition_point(|event| event.time() <= horizon);
        self.ready.extend(self.waiting.drain(..settled));
        self.ready.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::{Pid, Tid};

    fn exec(time: u64) -> Event {
        Event::Exec {
            time: MonotonicNs(time),
            pid: Pid(1),
            old: Tid(1),
            name: String::new(),
        }
    }

    fn times(events: impl Iterator<Item = Event>) -> Vec<u64> {
        events.map(|event| event.time().0).collect()
    }

    #[test]
    fn events_come_out_by_time_and_the_young_wait() {
        let mut assembler = Assembler::default();
        for time in [30, 10, 20, HORIZON_NS + 50] {
            assembler.push(exec(time));
        }
        assert_eq!(
            times(assembler.settled(MonotonicNs(HORIZON_NS + 25))),
            [10, 20]
        );
        assembler.push(exec(25));
        assert_eq!(
            times(assembler.settled(MonotonicNs(HORIZON_NS + 40))),
            [25, 30]
        );
        assert_eq!(
            times(assembler.settled(MonotonicNs(u64::MAX))),
            [HORIZON_NS + 50]
        );
    }

    #[test]
    fn at_the_end_nothing_waits_any_more() {
        let mut assembler = Assembler::default();
        assembler.push(exec(u64::MAX));
        assembler.push(exec(u64::MAX - 1));
        let all = times(assembler.settled(MonotonicNs(u64::MAX)));
        assert_eq!(all, [u64::MAX - 1, u64::MAX]);
    }
}
