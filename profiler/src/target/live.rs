//! The memory of a live process, by `process_vm_readv`, or by `/proc/PID/mem` where that call is
//! refused though the process may be read (a seccomp filter, an old container runtime).
//!
//! Nothing is ever written and nobody is stopped: whether bytes read one after the other belong
//! together is for the caller to know.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd;

use crate::target::error::TargetError;
use crate::target::memory::{Memory, Piece, ReadError, ReadErrorKind};
use crate::target::process::Process;
use crate::words::{Pid, RemoteAddr};

/// `UIO_MAXIOV` of `include/uapi/linux/uio.h`: more pieces are refused in one call.
const MAX_PIECES: usize = 1024;

/// How the memory is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// `process_vm_readv`: many pieces in one call.
    VmReadv,
    /// `/proc/PID/mem`: a call for each piece.
    ProcMem,
}

/// The way in use.
#[derive(Clone, Debug)]
enum Door {
    /// The call, by the process's id.
    Call,
    /// A file, which stays the memory it was opened for.
    File(Arc<File>),
}

/// The memory of a live process.
#[derive(Debug)]
pub struct LiveMemory {
    pid: unistd::Pid,
    process: Process,
    door: Mutex<Door>,
}

impl LiveMemory {
    /// The memory of `process`, by the faster way that works.
    #[must_use]
    pub fn new(process: &Process) -> Self {
        Self {
            // `Process::open` has refused ids that do not fit.
            pid: unistd::Pid::from_raw(process.pid().0.cast_signed()),
            process: process.clone(),
            door: Mutex::new(Door::Call),
        }
    }

