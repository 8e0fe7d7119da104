//! What a thread's ticks weigh; what becomes of that is the sampler's.

use super::People;
use crate::{
    wire::Tick,
    words::{DurationNs, Tid},
};

/// Ticks after which a thread counts as long-lived.
const OFTEN: u32 = 20;

impl People {
    /// The time that a tick of a thread stands for.
    ///
    /// It is the period, as for any sampler: of many threads that live shorter than one, those
    /// that are met stand for those that are not. A thread that has been met often lives long, and
    /// then it is what the scheduler has counted since its last tick: from there on its samples
    /// sum to its account, whatever the scheduler did between.
    ///
    /// With `whole`, every thread's samples are to sum to its own time, met often or not: then
    /// [`People::unweighed`] tells at its end what no tick met.
    pub(in crate::pipeline) fn weigh(
        &mut self,
        tick: &Tick,
        period: DurationNs,
        whole: bool,
    ) -> DurationNs {
        let periods = DurationNs(period.0.saturating_mul(tick.periods.into()));
        let Some(place) = self.living.get_mut(&tick.tid) else {
            return periods;
        };
        place.ticks = place.ticks.saturating_add(tick.periods);
        let leeway = period.0.saturating_mul(OFTEN.into());
        let weight = match tick.on_cpu {
            // An account far below what was weighed is a new one.
            Some(now)
                if whole
                    || place.ticks >= OFTEN && now.0.saturating_add(leeway) >= place.weighed.0 =>
            {
                DurationNs(now.0.saturating_sub(place.weighed.0))
            }
            _ => periods,
        };
        place.weighed = DurationNs(place.weighed.0.saturating_add(weight.0));
        weight
    }

    /// What the scheduler counted for a living thread and its samples do not weigh.
    pub(in crate::pipeline) fn unweighed(&mut self, tid: Tid, on_cpu: DurationNs) -> DurationNs {
        let Some(place) = self.living.get_mut(&tid) else {
            return DurationNs(0);
        };
        let rest = on_cpu.0.saturating_sub(place.weighed.0);
        place.weighed.0 += rest;
        DurationNs(rest)
    }
}
