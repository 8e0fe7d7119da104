//! When a thread last ran, from outside the kernel: the proof that a stack read at leisure is
//! exact, for the commands that work without eBPF.
//!
//! The proof is four steps in this order, and each is needed:
//!
//! 1. read how often the thread was put on a CPU (`schedstat`'s third number, which the kernel
//!    bumps in `sched_info_arrive` at every switch to it);
//! 2. read `syscall`, which the kernel answers with numbers only when it found the thread really
//!    off the CPU (`wait_task_inactive`). The state letter would not do: a thread is already `S`
//!    a moment before it leaves the CPU, and can turn back and run on without any switch;
//! 3. walk its stack;
//! 4. read the first number again. Unchanged, the thread was off the CPU in step 2 and was not
//!    put on one from before it until now, so it did not run during the walk.
//!
//! A thread that can run but waits for a CPU gets no proof by these steps; `presence` has one.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::target::error::TargetError;
use crate::target::process::Process;
use crate::target::tasks::{InKernel, numbers};
use crate::words::{DurationNs, Generation, RemoteAddr, Tid};

/// What the scheduler says of a thread since it started (`/proc/PID/task/TID/schedstat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerAccount {
    /// Time on a CPU, as of its last switch or scheduler tick.
    pub on_cpu: DurationNs,
    /// Time it could run and had no CPU.
    pub run_delay: DurationNs,
    /// How often it was put on a CPU.
    pub arrivals: Generation,
}

impl SchedulerAccount {
    fn parse(line: &[u8]) -> Option<Self> {
        match numbers::<u64>(line)[..] {
            [on_cpu, run_delay, arrivals] => Some(Self {
                on_cpu: DurationNs(on_cpu),
                run_delay: DurationNs(run_delay),
                arrivals: Generation(arrivals),
            }),
            _ => None,
        }
    }
}

/// A thread seen asleep; [`SchedulerMark::still_holds`] tells whether it slept on until now.
///
/// It keeps the thread's `schedstat` open, which is bound to the thread and not to its id.
#[derive(Debug)]
pub struct SchedulerMark {
    schedstat: File,
    arrivals: Generation,
    place: InKernel,
}

/// Whether a thread is asleep.
#[derive(Debug)]
pub enum Asleep {
    /// It is.
    Yes(SchedulerMark),
    /// It is on a CPU or waits for one.
    No,
    /// This kernel keeps no `schedstat` (built without `CONFIG_SCHED_INFO`), so a walk from
    /// outside cannot be proven.
    CannotTell,
}

impl SchedulerMark {
    pub(super) fn new(schedstat: File, arrivals: Generation, place: InKernel) -> Self {
        Self {
            schedstat,
            arrivals,
            place,
        }
    }

    /// The thread was put on a CPU this often: the same number at another time, both times
    /// asleep, means that it did not run between.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.arrivals
    }

    /// Where it sleeps.
    #[must_use]
    pub fn place(&self) -> &InKernel {
        &self.place
    }

    /// The user stack pointer it sleeps with.
    #[must_use]
    pub fn stack_pointer(&self) -> Option<RemoteAddr> {
        self.place.stack_pointer()
    }

    /// Whether the thread has not run since the mark was made; false also when it has ended.
    #[must_use]
    pub fn still_holds(&self) -> bool {
        account(&self.schedstat).is_some_and(|now| now.arrivals == self.arrivals)
    }
}

impl Process {
    /// Note that a thread sleeps: the steps 1 and 2 of the proof.
    ///
    /// # Errors
    /// When the thread is gone, or the kernel does not let the profiler look.
    pub fn mark(&self, tid: Tid) -> Result<Asleep, TargetError> {
        let (schedstat, before) = self.open_account(tid)?;
        // A thread that is there was put on a CPU at least once, unless nobody counts.
        if before.arrivals == Generation(0) {
            return Ok(Asleep::CannotTell);
        }
        Ok(match self.in_kernel(tid)? {
            InKernel::Running => Asleep::No,
            place @ InKernel::Blocked { .. } => {
                Asleep::Yes(SchedulerMark::new(schedstat, before.arrivals, place))
            }
        })
    }

