//! The GIL: where its structures lie, who holds one, and how a thread state stands to it.
//!
//! A thread that waits for a GIL sleeps on a futex inside the GIL's structure: in its condition
//! `cond` to get it, in `switch_cond` until another one has taken what it was made to let go, or
//! in the mutexes that guard them (`take_gil` and `drop_gil` in `Python/ceval_gil.c`). No futex of
//! anything else lies there. So the address a thread sleeps on tells which GIL it waits for, in
//! every version, where the thread state says so only from 3.15 on.
//!
//! A free-threaded build has the same structure, and uses it only while its GIL is switched on.

use super::error::CpythonError;
use super::objects::int_at;
use super::runtime::Runtime;
use crate::sample::Gil;
use crate::target::{Memory, ReadError};
use crate::words::{InterpreterAddr, RemoteAddr, ThreadStateAddr};

/// The structure of one GIL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GilLock {
    /// Where it begins.
    pub start: RemoteAddr,
    /// Its size.
    pub bytes: u32,
    /// The interpreters that run under it: all of them to 3.11; from 3.12 on one, or the main
    /// interpreter and those that share its GIL. Newest first.
    pub interpreters: Vec<InterpreterAddr>,
}

impl GilLock {
    /// Whether an address, a futex's as a rule, lies in it.
    #[must_use]
    pub const fn contains(&self, addr: RemoteAddr) -> bool {
        addr.0.wrapping_sub(self.start.0) < self.bytes as u64
    }
}

/// What decides how a thread state stands to the GIL of its interpreter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lock {
    /// There is a GIL now.
    exists: bool,
    /// The thread state that the runtime says holds it (to 3.11).
    holder: Option<ThreadStateAddr>,
}

impl Runtime {
    /// Every GIL of the process, at most one for each interpreter. In a free-threaded build only
    /// those that are switched on now.
    ///
    /// # Errors
    /// When the list of interpreters cannot be read.
    pub fn gils(&self, memory: &dyn Memory) -> Result<Vec<GilLock>, CpythonError> {
        let bytes = self.layout().gil.size;
        let interpreters = self.interpreters(memory)?;
        if let Some(offset) = self.layout().runtime.gil {
            let start = self.found().runtime.plus(offset.into());
            return Ok(vec![GilLock {
                start,
                bytes,
                interpreters,
            }]);
        }
        let Some(offset) = self.layout().interp.gil else {
            return Ok(Vec::new());
        };
        let mut gils: Vec<GilLock> = Vec::new();
        for interpreter in interpreters {
            let start = memory.pointer(RemoteAddr::from(interpreter).plus(offset.into()))?;
            match gils.iter_mut().find(|gil| gil.start == start) {
                Some(gil) => gil.interpreters.push(interpreter),
                // An interpreter that is being made has none yet.
                None if start == RemoteAddr(0) => {}
                None if !self.is_on(memory, start)? => {}
                None => gils.push(GilLock {
                    start,
                    bytes,
                    interpreters: vec![interpreter],
                }),
            }
        }
        Ok(gils)
    }

