//! Names that the program gave its threads: `threading._active`, read from outside.
//!
//! Best effort: what cannot be read just has no name. Threads that `threading` never saw are
//! not there.

use rustc_hash::{FxHashMap, FxHashSet};

use super::dicts::KnownKeys;
use super::objects::Objects;
use super::runtime::Runtime;
use crate::target::Memory;
use crate::words::{InnerTid, InterpreterAddr, PthreadId, RemoteAddr};

/// Most entries of dicts that are looked at for all names together: a thread has some fifteen
/// attributes, and each table by itself may be said to be long.
const MAX_ENTRIES: usize = 1 << 20;

/// What a program calls the thread that has a pthread id at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadName {
    /// The name.
    pub name: String,
    /// Whose it is: `Thread.native_id`, which the thread asks the kernel for itself.
    pub native_id: Option<InnerTid>,
}

impl ThreadName {
    /// The name, if it is that of the thread with this id. A pthread id is used again as soon as its
    /// thread has ended, so by itself it tells only who has it now.
    ///
    /// The first thread keeps its pthread id as long as it lives; in a forked child its
    /// `native_id` is still the parent's before 3.11.
    #[must_use]
    pub fn of(&self, inner: Option<InnerTid>, is_first: bool) -> Option<&str> {
        let is_another = self.native_id.zip(inner).is_some_and(|(own, id)| own != id);
        (is_first || !is_another).then_some(&*self.name)
    }
}

/// The names of the threads that Python started, in all interpreters.
#[must_use]
pub fn thread_names(runtime: &Runtime, memory: &dyn Memory) -> FxHashMap<PthreadId, ThreadName> {
    thread_names_of(runtime, memory, &mut KnownKeys::default(), &|_| true)
}

/// The same for the threads that are `wanted` alone: a name costs a dozen reads, and a process
/// may have thousands of threads of which few ever run. Keep `known` for the next time.
#[must_use]
pub fn thread_names_of(
    runtime: &Runtime,
    memory: &dyn Memory,
    known: &mut KnownKeys,
    wanted: &dyn Fn(PthreadId) -> bool,
) -> FxHashMap<PthreadId, ThreadName> {
    let mut search = Search {
        runtime,
        objects: runtime.objects(memory),
        wanted,
        known,
        left: MAX_ENTRIES,
        names: FxHashMap::default(),
    };
    for interpreter in runtime.interpreters(memory).unwrap_or_default() {
        // The main interpreter comes last and has the last word on a thread that several use.
        search.names_of(interpreter);
    }
    search.names
}

struct Search<'a> {
    runtime: &'a Runtime,
    objects: Objects<'a>,
    wanted: &'a dyn Fn(PthreadId) -> bool,
    known: &'a mut KnownKeys,
    /// Entries that may still be looked at.
    left: usize,
    names: FxHashMap<PthreadId, ThreadName>,
}

