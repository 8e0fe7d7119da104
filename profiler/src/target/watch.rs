//! A thread that is looked at again and again from outside: what the kernel has counted for it,
//! and whether it is on a CPU, waits for one, or is blocked. Without eBPF.
//!
//! Its counts stay open, so a look at a thread that slept on costs one read, and they are bound to
//! the thread and not to its id. `scheduler` and `presence` say why these counts prove something;
//! here is what is left of them where the kernel shows less.

use std::fs::File;

use procfs::process::Stat;

use crate::target::error::TargetError;
use crate::target::process::{Process, Status};
use crate::target::scheduler::{SchedulerAccount, account};
use crate::target::tasks::{InKernel, TaskFacts, TaskState};
use crate::words::{DurationNs, Generation, InnerTid, Tid};

/// What the kernel has counted for a thread since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Time on a CPU. Of a thread that is on one, as of the scheduler's last tick.
    pub on_cpu: DurationNs,
    /// Time it waited for a CPU, as of the last time it got one; zero where nobody counts.
    pub run_delay: DurationNs,
    /// How often it was put on a CPU; none where nobody counts.
    pub arrivals: Option<Generation>,
}

impl Counts {
    /// From the scheduler's account.
    const fn of_account(account: SchedulerAccount) -> Self {
        Self {
            on_cpu: account.on_cpu,
            run_delay: account.run_delay,
            arrivals: Some(account.arrivals),
        }
    }
}

/// Where a thread stood at a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// On a CPU, or coming and going faster than one can look.
    OnCpu,
    /// Able to run, waiting for a CPU.
    Runnable,
    /// Waiting in the kernel: where, unless the kernel does not let us see that, and its state.
    Blocked(Option<InKernel>),
    /// It has ended and is still shown.
    Ended,
}

/// How a thread's time on a CPU is known.
#[derive(Debug)]
enum Counter {
    /// `schedstat`, held open.
    Open(File),
    /// `schedstat`, opened each time: there are no descriptors left.
    Closed,
    /// `utime` and `stime` of `stat`, in steps of 10 ms as a rule: there is no `schedstat`.
    Stat,
}

/// A thread under watch.
#[derive(Debug)]
pub struct Watched {
    facts: TaskFacts,
    counter: Counter,
}

impl Process {
    /// Begin to watch a thread.
    ///
    /// # Errors
    /// When it is gone.
    pub fn watch(&self, tid: Tid) -> Result<Watched, TargetError> {
        let name = format!("task/{tid}/schedstat");
        let counter = match self.handle.open_relative(&name) {
            Ok(file) => {
                if is_kept(account(&file), kernel_counts) {
                    Counter::Open(file)
                } else {
                    Counter::Stat
                }
            }
            Err(error) => match TargetError::of_procfs(self.pid(), &name, error) {
                TargetError::Proc { .. } => Counter::Closed,
                _ => Counter::Stat,
            },
        };
        // After the counts were opened, so that both are of one thread if that is still there now.
        let facts = self.task(tid)?;
        let watched = Watched { facts, counter };
        watched.counts(self)?;
        Ok(watched)
    }
}

impl Watched {
    /// What was known of it when the watch began.
    #[must_use]
    pub const fn facts(&self) -> &TaskFacts {
        &self.facts
    }

    /// Its id.
    #[must_use]
    pub const fn tid(&self) -> Tid {
        self.facts.tid
    }

    /// Its id as it has it itself.
    #[must_use]
    pub const fn inner(&self) -> Option<InnerTid> {
        self.facts.inner
    }

    /// Whether its time is known only in steps of the kernel's clock tick.
    #[must_use]
    pub const fn is_coarse(&self) -> bool {
        matches!(self.counter, Counter::Stat)
    }

    /// What has been counted for it up to now.
    ///
    /// # Errors
    /// When it has ended.
    pub fn counts(&self, process: &Process) -> Result<Counts, TargetError> {
        let gone = TargetError::Gone { pid: process.pid() };
        match &self.counter {
            Counter::Open(file) => account(file).map(Counts::of_account).ok_or(gone),
            Counter::Closed => {
                let account = process.scheduler_account(self.tid())?;
                Ok(Counts::of_account(account))
            }
            Counter::Stat => {
                let (_, cpu, started) = stat(process, self.tid())?;
                if started != self.facts.started.0 {
                    return Err(gone);
                }
                Ok(Counts {
                    on_cpu: cpu,
                    ..Counts::default()
                })
            }
        }
    }

