//! The accounts at the end of a run: the samples' sums beside the scheduler's.

use super::{Watch, person::Person, round::reading, shares::Weights};
use crate::{
    aggregate::{Ledger, Profile, Unsampled},
    sys,
    threads::Rung,
    words::{DurationNs, MonotonicNs, PthreadId},
};

/// One thread's account.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pthread_id: Option<PthreadId>,
    matched_by: Vec<Rung>,
    totals: Weights,
    lived: DurationNs,
}

impl Account {
    pub(super) fn of(person: &Person) -> Self {
        let (totals, lived) = person.shares.totals();
        Self {
            pthread_id: person.pthread_id,
            matched_by: person.matched_by.clone(),
            totals,
            lived,
        }
    }
}

impl Watch {
    /// The run is over: what still lasts counts up to now, and the books are closed.
    pub(super) fn close(mut self, why_not_bpf: Option<String>) -> Profile {
        self.note_cpu();
        for (_, mut person) in std::mem::take(&mut self.people) {
            if let Ok(counts) = person.watched.counts(&self.attached.process) {
                let now = reading(sys::monotonic(), &counts);
                let handed = person.hand_out(now, None);
                self.count_again(&mut person);
                if let Some(met) = person.met {
                    let (index, tid) = (person.index, person.tid());
                    self.count_before(index, tid, &met, handed.before, now.at);
                }
            }
            self.farewell(person);
        }
        let end = sys::monotonic();
        let mut ledger = self.builder.ledger(end);
        self.fill_in(&mut ledger);
        ledger.why_not_bpf = why_not_bpf;
        self.builder.close(end, ledger)
    }

    fn fill_in(&self, ledger: &mut Ledger) {
        ledger.rounds = Some(self.rounds);
        ledger.ticks = self.ticks;
        ledger.looks = self.looks;
        ledger.moved = self.moved;
        ledger.contradictions = self.identity.contradictions();
        let off_cpu = self.settings.mode.looks_off_cpu();
        let mut met = 0_u64;
        for (thread, account) in ledger.threads.iter_mut().zip(&self.accounts) {
            let Some(account) = account else { continue };
            let rungs = account.matched_by.iter();
            thread.pthread_id = account.pthread_id.map(|id| id.0);
            thread.matched_by = rungs.map(|rung| rung.key().to_owned()).collect();
            thread.scheduler_ns = Some(account.totals.on_cpu);
            met = met.saturating_add(account.totals.on_cpu);
            if off_cpu {
                thread.runnable_ns = Some(account.totals.runnable);
                thread.blocked_ns = Some(account.totals.blocked);
                thread.wall_ns = Some(account.lived.0);
            }
        }
        // The process's own clock goes on after its threads' counts are gone.
        let all = self.all_on_cpu().map_or(0, |all| all.0);
        ledger.unsampled = Unsampled {
            processes: 0,
            threads: 0,
            on_cpu_ns: all.saturating_sub(met),
        };
        let own = sys::own_cost();
        ledger.profiler.cpu_ns = own.map(|own| own.cpu.0);
        ledger.profiler.rss_bytes = own.map(|own| own.peak_rss_bytes);
        let began = self.settings.began;
        let first = |first: MonotonicNs| first.0.saturating_sub(began.0);
        ledger.profiler.first_sample_ns = self.first.map(first);
    }

    /// What all threads of the process, living or not, were on a CPU since the watch began; none
    /// when the process has ended.
    fn all_on_cpu(&self) -> Option<DurationNs> {
        let before = self.cpu_before?;
        let now = self.cpu_last?;
        Some(DurationNs(now.0.saturating_sub(before.0)))
    }
}
