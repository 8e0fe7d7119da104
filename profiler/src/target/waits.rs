//! What a blocked thread waits for, told by the system call it sleeps in, and what a file
//! descriptor is.
//!
//! The system call's number and first two arguments are all that is asked, so it makes no
//! difference whether `/proc` told them or a kernel program did. Numbers are those of x86-64.

use nix::fcntl::readlinkat;
use procfs::process::FDTarget;
use syscalls::Sysno;

use crate::sample::Wait;
use crate::target::error::TargetError;
use crate::target::process::Process;
use crate::target::tasks::TaskState;
use crate::words::{RemoteAddr, Tid};

/// What a file descriptor is, as far as it matters to who waits on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FdKind {
    /// A file or a device. A named pipe is one too: nothing but its path can be seen.
    File,
    /// A socket.
    Socket,
    /// A pipe without a name.
    Pipe,
    /// A timer (`timerfd_create`).
    Timer,
    /// Anything else: `eventfd`, `signalfd`, `inotify`, …
    Other,
    /// Could not be told.
    Unknown,
}

impl FdKind {
    /// By the text of the link in `/proc/PID/fd`. The kernel makes up all of them but a file's
    /// path, and that begins with a slash.
    #[must_use]
    pub fn of_link(link: &str) -> Self {
        match link.parse() {
            Ok(FDTarget::Path(_) | FDTarget::MemFD(_)) => Self::File,
            Ok(FDTarget::Socket(_)) => Self::Socket,
            Ok(FDTarget::Pipe(_)) => Self::Pipe,
            Ok(FDTarget::AnonInode(name)) if name == "[timerfd]" => Self::Timer,
            Ok(_) => Self::Other,
            Err(_) => Self::Unknown,
        }
    }

    /// What a thread waits for that reads from it or writes to it.
    const fn wait(self) -> Option<Wait> {
        match self {
            Self::File => Some(Wait::File),
            Self::Socket => Some(Wait::Socket),
            Self::Pipe => Some(Wait::Pipe),
            Self::Timer => Some(Wait::Sleep),
            Self::Other | Self::Unknown => None,
        }
    }
}

/// What a thread waits for that is off the CPU and not able to run.
///
/// `syscall` is the system call it is in, none when it is in none; `args` are that call's first
/// two arguments. Of a descriptor `fd_kind` is asked once at most.
#[must_use]
pub fn wait_of(
    syscall: Option<u32>,
    args: [u64; 2],
    state: TaskState,
    is_gil_futex: impl Fn(RemoteAddr) -> bool,
    fd_kind: impl FnOnce(u32) -> FdKind,
) -> Wait {
    match state {
        // A stopped thread still shows the call that the stop interrupted.
        TaskState::Stopped => return Wait::Stopped,
        TaskState::Ended => return Wait::Unknown,
        _ => {}
    }
    let Some(number) = syscall else {
        return Wait::PageFault;
    };
    // The kernel takes a descriptor or a count from the lower half of the register alone.
    let [first, second] = args.map(|arg| arg as u32);
    let named = Wait::Syscall(number);
    let Some(call) = Sysno::new(number as usize) else {
        return named;
    };
    match call {
        Sysno::futex | Sysno::futex_wait if is_gil_futex(RemoteAddr(args[0])) => Wait::Gil,
        Sysno::futex
        | Sysno::futex_wait
        | Sysno::futex_waitv
        | Sysno::semop
        | Sysno::semtimedop => Wait::Lock,
        Sysno::nanosleep | Sysno::clock_nanosleep => Wait::Sleep,
        // `time.sleep()` is a `select` without descriptors up to 3.10. Their number is an int.
        Sysno::select | Sysno::pselect6 if first.cast_signed() <= 0 => Wait::Sleep,
        Sysno::poll | Sysno::ppoll if second == 0 => Wait::Sleep,
        Sysno::select
        | Sysno::pselect6
        | Sysno::poll
        | Sysno::ppoll
        | Sysno::epoll_wait
        | Sysno::epoll_pwait
        | Sysno::epoll_pwait2 => Wait::Poll,
        Sysno::wait4 | Sysno::waitid => Wait::Child,
        // These take nothing but sockets.
        Sysno::recvfrom
        | Sysno::recvmsg
        | Sysno::recvmmsg
        | Sysno::sendto
        | Sysno::sendmsg
        | Sysno::sendmmsg
        | Sysno::accept
        | Sysno::accept4
        | Sysno::connect
        | Sysno::shutdown => Wait::Socket,
        Sysno::splice | Sysno::tee | Sysno::vmsplice => Wait::Pipe,
        Sysno::read
        | Sysno::write
        | Sysno::readv
        | Sysno::writev
        | Sysno::pread64
        | Sysno::pwrite64
        | Sysno::preadv
        | Sysno::pwritev
        | Sysno::preadv2
        | Sysno::pwritev2
        | Sysno::sendfile => fd_kind(first).wait().unwrap_or(named),
        Sysno::fcntl if LOCKING_COMMANDS.contains(&second) => Wait::File,
        call if is_about_files(call) => Wait::File,
        _ => named,
    }
}