    /// Where it stands, given what was counted just before.
    ///
    /// # Errors
    /// When it has ended.
    pub fn standing(&self, process: &Process, counts: &Counts) -> Result<Standing, TargetError> {
        let state = match process.in_kernel(self.tid()) {
            // Zeroes are shown of a thread that has ended.
            Ok(InKernel::Blocked { pc, .. }) if pc.0 == 0 => stat(process, self.tid())?.0,
            Ok(place @ InKernel::Blocked { .. }) => {
                return Ok(Standing::Blocked(Some(place)));
            }
            Ok(InKernel::Running) => TaskState::Running,
            Err(error @ TargetError::Gone { .. }) => return Err(error),
            // Another user's file, or a kernel that has none.
            Err(_) => stat(process, self.tid())?.0,
        };
        if state.has_ended() {
            return Ok(Standing::Ended);
        }
        let Some(arrivals) = counts.arrivals else {
            return Ok(match state {
                TaskState::Running => Standing::OnCpu,
                _ => Standing::Blocked(None),
            });
        };
        let status = format!("task/{}/status", self.tid());
        let status = Status::read(&process.handle, process.pid(), &status)?;
        // The letter may already say that it sleeps while it is still on its way off the CPU.
        Ok(match (status.switches, state) {
            (Some(departures), TaskState::Running) if departures == arrivals.0 => {
                Standing::Runnable
            }
            (Some(departures), _) if departures == arrivals.0 => Standing::Blocked(None),
            _ => Standing::OnCpu,
        })
    }

    /// Whether it has not run since `counts`, if it did not then; never where nobody counts.
    #[must_use]
    pub fn stayed(&self, process: &Process, counts: &Counts) -> bool {
        counts.arrivals.is_some()
            && self
                .counts(process)
                .is_ok_and(|now| now.arrivals == counts.arrivals)
    }

    /// The letter of its state.
    ///
    /// # Errors
    /// When it has ended.
    pub fn state(&self, process: &Process) -> Result<TaskState, TargetError> {
        stat(process, self.tid()).map(|(state, ..)| state)
    }
}

/// Whether a thread's account is one: it is all zeroes where nobody counts, and as long as the
/// thread waits for its first CPU.
fn is_kept(account: Option<SchedulerAccount>, kernel_counts: impl Fn() -> bool) -> bool {
    account.is_some_and(|account| account.arrivals.0 != 0 || kernel_counts())
}

/// Whether the kernel counts at all: we have been on a CPU.
fn kernel_counts() -> bool {
    let own = File::open("/proc/thread-self/schedstat");
    own.is_ok_and(|file| account(&file).is_some_and(|own| own.arrivals.0 != 0))
}

/// State, CPU time and start of a thread.
fn stat(process: &Process, tid: Tid) -> Result<(TaskState, DurationNs, u64), TargetError> {
    let file = format!("task/{tid}/stat");
    let stat: Stat = process
        .handle
        .read(&file)
        .map_err(|error| TargetError::of_procfs(process.pid(), &file, error))?;
    let per_tick = 1_000_000_000 / procfs::ticks_per_second().max(1);
    let ticks = stat.utime.saturating_add(stat.stime);
    let cpu = DurationNs(ticks.saturating_mul(per_tick));
    Ok((TaskState::of(stat.state), cpu, stat.starttime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_for_its_first_cpu_is_counted_from_then_on() {
        let account = |arrivals| SchedulerAccount {
            on_cpu: DurationNs(0),
            run_delay: DurationNs(0),
            arrivals: Generation(arrivals),
        };
        assert!(is_kept(Some(account(1)), || false));
        assert!(is_kept(Some(account(0)), || true));
        assert!(!is_kept(Some(account(0)), || false));
        assert!(!is_kept(None, || true));
        assert_eq!(Counts::of_account(account(0)).arrivals, Some(Generation(0)));
    }
}
