//! The accounts at the end of a run: the samples' sums beside the scheduler's, and what was lost.

use profiler_common::{
    account::Account,
    loss::{Counters, MALFORMED, N_REASONS, REASONS, UNACCOUNTED, UNKNOWN_PROCESS},
};

use super::{absence::Away, people::People};
use crate::{
    aggregate::Ledger,
    source::ProgramCost,
    sys::OwnCost,
    wire::Times,
    words::{DurationNs, MonotonicNs, Tid},
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

/// What the accounts are about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// When they began.
    pub(super) began: MonotonicNs,
    /// When they ended.
    pub(super) end: MonotonicNs,
    /// Whether they tell of time off the CPU too.
    pub(super) off_cpu: bool,
}

/// Fill in the kernel's side of the ledger.
pub(super) fn close(
    ledger: &mut Ledger,
    counters: &Counters,
    received: Received,
    people: &People,
    accounts: &[(Tid, Account)],
    span: Span,
) {
    let Span { began, end, .. } = span;
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
        let times = match (person.ended, account) {
            (Some((times, _)), _) => Some(times),
            (None, Some((_, account))) => Some(times_until(account, end)),
            (None, None) => None,
        };
        thread.scheduler_ns = times.map(|times| times.on_cpu.0);
        if span.off_cpu {
            thread.runnable_ns = times.map(|times| times.runnable.0);
            thread.blocked_ns = times.map(|times| times.blocked.0);
            let born = person.born.map_or(began, |born| born.max(began));
            let died = person.ended.map_or(end, |(_, time)| time);
            thread.wall_ns = times.map(|_| died.0.saturating_sub(born.0));
        }
    }
}

/// An account's times, the stretch that still lasts included.
pub(super) fn times_until(account: &Account, end: MonotonicNs) -> Times {
    let running = if account.generation & 1 == 0 {
        0
    } else {
        end.0.saturating_sub(account.since)
    };
    let away = Away::until(account, end);
    Times {
        on_cpu: DurationNs(account.on_cpu_ns + running),
        runnable: DurationNs(away.runnable),
        blocked: DurationNs(away.blocked),
    }
}

/// What the profiler itself cost.
pub(super) fn cost(ledger: &mut Ledger, programs: Option<ProgramCost>, own: Option<OwnCost>) {
    ledger.profiler.bpf_ns = programs.map(|programs| programs.all_ns);
    ledger.profiler.bpf_runs = programs.map(|programs| programs.all_runs);
    ledger.profiler.bpf_counted_ns = programs.map(|programs| programs.counted.0);
    ledger.profiler.tick_ns = programs.map(|programs| programs.tick_ns);
    ledger.profiler.cpu_ns = own.map(|own| own.cpu.0);
    ledger.profiler.rss_bytes = own.map(|own| own.peak_rss_bytes);
}