    /// The memory of `process`, by `/proc/PID/mem` whatever else would work.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn through_proc_mem(process: &Process) -> Result<Self, TargetError> {
        let memory = Self::new(process);
        memory.take(Door::File(Arc::new(process.open_memory()?)));
        Ok(memory)
    }

    /// The way in use: it changes at the first read that `process_vm_readv` is refused, and when
    /// the process's first thread has ended.
    #[must_use]
    pub fn way(&self) -> Way {
        match self.door() {
            Door::File(_) => Way::ProcMem,
            Door::Call => Way::VmReadv,
        }
    }

    fn door(&self) -> Door {
        // A door is whole at any time, so a panic elsewhere spoils nothing.
        let door = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        door.clone()
    }

    fn take(&self, door: Door) {
        *self.door.lock().unwrap_or_else(PoisonError::into_inner) = door;
    }

    /// Fill pieces from the front in one call: how many bytes were read in all.
    fn vm_readv(&self, pieces: &mut [Piece<'_>]) -> Result<usize, Errno> {
        if let [piece] = pieces {
            let remote = [remote(piece)];
            return process_vm_readv(self.pid, &mut [IoSliceMut::new(piece.buf)], &remote);
        }
        let remote: Vec<RemoteIoVec> = pieces.iter().map(remote).collect();
        let mut local: Vec<IoSliceMut<'_>> = pieces
            .iter_mut()
            .map(|piece| IoSliceMut::new(piece.buf))
            .collect();
        process_vm_readv(self.pid, &mut local, &remote)
    }

    /// Read pieces until one fails; how many went well, and the error of the one that did not.
    fn advance(&self, pieces: &mut [Piece<'_>]) -> (usize, Option<ReadErrorKind>) {
        match self.door() {
            Door::Call => self.by_call(pieces),
            Door::File(file) => match from_file(&file, pieces) {
                // The process may live on with another memory, after an `exec`.
                (0, Some(ReadErrorKind::Gone)) if self.lives() => {
                    self.take(Door::Call);
                    self.by_call(pieces)
                }
                read => read,
            },
        }
    }

    fn by_call(&self, pieces: &mut [Piece<'_>]) -> (usize, Option<ReadErrorKind>) {
        match self.vm_readv(pieces) {
            Ok(bytes) => {
                let good = whole_pieces(pieces, bytes);
                // The kernel reports an error only when it read nothing at all; a piece that
                // stopped a longer call is one that it could not read.
                let stopped = good < pieces.len();
                (good, stopped.then_some(ReadErrorKind::Unmapped))
            }
            // Refused, or the first thread has ended, and by its id the kernel finds no memory.
            Err(errno @ (Errno::EPERM | Errno::ENOSYS | Errno::ESRCH)) => {
                match self.open_if_alive(errno) {
                    Some(file) => {
                        let read = from_file(&file, pieces);
                        self.take(Door::File(Arc::new(file)));
                        read
                    }
                    None => (empty_pieces(pieces), Some(kind_of(errno as i32))),
                }
            }
            Err(errno) => (empty_pieces(pieces), Some(kind_of(errno as i32))),
        }
    }

    fn open_if_alive(&self, errno: Errno) -> Option<File> {
        if errno == Errno::ESRCH && !self.lives() {
            return None;
        }
        self.process.open_memory().ok()
    }

    fn lives(&self) -> bool {
        !self.process.has_ended()
    }
}

/// Whether `process_vm_readv` is allowed for a process. It asks for the right to trace, where
/// opening `/proc/PID/mem` also asks for the right to open another user's file.
pub(super) fn may_read(pid: Pid) -> bool {
    let mut byte = [0];
    let nowhere = RemoteIoVec { base: 0, len: 1 };
    let into = &mut [IoSliceMut::new(&mut byte)];
    let target = unistd::Pid::from_raw(pid.0.cast_signed());
    // Permission is looked at before the address.
    !matches!(
        process_vm_readv(target, into, &[nowhere]),
        Err(Errno::EPERM | Errno::EACCES | Errno::ENOSYS)
    )
}

impl Memory for LiveMemory {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        let mut piece = [Piece::new(addr, buf)];
        self.read_many(&mut piece);
        let [piece] = piece;
        piece.result
    }

    fn read_many(&self, pieces: &mut [Piece<'_>]) {
        let mut next = 0;
        while let Some(rest) = pieces.get_mut(next..)
            && !rest.is_empty()
        {
            // An address that wraps or is the kernel's is never handed on: `/proc/PID/mem` would
            // take it for a negative offset.
            let sane = rest.iter().take_while(|piece| is_user(piece)).count();
            let (good, error) = if sane == 0 {
                (0, Some(ReadErrorKind::Unmapped))
            } else {
                self.advance(&mut rest[..sane.min(MAX_PIECES)])
            };
            let (done, behind) = rest.split_at_mut(good);
            for piece in done {
                piece.result = Ok(());
            }
            next += good;
            let Some(kind) = error else { continue };
            let failed = match kind {
                // It holds for every piece: spare the kernel a call for each.
                ReadErrorKind::Gone | ReadErrorKind::Refused => behind.len(),
                _ => behind.len().min(1),
            };
            next += failed;
            for piece in &mut behind[..failed] {
                piece.result = Err(ReadError {
                    addr: piece.addr,
                    bytes: piece.buf.len(),
                    kind,
                });
            }
        }
    }
}

fn is_user(piece: &Piece<'_>) -> bool {
    let bytes = u64::try_from(piece.buf.len()).unwrap_or(u64::MAX);
    piece
        .addr
        .0
        .checked_add(bytes)
        .is_some_and(|end| i64::try_from(end).is_ok())
}

fn remote(piece: &Piece<'_>) -> RemoteIoVec {
    RemoteIoVec {
        // This program is built for 64 bits alone, as `PthreadId` and the kernel contract are.
        base: piece.addr.0 as usize,
        len: piece.buf.len(),
    }
}

/// How many pieces `bytes` filled to their end, from the front.
fn whole_pieces(pieces: &[Piece<'_>], mut bytes: usize) -> usize {
    for (index, piece) in pieces.iter().enumerate() {
        match bytes.checked_sub(piece.buf.len()) {
            Some(rest) => bytes = rest,
            None => return index,
        }
    }
    pieces.len()
}

/// How many pieces in front want nothing and so cannot have failed.
fn empty_pieces(pieces: &[Piece<'_>]) -> usize {
    whole_pieces(pieces, 0)
}

fn from_file(file: &File, pieces: &mut [Piece<'_>]) -> (usize, Option<ReadErrorKind>) {
    for (index, piece) in pieces.iter_mut().enumerate() {
        if let Err(error) = file.read_exact_at(piece.buf, piece.addr.0) {
            let kind = match error.kind() {
                // The file ends for a process that has no memory any more.
                io::ErrorKind::UnexpectedEof => ReadErrorKind::Gone,
                _ => kind_of(error.raw_os_error().unwrap_or(0)),
            };
            return (index, Some(kind));
        }
    }
    (pieces.len(), None)
}

fn kind_of(errno: i32) -> ReadErrorKind {
    match Errno::from_raw(errno) {
        // `/proc/PID/mem` says EIO where the call says EFAULT.
        Errno::EFAULT | Errno::EIO => ReadErrorKind::Unmapped,
        Errno::ESRCH => ReadErrorKind::Gone,
        Errno::EPERM | Errno::EACCES => ReadErrorKind::Refused,
        _ => ReadErrorKind::Os(errno),
    }
}