/// What a `restart_syscall` is that waits in this function of the kernel: those of the two names are
/// called after them in every kernel, and for sleeps it can be the scheduler's caller, whoever that is.
fn went_on_with(function: &str) -> Sysno {
    if function.contains("futex") {
        Sysno::futex
    } else if function.contains("poll") {
        Sysno::poll
    } else {
        Sysno::clock_nanosleep
    }
}

/// Whether a wait goes on after a stop and the kernel has not said as what: it names no function for
/// a thread that is asleep and still on its CPU's queue (`get_wchan` of `kernel/sched/core.c`), which
/// lasts for some milliseconds while another thread runs there.
#[must_use]
pub fn is_in_doubt(wait: Wait) -> bool {
    wait == Wait::Syscall(Sysno::restart_syscall as u32)
}

/// `F_SETLKW` and `F_OFD_SETLKW` of `fcntl`, the only two that wait.
const LOCKING_COMMANDS: [u32; 2] = [7, 38];

/// Calls that wait, if they do, for a file system or a disk.
const fn is_about_files(call: Sysno) -> bool {
    matches!(
        call,
        Sysno::fsync
            | Sysno::fdatasync
            | Sysno::sync
            | Sysno::syncfs
            | Sysno::sync_file_range
            | Sysno::msync
            | Sysno::flock
            | Sysno::open
            | Sysno::openat
            | Sysno::openat2
            | Sysno::creat
            | Sysno::stat
            | Sysno::lstat
            | Sysno::fstat
            | Sysno::newfstatat
            | Sysno::statx
            | Sysno::statfs
            | Sysno::fstatfs
            | Sysno::access
            | Sysno::faccessat
            | Sysno::faccessat2
            | Sysno::readlink
            | Sysno::readlinkat
            | Sysno::getdents
            | Sysno::getdents64
            | Sysno::lseek
            | Sysno::truncate
            | Sysno::ftruncate
            | Sysno::fallocate
            | Sysno::copy_file_range
            | Sysno::readahead
            | Sysno::fadvise64
            | Sysno::rename
            | Sysno::renameat
            | Sysno::renameat2
            | Sysno::link
            | Sysno::linkat
            | Sysno::symlink
            | Sysno::symlinkat
            | Sysno::unlink
            | Sysno::unlinkat
            | Sysno::mkdir
            | Sysno::mkdirat
            | Sysno::rmdir
            | Sysno::chmod
            | Sysno::fchmod
            | Sysno::fchmodat
            | Sysno::chown
            | Sysno::fchown
            | Sysno::lchown
            | Sysno::fchownat
            | Sysno::utimensat
            | Sysno::chdir
            | Sysno::fchdir
    )
}

impl Process {
    /// The system call of a thread that is off the CPU, by what it goes on with where a stop had
    /// interrupted it.
    ///
    /// A wait with a time limit that a stop, a debugger or a freezer interrupts goes on as
    /// `restart_syscall`, which has the registers of the call that it was. Three can: a futex, a
    /// poll and a sleep. The kernel function that it waits in tells the first two.
    #[must_use]
    pub fn resumed(&self, tid: Tid, syscall: Option<u32>) -> Option<u32> {
        if syscall != Some(Sysno::restart_syscall as u32) {
            return syscall;
        }
        let Ok(Some(function)) = self.waits_in(tid) else {
            return syscall;
        };
        Some(went_on_with(&function) as u32)
    }

