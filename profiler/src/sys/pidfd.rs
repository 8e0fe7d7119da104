//! A handle on a process that cannot come to mean another one: `pidfd_open(2)`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::words::Pid;

/// Open a pidfd; it is close-on-exec, and readable once the process has ended.
///
/// # Errors
/// As the kernel has it: `ESRCH` when there is no such process, `ENOSYS` before Linux 5.3.
#[expect(
    unsafe_code,
    reason = "neither std nor nix wraps pidfd_open on the stable toolchain"
)]
pub fn pidfd_open(pid: Pid) -> io::Result<OwnedFd> {
    let Ok(pid) = libc::pid_t::try_from(pid.0) else {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    };
    // SAFETY: pidfd_open takes a pid and flags by value and touches no memory of ours.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = Errno::result(fd).map_err(io::Error::from)?;
    let Ok(fd) = i32::try_from(fd) else {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    };
    // SAFETY: the kernel has just made this descriptor for us, and nobody else has seen it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Wait until the process behind a pidfd has ended, at most `patience`; true when it has.
///
/// A signal that interrupts the wait ends it early, with false.
///
/// # Errors
/// Any other error of `poll(2)`.
pub fn end_of(pidfd: BorrowedFd<'_>, patience: Duration) -> io::Result<bool> {
    let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    let mut fds = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, timeout) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
