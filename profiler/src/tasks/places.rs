//! Where the tasks of an interpreter are listed.
//!
//! To 3.11 in the weak set `asyncio.tasks._all_tasks`, then in `_scheduled_tasks` and the set
//! `_eager_tasks`; tasks of C from 3.14 on in a list of each thread and one of the interpreter.

use rustc_hash::FxHashSet;

use super::MAX_TASKS;
use super::kinds::Shape;
use super::reader::Eyes;
use crate::cpython::objects::word_at;
use crate::cpython::{ObjectError, Objects, Runtime};
use crate::target::Memory as _;
use crate::words::{InterpreterAddr, RemoteAddr, TaskAddr, ThreadStateAddr};

/// The variables of `asyncio.tasks` that list tasks.
const LISTS: [&str; 3] = ["_all_tasks", "_scheduled_tasks", "_eager_tasks"];
/// Most slots of a set; of twice as many tasks as are read there are no more.
const MAX_SLOTS: u64 = 1 << 20;
/// Most items of a list that are believed.
const MAX_BELIEVED: u64 = 1 << 32;

/// The variables of `asyncio.tasks`, which live as long as the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// Weak sets and sets of tasks.
    pub(super) lists: Vec<RemoteAddr>,
    /// The dict of loops and their current tasks.
    pub(super) current: Option<RemoteAddr>,
}

impl Places {
    /// Looks for the module; none where asyncio was not imported (yet).
    pub(super) fn find(
        runtime: &Runtime,
        objects: Objects<'_>,
        interpreter: InterpreterAddr,
    ) -> Option<Self> {
        let modules = runtime.layout().interp.modules;
        let modules = RemoteAddr::from(interpreter).plus(modules.into());
        let modules = objects.memory.pointer(modules).ok()?;
        let module = objects.dict_get(modules, "asyncio.tasks").ok()??;
        let variables = objects.module_dict(module).ok()?;
        let entries = objects.dict_entries(variables).ok()?;
        let lists = LISTS
            .iter()
            .filter_map(|name| objects.pick(&entries, name))
            .collect::<Vec<_>>();
        (!lists.is_empty()).then(|| Self {
            lists,
            current: objects.pick(&entries, "_current_tasks"),
        })
    }
}

/// The tasks that were found, each once, in this order.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) tasks: Vec<TaskAddr>,
    pub(super) left_out: u64,
    pub(super) broken: Vec<ObjectError>,
    seen: FxHashSet<TaskAddr>,
}

impl Listed {
    /// For about so many.
    pub(super) fn with_capacity(count: usize) -> Self {
        let mut listed = Self::default();
        listed.tasks.reserve(count);
        listed.seen.reserve(count);
        listed
    }

    fn push(&mut self, task: TaskAddr) {
        if self.tasks.len() == MAX_TASKS {
            self.left_out += u64::from(!self.seen.contains(&task));
        } else if self.seen.insert(task) {
            self.tasks.push(task);
        }
    }
}

