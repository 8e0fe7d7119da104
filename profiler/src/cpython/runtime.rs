//! A running interpreter: its thread states, and whether it collects.
//!
//! Every list in it changes while it is read, so each is bounded, checked for cycles, and read
//! again when it makes no sense. Not here: which thread of the kernel a state belongs to (see
//! [`crate::threads`]), who holds the GIL (`gil`), and frames (see [`crate::pystack`]).

use std::sync::OnceLock;

use rustc_hash::FxHashSet;

use super::attachment::Attachment;
use super::current;
use super::error::CpythonError;
use super::find::{Found, Libc};
use super::gil::Lock;
use super::layout::{self, Layout, debug_offsets};
use super::objects::{Objects, int_at, word_at};
use super::version::{Build, Version};
use crate::sample::Gil;
use crate::target::{Memory, Piece, ReadError};
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

/// An interpreter that was found, checked and can be read.
#[derive(Clone, Debug)]
pub struct Runtime {
    found: Found,
    layout: Layout,
    /// Where None is, one object for all interpreters, once it was met.
    pub(super) none: OnceLock<RemoteAddr>,
    others: Vec<Found>,
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
        let mut runtime = Self {
            found,
            layout,
            none: OnceLock::new(),
            others: Vec::new(),
        };
        runtime.check(memory)?;
        Ok(runtime)
    }

    /// What was found.
    #[must_use]
    pub const fn found(&self) -> &Found {
        &self.found
    }

    /// Other interpreters that run in the same process, each with a runtime of its own.
    #[must_use]
    pub fn others(&self) -> &[Found] {
        &self.others
    }

    /// Notes one. A runtime that two images name is one runtime.
    pub(super) fn add_other(&mut self, other: Self) {
        let known = self.others.iter().chain([&self.found]);
        if known
            .into_iter()
            .all(|it| it.runtime != other.found.runtime)
        {
            self.others.push(other.found);
        }
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

    /// Every thread state of every interpreter, newest first; but of several states of one thread
    /// the last is the one that it runs now, where that is known.
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
        let (block, holder) = self.read_state(memory, addr, self.state_bytes())?;
        let interpreter = InterpreterAddr(self.state_word(&block, self.layout.tstate.interp));
        let lock = self.lock(memory, interpreter, holder)?;
        Ok(self.decode_state(addr, &block, lock))
    }

    fn try_thread_states(&self, memory: &dyn Memory) -> Result<Vec<ThreadState>, CpythonError> {
        let mut states = Vec::new();
        let mut seen = FxHashSet::default();
        let mut block = vec![0; self.state_bytes()];
        let holder = self.current_holder(memory)?;
        for interpreter in self.interpreters(memory)? {
            let lock = self.lock(memory, interpreter, holder)?;
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
        current::last(self, memory, &mut states);
        Ok(states)
    }

    /// `bytes` of a thread state and, where the runtime says that, who holds the GIL: in one
    /// call of the kernel's.
    pub(super) fn read_state(
        &self,
        memory: &dyn Memory,
        addr: ThreadStateAddr,
        bytes: usize,
    ) -> Result<(Vec<u8>, Option<ThreadStateAddr>), ReadError> {
        let mut block = vec![0; bytes];
        let Some(place) = self.holder_addr() else {
            memory.read(addr.into(), &mut block)?;
            return Ok((block, None));
        };
        let mut holder = [0; 8];
        let mut pieces = [
            Piece::new(addr.into(), &mut block),
            Piece::new(place, &mut holder),
        ];
        memory.read_many(&mut pieces);
        let [state, holds] = pieces;
        state.result.and(holds.result)?;
        let holder = u64::from_le_bytes(holder);
        Ok((block, (holder != 0).then_some(ThreadStateAddr(holder))))
    }

    pub(super) fn decode_state(
        &self,
        addr: ThreadStateAddr,
        block: &[u8],
        lock: Lock,
    ) -> ThreadState {
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

    /// Whether a thread that holds the GIL, or whose interpreter has none, is collecting garbage.
    /// In free-threaded builds others run beside a collection, but for while it has stopped them:
    /// then it is the thread that did, and else nobody can tell whose it is.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn collects(
        &self,
        memory: &dyn Memory,
        state: ThreadStateAddr,
        interpreter: InterpreterAddr,
    ) -> Result<Option<bool>, ReadError> {
        let collecting = self.collecting(memory, interpreter)?;
        let stopper = match self.build() {
            Build::FreeThreaded if collecting => self.layout.interp.world_stopper,
            Build::Default | Build::FreeThreaded => return Ok(Some(collecting)),
        };
        let Some(stopper) = stopper else {
            return Ok(None);
        };
        let stopper = memory.u64(RemoteAddr::from(interpreter).plus(stopper.into()))?;
        Ok((stopper == state.0).then_some(true))
    }

    /// Bytes of a thread state that hold every field that is read; offsets of a hostile table
    /// are below 2^24, so this is no great allocation.
    pub(super) fn state_bytes(&self) -> usize {
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
    pub(super) fn state_word(&self, block: &[u8], offset: u32) -> u64 {
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
        let knows_itself = |state: &&ThreadState| {
            let own = memory.u64(state.pthread_id.into());
            own == Ok(state.pthread_id.0)
        };
        let Some(alive) = states.iter().find(knows_itself) else {
            return Err(mismatch("no thread id is the address of a thread"));
        };
        self.found.libc = libc_of(memory, alive.pthread_id).unwrap_or(self.found.libc);
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
            .map_err(|_| mismatch("`sys.modules` cannot be read"))?;
        let Some(sys) = sys else {
            // Empty while the interpreter starts; but a program may also take `sys` out.
            let runs = states
                .iter()
                .any(|state| self.runs_code(memory, state.addr));
            return if runs { Ok(()) } else { Err(not_running()) };
        };
        if let Some(told) = self.told_by_sys(memory, sys)
            && (told.major, told.minor) == (version.major, version.minor)
        {
            self.found.version = told;
        }
        Ok(())
    }

    /// Whether a thread's first frame is one of a code object.
    fn runs_code(&self, memory: &dyn Memory, state: ThreadStateAddr) -> bool {
        let fields = &self.layout.frame;
        let mut frame =
            memory.pointer(RemoteAddr::from(state).plus(self.layout.tstate.first_frame.into()));
        if let (Ok(cframe), Some(current)) = (frame, fields.cframe_current) {
            frame = memory.pointer(cframe.plus(current.into()));
        }
        let code = frame.and_then(|frame| memory.u64(frame.plus(fields.code.into())));
        // The low bits can be flags of the reference.
        code.is_ok_and(|code| {
            self.objects(memory)
                .expect_type(RemoteAddr(code & !7), "code")
                .is_ok()
        })
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

/// By a thread's control block: its address stands there a second time in glibc, where musl has
/// the blocks of the threads before and after. None when it is neither.
fn libc_of(memory: &dyn Memory, thread: PthreadId) -> Option<Libc> {
    let block = RemoteAddr::from(thread);
    let neighbours = [0x10, 0x18].map(|offset| memory.pointer(block.plus(offset)));
    let [Ok(before), Ok(after)] = neighbours else {
        return None;
    };
    if before == block && after != block {
        return Some(Libc::Glibc);
    }
    let is_block = |block: RemoteAddr| memory.pointer(block) == Ok(block);
    (is_block(before) && is_block(after)).then_some(Libc::Musl)
}

#[cfg(test)]
mod tests;
