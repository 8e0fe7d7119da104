//! The accounts at the end of a run: the samples' sums beside the scheduler's, and what was lost.

use profiler_common::{
    account::Account,
    loss::{Counters, MALFORMED, N_REASONS, REASONS, UNACCOUNTED, UNKNOWN_PROCESS},
};

use super::people::People;
use crate::{
    aggregate::Ledger,
    source::kernel::ProgramCost,
    sys::OwnCost,
    words::{MonotonicNs, Tid},
};

/// Ticks that reached user space, and those that were given up there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Received {
    /// Ticks of the samples that came out of the ring.
    pub(super) ticks: u64,
    /// Records that could not be decoded, one tick each.
    pub(super) malformed: u64,
    /// Ticks of processes that were no longer known.
    pub(super) unknown_process: u64,
    /// When the first sample was taken.
    pub(super) first: Option<MonotonicNs>,
}

/// Fill in the kernel's side of the ledger.
pub(super) fn close(
    ledger: &mut Ledger,
    counters: &Counters,
    received: Received,
    people: &People,
    accounts: &[(Tid, Account)],
    end: MonotonicNs,
) {
    ledger.ticks = counters.ticks;
    let mut losses = [0; N_REASONS];
    losses.copy_from_slice(&counters.losses);
    losses[MALFORMED as usize] += received.malformed;
    losses[UNKNOWN_PROCESS as usize] += received.unknown_process;
    let arrived = received.ticks + received.malformed + received.unknown_process;
    losses[UNACCOUNTED as usize] += counters.samples.saturating_sub(arrived);
    for reason in REASONS {
        let lost = losses[reason.id as usize];
        if lost > 0 {
            ledger.losses.insert(reason.name.to_owned(), lost);
        }
    }
    ledger.contradictions = people.contradictions();
    ledger.unsampled = people.unmet();
    ledger.events_lost = counters.events_lost;
    for (thread, person) in ledger.threads.iter_mut().zip(people.everyone()) {
        thread.pthread_id = person.pthread_id.map(|id| id.0);
        thread.matched_by = person
            .matched_by
            .iter()
            .map(|rung| rung.key().to_owned())
            .collect();
        let account = accounts.iter().find(|(tid, _)| *tid == person.tid);
        thread.scheduler_ns = match (person.final_on_cpu, account) {
            (Some(on_cpu), _) => Some(on_cpu.0),
            (None, Some((_, account))) => Some(on_cpu_until(account, end)),
            (None, None) => None,
        };
    }
}

/// An account's time on a CPU, the stretch that still runs included.
fn on_cpu_until(account: &Account, end: MonotonicNs) -> u64 {
    let running = if account.on_cpu == 0 {
        0
    } else {
        end.0.saturating_sub(account.since)
    };
    account.on_cpu_ns + running
}

/// What the profiler itself cost.
pub(super) fn cost(ledger: &mut Ledger, programs: ProgramCost, own: Option<OwnCost>) {
    ledger.profiler.bpf_ns = Some(programs.all_ns);
    ledger.profiler.bpf_runs = Some(programs.all_runs);
    ledger.profiler.tick_ns = Some(programs.tick_ns);
    ledger.profiler.cpu_ns = own.map(|own| own.cpu.0);
    ledger.profiler.rss_bytes = own.map(|own| own.peak_rss_bytes);
}
