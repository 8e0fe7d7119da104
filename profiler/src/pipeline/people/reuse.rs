//! Ids that are handed on: who ends, who is born, and whose an id is at a time.
//!
//! An id is free before its thread is off its CPU for the last time, so a birth can be told before
//! the end of who had the id; and a look, which reads the accounts, is ahead of both.

use super::{People, Stranger};
use crate::{
    aggregate::Unsampled,
    wire::Times,
    words::{DurationNs, MonotonicNs, Tid},
};

impl People {
    /// A thread has ended. Its last ticks may still come, since it runs on while the kernel takes
    /// it down, so it keeps its place until another thread gets its id.
    pub(in crate::pipeline) fn leave(&mut self, tid: Tid, times: Times, time: MonotonicNs) {
        if let Some(place) = self.living.get(&tid)
            && let Some(person) = self.everyone.get_mut(place.own)
        {
            person.ended = Some((times, time));
            // Its state is no evidence any more: an id that nobody has would look like the one
            // that is left over for the first thread.
            let gone = person.pthread_id;
            self.states.retain(|facts| Some(facts.pthread_id) != gone);
            if let Some(base) = gone
                && self
                    .bases
                    .get(&base)
                    .is_some_and(|(holder, _)| *holder == tid)
            {
                self.bases.remove(&base);
            }
        }
        // Its pthread id goes to another thread soon, and with it what that one is called.
        self.nameless.retain(|nameless| nameless.tid != tid);
        self.disprove(tid);
    }

    /// What was known of the thread with this id is no evidence any more.
    fn disprove(&mut self, tid: Tid) {
        self.facts.retain(|facts| facts.tid != tid);
        self.registry.forget(tid);
    }

    /// Take note of whom a TLS base belongs to; false when it has been another thread's since. A
    /// base is handed on before the end of who had it is told.
    pub(super) fn claims_base(&mut self, stranger: &Stranger) -> bool {
        let Stranger {
            tid, tls_base, at, ..
        } = *stranger;
        let holder = self.bases.entry(tls_base).or_insert((tid, at));
        let (former, since) = *holder;
        if former != tid && since > at {
            return false;
        }
        *holder = (tid, at);
        if former != tid {
            self.disprove(former);
        }
        true
    }

    /// A thread has left its CPU for the last time. One that no tick met is counted with its like.
    pub(in crate::pipeline) fn gone(&mut self, tid: Tid, on_cpu: DurationNs) {
        self.births.remove(&tid);
        self.former.remove(&tid);
        if !self.living.contains_key(&tid) {
            self.count_unmet(on_cpu);
        }
    }

    fn count_unmet(&mut self, on_cpu: DurationNs) {
        self.unmet.threads += 1;
        self.unmet.on_cpu_ns = self.unmet.on_cpu_ns.saturating_add(on_cpu.0);
    }

    /// The threads that ended and were never met.
    pub(in crate::pipeline) fn unmet(&self) -> Unsampled {
        self.unmet
    }

    /// A new thread has this id since then: whoever had it before is somebody else. A look may have
    /// met it before this is told.
    /// True when it was.
    pub(in crate::pipeline) fn make_room(&mut self, tid: Tid, time: MonotonicNs) -> bool {
        if let Some(place) = self.living.get(&tid)
            && place.met >= time
        {
            if place.opened.is_some_and(|opened| opened > time) {
                // The birth of one that had the id before who was met.
                self.births.insert(tid, time);
                self.former.remove(&tid);
            } else if let Some(person) = self.everyone.get_mut(place.own) {
                person.born = Some(time);
            }
            return false;
        }
        self.births.insert(tid, time);
        self.nameless.retain(|nameless| nameless.tid != tid);
        self.former.remove(&tid);
        let place = self.living.remove(&tid);
        self.former.extend(place.map(|place| (tid, place)));
        self.disprove(tid);
        true
    }

    /// Whether an account that was opened at that time is not that of the thread which has this id,
    /// as far as was told: looks read the accounts, and so are ahead of births and ends.
    pub(in crate::pipeline) fn is_anothers(&self, tid: Tid, opened: MonotonicNs) -> bool {
        let place = self.living.get(&tid);
        place.is_some_and(|place| place.counted.is_some_and(|counted| counted < opened))
    }

    /// Whether the thread that has this id was born after that.
    pub(in crate::pipeline) fn is_younger(&self, tid: Tid, then: MonotonicNs) -> bool {
        let place = self.living.get(&tid);
        let person = place.and_then(|place| self.everyone.get(place.own));
        let born = person.and_then(|person| person.born);
        let born = born.max(place.and_then(|place| place.opened));
        let born = born.or(self.births.get(&tid).copied());
        born.is_some_and(|born| born > then)
    }

    /// The last switch of a thread that had this id before, and has it again for this moment.
    pub(in crate::pipeline) fn former_ended(&mut self, tid: Tid, times: Times, time: MonotonicNs) {
        match self.living.get(&tid) {
            None => self.count_unmet(times.on_cpu),
            Some(place) => {
                if let Some(person) = self.everyone.get_mut(place.own) {
                    person.ended = Some((times, time));
                }
            }
        }
    }

    /// Who had this id before, and who has it, change places.
    pub(in crate::pipeline) fn swap_former(&mut self, tid: Tid) {
        let (now, former) = (self.living.remove(&tid), self.former.remove(&tid));
        self.living.extend(former.map(|place| (tid, place)));
        self.former.extend(now.map(|place| (tid, place)));
    }
}
