//! Whether a thread is handling an exception: in an `except` or `finally` block that was entered
//! by one, or in anything called from there.
//!
//! Each thread state has a stack of entries, one for each generator or coroutine that runs in it
//! and the oldest, which is embedded in the state, for everything else. An entry holds the
//! exception that is handled in it; leaving the block leaves null there, or None (to 3.12).
//! `sys.exc_info()` answers from the newest entry that has one (`_PyErr_GetTopmostException`),
//! and so does this. Not here: exceptions that are raised and not caught yet.

use super::attachment::Attachment;
use super::objects::{ObjectError, word_at};
use super::runtime::Runtime;
use crate::sample::{Gil, Handling};
use crate::target::{Memory, ReadError};
use crate::words::{InterpreterAddr, PthreadId, RemoteAddr, ThreadStateAddr};

/// Most entries that are looked at: so many generators run each inside another.
const MAX_ENTRIES: usize = 64;

/// What the kernel needs to know to look by itself: offsets in a thread state and in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandlingPlan {
    /// In the state: the pointer to the newest entry.
    pub newest: u32,
    /// In the state: the oldest entry itself.
    pub oldest: u32,
    /// In an entry: the exception.
    pub value: u32,
    /// In an entry: the pointer to the one before.
    pub previous: u32,
    /// None, which stands for no exception as null does.
    pub none: RemoteAddr,
}

/// What a thread state says of its thread at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateNow {
    /// `pthread_self()` of the thread that made it.
    pub pthread_id: PthreadId,
    /// Its interpreter.
    pub interpreter: InterpreterAddr,
    /// How it stands to the GIL.
    pub gil: Gil,
    /// Whether it can run Python code (3.13+).
    pub attachment: Option<Attachment>,
    /// Whether it handles an exception.
    pub handling: Handling,
}

impl Runtime {
    /// What a thread state says now: one call of the kernel's, two more in a free-threaded build,
    /// one more for each generator that runs in it, and three to learn what is None. It holds together if the thread did not run meanwhile.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub fn state_now(
        &self,
        memory: &dyn Memory,
        addr: ThreadStateAddr,
    ) -> Result<StateNow, ReadError> {
        let oldest = self.layout().tstate.exc_state;
        let item = self.layout().exc_item;
        let entry_bytes = item.value.max(item.previous) + 8;
        let exceptions = oldest.map_or(0, |oldest| (oldest + entry_bytes) as usize);
        let bytes = self.state_bytes().max(exceptions);
        let (block, holder) = self.read_state(memory, addr, bytes)?;
        let interpreter = InterpreterAddr(self.state_word(&block, self.layout().tstate.interp));
        let lock = self.lock(memory, interpreter, holder)?;
        let state = self.decode_state(addr, &block, lock);
        Ok(StateNow {
            pthread_id: state.pthread_id,
            interpreter: state.interpreter,
            gil: state.gil,
            attachment: state.attachment,
            handling: self
                .handling(memory, addr, &block)
                .unwrap_or(Handling::Unknown),
        })
    }

    /// The numbers with which the kernel can look; none when they are not known, or when the
    /// interpreter has not come so far yet.
    #[must_use]
    pub fn handling_plan(&self, memory: &dyn Memory) -> Option<HandlingPlan> {
        let fields = &self.layout().tstate;
        let item = self.layout().exc_item;
        Some(HandlingPlan {
            newest: fields.exc_info?,
            oldest: fields.exc_state?,
            value: item.value,
            previous: item.previous,
            none: self.find_none(memory)?,
        })
    }

    /// By a state of which `block` was read; none when it cannot be told.
    fn handling(
        &self,
        memory: &dyn Memory,
        addr: ThreadStateAddr,
        block: &[u8],
    ) -> Option<Handling> {
        let fields = &self.layout().tstate;
        let item = self.layout().exc_item;
        let (newest, oldest) = (fields.exc_info?, fields.exc_state?);
        let last = RemoteAddr::from(addr).plus(oldest.into());
        let mut entry = RemoteAddr(word_at(block, newest as usize)?);
        for _ in 0..MAX_ENTRIES {
            let in_state = (entry == last)
                .then(|| block.get(oldest as usize..))
                .flatten();
            let mut apart = [0; 32];
            let bytes = match in_state {
                Some(bytes) => bytes,
                None => {
                    let len = (item.value.max(item.previous) + 8) as usize;
                    let apart = apart.get_mut(..len)?;
                    memory.read(entry, apart).ok()?;
                    apart
                }
            };
            let value = word_at(bytes, item.value as usize)?;
            if value != 0 && !self.is_none(memory, RemoteAddr(value)).ok()? {
                return Some(Handling::Exception);
            }
            if entry == last {
                return Some(Handling::Nothing);
            }
            entry = RemoteAddr(word_at(bytes, item.previous as usize)?);
        }
        None
    }

    /// By its type, the first time: that is three reads, where the dict of built-in names is as
    /// long as the target says.
    fn is_none(&self, memory: &dyn Memory, value: RemoteAddr) -> Result<bool, ObjectError> {
        if let Some(none) = self.none.get() {
            return Ok(*none == value);
        }
        let objects = self.objects(memory);
        let is_none = objects.name_of_type(objects.type_of(value)?)? == "NoneType";
        if is_none {
            let _ = self.none.set(value);
        }
        Ok(is_none)
    }

    fn find_none(&self, memory: &dyn Memory) -> Option<RemoteAddr> {
        if let Some(none) = self.none.get() {
            return Some(*none);
        }
        let objects = self.objects(memory);
        let main = self.interpreters(memory).ok()?.last().copied()?;
        let modules = RemoteAddr::from(main).plus(self.layout().interp.modules.into());
        let modules = memory.pointer(modules).ok()?;
        let builtins = objects.dict_get(modules, "builtins").ok()??;
        let builtins = objects.module_dict(builtins).ok()?;
        let none = objects.dict_get(builtins, "None").ok()??;
        self.is_none(memory, none).ok()?.then_some(none)
    }
}

#[cfg(test)]
mod tests;