    /// What a thread's file descriptor is. The link is read, never followed.
    ///
    /// # Errors
    /// When the thread is gone, has closed the descriptor, or may not be looked at.
    pub fn fd_kind(&self, tid: Tid, fd: u32) -> Result<FdKind, TargetError> {
        // By the thread: it can have descriptors of its own, and the first one can have ended.
        let name = format!("task/{tid}/fd");
        let folder = self
            .handle
            .open_relative(&name)
            .map_err(|error| TargetError::of_procfs(self.pid(), &name, error))?;
        let link = readlinkat(&folder, fd.to_string().as_str())
            .map_err(|error| TargetError::of_io(self.pid(), &name, &error.into()))?;
        Ok(FdKind::of_link(&link.to_string_lossy()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, RawFd};

    use super::*;

    /// The GIL of these tests lies at 0x1000.
    fn wait(call: Sysno, args: [u64; 2], kind: FdKind) -> Wait {
        let is_gil = |addr: RemoteAddr| (0x1000..0x10d0).contains(&addr.0);
        let number = call as u32;
        wait_of(Some(number), args, TaskState::Sleeping, is_gil, |_| kind)
    }

    fn check(call: Sysno, args: [u64; 2], expected: Wait) {
        assert_eq!(
            wait(call, args, FdKind::Unknown),
            expected,
            "{call} {args:x?}"
        );
    }

    #[test]
    fn a_call_tells_what_is_waited_for() {
        check(Sysno::futex, [0x1020, 0x189], Wait::Gil);
        check(Sysno::futex_wait, [0x10cf, 0], Wait::Gil);
        check(Sysno::futex, [0x10d0, 0x189], Wait::Lock);
        check(Sysno::futex, [0, 0], Wait::Lock);
        // Its first argument is a list of futexes.
        check(Sysno::futex_waitv, [0x1020, 1], Wait::Lock);
        check(Sysno::semop, [3, 0], Wait::Lock);
        check(Sysno::nanosleep, [0x7f00, 0], Wait::Sleep);
        check(Sysno::clock_nanosleep, [1, 1], Wait::Sleep);
        check(Sysno::select, [0, 0], Wait::Sleep);
        check(Sysno::select, [7, 0x7f00], Wait::Poll);
        check(Sysno::pselect6, [0, 0x7f00], Wait::Sleep);
        check(Sysno::poll, [0x7f00, 0], Wait::Sleep);
        check(Sysno::poll, [0x7f00, 1], Wait::Poll);
        check(Sysno::ppoll, [0x7f00, 2], Wait::Poll);
        check(Sysno::epoll_wait, [5, 0x7f00], Wait::Poll);
        check(Sysno::epoll_pwait, [5, 0x7f00], Wait::Poll);
        check(Sysno::epoll_pwait2, [5, 0x7f00], Wait::Poll);
        check(Sysno::wait4, [u64::MAX, 0], Wait::Child);
        check(Sysno::waitid, [1, 77], Wait::Child);
        check(Sysno::recvfrom, [3, 0x7f00], Wait::Socket);
        check(Sysno::accept4, [3, 0], Wait::Socket);
        check(Sysno::connect, [3, 0x7f00], Wait::Socket);
        check(Sysno::splice, [3, 0], Wait::Pipe);
        check(Sysno::fsync, [3, 0], Wait::File);
        check(Sysno::flock, [3, 2], Wait::File);
        check(Sysno::openat, [3, 0x7f00], Wait::File);
        check(Sysno::fcntl, [3, 7], Wait::File);
        check(Sysno::fcntl, [3, 38], Wait::File);
        check(Sysno::fcntl, [3, 6], Wait::Syscall(Sysno::fcntl as u32));
        check(Sysno::pause, [0, 0], Wait::Syscall(Sysno::pause as u32));
        check(Sysno::ioctl, [3, 0], Wait::Syscall(Sysno::ioctl as u32));
    }

    /// Regression: after a stop, whoever waited with a time limit was in `restart_syscall`.
    #[test]
    fn what_goes_on_after_a_stop_is_what_it_was() {
        let cases = [
            ("futex_do_wait", Sysno::futex),
            ("futex_wait_queue", Sysno::futex),
            ("futex_wait_queue_me", Sysno::futex),
            ("poll_schedule_timeout.constprop.0", Sysno::poll),
            ("do_sys_poll", Sysno::poll),
            ("hrtimer_nanosleep", Sysno::clock_nanosleep),
            ("do_syscall_64", Sysno::clock_nanosleep),
        ];
        for (function, expected) in cases {
            assert_eq!(went_on_with(function), expected, "{function}");
        }
    }

    #[test]
    fn a_descriptor_tells_what_its_reader_waits_for() {
        let calls = [
            Sysno::read,
            Sysno::write,
            Sysno::readv,
            Sysno::writev,
            Sysno::pread64,
            Sysno::pwritev2,
            Sysno::sendfile,
        ];
        for call in calls {
            let named = Wait::Syscall(call as u32);
            let kinds = [
                (FdKind::File, Wait::File),
                (FdKind::Socket, Wait::Socket),
                (FdKind::Pipe, Wait::Pipe),
                (FdKind::Timer, Wait::Sleep),
                (FdKind::Other, named),
                (FdKind::Unknown, named),
            ];
            for (kind, expected) in kinds {
                assert_eq!(wait(call, [3, 0], kind), expected, "{call} {kind:?}");
            }
        }
    }

    #[test]
    fn only_the_lower_half_of_a_register_is_a_descriptor_or_a_count() {
        let high = 0xdead_beef_0000_0000_u64;
        check(Sysno::select, [high, 0], Wait::Sleep);
        check(Sysno::select, [0xffff_ffff, 0], Wait::Sleep);
        check(Sysno::poll, [0, high], Wait::Sleep);
        let mut asked = None;
        let kind = |fd| {
            asked = Some(fd);
            FdKind::Pipe
        };
        let read = Some(Sysno::read as u32);
        let args = [high | 5, u64::MAX];
        let wait = wait_of(read, args, TaskState::Waiting, |_| true, kind);
        assert_eq!((wait, asked), (Wait::Pipe, Some(5)));
    }

    #[test]
    fn the_state_and_absent_or_unknown_calls_have_their_words() {
        let futex = Some(Sysno::futex as u32);
        let cases = [
            (futex, TaskState::Stopped, Wait::Stopped),
            (None, TaskState::Stopped, Wait::Stopped),
            (futex, TaskState::Ended, Wait::Unknown),
            (None, TaskState::Waiting, Wait::PageFault),
            (None, TaskState::Other('?'), Wait::PageFault),
            (Some(u32::MAX), TaskState::Sleeping, Wait::Syscall(u32::MAX)),
            // A call of the 32-bit pointers' kind (x32).
            (
                Some(0x4000_0000),
                TaskState::Sleeping,
                Wait::Syscall(0x4000_0000),
            ),
            (Some(335), TaskState::Sleeping, Wait::Syscall(335)),
        ];
        for (call, state, expected) in cases {
            let wait = wait_of(call, [u64::MAX; 2], state, |_| false, |_| FdKind::Unknown);
            assert_eq!(wait, expected, "{call:?} {state}");
        }
    }

    #[test]
    fn every_number_has_an_answer() {
        let states = [TaskState::Sleeping, TaskState::Waiting, TaskState::Running];
        for number in (0..2000).chain([u32::MAX - 1, u32::MAX]) {
            for state in states {
                let wait = wait_of(
                    Some(number),
                    [u64::MAX; 2],
                    state,
                    |_| true,
                    |_| FdKind::File,
                );
                assert!(!wait.key().is_empty());
                assert_ne!(wait, Wait::Stopped);
            }
        }
    }

    #[test]
    fn a_link_is_judged_by_the_kernels_words_alone() {
        let cases = [
            ("socket:[4711]", FdKind::Socket),
            ("pipe:[4711]", FdKind::Pipe),
            ("anon_inode:[timerfd]", FdKind::Timer),
            ("anon_inode:[eventfd]", FdKind::Other),
            ("anon_inode:[eventpoll]", FdKind::Other),
            ("anon_inode:inotify", FdKind::Other),
            ("pidfd:[7]", FdKind::Other),
            ("net:[4026531840]", FdKind::Other),
            ("/dev/pts/0", FdKind::File),
            ("/memfd:x (deleted)", FdKind::File),
            ("/tmp/socket:[1]", FdKind::File),
            ("/pipe:[1]", FdKind::File),
            ("socket:[]", FdKind::Unknown),
            ("socket:[x]", FdKind::Unknown),
            ("socket:", FdKind::Unknown),
            (":", FdKind::Unknown),
        ];
        for (link, expected) in cases {
            assert_eq!(FdKind::of_link(link), expected, "{link}");
        }
    }

    #[test]
    fn the_descriptors_of_a_live_process_are_what_they_are() {
        let me = Process::open(crate::words::Pid(std::process::id())).expect("ourselves");
        let tid = Tid(nix::unistd::gettid().as_raw().cast_unsigned());
        let kind = |fd: RawFd| me.fd_kind(tid, fd.cast_unsigned());
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        let file = std::fs::File::open("/dev/null").expect("a device");
        assert_eq!(kind(socket.as_raw_fd()), Ok(FdKind::Socket));
        assert_eq!(kind(reader.as_raw_fd()), Ok(FdKind::Pipe));
        assert_eq!(kind(file.as_raw_fd()), Ok(FdKind::File));
        let closed = TargetError::Gone { pid: me.pid() };
        assert_eq!(kind(-1), Err(closed));
    }
}
