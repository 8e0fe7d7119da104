//! A process: who it is for good, and whether it is still there.
//!
//! The handle is a descriptor of its `/proc` folder, so everything asked through it is about
//! this very process or fails: an id that was given to somebody else never answers.
//! Not here: its memory (`live`), mappings (`maps`) and threads (`tasks`).

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use procfs::process::Stat;

use crate::sys;
use crate::target::error::TargetError;
use crate::target::tasks::{self, TaskState};
use crate::words::{InnerTid, Pid, StartTime, Tid};

/// `PF_KTHREAD` of `include/linux/sched.h`.
const KERNEL_THREAD: u32 = 0x0020_0000;
/// Most bytes of a command line that are looked at.
const MAX_COMMAND_LINE: u64 = 64 << 10;
/// Most bytes of one small file of `/proc`.
const MAX_FILE: u64 = 1 << 20;

/// A process for good: the id alone may be given to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// The id.
    pub pid: Pid,
    /// When it started.
    pub started: StartTime,
}

/// What of the target's surroundings is not the profiler's own. None where it could not be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    /// It numbers processes by itself: its thread ids are not ours.
    pub other_pids: Option<bool>,
    /// It has mounts of its own.
    pub other_mounts: Option<bool>,
    /// Its `/` is another folder than ours (a container or a chroot).
    pub other_root: Option<bool>,
}

/// An open process.
#[derive(Clone, Debug)]
pub struct Process {
    pub(super) handle: Arc<procfs::process::Process>,
    pidfd: Option<Arc<OwnedFd>>,
    identity: Identity,
    uid: u32,
    exe: Option<PathBuf>,
    inner_pids: Vec<InnerTid>,
}

impl Process {
    /// Open a process that can be profiled.
    ///
    /// # Errors
    /// Everything that would make looking at it impossible: no such process, a thread's id, a
    /// thread of the kernel, a zombie, another user's process without the privilege.
    pub fn open(pid: Pid) -> Result<Self, TargetError> {
        let absent = TargetError::NoSuchProcess { pid };
        let Ok(number) = i32::try_from(pid.0) else {
            return Err(absent);
        };
        let handle =
            procfs::process::Process::new(number).map_err(|error| match TargetError::of_procfs(
                pid, "", error,
            ) {
                TargetError::Gone { .. } => absent.clone(),
                other => other,
            })?;
        let handle = Arc::new(handle);
        // The pidfd is opened by number. That it means the same process is proven by the folder
        // still answering afterwards: its process lived all the time, so the number was its own.
        let pidfd = sys::pidfd_open(pid).ok().map(Arc::new);
        let status = Status::read(&handle, pid, "status")?;
        if status.leader != pid {
            return Err(TargetError::NotALeader {
                tid: Tid(pid.0),
                leader: status.leader,
            });
        }
        let stat = leader_stat(&handle, pid)?;
        if stat.flags & KERNEL_THREAD != 0 {
            return Err(TargetError::KernelThread { pid });
        }
        let process = Self {
            identity: Identity {
                pid,
                started: StartTime(stat.starttime),
            },
            uid: status.uid,
            exe: None,
            inner_pids: status.inner,
            handle,
            pidfd,
        };
        if TaskState::of(stat.state).has_ended() && !process.has_live_threads()? {
            return Err(TargetError::Zombie { pid });
        }
        let exe = process.find_exe()?;
        // A link may be read by more than may read memory: Yama and an undumpable program shut
        // out even their own user.
        if let Err(TargetError::Refused { .. }) = process.open_memory()
            && !crate::target::live::may_read(pid)
        {
            return Err(TargetError::Shut { pid });
        }
        Ok(Self { exe, ..process })
    }

    /// The link is also what tells a process that may not be looked at.
    fn find_exe(&self) -> Result<Option<PathBuf>, TargetError> {
        match self.handle.exe() {
            Ok(exe) => Ok(Some(exe)),
            Err(error) => match TargetError::of_procfs(self.pid(), "exe", error) {
                TargetError::Refused { pid, .. } => Err(TargetError::Refused {
                    pid,
                    uid: Some(self.uid),
                }),
                _ => Ok(fs::read_link(self.place("exe")).ok()),
            },
        }
    }

    fn has_live_threads(&self) -> Result<bool, TargetError> {
        Ok(self.first_living()?.is_some())
    }

    fn first_living(&self) -> Result<Option<Tid>, TargetError> {
        let lives = |tid: &Tid| self.task(*tid).is_ok_and(|facts| !facts.state.has_ended());
        Ok(self.tids()?.into_iter().find(lives))
    }

