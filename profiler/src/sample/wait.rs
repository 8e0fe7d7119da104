//! What a blocked thread or a waiting task waits for.

use std::borrow::Cow;

/// Why a thread is blocked, by the system call it sleeps in and that call's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wait {
    /// A lock, a condition, an event: a futex that is not the GIL's.
    Lock,
    /// The GIL.
    Gil,
    /// A file or a device.
    File,
    /// A socket.
    Socket,
    /// A pipe.
    Pipe,
    /// The passing of time.
    Sleep,
    /// Any of several descriptors: `poll`, `select`, `epoll_wait`.
    Poll,
    /// The end of a child process.
    Child,
    /// A page of memory.
    PageFault,
    /// A signal that lets it go on: it was stopped.
    Stopped,
    /// Something that a task awaits; only tasks wait so.
    Await,
    /// Another system call, by its number on x86-64.
    Syscall(u32),
    /// Blocked, and nothing told in what.
    Unknown,
}

impl Wait {
    /// The word for it in files; a system call's is its name.
    #[must_use]
    pub fn key(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Lock => "lock",
            Self::Gil => "gil",
            Self::File => "io_file",
            Self::Socket => "io_socket",
            Self::Pipe => "io_pipe",
            Self::Sleep => "sleep",
            Self::Poll => "poll",
            Self::Child => "child",
            Self::PageFault => "page_fault",
            Self::Stopped => "stopped",
            Self::Await => "await",
            Self::Syscall(number) => return Cow::Owned(syscall_name(number)),
            Self::Unknown => "unknown",
        })
    }
}

/// A system call by its name, or by its number where that has none.
#[must_use]
fn syscall_name(number: u32) -> String {
    let known = syscalls::Sysno::new(number as usize);
    known.map_or_else(
        || format!("syscall_{number}"),
        |known| known.name().to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_call_is_named_or_numbered() {
        let cases = [
            (Wait::Lock, "lock"),
            (Wait::Socket, "io_socket"),
            (Wait::Syscall(syscalls::Sysno::pause as u32), "pause"),
            (Wait::Syscall(100_000), "syscall_100000"),
        ];
        for (wait, key) in cases {
            assert_eq!(wait.key(), key);
        }
    }
}