    /// The thread state that holds this GIL; none when nobody does.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn holder_of(
        &self,
        memory: &dyn Memory,
        gil: &GilLock,
    ) -> Result<Option<ThreadStateAddr>, ReadError> {
        if self.holder_addr().is_some() {
            return self.current_holder(memory);
        }
        self.last_holder(memory, gil.start)
    }

    /// The thread state that holds the GIL of an interpreter; none when nobody does.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn gil_holder(
        &self,
        memory: &dyn Memory,
        interpreter: InterpreterAddr,
    ) -> Result<Option<ThreadStateAddr>, ReadError> {
        let Some(gil) = self.layout().interp.gil else {
            return self.current_holder(memory);
        };
        let gil = memory.pointer(RemoteAddr::from(interpreter).plus(gil.into()))?;
        // An interpreter that is being made has none yet.
        if gil == RemoteAddr(0) || !self.is_on(memory, gil)? {
            return Ok(None);
        }
        self.last_holder(memory, gil)
    }

    /// Whether an interpreter has a GIL now. That of a free-threaded build has one only while
    /// it is switched on: by `PYTHON_GIL=1`, or when a module is imported that needs it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn has_gil(
        &self,
        memory: &dyn Memory,
        interpreter: InterpreterAddr,
    ) -> Result<bool, ReadError> {
        let (Some(gil), Some(_)) = (self.layout().interp.gil, self.layout().gil.enabled) else {
            return Ok(true);
        };
        let gil = memory.pointer(RemoteAddr::from(interpreter).plus(gil.into()))?;
        Ok(gil != RemoteAddr(0) && self.is_on(memory, gil)?)
    }

    /// The same of the process's main interpreter.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn runs_with_gil(&self, memory: &dyn Memory) -> Result<bool, CpythonError> {
        if self.layout().gil.enabled.is_none() {
            return Ok(true);
        }
        match self.interpreters(memory)?.last() {
            Some(main) => Ok(self.has_gil(memory, *main)?),
            None => Ok(false),
        }
    }

    /// Whether the GIL at an address is one that is used.
    fn is_on(&self, memory: &dyn Memory, gil: RemoteAddr) -> Result<bool, ReadError> {
        match self.layout().gil.enabled {
            Some(enabled) => Ok(memory.u32(gil.plus(enabled.into()))? != 0),
            None => Ok(true),
        }
    }

    /// `holder` is who the runtime says holds the GIL, where it says that.
    pub(super) fn lock(
        &self,
        memory: &dyn Memory,
        interpreter: InterpreterAddr,
        holder: Option<ThreadStateAddr>,
    ) -> Result<Lock, ReadError> {
        let exists = self.has_gil(memory, interpreter)?;
        Ok(Lock { exists, holder })
    }

    /// Who took a GIL last, if it is still held: the name stays after it was let go.
    fn last_holder(
        &self,
        memory: &dyn Memory,
        gil: RemoteAddr,
    ) -> Result<Option<ThreadStateAddr>, ReadError> {
        let fields = &self.layout().gil;
        let mut head = [0; 64];
        let bytes = (fields.last_holder + 8).max(fields.locked + 4) as usize;
        let head = &mut head[..bytes.min(64)];
        memory.read(gil, head)?;
        let locked = int_at(head, fields.locked as usize);
        let holder = self.state_word(head, fields.last_holder);
        Ok((locked == Some(1) && holder != 0).then_some(ThreadStateAddr(holder)))
    }

    /// Where the runtime keeps the thread state that holds the GIL (to 3.11).
    pub(super) fn holder_addr(&self) -> Option<RemoteAddr> {
        let offset = self.layout().runtime.tstate_current?;
        Some(self.found().runtime.plus(offset.into()))
    }

    pub(super) fn current_holder(
        &self,
        memory: &dyn Memory,
    ) -> Result<Option<ThreadStateAddr>, ReadError> {
        let Some(place) = self.holder_addr() else {
            return Ok(None);
        };
        let holder = memory.u64(place)?;
        Ok((holder != 0).then_some(ThreadStateAddr(holder)))
    }

    /// How a thread state stood to its GIL when `block` was read from it.
    pub(super) fn gil_of(&self, addr: ThreadStateAddr, block: &[u8], lock: Lock) -> Gil {
        let fields = &self.layout().tstate;
        if !lock.exists {
            return Gil::NoGil;
        }
        if self.holder_addr().is_some() {
            return if lock.holder == Some(addr) {
                Gil::Holds
            } else {
                Gil::Neither
            };
        }
        let int = |offset: Option<u32>| offset.and_then(|offset| int_at(block, offset as usize));
        let mask = fields.status_holds_gil_mask.or(fields.status_active_mask);
        let holds = match (int(fields.holds_gil), int(fields.status), mask) {
            (Some(holds), _, _) => holds != 0,
            (None, Some(status), Some(mask)) => status & mask != 0,
            _ => return Gil::Unknown,
        };
        match (holds, int(fields.gil_requested)) {
            (true, _) => Gil::Holds,
            (false, Some(1..)) => Gil::Waits,
            (false, _) => Gil::Neither,
        }
    }
}

#[cfg(test)]
mod tests;