    /// Who speaks for the process when its first thread has ended: the first that lives. The
    /// kernel has the memory, the root and the program of a *thread*, and those of a thread that
    /// has ended are none, also while the rest of its process runs on.
    pub(super) fn stand_in(&self) -> Option<Tid> {
        let first = leader_stat(&self.handle, self.pid()).ok()?;
        if !TaskState::of(first.state).has_ended() {
            return None;
        }
        self.first_living().ok()?
    }

    /// A file below `/proc/PID`, as a thread has it that lives.
    pub(super) fn place(&self, file: &str) -> PathBuf {
        let pid = self.pid();
        PathBuf::from(match self.stand_in() {
            None => format!("/proc/{pid}/{file}"),
            Some(tid) => format!("/proc/{pid}/task/{tid}/{file}"),
        })
    }

    /// Its memory, as a file that stays that memory whoever ends.
    pub(super) fn open_memory(&self) -> Result<File, TargetError> {
        let file = match self.stand_in() {
            None => String::from("mem"),
            Some(tid) => format!("task/{tid}/mem"),
        };
        self.handle
            .open_relative(&file)
            .map_err(|error| TargetError::of_procfs(self.pid(), &file, error))
    }

    /// Its id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.identity.pid
    }

    /// Its id and start.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The user it runs as (the real uid).
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Its executable, a path below its own root; ` (deleted)` at the end is the kernel's.
    /// None when no thread of it gives one.
    #[must_use]
    pub fn exe(&self) -> Option<&Path> {
        self.exe.as_deref()
    }

    /// Its id in each pid namespace it is in, from the one of `/proc` inwards.
    #[must_use]
    pub fn inner_pids(&self) -> &[InnerTid] {
        &self.inner_pids
    }

    /// Its command line, at most 64 KiB of it, undecodable bytes replaced. Empty when it erased it.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn command_line(&self) -> Result<Vec<String>, TargetError> {
        let bytes = self.read_living("cmdline", MAX_COMMAND_LINE)?;
        let text = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
        if text.is_empty() {
            return Ok(Vec::new());
        }
        Ok(text
            .split(|&byte| byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect())
    }

    /// The processes that it has started and that live, oldest first; none where the kernel does
    /// not say (built without `CONFIG_PROC_CHILDREN`).
    #[must_use]
    pub fn children(&self) -> Vec<Pid> {
        let tids = self.tids().unwrap_or_default();
        let of_thread = |tid: Tid| {
            let list = self.read_file(&format!("task/{tid}/children"), MAX_FILE);
            tasks::numbers::<u32>(&list.unwrap_or_default())
        };
        let mut children: Vec<Pid> = tids.into_iter().flat_map(of_thread).map(Pid).collect();
        children.sort_unstable();
        children
    }

    /// How its surroundings differ from the profiler's.
    #[must_use]
    pub fn namespaces(&self) -> Namespaces {
        let differs = |name: &str| {
            let theirs = fs::read_link(self.place(&format!("ns/{name}"))).ok()?;
            let ours = fs::read_link(format!("/proc/self/ns/{name}")).ok()?;
            Some(theirs != ours)
        };
        let other_root = || {
            let theirs = fs::metadata(self.place("root/.")).ok()?;
            let ours = fs::metadata("/").ok()?;
            Some((theirs.dev(), theirs.ino()) != (ours.dev(), ours.ino()))
        };
        Namespaces {
            other_pids: differs("pid"),
            other_mounts: differs("mnt"),
            other_root: other_root(),
        }
    }

    /// Whether it has ended (a zombie has).
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ends_within(Duration::ZERO)
    }

    /// Wait for its end, at most `patience`; true when it has ended. Without pidfds (before
    /// Linux 5.3) it does not wait but only looks.
    #[must_use]
    pub fn ends_within(&self, patience: Duration) -> bool {
        if let Some(pidfd) = self.pidfd()
            && let Ok(ended) = sys::end_of(pidfd, patience)
        {
            return ended;
        }
        let Ok(stat) = leader_stat(&self.handle, self.pid()) else {
            return true;
        };
        TaskState::of(stat.state).has_ended() && !self.has_live_threads().unwrap_or(false)
    }

    /// A descriptor that becomes readable when the process ends, for an event loop.
    #[must_use]
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(|fd| fd.as_fd())
    }

    /// At most `cap` bytes of `/proc/PID/file`.
    pub(super) fn read_file(&self, file: &str, cap: u64) -> Result<Vec<u8>, TargetError> {
        read_file(&self.handle, self.pid(), file, cap)
    }

    /// The same of a file that is empty, or not there, for a first thread that has ended.
    pub(super) fn read_living(&self, file: &str, cap: u64) -> Result<Vec<u8>, TargetError> {
        let read = self.read_file(file, cap);
        if !matches!(&read, Ok(bytes) if bytes.is_empty())
            && !matches!(&read, Err(TargetError::Gone { .. }))
        {
            return read;
        }
        match self.stand_in() {
            Some(tid) => self.read_file(&format!("task/{tid}/{file}"), cap),
            None => read,
        }
    }
}

