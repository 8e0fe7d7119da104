//! The accounts at the end of a run: the samples' sums beside the scheduler's, and what was lost.

use profiler_common::{
    account::Account,
    loss::{Counters, MALFORMED, N_REASONS, REASONS, UNACCOUNTED, UNKNOWN_PROCESS},
};

use super::{
    absence::Away,
    people::{NO_ID, Person},
};
use rustc_hash::FxHashMap;

use crate::{
    aggregate::{Ledger, ProcessIndex, Unsampled},
    source::ProgramCost,
    sys::OwnCost,
    wire::{ExitStatus, Times},
    words::{DurationNs, MonotonicNs, Pid},
};

/// Ticks that reached user space, and those that were given up there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Received {
    /// Ticks of the samples that came out of the ring.
    pub(super) ticks: u64,
    /// Those of them that came late: all but one of a sample's.
    pub(super) late: u64,
    /// Records that could not be decoded, one tick each.
    pub(super) malformed: u64,
    /// Ticks of processes that were no longer known.
    pub(super) unknown_process: u64,
    /// Processes that were there and could not become targets.
    pub(super) not_followed: u64,
    /// When the first sample was taken.
    pub(super) first: Option<MonotonicNs>,
}

/// What is kept of a process when it is over, or the run is.
#[derive(Clone, Debug)]
pub(super) struct Gone {
    pub(super) index: ProcessIndex,
    pub(super) pid: Pid,
    /// When it became a target.
    pub(super) since: MonotonicNs,
    /// When it ended; none when it outlived the run.
    pub(super) ended: Option<MonotonicNs>,
    pub(super) ended_by: Option<ExitStatus>,
    /// Whether its memory was looked at while it lived.
    pub(super) was_read: bool,
    pub(super) has_samples: bool,
    pub(super) unmet: Unsampled,
    pub(super) contradictions: u64,
    pub(super) people: Vec<Person>,
}

impl Gone {
    /// Another one that has the same place in the profile.
    pub(super) fn absorb(&mut self, other: Self) {
        self.ended = other.ended;
        self.ended_by = other.ended_by;
        self.was_read |= other.was_read;
        self.has_samples |= other.has_samples;
        self.unmet = sum([self.unmet, other.unmet].into_iter());
        self.contradictions += other.contradictions;
        let last = self.people.last().map(|person| person.index);
        let fresh = other.people.into_iter();
        self.people
            .extend(fresh.filter(|person| Some(person.index) != last));
    }

    fn seen(&self) -> &'static str {
        match (self.was_read, self.has_samples) {
            (true, _) => "read",
            (false, true) => "inherited",
            (false, false) if self.ended.is_some() => "too_short",
            // It sleeps.
            (false, false) => "unread",
        }
    }
}

fn sum(all: impl Iterator<Item = Unsampled>) -> Unsampled {
    all.fold(Unsampled::default(), |a, b| Unsampled {
        processes: a.processes + b.processes,
        threads: a.threads + b.threads,
        on_cpu_ns: a.on_cpu_ns.saturating_add(b.on_cpu_ns),
    })
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
    gone: &[Gone],
    accounts: &[Account],
    span: Span,
) {
    ledger.ticks = counters.ticks;
    ledger.late_ticks = received.late;
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
    ledger.events_lost = counters.events_lost;
    ledger.not_followed = counters.plans_full + received.not_followed;
    ledger.contradictions = gone.iter().map(|gone| gone.contradictions).sum();
    ledger.unsampled = sum(gone.iter().map(|gone| gone.unmet));
    let too_short = gone.iter().filter(|gone| gone.seen() == "too_short");
    ledger.unsampled.processes = too_short.count() as u64;
    let accounts: FxHashMap<(u32, u32), &Account> = accounts
        .iter()
        .map(|account| ((account.tgid, account.tid), account))
        .collect();
    for process in gone {
        let lives = process.ended.is_none();
        let account = |person: &Person| {
            let key = (process.pid.0, person.tid.0);
            accounts.get(&key).copied().filter(|_| lives)
        };
        close_process(ledger, process, account, span);
    }
}

fn close_process<'a>(
    ledger: &mut Ledger,
    process: &Gone,
    account: impl Fn(&Person) -> Option<&'a Account>,
    span: Span,
) {
    let Span { began, end, .. } = span;
    let mut on_cpu = (process.unmet.threads > 0).then_some(process.unmet.on_cpu_ns);
    for person in &process.people {
        let Some(thread) = ledger.threads.get_mut(person.index.0 as usize) else {
            continue;
        };
        thread.pthread_id = person.pthread_id.map(|id| id.0);
        thread.matched_by = person
            .matched_by
            .iter()
            .map(|rung| rung.key().to_owned())
            .collect();
        let times = match (person.ended, account(person)) {
            // The accounts are those of the threads that had an id.
            _ if person.tid == NO_ID => None,
            (Some((times, _)), _) => Some(times),
            (None, Some(account)) => Some(times_until(account, end)),
            (None, None) => None,
        };
        thread.scheduler_ns = times.map(|times| times.on_cpu.0);
        if let Some(own) = thread.scheduler_ns {
            on_cpu = Some(on_cpu.unwrap_or(0).saturating_add(own));
        }
        if span.off_cpu {
            thread.runnable_ns = times.map(|times| times.runnable.0);
            thread.blocked_ns = times.map(|times| times.blocked.0);
            // Threads that were there before: a child is found later than the run begins, by as much as
            // finding those before it took.
            let found = began.max(process.since);
            let born = person.born.map_or(found, |born| born.max(found));
            let died = person.ended.map_or(end, |(_, time)| time);
            thread.wall_ns = times.map(|_| died.0.saturating_sub(born.0));
        }
    }
    let Some(row) = ledger.processes.get_mut(process.index.0 as usize) else {
        return;
    };
    let seconds = |time: MonotonicNs| time.0.saturating_sub(began.0) as f64 / 1e9;
    row.scheduler_ns = on_cpu;
    row.started_s = seconds(process.since);
    row.ended_s = process.ended.map(seconds);
    row.ended_by = process.ended_by.map(|status| status.to_string());
    process.seen().clone_into(&mut row.seen);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        aggregate::{ProcessAccount, ThreadAccount, ThreadIndex},
        words::Tid,
    };

    /// On a busy machine a child was found 0.9 s after the run had begun, and its thread was said to
    /// have lived all of that too: 7.3 s, of which it was on a CPU, runnable or blocked for 6.4 s.
    #[test]
    fn a_thread_of_a_child_that_was_found_later_lives_from_then_on() {
        let mut ledger = Ledger {
            processes: vec![ProcessAccount::default()],
            threads: vec![ThreadAccount::default()],
            ..Ledger::default()
        };
        let person = Person {
            index: ThreadIndex(0),
            tid: Tid(7),
            pthread_id: None,
            matched_by: Vec::new(),
            ended: Some((Times::default(), MonotonicNs(7_300))),
            born: None,
        };
        let child = Gone {
            index: ProcessIndex(0),
            pid: Pid(7),
            since: MonotonicNs(1_900),
            ended: Some(MonotonicNs(7_300)),
            ended_by: None,
            was_read: true,
            has_samples: true,
            unmet: Unsampled::default(),
            contradictions: 0,
            people: vec![person],
        };
        let span = Span {
            began: MonotonicNs(1_000),
            end: MonotonicNs(9_000),
            off_cpu: true,
        };
        close_process(&mut ledger, &child, |_| None, span);
        assert_eq!(ledger.threads[0].wall_ns, Some(5_400));
    }
}
