//! The threads of a process as the kernel has them: which there are, what each is called, what
//! it is doing, and where its stack is while it is inside the kernel.
//!
//! Not here: which of them are Python's (`threads`) and when they last ran (`scheduler`).

use std::fmt;

use nix::dir::Dir;
use nix::errno::Errno;
use procfs::process::Stat;

use crate::target::error::TargetError;
use crate::target::process::{Process, Status};
use crate::words::{DurationNs, InnerTid, RemoteAddr, StartTime, Tid};

/// Most threads of one process that are looked at.
const MAX_TASKS: usize = 1 << 17;
/// Most bytes of one of the one-line files.
const MAX_LINE: u64 = 4096;

/// What a thread is doing, by the letter of its `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskState {
    /// `R`: on a CPU, or waiting for one.
    Running,
    /// `S`: waiting, a signal wakes it.
    Sleeping,
    /// `D`: waiting, nothing but the event wakes it.
    Waiting,
    /// `T`, `t`: stopped by a signal or a debugger.
    Stopped,
    /// `I`, `P`: idle or parked in the kernel.
    Idle,
    /// `Z`, `X`, `x`: it has ended.
    Ended,
    /// A letter that is not known.
    Other(char),
}

impl TaskState {
    pub(super) fn of(letter: char) -> Self {
        match letter {
            'R' => Self::Running,
            'S' => Self::Sleeping,
            'D' => Self::Waiting,
            'T' | 't' => Self::Stopped,
            'I' | 'P' => Self::Idle,
            'Z' | 'X' | 'x' => Self::Ended,
            other => Self::Other(other),
        }
    }

    /// The letter that stands for it.
    pub(super) fn letter(self) -> char {
        match self {
            Self::Running => 'R',
            Self::Sleeping => 'S',
            Self::Waiting => 'D',
            Self::Stopped => 'T',
            Self::Idle => 'I',
            Self::Ended => 'Z',
            Self::Other(letter) => letter,
        }
    }

    /// Whether it runs no more, for good.
    #[must_use]
    pub fn has_ended(self) -> bool {
        self == Self::Ended
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("running"),
            Self::Sleeping => f.write_str("sleeping"),
            Self::Waiting => f.write_str("waiting"),
            Self::Stopped => f.write_str("stopped"),
            Self::Idle => f.write_str("idle"),
            Self::Ended => f.write_str("ended"),
            Self::Other(letter) => write!(f, "state {letter}"),
        }
    }
}

/// One thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFacts {
    /// Its id.
    pub tid: Tid,
    /// When it started: with the id, who it is for good.
    pub started: StartTime,
    /// Its id as it sees it itself; none before Linux 4.1.
    pub inner: Option<InnerTid>,
    /// Its name (`comm`), at most 15 bytes, undecodable ones replaced.
    pub name: String,
    /// What it is doing.
    pub state: TaskState,
    /// User and system time it has used, in steps of one clock tick (10 ms as a rule).
    pub cpu: DurationNs,
    /// Where the process's first stack begins; the same for every thread of it. None where the
    /// kernel does not say.
    pub start_stack: Option<RemoteAddr>,
    /// Whether it is one of the kernel's own, at work for the process (`io_uring`): it is among the
    /// process's threads, never runs its code, and has the TLS base of the thread that it was made
    /// for.
    pub is_kernels: bool,
}

/// `PF_IO_WORKER`, since Linux 5.12; before, such threads were no process's.
/// <https://github.com/torvalds/linux/blob/v6.12/include/linux/sched.h#L1682>
const IO_WORKER: u32 = 0x10;

/// Where a thread is that has entered the kernel, by `/proc/PID/task/TID/syscall`.
///
/// The kernel answers with numbers only when it found the thread *off* the CPU, before and after
/// it looked; so they belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InKernel {
    /// On a CPU or waiting for one: it has no place to be told.
    Running,
    /// Blocked.
    Blocked {
        /// The system call; none when it blocked in a page fault or a signal stop.
        syscall: Option<u32>,
        /// The system call's six arguments, zeroes when there is none.
        args: [u64; 6],
        /// User stack pointer.
        sp: RemoteAddr,
        /// User instruction pointer.
        pc: RemoteAddr,
    },
}

impl InKernel {
    /// The user stack pointer, while it can be told.
    #[must_use]
    pub fn stack_pointer(&self) -> Option<RemoteAddr> {
        match self {
            Self::Running => None,
            Self::Blocked { sp, .. } => Some(*sp),
        }
    }

    /// `running`, `NR A0 … A5 SP PC` or `-1 SP PC`. procfs's own reader does not know the last.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let line = line.trim();
        if line == "running" {
            return Some(Self::Running);
        }
        let mut words = line.split_ascii_whitespace();
        let number: i64 = words.next()?.parse().ok()?;
        let mut hex = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
        let mut args = [0; 6];
        let syscall = u32::try_from(number).ok();
        if syscall.is_some() {
            for arg in &mut args {
                *arg = hex()?;
            }
        }
        Some(Self::Blocked {
            syscall,
            args,
            sp: RemoteAddr(hex()?),
            pc: RemoteAddr(hex()?),
        })
    }
}

