//! Where the fields of one interpreter's structures lie: a table for each minor version, and
//! from 3.13 on the target's own table laid over it.
//!
//! Only fields that something here reads. All numbers are bytes from the start of the
//! structure unless their name says mask or size; a field that a version does not have is `None`.
//! The tables `v3_*.rs` are generated (`cargo xtask layouts`), never edited.

pub mod asyncio_table;
pub mod debug_offsets;
#[cfg(test)]
pub(super) mod recorded;
mod v3_10;
mod v3_11;
mod v3_12;
mod v3_13;
mod v3_13t;
mod v3_14;
mod v3_14t;
mod v3_15;
mod v3_15t;
mod v3_8;
mod v3_9;

use super::version::{Build, Version};

/// The oldest minor version with a table.
pub const OLDEST_MINOR: u8 = 8;
/// The newest minor version with a table.
pub const NEWEST_MINOR: u8 = 15;

macro_rules! groups {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)+ })+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub struct $name {
                $($(#[$field_doc])* pub $field: $type,)+
            }
        )+
    };
}

groups! {
    /// Everything about one version.
    Layout {
        /// The one `_PyRuntime` of a process.
        runtime: RuntimeFields,
        /// An interpreter.
        interp: InterpreterFields,
        /// The GIL's structure.
        gil: GilFields,
        /// A thread's state.
        tstate: ThreadStateFields,
        /// An entry of a thread's stack of exceptions.
        exc_item: ExcItemFields,
        /// A frame.
        frame: FrameFields,
        /// A code object.
        code: CodeFields,
        /// A str.
        unicode: UnicodeFields,
        /// A bytes.
        bytes: BytesFields,
        /// Any object.
        object: ObjectFields,
        /// A type.
        class: TypeFields,
        /// A dict.
        dict: DictFields,
        /// A dict's table of keys.
        keys: DictKeysFields,
        /// An int.
        long: LongFields,
        /// A key of thread-specific storage.
        tss: TssFields,
        /// A set, a list, a tuple, a function.
        containers: ContainerFields,
        /// A generator, a coroutine, an asynchronous generator, and the frame in it.
        generator: GeneratorFields,
        /// What asyncio keeps in a thread's state and in an interpreter.
        asyncio: AsyncioFields,
        /// A task of `_asyncio`; its futures begin alike.
        task: TaskFields,
        /// The collector's state.
        gc: CollectorFields,
    }

    /// `_PyRuntimeState`.
    RuntimeFields {
        /// First of the list of interpreters.
        interpreters_head: u32,
        /// The thread state that holds the GIL (to 3.11).
        tstate_current: Option<u32>,
        /// The key whose slot in each thread holds its first thread state (to 3.14).
        auto_tss_key: Option<u32>,
        /// Not 0 while collecting (3.8).
        gc_collecting: Option<u32>,
        /// The GIL's structure itself (to 3.11).
        gil: Option<u32>,
    }

    /// `PyInterpreterState`.
    InterpreterFields {
        /// The next interpreter.
        next: u32,
        /// Its number; the main interpreter's is 0.
        id: u32,
        /// First of the list of its thread states.
        threads_head: u32,
        /// The dict `sys.modules`.
        modules: u32,
        /// Pointer to the GIL's structure (3.12+).
        gil: Option<u32>,
        /// Not 0 while collecting (3.9+).
        gc_collecting: Option<u32>,
        /// The thread state that has stopped all others of the interpreter, 0 for none (3.13+).
        world_stopper: Option<u32>,
    }

    /// `struct _gil_runtime_state`.
    GilFields {
        /// An int: not 0 while there is a GIL (free-threaded builds alone).
        enabled: Option<u32>,
        /// The thread state that took the GIL last.
        last_holder: u32,
        /// 1 while it is held.
        locked: u32,
        /// Size of the structure.
        size: u32,
    }

    /// `PyThreadState`.
    ThreadStateFields {
        /// The next thread state of the same interpreter.
        next: u32,
        /// The interpreter.
        interp: u32,
        /// `frame` (to 3.10), `cframe` (3.11, 3.12), `current_frame` (3.13+).
        first_frame: u32,
        /// `pthread_self()` of the thread that made the state.
        thread_id: u32,
        /// `gettid()` of it (3.11+).
        native_thread_id: Option<u32>,
        /// A number that is never used again in the process.
        id: u32,
        /// The word of status bits.
        status: Option<u32>,
        /// Its bit "attached" (3.12+).
        status_active_mask: Option<u32>,
        /// Its bit "holds the GIL" (3.13).
        status_holds_gil_mask: Option<u32>,
        /// An int: holds the GIL (3.14+).
        holds_gil: Option<u32>,
        /// An int: asks for the GIL (3.15+).
        gil_requested: Option<u32>,
        /// An int: detached, attached, stopped (3.13+).
        state: Option<u32>,
        /// Pointer to the newest entry of the stack of exceptions that are being handled.
        exc_info: Option<u32>,
        /// The oldest entry of it, embedded.
        exc_state: Option<u32>,
    }

    /// `_PyErr_StackItem`.
    ExcItemFields {
        /// The exception; null or None when there is none.
        value: u32,
        /// The entry before.
        previous: u32,
    }

    /// `PyFrameObject` (to 3.10) or `_PyInterpreterFrame`.
    FrameFields {
        /// `_PyCFrame.current_frame` (3.11, 3.12).
        cframe_current: Option<u32>,
        /// `_PyCFrame.previous` (3.11, 3.12).
        cframe_previous: Option<u32>,
        /// The byte that marks a frame entered from C (3.11 alone).
        entry: Option<u32>,
        /// The code object.
        code: u32,
        /// The caller's frame.
        previous: u32,
        /// `f_lasti` (an int, to 3.10), else the instruction's address.
        instr: u32,
        /// The byte that says who owns the frame (3.11+).
        owner: Option<u32>,
        /// The owner of a frame that lies in its generator (3.11+).
        generator_owner: Option<u32>,
        /// The generator, null for none (to 3.10).
        generator: Option<u32>,
        /// The smallest owner that marks an entry shim (3.12+).
        shim_owner: Option<u32>,
        /// In a frame object: pointer to the frame (3.11+).
        of_object: Option<u32>,
    }

    /// `PyCodeObject`.
    CodeFields {
        /// The `CO_` bits.
        flags: u32,
        /// The line of the `def`.
        first_line: u32,
        /// str.
        filename: u32,
        /// str.
        name: u32,
        /// str (3.11+).
        qualname: Option<u32>,
        /// bytes: line numbers, in the version's own format.
        linetable: u32,
        /// Where the bytecode begins (3.11+).
        code_adaptive: Option<u32>,
        /// Index of the first instruction of which the frame counts as begun (3.11+).
        first_traceable: Option<u32>,
        /// Pointer to the list of the threads' copies of the bytecode (free-threaded 3.14+).
        copies: Option<u32>,
        /// bytes: the bytecode (to 3.10).
        bytecode: Option<u32>,
    }

    /// A compact str.
    UnicodeFields {
        /// Code points.
        length: u32,
        /// The word of state bits.
        state: u32,
        /// Where the characters of an ASCII str begin.
        ascii_size: u32,
        /// Where those of any other compact str begin.
        compact_size: u32,
        /// State bits: bytes per character.
        kind_mask: u32,
        /// State bit: the characters follow the header.
        compact_mask: u32,
        /// State bit: all characters are ASCII.
        ascii_mask: u32,
    }

    /// bytes.
    BytesFields {
        /// Length.
        size: u32,
        /// The first byte.
        data: u32,
    }

    /// What every object begins with.
    ObjectFields {
        /// Size of the header.
        size: u32,
        /// Pointer to the type.
        ob_type: u32,
    }

    /// `PyTypeObject`, `PyHeapTypeObject`.
    TypeFields {
        /// A C string.
        name: u32,
        /// The `Py_TPFLAGS_` bits.
        flags: u32,
        /// Size of an instance.
        basicsize: u32,
        /// Where an instance keeps its dict.
        dictoffset: u32,
        /// The type it was derived from first.
        base: u32,
        /// Keys that instances share.
        cached_keys: u32,
    }

    /// `PyDictObject`, `PyDictValues`.
    DictFields {
        /// Pointer to the keys.
        keys: u32,
        /// Pointer to values kept apart, null when the entries hold them.
        values: u32,
        /// In `PyDictValues`: the first value; 0 where there is no such structure.
        first_value: Option<u32>,
    }

    /// `PyDictKeysObject` and its entries.
    DictKeysFields {
        /// Number of index slots (to 3.10).
        size: Option<u32>,
        /// A byte: log2 of the bytes that the indices take (3.11+).
        log2_index_bytes: Option<u32>,
        /// A byte: not 0 when all keys are str and entries hold no hash (3.11+).
        kind: Option<u32>,
        /// Entries in use, deleted ones included.
        nentries: u32,
        /// Where the indices begin; the entries follow them.
        indices: u32,
        /// Bytes of an entry.
        entry_size: u32,
        /// In an entry.
        entry_key: u32,
        /// In an entry.
        entry_value: u32,
        /// Bytes of an entry without hash (3.11+).
        str_entry_size: Option<u32>,
        /// In an entry without hash.
        str_entry_key: Option<u32>,
        /// In an entry without hash.
        str_entry_value: Option<u32>,
    }

    /// `PyLongObject`.
    LongFields {
        /// `ob_size` (to 3.11) or `lv_tag`.
        tag: u32,
        /// The first digit, of 30 bits in 4 bytes.
        digits: u32,
    }

    /// `Py_tss_t`.
    TssFields {
        /// An int: the key was made.
        initialized: u32,
        /// The key.
        key: u32,
    }

    /// `PySetObject`, `PyListObject`, `PyTupleObject`, `PyFunctionObject`.
    ContainerFields {
        /// In a set: one less than the slots of its table.
        set_mask: u32,
        /// In a set: pointer to the table, of a key and a hash each.
        set_table: u32,
        /// In a list: pointer to the items.
        list_items: u32,
        /// In a tuple: the first item.
        tuple_items: u32,
        /// In a function: the tuple of its cells.
        closure: u32,
    }

    /// `PyGenObject`, which coroutines begin with, and the frame in it or behind it.
    GeneratorFields {
        /// Pointer to the frame (to 3.10), else the frame itself.
        frame: u32,
        /// A byte: the frame's state (3.11+).
        state: Option<u32>,
        /// In the frame, a byte: its state (3.10), or whether it runs (to 3.9).
        frame_state: Option<u32>,
        /// In the frame: pointer behind the topmost value (to 3.9 and 3.14+).
        stack_top: Option<u32>,
        /// In the frame: how many values there are (3.10), the locals included (3.11 to 3.13).
        stack_depth: Option<u32>,
        /// In the frame: pointer to the values (to 3.10).
        value_stack: Option<u32>,
        /// In the frame: the locals, which the values follow (3.11+).
        localsplus: Option<u32>,
        /// The state of a frame that runs (3.10+).
        executing: Option<u32>,
        /// The state of one that waits: at a `yield` (3.13+), or at anything (3.10 to 3.12).
        suspended: Option<u32>,
        /// The state of one that waits for another generator or awaitable (3.13+).
        awaiting: Option<u32>,
        /// The same while somebody looks at it (3.15+).
        awaiting_locked: Option<u32>,
    }

    /// What asyncio keeps outside its own objects.
    AsyncioFields {
        /// In a thread's state: a dict.
        thread_dict: u32,
        /// In a thread's state: the loop that runs in it (3.13+).
        running_loop: Option<u32>,
        /// In a thread's state: the task that runs in it (3.14+).
        running_task: Option<u32>,
        /// In a thread's state: head of the list of the tasks that it made (3.14+).
        thread_tasks: Option<u32>,
        /// In an interpreter: the same of threads that have ended (3.14+).
        interp_tasks: Option<u32>,
    }

    /// `TaskObj`, and `FutureObj` as far as it goes.
    TaskFields {
        /// The loop.
        event_loop: u32,
        /// The first callable that is to be called when it is done.
        callback0: u32,
        /// A list of the others, each in a tuple.
        callbacks: u32,
        /// An int: 0 while it is pending.
        state: u32,
        /// The future that the task waits for.
        fut_waiter: u32,
        /// The coroutine.
        coro: u32,
        /// Its name: a str, or an int from 3.12 on.
        name: u32,
        /// Who awaits it: one, or a set (3.14+).
        awaited_by: Option<u32>,
        /// A byte: whether it is a set.
        awaited_by_is_set: Option<u32>,
        /// The links of the list of tasks (3.14+).
        node: Option<u32>,
    }

    /// `struct _gc_runtime_state`.
    CollectorFields {
        /// Not 0 while collecting.
        collecting: u32,
        /// The lists of objects, each in a structure that begins with its head.
        generations: u32,
        /// Size of that structure.
        generation_size: u32,
    }
}