impl Eyes<'_> {
    /// Adds the tasks of a weak set or a set.
    pub(super) fn list_set(&self, list: RemoteAddr, listed: &mut Listed) {
        if let Err(error) = self.try_list_set(list, listed) {
            listed.broken.push(error);
        }
    }

    fn try_list_set(&self, list: RemoteAddr, listed: &mut Listed) -> Result<(), ObjectError> {
        let kind = self.kind(list)?;
        if kind.shape == Shape::Set {
            for task in self.set_items(list, 2 * MAX_TASKS)? {
                listed.push(TaskAddr(task.0));
            }
            return Ok(());
        }
        let objects = self.objects();
        let attributes = objects.attribute_entries(list)?;
        let not_set = ObjectError::WrongType {
            addr: list,
            expected: "WeakSet",
        };
        let data = objects.pick(&attributes, "data").ok_or(not_set)?;
        if self.kind(data)?.shape != Shape::Set {
            return Err(not_set);
        }
        let references = self.set_items(data, 2 * MAX_TASKS)?;
        let field = self.layout.object.size;
        self.memory
            .fetch(references.iter().map(|it| (it.plus(u64::from(field)), 8)));
        for reference in references {
            // What a weak reference refers to is its first word.
            let task = self.first_word(reference)?;
            if task != RemoteAddr(0) {
                listed.push(TaskAddr(task.0));
            }
        }
        Ok(())
    }

    /// Adds the tasks of one circular list, by its head.
    pub(super) fn list_links(&self, head: RemoteAddr, listed: &mut Listed) {
        if let Err(error) = self.try_list_links(head, listed) {
            listed.broken.push(error);
        }
    }

    fn try_list_links(&self, head: RemoteAddr, listed: &mut Listed) -> Result<(), ObjectError> {
        let Some(node) = self.layout.task.node else {
            return Ok(());
        };
        let mut before = head;
        let mut at = self.memory.pointer(head)?;
        let mut steps = 0;
        // Null before the thread has begun.
        while at != head && at != RemoteAddr(0) {
            let mut node_bytes = [0; 16];
            self.memory.read(at, &mut node_bytes)?;
            let word = |offset| RemoteAddr(word_at(&node_bytes, offset).unwrap_or(0));
            // One that was taken out under the reader leads elsewhere, and so does what is no list.
            if word(8) != before {
                return Err(ObjectError::WrongType {
                    addr: at,
                    expected: "list of tasks",
                });
            }
            steps += 1;
            if listed.tasks.len() == MAX_TASKS || steps > MAX_TASKS {
                listed.left_out += 1;
                return Ok(());
            }
            listed.push(TaskAddr(at.0.wrapping_sub(node.into())));
            before = at;
            at = word(0);
        }
        Ok(())
    }

    /// The heads of the lists of an interpreter and its threads (3.14+).
    pub(super) fn heads(
        &self,
        interpreter: InterpreterAddr,
        threads: impl Iterator<Item = ThreadStateAddr>,
    ) -> Vec<RemoteAddr> {
        let fields = &self.layout.asyncio;
        let (Some(of_interpreter), Some(of_thread)) = (fields.interp_tasks, fields.thread_tasks)
        else {
            return Vec::new();
        };
        let interpreter = RemoteAddr::from(interpreter).plus(of_interpreter.into());
        let threads = threads.map(|thread| RemoteAddr::from(thread).plus(of_thread.into()));
        threads.chain([interpreter]).collect()
    }

    /// The items of a set, at most so many.
    pub(super) fn set_items(
        &self,
        set: RemoteAddr,
        most: usize,
    ) -> Result<Vec<RemoteAddr>, ObjectError> {
        let fields = &self.layout.containers;
        let mask = self.memory.u64(set.plus(fields.set_mask.into()))?;
        if mask >= MAX_SLOTS {
            return Err(ObjectError::TooLong {
                addr: set,
                length: mask,
                cap: MAX_SLOTS,
            });
        }
        let table = self.memory.pointer(set.plus(fields.set_table.into()))?;
        // A key and a hash each; that of a deleted one is -1.
        let mut slots = vec![0; 16 * (mask as usize + 1)];
        self.memory.read(table, &mut slots)?;
        let used = slots.chunks_exact(16).filter_map(|slot| {
            let (key, hash) = slot.split_first_chunk::<8>()?;
            let key = u64::from_le_bytes(*key);
            (key != 0 && hash != [0xFF; 8]).then_some(RemoteAddr(key))
        });
        Ok(used.take(most).collect())
    }

    /// The items of a list, at most so many.
    pub(super) fn list_items(
        &self,
        list: RemoteAddr,
        most: u64,
    ) -> Result<Vec<RemoteAddr>, ObjectError> {
        let length = self.memory.u64(list.plus(self.layout.object.size.into()))?;
        if length > MAX_BELIEVED {
            return Err(ObjectError::TooLong {
                addr: list,
                length,
                cap: MAX_BELIEVED,
            });
        }
        let items = list.plus(self.layout.containers.list_items.into());
        let items = self.memory.pointer(items)?;
        let mut bytes = vec![0; 8 * length.min(most) as usize];
        self.memory.read(items, &mut bytes)?;
        let words = bytes.chunks_exact(8).filter_map(<[u8]>::first_chunk::<8>);
        Ok(words
            .map(|word| RemoteAddr(u64::from_le_bytes(*word)))
            .collect())
    }
}