impl Process {
    /// The ids of its threads now, in the kernel's order (oldest first), at most 131072.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn tids(&self) -> Result<Vec<Tid>, TargetError> {
        let pid = self.pid();
        let folder = self
            .handle
            .open_relative("task")
            .map_err(|error| TargetError::of_procfs(pid, "task", error))?;
        // Not procfs's own listing, which opens the folder of every single thread.
        let of_errno = |errno: Errno| TargetError::of_io(pid, "task", &errno.into());
        let mut folder = Dir::from_fd(folder.into()).map_err(of_errno)?;
        let mut tids = Vec::new();
        for entry in folder.iter() {
            let entry = entry.map_err(of_errno)?;
            // Anything but a number is `.` or `..`.
            let number = entry
                .file_name()
                .to_str()
                .ok()
                .and_then(|name| name.parse().ok());
            if tids.len() < MAX_TASKS {
                tids.extend(number.map(Tid));
            }
        }
        if tids.is_empty() {
            return Err(TargetError::Gone { pid });
        }
        Ok(tids)
    }

    /// The facts of one thread.
    ///
    /// # Errors
    /// When the thread or the process is gone.
    pub fn task(&self, tid: Tid) -> Result<TaskFacts, TargetError> {
        let pid = self.pid();
        let file = format!("task/{tid}/stat");
        let stat: Stat = self
            .handle
            .read(&file)
            .map_err(|error| TargetError::of_procfs(pid, &file, error))?;
        let inner = match self.inner_pids() {
            // No other namespace than that of `/proc`, and threads are all in their process's.
            [_] => Some(InnerTid(tid.0)),
            _ => {
                let status = Status::read(&self.handle, pid, &format!("task/{tid}/status"))?;
                status.inner.last().copied()
            }
        };
        let per_tick = 1_000_000_000 / procfs::ticks_per_second().max(1);
        let ticks = stat.utime.saturating_add(stat.stime);
        Ok(TaskFacts {
            tid,
            started: StartTime(stat.starttime),
            inner,
            name: stat.comm,
            state: TaskState::of(stat.state),
            cpu: DurationNs(ticks.saturating_mul(per_tick)),
            // The kernel shows 0 or 1 instead of an address to those who may not know it.
            start_stack: Some(RemoteAddr(stat.startstack)).filter(|addr| addr.0 > 1),
            is_kernels: stat.flags & IO_WORKER != 0,
        })
    }

    /// The facts of every thread there is now; one that ends meanwhile is left out.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn all_tasks(&self) -> Result<Vec<TaskFacts>, TargetError> {
        let mut all = Vec::new();
        for tid in self.tids()? {
            match self.task(tid) {
                Ok(facts) => all.push(facts),
                Err(TargetError::Gone { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// Where the thread is, if it is off the CPU inside the kernel.
    ///
    /// # Errors
    /// When it is gone, or the kernel lets nobody look (it takes the right to read its memory).
    pub fn in_kernel(&self, tid: Tid) -> Result<InKernel, TargetError> {
        let file = format!("task/{tid}/syscall");
        let line = self.read_file(&file, MAX_LINE)?;
        InKernel::parse(&String::from_utf8_lossy(&line)).ok_or_else(|| {
            TargetError::malformed(self.pid(), &file, "neither numbers nor `running`")
        })
    }

    /// The kernel function the thread waits in; none while it runs, and where the kernel does
    /// not say.
    ///
    /// # Errors
    /// When it is gone.
    pub fn waits_in(&self, tid: Tid) -> Result<Option<String>, TargetError> {
        let name = self.read_file(&format!("task/{tid}/wchan"), MAX_LINE)?;
        let name = String::from_utf8_lossy(&name).trim().to_owned();
        Ok(Some(name).filter(|name| !name.is_empty() && name != "0"))
    }
}

/// The numbers of a line, in their order; words that are none are skipped.
pub(super) fn numbers<T: std::str::FromStr>(line: &[u8]) -> Vec<T> {
    String::from_utf8_lossy(line)
        .split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Option<InKernel>) {
        assert_eq!(InKernel::parse(line), expected, "{line:?}");
    }

    #[test]
    fn a_syscall_line_of_each_form_is_understood() {
        check("running\n", Some(InKernel::Running));
        check(
            "230 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffd00 0x7f8900\n",
            Some(InKernel::Blocked {
                syscall: Some(230),
                args: [1, 2, 3, 4, 5, 6],
                sp: RemoteAddr(0x7f_fd00),
                pc: RemoteAddr(0x7f_8900),
            }),
        );
        check(
            "-1 0x7ffd00 0x7f8900\n",
            Some(InKernel::Blocked {
                syscall: None,
                args: [0; 6],
                sp: RemoteAddr(0x7f_fd00),
                pc: RemoteAddr(0x7f_8900),
            }),
        );
        for line in [
            "",
            "running away",
            "7",
            "7 0x1",
            "1 2 3 4 5 6 7 8 9",
            "-1 0xg 0x1",
        ] {
            check(line, None);
        }
    }

    #[test]
    fn every_thread_is_listed_with_its_name() {
        let me = Process::open(crate::words::Pid(std::process::id())).expect("ourselves");
        let (stay, stop) = std::sync::mpsc::channel::<()>();
        let (here, ready) = std::sync::mpsc::channel();
        let other = std::thread::Builder::new()
            .name("the other".to_owned())
            .spawn(move || here.send(nix::unistd::gettid()).is_ok() && stop.recv().is_ok())
            .expect("a thread");
        let tid = Tid(ready.recv().expect("it runs").as_raw().cast_unsigned());
        let tasks = me.all_tasks().expect("our threads");
        let task = tasks.iter().find(|task| task.tid == tid).expect("listed");
        assert_eq!(task.name, "the other");
        assert_eq!(task.inner, Some(InnerTid(tid.0)));
        assert!(task.start_stack.is_some());
        drop(stay);
        assert!(other.join().is_ok());
    }
}