/// The layout of some patch releases of a minor version.
#[derive(Clone, Copy, Debug)]
pub struct PatchRange {
    /// The first release it is known for.
    pub first: u8,
    /// The last release it is known for; newer ones are expected to keep the newest layout.
    pub last: u8,
    /// The layout.
    pub layout: Layout,
}

/// The measured layout of a build of `version`; none when there is no table for it.
///
/// A patch release newer than the table gets the newest range: fields that matter to walking
/// have never moved within a minor version, and the checks at attaching would show it.
#[must_use]
pub fn of_version(version: Version, build: Build) -> Option<Layout> {
    let ranges = ranges(version, build)?;
    ranges
        .iter()
        .find(|range| (range.first..=range.last).contains(&version.patch))
        .or(ranges.last())
        .map(|range| range.layout)
}

fn ranges(version: Version, build: Build) -> Option<&'static [PatchRange]> {
    if version.major != 3 {
        return None;
    }
    Some(match (version.minor, build) {
        (8, Build::Default) => v3_8::RANGES,
        (9, Build::Default) => v3_9::RANGES,
        (10, Build::Default) => v3_10::RANGES,
        (11, Build::Default) => v3_11::RANGES,
        (12, Build::Default) => v3_12::RANGES,
        (13, Build::Default) => v3_13::RANGES,
        (13, Build::FreeThreaded) => v3_13t::RANGES,
        (14, Build::Default) => v3_14::RANGES,
        (14, Build::FreeThreaded) => v3_14t::RANGES,
        (15, Build::Default) => v3_15::RANGES,
        (15, Build::FreeThreaded) => v3_15t::RANGES,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_supported_minor_version_has_ranges_without_gaps() {
        for minor in OLDEST_MINOR..=NEWEST_MINOR {
            for build in [Build::Default, Build::FreeThreaded] {
                let ranges = ranges(Version::release(3, minor, 0), build);
                assert_eq!(ranges.is_none(), minor < 13 && build != Build::Default);
                let mut next = 0;
                for range in ranges.unwrap_or_default() {
                    assert_eq!(range.first, next, "3.{minor} {build:?}");
                    assert!(range.first <= range.last, "3.{minor} {build:?}");
                    next = range.last + 1;
                }
            }
        }
    }

    #[test]
    fn a_patch_release_newer_than_the_table_gets_the_newest_layout() {
        let of = |patch| of_version(Version::release(3, 14, patch), Build::Default);
        assert_eq!(of(250), of(10));
        assert_ne!(of(250), of(0));
    }

    #[test]
    fn versions_outside_the_tables_have_no_layout() {
        let of = |major, minor| of_version(Version::release(major, minor, 0), Build::Default);
        assert_eq!(of(3, OLDEST_MINOR - 1), None);
        assert_eq!(of(3, NEWEST_MINOR + 1), None);
        assert_eq!(of(2, 12), None);
    }
}
