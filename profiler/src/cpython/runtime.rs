//! A running interpreter: its thread states, who holds the GIL, whether it collects.
//!
//! Every list in it changes while it is read, so each is bounded, checked for cycles, and read
//! again when it makes no sense. Not here: which thread of the kernel a state belongs to (see
//! [`crate::threads`]), and frames (see [`crate::pystack`]).

use rustc_hash::FxHashSet;

use super::attachment::Attachment;
use super::error::CpythonError;
use super::find::Found;
use super::layout::{self, Layout, debug_offsets};
use super::objects::{Objects, int_at, word_at};
use super::version::{Build, Version};
use crate::sample::Gil;
use crate::target::{Memory, ReadError};
use crate::words::{InnerTid, InterpreterAddr, PthreadId, RemoteAddr, ThreadStateAddr};

/// Most interpreters of a process.
const MAX_INTERPRETERS: usize = 1024;
/// Most thread states of a process.
const MAX_THREADS: usize = 1 << 17;
/// How often a list that changes under the reader is tried.
const ATTEMPTS: usize = 5;

/// One thread state, as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadState {
    /// Where it is.
    pub addr: ThreadStateAddr,
    /// Its interpreter.
    pub interpreter: InterpreterAddr,
    /// `pthread_self()` of the thread that made it.
    pub pthread_id: PthreadId,
    /// `gettid()` of it, in the target's innermost pid namespace (3.11+).
    pub native_thread_id: Option<InnerTid>,
    /// A number that no other thread state of its interpreter ever has, before or after.
    pub unique_id: u64,
    /// How it stood to the GIL when it was read; "waits" is known from 3.15 on.
    pub gil: Gil,
    /// Whether it could run Python code when it was read (3.13+).
    pub attachment: Option<Attachment>,
}

/// What decides how a thread state stands to the GIL, read once for many of them.
#[derive(Clone, Copy, Debug)]
struct Lock {
    /// There is a GIL now.
    exists: bool,
    /// The thread state that the runtime says holds it (to 3.11).
    holder: Option<ThreadStateAddr>,
}

/// An interpreter that was found, checked and can be read.
#[derive(Clone, Debug)]
pub struct Runtime {
    found: Found,
    layout: Layout,
}

impl Runtime {
    /// Checks that the process really looks like what was found.
    ///
    /// # Errors
    /// When this version or build is not supported, when the interpreter is not running, and when
    /// its memory contradicts the layout.
    pub fn attach(found: Found, memory: &dyn Memory) -> Result<Self, CpythonError> {
        let version = found.version;
        let image = found.image.clone();
        if !version.is_at_least(layout::OLDEST_MINOR) {
            let version = Some(version);
            return Err(CpythonError::TooOld { image, version });
        }
        if version.minor > layout::NEWEST_MINOR {
            return Err(CpythonError::TooNew { image, version });
        }
        let build = Build::of(found.free_threaded);
        let Some(mut layout) = layout::of_version(version, build) else {
            return Err(CpythonError::TooNew { image, version });
        };
        let table_bytes = debug_offsets::table_bytes(version);
        if table_bytes > 0 {
            let mut table = vec![0; table_bytes];
            memory.read(found.runtime, &mut table)?;
            debug_offsets::overlay(&mut layout, version, &table)?;
        }
        let mut runtime = Self { found, layout };
        runtime.check(memory)?;
        Ok(runtime)
    }

    /// What was found.
    #[must_use]
    pub const fn found(&self) -> &Found {
        &self.found
    }