    /// The scheduler's account of a thread; all zeroes on a kernel that keeps none.
    ///
    /// # Errors
    /// When the thread is gone.
    pub fn scheduler_account(&self, tid: Tid) -> Result<SchedulerAccount, TargetError> {
        self.open_account(tid).map(|(_, account)| account)
    }

    pub(super) fn open_account(&self, tid: Tid) -> Result<(File, SchedulerAccount), TargetError> {
        let name = format!("task/{tid}/schedstat");
        let file = self
            .handle
            .open_relative(&name)
            .map_err(|error| TargetError::of_procfs(self.pid(), &name, error))?;
        let account = account(&file).ok_or(TargetError::Gone { pid: self.pid() })?;
        Ok((file, account))
    }
}

/// Read the account afresh: the kernel makes the text anew for each read from offset 0.
pub(super) fn account(schedstat: &File) -> Option<SchedulerAccount> {
    let mut line = [0; 96];
    let bytes = schedstat.read_at(&mut line, 0).ok()?;
    SchedulerAccount::parse(line.get(..bytes)?)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use super::*;
    use crate::words::Pid;

    #[test]
    fn an_account_has_three_numbers() {
        assert_eq!(
            SchedulerAccount::parse(b"12 34 5\n"),
            Some(SchedulerAccount {
                on_cpu: DurationNs(12),
                run_delay: DurationNs(34),
                arrivals: Generation(5),
            })
        );
        for line in [&b""[..], b"1 2\n", b"1 2 3 4\n", b"a b c\n"] {
            assert_eq!(SchedulerAccount::parse(line), None);
        }
    }

    #[test]
    fn a_mark_holds_while_the_thread_sleeps_and_no_longer() {
        let me = Process::open(Pid(std::process::id())).expect("ourselves");
        let (wake, woken) = mpsc::channel::<()>();
        let (answer, answered) = mpsc::channel::<u32>();
        let sleeper = std::thread::spawn(move || {
            let tid = nix::unistd::gettid().as_raw().cast_unsigned();
            loop {
                if answer.send(tid).is_err() || woken.recv().is_err() {
                    return;
                }
            }
        });
        let tid = Tid(answered.recv().expect("its id"));
        let mark = loop {
            match me.mark(tid).expect("our own thread") {
                Asleep::Yes(mark) => break mark,
                Asleep::No => std::thread::yield_now(),
                Asleep::CannotTell => return,
            }
        };
        assert!(mark.still_holds());
        assert!(mark.stack_pointer().is_some());
        wake.send(()).expect("it listens");
        assert_eq!(answered.recv(), Ok(tid.0));
        assert!(!mark.still_holds());
        drop(wake);
        assert!(sleeper.join().is_ok());
    }

    #[test]
    fn what_is_read_under_a_mark_that_holds_did_not_change_meanwhile() {
        const PROOFS: usize = 2000;
        let me = Process::open(Pid(std::process::id())).expect("ourselves");
        let written = Arc::new([const { AtomicU64::new(0) }; 2]);
        let done = Arc::new(AtomicBool::new(false));
        let (here, ready) = mpsc::channel();
        let (words, stop) = (Arc::clone(&written), Arc::clone(&done));
        // It writes two words whenever it runs, and is asleep for moments between.
        let writer = std::thread::spawn(move || {
            let _ = here.send(nix::unistd::gettid());
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..500 {
                    words[0].fetch_add(1, Ordering::SeqCst);
                    words[1].fetch_add(1, Ordering::SeqCst);
                }
                std::thread::park_timeout(Duration::from_micros(30));
            }
        });
        let tid = Tid(ready.recv().expect("it runs").as_raw().cast_unsigned());
        let mut proofs = 0;
        while proofs < PROOFS {
            let mark = match me.mark(tid).expect("our own thread") {
                Asleep::Yes(mark) => mark,
                Asleep::No => continue,
                Asleep::CannotTell => break,
            };
            let second = written[1].load(Ordering::SeqCst);
            for _ in 0..500 {
                std::hint::spin_loop();
            }
            let first = written[0].load(Ordering::SeqCst);
            if mark.still_holds() {
                assert_eq!(first, second, "it ran between the two reads");
                proofs += 1;
            }
        }
        done.store(true, Ordering::Relaxed);
        writer.thread().unpark();
        assert!(writer.join().is_ok());
    }
}
