//! What the profiler has of one process of a run: an open handle, nothing yet, or nothing any more
//! because the process was over before it could be opened.
//!
//! Children are opened when there is something to ask them, and short ones may be over by then.

use std::fs::File;
use std::io;

use crate::{
    cpython::{AsyncioTable, Runtime},
    native::Mapped,
    sys,
    target::{Mapping, Maps, Memory, Process, ReadError, ReadErrorKind, TaskFacts},
    words::{MonotonicNs, Pid, RemoteAddr, Tid},
};

use super::{
    attach::{AttachError, Attached},
    people::Witness,
};

/// How far a process's start may be from its birth as the kernel's program saw it: `/proc` counts
/// in hundredths of a second.
const BIRTH_SLACK: u64 = 50_000_000;

/// The hold on one process.
#[derive(Debug)]
pub(super) struct Hold {
    pid: Pid,
    attached: Option<Attached>,
    tried: bool,
    /// It has ended: by its id another process may answer.
    over: bool,
}

/// The memory of a process that is over.
struct NoMemory;

impl Memory for NoMemory {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        Err(ReadError {
            addr,
            bytes: buf.len(),
            kind: ReadErrorKind::Gone,
        })
    }
}

impl Hold {
    /// On a process that is open.
    pub(super) fn on(attached: Attached) -> Self {
        Self {
            pid: attached.process.pid(),
            attached: Some(attached),
            tried: true,
            over: false,
        }
    }

    /// On a process that is still to be opened.
    pub(super) fn later(pid: Pid) -> Self {
        Self {
            pid,
            attached: None,
            tried: false,
            over: false,
        }
    }

    /// Open it, if that was not tried yet; true when it is open now and was not before. A process
    /// that was not born then is another one, with its id.
    pub(super) fn open(&mut self, born: Option<MonotonicNs>) -> bool {
        if self.tried {
            return false;
        }
        self.tried = true;
        let attached = match Attached::open(self.pid) {
            Ok(attached) => attached,
            Err(error) => {
                log::debug!("not looked at: {error}");
                self.over = error.is_absence();
                return false;
            }
        };
        let started = attached.process.identity().started;
        if born.is_some_and(|born| sys::since_boot(started).0.abs_diff(born.0) > BIRTH_SLACK) {
            log::debug!("not looked at: process {} is another one by now", self.pid);
            self.over = true;
            return false;
        }
        self.attached = Some(attached);
        true
    }

    /// Note whether it has ended meanwhile.
    pub(super) fn check(&mut self) {
        self.over = self.over
            || self
                .attached
                .as_ref()
                .is_some_and(|attached| attached.process.has_ended());
    }

    /// Whether it is open and has not ended, as of the last check.
    pub(super) fn is_alive(&self) -> bool {
        self.attached.is_some() && !self.over
    }

    /// Whether it has ended, as of the last check.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Whether it was ever open.
    pub(super) fn was_open(&self) -> bool {
        self.attached.is_some()
    }

    /// The process, while it is open.
    pub(super) fn process(&self) -> Option<&Process> {
        let alive = self.attached.as_ref().filter(|_| !self.over);
        alive.map(|attached| &attached.process)
    }

    /// Its memory; every read of it fails when there is none.
    pub(super) fn memory(&self) -> &dyn Memory {
        match &self.attached {
            Some(attached) if !self.over => &attached.memory,
            _ => &NoMemory,
        }
    }

    /// Its command line; none when it cannot be read.
    pub(super) fn command(&self) -> Option<String> {
        let words = self.process()?.command_line().ok()?;
        (!words.is_empty()).then(|| words.join(" "))
    }

    /// Find the interpreter that it runs now; none when it is not open.
    pub(super) fn discover(&self) -> Option<Result<Runtime, AttachError>> {
        let attached = self.attached.as_ref().filter(|_| !self.over)?;
        Some(attached.discover())
    }

    /// The table of offsets that its `_asyncio` carries (3.14+), once that is loaded.
    pub(super) fn asyncio_table(&self, runtime: &Runtime) -> Option<AsyncioTable> {
        let attached = self.attached.as_ref().filter(|_| !self.over)?;
        attached.asyncio_table(runtime)
    }
}

impl Mapped for Hold {
    fn maps(&self) -> Option<Maps> {
        self.process()?.maps().ok()
    }

    fn open(&self, mapping: &Mapping) -> io::Result<File> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        self.process().ok_or_else(gone)?.open_mapped(mapping)
    }
}

impl Witness for Hold {
    fn pid(&self) -> Pid {
        self.pid
    }

    fn task(&self, tid: Tid, at: MonotonicNs) -> Option<TaskFacts> {
        let task = self.process()?.task(tid).ok()?;
        (sys::since_boot(task.started) <= at).then_some(task)
    }

    fn stack_pointer(&self, tid: Tid) -> Option<RemoteAddr> {
        self.process()?.in_kernel(tid).ok()?.stack_pointer()
    }

    fn maps(&self) -> Option<Maps> {
        self.process()?.maps().ok()
    }

    fn memory(&self) -> &dyn Memory {
        Hold::memory(self)
    }
}