fn read_file(
    handle: &procfs::process::Process,
    pid: Pid,
    file: &str,
    cap: u64,
) -> Result<Vec<u8>, TargetError> {
    let open = handle
        .open_relative(file)
        .map_err(|error| TargetError::of_procfs(pid, file, error))?;
    let mut bytes = Vec::new();
    open.take(cap)
        .read_to_end(&mut bytes)
        .map_err(|error| TargetError::of_io(pid, file, &error))?;
    Ok(bytes)
}

fn leader_stat(handle: &procfs::process::Process, pid: Pid) -> Result<Stat, TargetError> {
    handle
        .stat()
        .map_err(|error| TargetError::of_procfs(pid, "stat", error))
}

/// The lines of a `status` file that are used here. procfs's own reader refuses the whole file
/// when the thread's name is not UTF-8, and any program may call its threads what it likes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Status {
    /// `Tgid`.
    pub(super) leader: Pid,
    /// The real uid of `Uid`.
    pub(super) uid: u32,
    /// `NSpid`: the id in each pid namespace, innermost last. Empty before Linux 4.1.
    pub(super) inner: Vec<InnerTid>,
    /// How often it was taken off a CPU, by its own will and against it.
    pub(super) switches: Option<u64>,
}

impl Status {
    pub(super) fn read(
        handle: &procfs::process::Process,
        pid: Pid,
        file: &str,
    ) -> Result<Self, TargetError> {
        let bytes = read_file(handle, pid, file, MAX_FILE)?;
        Self::parse(&bytes)
            .ok_or_else(|| TargetError::malformed(pid, file, "no `Tgid` or no `Uid` line"))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let line = |name: &str| {
            bytes
                .split(|&byte| byte == b'\n')
                .find_map(|line| line.strip_prefix(name.as_bytes()))
        };
        let field = |name: &str| line(name).map(tasks::numbers::<u32>);
        let count = |name: &str| tasks::numbers::<u64>(line(name)?).first().copied();
        let by_will = count("voluntary_ctxt_switches:");
        let against_it = count("nonvoluntary_ctxt_switches:");
        Some(Self {
            leader: Pid(*field("Tgid:")?.first()?),
            uid: *field("Uid:")?.first()?,
            inner: field("NSpid:")
                .unwrap_or_default()
                .into_iter()
                .map(InnerTid)
                .collect(),
            switches: by_will
                .zip(against_it)
                .and_then(|(by_will, against_it)| by_will.checked_add(against_it)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_with_a_name_that_is_no_text_is_still_read() {
        let text = b"Name:\tx\xff\\n:\nTgid:\t12\nUid:\t1000\t0\t0\t0\nNSpid:\t77\t5\n\
            voluntary_ctxt_switches:\t40\nnonvoluntary_ctxt_switches:\t2\n";
        assert_eq!(
            Status::parse(text),
            Some(Status {
                leader: Pid(12),
                uid: 1000,
                inner: vec![InnerTid(77), InnerTid(5)],
                switches: Some(42),
            })
        );
        assert_eq!(Status::parse(b"Name:\tx\n"), None);
    }

    #[test]
    fn this_very_process_can_be_opened() {
        let me = Process::open(Pid(std::process::id())).expect("we may look at ourselves");
        assert_eq!(me.namespaces().other_pids, Some(false));
        assert_eq!(me.namespaces().other_root, Some(false));
        assert!(!me.has_ended());
        assert!(me.exe().is_some());
        assert!(!me.command_line().expect("it is ours").is_empty());
    }

    #[test]
    fn what_cannot_be_profiled_says_what_to_type() {
        let none = Process::open(Pid(u32::MAX)).expect_err("no such process");
        assert_eq!(none, TargetError::NoSuchProcess { pid: Pid(u32::MAX) });
        assert!(none.to_string().contains("`pgrep -a python`"));
    }

    #[test]
    fn a_threads_id_names_its_process() {
        let me = Pid(std::process::id());
        let (stay, stop) = std::sync::mpsc::channel::<()>();
        let (here, ready) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            here.send(nix::unistd::gettid()).is_ok() && stop.recv().is_ok()
        });
        let tid = Tid(ready.recv().expect("it runs").as_raw().cast_unsigned());
        let error = Process::open(Pid(tid.0)).expect_err("not a leader");
        assert_eq!(error, TargetError::NotALeader { tid, leader: me });
        drop(stay);
        assert!(other.join().is_ok());
    }
}