impl Search<'_> {
    fn names_of(&mut self, interpreter: InterpreterAddr) -> Option<()> {
        let objects = self.objects;
        let tagged = self.runtime.version().is_at_least(12);
        let modules = self.runtime.layout().interp.modules;
        let modules = RemoteAddr::from(interpreter).plus(modules.into());
        let modules = objects.memory.pointer(modules).ok()?;
        let threading = self.entry(modules, "threading")?;
        let variables = objects.module_dict(threading).ok()?;
        let active = self.entry(variables, "_active")?;
        let threads = objects.hashed_entries(active).ok()?;
        let mut met = Vec::new();
        for entry in self.spend(threads)? {
            // A pthread id is its own hash; so the ints of the others are not read.
            if !entry.hash.map(PthreadId).is_some_and(self.wanted) {
                continue;
            }
            let Ok(ident) = objects.small_int(entry.key, tagged).map(PthreadId) else {
                continue;
            };
            if !(self.wanted)(ident) {
                continue;
            }
            if let Some(name) = self.name_of(entry.value, tagged)? {
                met.push((entry, ident, name));
            }
        }
        if met.is_empty() {
            return Some(());
        }
        // A thread may have ended meanwhile, and left its `Thread` as it was, around a name whose
        // memory has become another's. What was read the same before and after it was found to be
        // alive was true at that moment.
        let again = objects.hashed_entries(active).ok()?;
        let again = self.spend(again)?.into_iter();
        let alive: FxHashSet<_> = again.map(|entry| (entry.hash, entry.value)).collect();
        for (entry, ident, name) in met {
            if alive.contains(&(entry.hash, entry.value))
                && self.name_of(entry.value, tagged)?.as_ref() == Some(&name)
            {
                self.names.insert(ident, name);
            }
        }
        Some(())
    }

    /// What a `Thread` says of itself, if it says anything; none when no more is to be read.
    fn name_of(&mut self, thread: RemoteAddr, tagged: bool) -> Option<Option<ThreadName>> {
        let objects = self.objects;
        let attributes = objects.attribute_entries(thread).unwrap_or_default();
        let attributes = self.spend(attributes)?;
        // First whose it is: the name that is read next is that one's, if it lives on.
        let native_id = objects
            .pick_known(&attributes, "_native_id", self.known)
            .and_then(|id| objects.small_int(id, tagged).ok())
            .and_then(|id| id.try_into().ok())
            .map(InnerTid);
        let name = objects.pick_known(&attributes, "_name", self.known);
        let Some(name) = name.and_then(|name| objects.string(name).ok()) else {
            return Some(None);
        };
        Some(Some(ThreadName { name, native_id }))
    }

    fn entry(&mut self, dict: RemoteAddr, name: &'static str) -> Option<RemoteAddr> {
        let entries = self.objects.dict_entries(dict).ok()?;
        let entries = self.spend(entries)?;
        self.objects.pick_known(&entries, name, self.known)
    }

    /// The entries, if they are still to be looked at.
    fn spend<T>(&mut self, entries: Vec<T>) -> Option<Vec<T>> {
        // One more, since an empty table has cost its reads as well.
        self.left = self.left.checked_sub(entries.len() + 1)?;
        Some(entries)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::cpython::fake::Fake;
    use crate::target::ReadError;

    const IDENT: u64 = 0x1000;

    /// A process whose `threading` knows one thread, or has forgotten it.
    fn process(is_alive: bool) -> (Fake, Runtime, RemoteAddr) {
        let (mut fake, layout, found) = Fake::python_3_12();
        fake.dict(
            "modules",
            &layout,
            &[("threading", "threading"), ("sys", "sys")],
        );
        fake.point("threading", layout.object.size, "threading dict");
        fake.dict("threading dict", &layout, &[("_active", "_active")]);
        let fields = layout.keys;
        fake.point("_active", layout.dict.keys, "_active, keys");
        fake.word("_active", layout.dict.values, 0);
        // 8 indices of a byte, then entries of any keys.
        fake.put("_active, keys", fields.log2_index_bytes.unwrap_or(0), &[3]);
        fake.put("_active, keys", fields.kind.unwrap_or(0), &[0]);
        fake.word("_active, keys", fields.nentries, 1);
        let entry = fields.indices + 8;
        fake.word("_active, keys", entry, IDENT);
        for (field, to) in [(fields.entry_key, "ident"), (fields.entry_value, "Thread")] {
            let to = fake.at(to).0;
            fake.word(
                "_active, keys",
                entry + field,
                if is_alive { to } else { 0 },
            );
        }
        for (label, value) in [("ident", IDENT as u32), ("native id", 7)] {
            fake.word(label, layout.long.tag, 8);
            fake.int(label, layout.long.digits, value);
        }
        fake.class("class Thread", &layout, "Thread");
        fake.word("class Thread", layout.class.flags, 0);
        fake.word("class Thread", layout.class.dictoffset, 64);
        fake.point("Thread", layout.object.ob_type, "class Thread");
        fake.point("Thread", 64, "attributes");
        let attributes = [("_name", "name"), ("_native_id", "native id")];
        fake.dict("attributes", &layout, &attributes);
        fake.ascii("name", &layout, "worker");
        let active = fake.at("_active").plus(layout.dict.keys.into());
        let runtime = Runtime::attach(found, &fake).expect("a runtime");
        (fake, runtime, active)
    }

    /// A process in which a thread ends after its name was read for the first time.
    struct Ends {
        before: Fake,
        after: Fake,
        active: RemoteAddr,
        looks: Cell<u32>,
    }

    impl Memory for Ends {
        fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
            if addr == self.active {
                self.looks.set(self.looks.get() + 1);
            }
            match self.looks.get() {
                0 | 1 => self.before.read(addr, buf),
                _ => self.after.read(addr, buf),
            }
        }
    }

    /// Regression: of a thread that had ended, the `Thread` still said its id, around a name whose
    /// memory was the next one's by then, and said it twice.
    #[test]
    fn a_thread_that_is_no_more_at_the_second_look_has_no_name() {
        let (before, runtime, active) = process(true);
        let names = thread_names(&runtime, &before);
        let name = names.get(&PthreadId(IDENT)).expect("its name");
        assert_eq!((&*name.name, name.native_id), ("worker", Some(InnerTid(7))));
        let (after, ..) = process(false);
        let ends = Ends {
            before,
            after,
            active,
            looks: Cell::new(0),
        };
        assert!(thread_names(&runtime, &ends).is_empty());
        assert_eq!(ends.looks.get(), 2);
    }

    /// Regression: a thread that lived for a millisecond was called what the next one was that got
    /// its pthread id.
    #[test]
    fn a_name_is_that_of_the_thread_which_says_so() {
        let (own, another) = (Some(InnerTid(7)), Some(InnerTid(8)));
        let cases = [
            (own, own, false, true),
            (own, another, false, false),
            (own, None, false, true),
            (None, another, false, true),
            (own, another, true, true),
        ];
        for (native_id, inner, is_first, expected) in cases {
            let name = ThreadName {
                name: "worker".into(),
                native_id,
            };
            let found = name.of(inner, is_first).is_some();
            assert_eq!(found, expected, "{native_id:?} {inner:?} {is_first}");
        }
    }
}
