//! Why a target cannot be profiled, or can no longer: what, where, and what to type next.

use std::fmt;
use std::io;

use nix::libc;
use procfs::ProcError;

use crate::source::hindrances::Yama;
use crate::words::{Pid, Tid};

/// A process that cannot be opened or asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetError {
    /// There is no such process.
    NoSuchProcess {
        /// The id that was asked for.
        pid: Pid,
    },
    /// The id is that of a thread which does not lead its process.
    NotALeader {
        /// The id that was asked for.
        tid: Tid,
        /// The process that it belongs to.
        leader: Pid,
    },
    /// The kernel's own thread: it has no memory.
    KernelThread {
        /// The id that was asked for.
        pid: Pid,
    },
    /// It has ended; its parent has not collected it yet.
    Zombie {
        /// The id that was asked for.
        pid: Pid,
    },
    /// The kernel does not let the profiler look at this process.
    Refused {
        /// The process.
        pid: Pid,
        /// The user it runs as, where that is visible.
        uid: Option<u32>,
    },
    /// Its user may look at it, but the kernel lets nobody without privilege read its memory.
    Shut {
        /// The process.
        pid: Pid,
        /// The setting that may be why; if it forbids nothing, the program itself is.
        yama: Yama,
    },
    /// It ended while the profiler looked.
    Gone {
        /// The process.
        pid: Pid,
    },
    /// A file of `/proc` could not be read or understood.
    Proc {
        /// The process.
        pid: Pid,
        /// The file, below `/proc/PID`.
        file: String,
        /// What went wrong.
        why: String,
    },
}

impl TargetError {
    /// The error of reading `/proc/PID/file`.
    pub(super) fn of_io(pid: Pid, file: &str, error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ESRCH | libc::ENOENT) => Self::Gone { pid },
            Some(libc::EACCES | libc::EPERM) => Self::Refused { pid, uid: None },
            _ => Self::Proc {
                pid,
                file: file.to_owned(),
                why: error.to_string(),
            },
        }
    }

    /// The same of an error that the procfs library met.
    pub(super) fn of_procfs(pid: Pid, file: &str, error: ProcError) -> Self {
        match error {
            ProcError::PermissionDenied(_) => Self::Refused { pid, uid: None },
            ProcError::NotFound(_) => Self::Gone { pid },
            ProcError::Io(error, _) => Self::of_io(pid, file, &error),
            other => Self::Proc {
                pid,
                file: file.to_owned(),
                why: other.to_string(),
            },
        }
    }

    /// A file of `/proc/PID` whose contents make no sense.
    pub(super) fn malformed(pid: Pid, file: &str, what: &str) -> Self {
        Self::Proc {
            pid,
            file: file.to_owned(),
            why: what.to_owned(),
        }
    }
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchProcess { pid } => write!(
                f,
                "there is no process `{pid}`: `pgrep -a python` lists those that may be meant"
            ),
            Self::NotALeader { tid, leader } => write!(
                f,
                "`{tid}` is a thread of process `{leader}`: use `--pid {leader}`"
            ),
            Self::KernelThread { pid } => write!(
                f,
                "`{pid}` is a thread of the kernel and has no memory to look at: \
                 `pgrep -a python` lists those that may be meant"
            ),
            Self::Zombie { pid } => write!(
                f,
                "process `{pid}` has already ended and only waits for its parent: \
                 `pgrep -a python` lists those that still run"
            ),
            Self::Refused { pid, uid } => {
                write!(f, "may not look into process `{pid}`")?;
                if let Some(uid) = uid {
                    write!(f, " of user id {uid}")?;
                }
                f.write_str(if nix::unistd::geteuid().is_root() {
                    ": this root may not (no CAP_SYS_PTRACE here, or the process is guarded): \
                     run the profiler outside of the container, or give it `--cap-add SYS_PTRACE`"
                } else {
                    ": run the profiler with `sudo`, or as that user"
                })
            }
            Self::Shut { pid, yama } => {
                write!(f, "may not read the memory of process `{pid}`: ")?;
                match yama {
                    Yama::Absent | Yama::Scope(0) => f.write_str(
                        "the program shuts itself off (`prctl(PR_SET_DUMPABLE)`), or can do more \
                         than the profiler: run the profiler with `sudo`",
                    ),
                    Yama::Scope(scope) => {
                        write!(f, "kernel.yama.ptrace_scope is {scope}: {}", yama.advice())
                    }
                }
            }
            Self::Gone { pid } => write!(f, "process `{pid}` ended while the profiler looked"),
            Self::Proc { pid, file, why } => write!(
                f,
                "cannot make sense of `/proc/{pid}/{file}`: {why}; \
                 `profiler doctor --pid {pid}` says what works"
            ),
        }
    }
}

impl std::error::Error for TargetError {}
