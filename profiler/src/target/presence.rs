//! Whether a thread is on a CPU, waits for one, or is blocked, and since when; without eBPF.
//!
//! The kernel counts how often a thread was put on a CPU (`schedstat`'s third number) and how
//! often it was taken off one (the two counts of switches in `status`). While it is on a CPU the
//! first is one more than the second; while it is not they are the same. `/proc` shows both kinds
//! of thread that can run as `R`, and nothing else tells them apart.
//!
//! That is also a proof for a thread that waits for a CPU: the count of departures rises when the
//! thread can no longer turn back, and the other one before it goes on. Read in the order
//! arrivals, departures, memory, arrivals, with the same number each time, the memory was read
//! while the thread did not run.

use procfs::process::Stat;

use crate::sys;
use crate::target::error::TargetError;
use crate::target::process::{Process, Status};
use crate::target::scheduler::SchedulerMark;
use crate::target::tasks::{InKernel, TaskState};
use crate::words::{Cpu, TaskClock, Tid};

/// How often a thread that comes and goes is looked at again.
const ATTEMPTS: usize = 8;
/// Most bytes of a `sched` file.
const MAX_SCHED: u64 = 64 << 10;

/// Where a thread was at a moment.
#[derive(Debug)]
pub enum Presence {
    /// On a CPU.
    OnCpu,
    /// On none; whether it has stayed away, its mark tells.
    Off(OffCpu),
    /// It came and went faster than one can look, or this kernel does not count.
    CannotTell,
}

/// A thread that was on no CPU.
#[derive(Debug)]
pub struct OffCpu {
    /// Its place, which is [`InKernel::Running`] if it waits for a CPU; and whether it has not
    /// run since.
    pub mark: SchedulerMark,
    /// The letter of its state.
    pub state: TaskState,
    /// When it was last on a CPU; of use for a blocked thread alone, since one that was woken may
    /// already wait for another CPU.
    pub left: Option<LeftCpu>,
}

/// When a thread left its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftCpu {
    /// The CPU.
    pub cpu: Cpu,
    /// What that CPU's task clock showed; [`sys::task_clock`] says what it shows now.
    pub clock: TaskClock,
}

impl Process {
    /// Whether a thread is on a CPU.
    ///
    /// # Errors
    /// When it is gone, or the kernel lets nobody look.
    pub fn presence(&self, tid: Tid) -> Result<Presence, TargetError> {
        let status = format!("task/{tid}/status");
        for _ in 0..ATTEMPTS {
            let (schedstat, account) = self.open_account(tid)?;
            let arrivals = account.arrivals.0;
            if arrivals == 0 {
                break;
            }
            let status = Status::read(&self.handle, self.pid(), &status)?;
            let Some(departures) = status.switches else {
                break;
            };
            let mark = |place| SchedulerMark::new(schedstat, account.arrivals, place);
            if arrivals == departures {
                // In this order: a thread that is blocked in the end was so when it was dated.
                let (state, left) = self.left_cpu(tid)?;
                let mark = mark(self.in_kernel(tid)?);
                if mark.still_holds() {
                    return Ok(Presence::Off(OffCpu { mark, state, left }));
                }
                continue;
            }
            let once_more = departures.checked_add(1) == Some(arrivals);
            if once_more && mark(InKernel::Running).still_holds() {
                return Ok(Presence::OnCpu);
            }
        }
        Ok(Presence::CannotTell)
    }

    fn left_cpu(&self, tid: Tid) -> Result<(TaskState, Option<LeftCpu>), TargetError> {
        let file = format!("task/{tid}/stat");
        let stat: Stat = self
            .handle
            .read(&file)
            .map_err(|error| TargetError::of_procfs(self.pid(), &file, error))?;
        let cpu = stat.processor.and_then(|cpu| u32::try_from(cpu).ok());
        // Some kernels have no such file; then nobody knows.
        let sched = self.read_file(&format!("task/{tid}/sched"), MAX_SCHED);
        let sched = sched.unwrap_or_default();
        let clock = sys::exec_start(&String::from_utf8_lossy(&sched));
        let left = cpu.zip(clock).map(|(cpu, clock)| LeftCpu {
            cpu: Cpu(cpu),
            clock,
        });
        Ok((TaskState::of(stat.state), left))
    }
}

#[cfg(test)]
mod tests;