    /// The version.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.found.version
    }

    /// What it was built as.
    #[must_use]
    pub const fn build(&self) -> Build {
        Build::of(self.found.free_threaded)
    }

    /// Where its fields are.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Its objects, over the memory of its process.
    #[must_use]
    pub fn objects<'a>(&'a self, memory: &'a dyn Memory) -> Objects<'a> {
        Objects {
            memory,
            layout: &self.layout,
        }
    }

    /// Every interpreter, newest first; the main one is last.
    ///
    /// # Errors
    /// When the list cannot be read or has no end.
    pub fn interpreters(&self, memory: &dyn Memory) -> Result<Vec<InterpreterAddr>, CpythonError> {
        let head = self.found.runtime;
        let head = head.plus(self.layout.runtime.interpreters_head.into());
        let mut next = memory.u64(head)?;
        let mut interpreters = Vec::new();
        while next != 0 {
            let addr = InterpreterAddr(next);
            if interpreters.len() == MAX_INTERPRETERS || interpreters.contains(&addr) {
                return Err(CpythonError::Restless("interpreters"));
            }
            interpreters.push(addr);
            next = memory.u64(RemoteAddr::from(addr).plus(self.layout.interp.next.into()))?;
        }
        Ok(interpreters)
    }

    /// Every thread state of every interpreter.
    ///
    /// # Errors
    /// When the lists could not be read whole in several attempts.
    pub fn thread_states(&self, memory: &dyn Memory) -> Result<Vec<ThreadState>, CpythonError> {
        let mut outcome = self.try_thread_states(memory);
        for _ in 1..ATTEMPTS {
            if outcome.is_ok() {
                break;
            }
            outcome = self.try_thread_states(memory);
        }
        outcome
    }

    /// One thread state, by its address.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn thread_state_at(
        &self,
        memory: &dyn Memory,
        addr: ThreadStateAddr,
    ) -> Result<ThreadState, ReadError> {
        let mut block = vec![0; self.state_bytes()];
        memory.read(addr.into(), &mut block)?;
        let interpreter = InterpreterAddr(self.state_word(&block, self.layout.tstate.interp));
        let lock = self.lock(memory, interpreter)?;
        Ok(self.decode_state(addr, &block, lock))
    }

    fn try_thread_states(&self, memory: &dyn Memory) -> Result<Vec<ThreadState>, CpythonError> {
        let mut states = Vec::new();
        let mut seen = FxHashSet::default();
        let mut block = vec![0; self.state_bytes()];
        for interpreter in self.interpreters(memory)? {
            let lock = self.lock(memory, interpreter)?;
            let head = RemoteAddr::from(interpreter).plus(self.layout.interp.threads_head.into());
            let mut next = memory.u64(head)?;
            while next != 0 {
                if states.len() == MAX_THREADS || !seen.insert(next) {
                    return Err(CpythonError::Restless("threads"));
                }
                let addr = ThreadStateAddr(next);
                memory.read(addr.into(), &mut block)?;
                let state = self.decode_state(addr, &block, lock);
                // A state that was freed under the reader points elsewhere.
                if state.interpreter != interpreter {
                    return Err(CpythonError::Restless("threads"));
                }
                states.push(state);
                next = self.state_word(&block, self.layout.tstate.next);
            }
        }
        Ok(states)
    }

    fn decode_state(&self, addr: ThreadStateAddr, block: &[u8], lock: Lock) -> ThreadState {
        let fields = &self.layout.tstate;
        let state = fields.state;
        let native = fields.native_thread_id;
        let native = native.map(|offset| self.state_word(block, offset));
        ThreadState {
            addr,
            interpreter: InterpreterAddr(self.state_word(block, fields.interp)),
            pthread_id: PthreadId(self.state_word(block, fields.thread_id)),
            // 0 until the thread that the state was made for has begun.
            native_thread_id: native
                .and_then(|tid| u32::try_from(tid).ok())
                .filter(|tid| *tid != 0)
                .map(InnerTid),
            unique_id: self.state_word(block, fields.id),
            gil: self.gil_of(addr, block, lock),
            attachment: state
                .and_then(|offset| int_at(block, offset as usize))
                .map(Attachment::from_word),
        }
    }

    fn gil_of(&self, addr: ThreadStateAddr, block: &[u8], lock: Lock) -> Gil {
        let fields = &self.layout.tstate;
        if !lock.exists {
            return Gil::NoGil;
        }
        if self.layout.runtime.tstate_current.is_some() {
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

    /// The thread state that holds the GIL of an interpreter; none when nobody does.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn gil_holder(
        &self,
        memory: &dyn Memory,
        interpreter: InterpreterAddr,
    ) -> Result<Option<ThreadStateAddr>, ReadError> {
        let Some(gil) = self.layout.interp.gil else {
            return self.current_holder(memory);
        };
        if !self.has_gil(memory, interpreter)? {
            return Ok(None);
        }
        let gil = memory.pointer(RemoteAddr::from(interpreter).plus(gil.into()))?;
        // An interpreter that is being made has none yet.
        if gil == RemoteAddr(0) || memory.u32(gil.plus(self.layout.gil.locked.into()))? != 1 {
            return Ok(None);
        }
        let holder = memory.u64(gil.plus(self.layout.gil.last_holder.into()))?;
        Ok((holder != 0).then_some(ThreadStateAddr(holder)))
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
        let (Some(gil), Some(enabled)) = (self.layout.interp.gil, self.layout.gil.enabled) else {
            return Ok(true);
        };
        let gil = memory.pointer(RemoteAddr::from(interpreter).plus(gil.into()))?;
        Ok(gil != RemoteAddr(0) && memory.u32(gil.plus(enabled.into()))? != 0)
    }

    /// The same of the process's main interpreter.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn runs_with_gil(&self, memory: &dyn Memory) -> Result<bool, CpythonError> {
        if self.layout.gil.enabled.is_none() {
            return Ok(true);
        }
        match self.interpreters(memory)?.last() {
            Some(main) => Ok(self.has_gil(memory, *main)?),
            None => Ok(false),
        }
    }

    fn lock(&self, memory: &dyn Memory, interpreter: InterpreterAddr) -> Result<Lock, ReadError> {
        Ok(Lock {
            exists: self.has_gil(memory, interpreter)?,
            holder: self.current_holder(memory)?,
        })
    }

    /// Whether an interpreter is collecting garbage.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn collecting(
        &self,
        memory: &dyn Memory,
        interpreter: InterpreterAddr,
    ) -> Result<bool, ReadError> {
        let place = match (
            self.layout.interp.gc_collecting,
            self.layout.runtime.gc_collecting,
        ) {
            (Some(offset), _) => RemoteAddr::from(interpreter).plus(offset.into()),
            (None, Some(offset)) => self.found.runtime.plus(offset.into()),
            (None, None) => return Ok(false),
        };
        Ok(memory.u32(place)? != 0)
    }

    /// Where the runtime keeps the thread state that holds the GIL (to 3.11).
    pub(super) fn holder_addr(&self) -> Option<RemoteAddr> {
        let offset = self.layout.runtime.tstate_current?;
        Some(self.found.runtime.plus(offset.into()))
    }

    fn current_holder(&self, memory: &dyn Memory) -> Result<Option<ThreadStateAddr>, ReadError> {
        let Some(place) = self.holder_addr() else {
            return Ok(None);
        };
        let holder = memory.u64(place)?;
        Ok((holder != 0).then_some(ThreadStateAddr(holder)))
    }

    /// Bytes of a thread state that hold every field that is read; offsets of a hostile table
    /// are below 2^24, so this is no great allocation.
    fn state_bytes(&self) -> usize {
        let fields = &self.layout.tstate;
        let last = [
            Some(fields.next),
            Some(fields.interp),
            Some(fields.first_frame),
            Some(fields.thread_id),
            fields.native_thread_id,
            Some(fields.id),
            fields.status,
            fields.holds_gil,
            fields.gil_requested,
            fields.state,
        ];
        let last = last.into_iter().flatten().max().unwrap_or(0);
        last as usize + 8
    }

    /// A word of a block that [`Self::state_bytes`] made long enough.
    fn state_word(&self, block: &[u8], offset: u32) -> u64 {
        word_at(block, offset as usize).unwrap_or(0)
    }

    /// Cheap questions that a wrong layout answers wrongly.
    fn check(&mut self, memory: &dyn Memory) -> Result<(), CpythonError> {
        let image = self.found.image.clone();
        let version = self.found.version;
        let mismatch = |check| CpythonError::Mismatch {
            image: image.clone(),
            version,
            check,
        };
        let not_running = || CpythonError::NotInitialised {
            image: image.clone(),
            version,
        };
        let interpreters = self.interpreters(memory)?;
        let Some(main) = interpreters.last().copied() else {
            return Err(not_running());
        };
        let id = memory.u64(RemoteAddr::from(main).plus(self.layout.interp.id.into()))?;
        if id != 0 {
            return Err(mismatch(
                "the last interpreter of the list has not the id 0",
            ));
        }
        let states = self.thread_states(memory)?;
        if states.is_empty() {
            return Err(not_running());
        }
        // glibc and musl keep a thread's own address at the start of its control block. A state
        // can outlive its thread, or wait for it to begin, so one good one is enough.
        let knows_itself = states.iter().any(|state| {
            let own = memory.u64(state.pthread_id.into());
            own == Ok(state.pthread_id.0)
        });
        if !knows_itself {
            return Err(mismatch("no thread id is the address of a thread"));
        }
        let objects = self.objects(memory);
        let modules = RemoteAddr::from(main).plus(self.layout.interp.modules.into());
        let modules = memory.pointer(modules)?;
        if modules == RemoteAddr(0) {
            return Err(not_running());
        }
        objects
            .expect_type(modules, "dict")
            .map_err(|_| mismatch("`sys.modules` is not a dict"))?;
        let sys = objects
            .dict_get(modules, "sys")
            .map_err(|_| mismatch("`sys.modules` cannot be read"))?
            .ok_or_else(not_running)?;
        if let Some(told) = self.told_by_sys(memory, sys)
            && (told.major, told.minor) == (version.major, version.minor)
        {
            self.found.version = told;
        }
        Ok(())
    }

    /// `sys.hexversion`: exact also where the file only tells the minor version.
    fn told_by_sys(&self, memory: &dyn Memory, sys: RemoteAddr) -> Option<Version> {
        let objects = self.objects(memory);
        let dict = objects.module_dict(sys).ok()?;
        let hex = objects.dict_get(dict, "hexversion").ok()??;
        let tagged = self.version().is_at_least(12);
        Version::from_word(objects.small_int(hex, tagged).ok()?)
    }
}

#[cfg(test)]
mod tests;
