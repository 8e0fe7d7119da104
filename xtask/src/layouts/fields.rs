//! The fields that the profiler reads: what they are called in its tables, in a layouts file
//! and in C. The groups and their order are those of `profiler/src/cpython/layout/mod.rs`.

/// One field of a group.
pub(super) struct Field {
    /// Its name in the table.
    pub(super) name: &'static str,
    /// `group.field` of the layouts file, `=` a number if it counts only where it is that, `+` a
    /// number for what lies so far behind; the first that is there counts.
    pub(super) measured: &'static [&'static str],
    /// C expressions; the first that compiles counts. `S:` before a type and a field stands for
    /// the mask of a bit field within a word of a structure.
    pub(super) c: &'static [&'static str],
    /// Absent in some versions.
    pub(super) optional: bool,
}

/// A structure of the table: its field in `Layout`, its Rust type, its fields.
pub(super) struct Group {
    pub(super) name: &'static str,
    pub(super) rust: &'static str,
    pub(super) fields: &'static [Field],
}

const fn must(
    name: &'static str,
    measured: &'static [&'static str],
    c: &'static [&'static str],
) -> Field {
    Field {
        name,
        measured,
        c,
        optional: false,
    }
}

const fn may(
    name: &'static str,
    measured: &'static [&'static str],
    c: &'static [&'static str],
) -> Field {
    Field {
        name,
        measured,
        c,
        optional: true,
    }
}

/// Headers that define the structures, included where a version has them.
pub(super) const HEADERS: &[&str] = &[
    "internal/pycore_runtime.h",
    "internal/pycore_pystate.h",
    "internal/pycore_tstate.h",
    "internal/pycore_interp.h",
    "internal/pycore_gil.h",
    "internal/pycore_gc.h",
    "internal/pycore_ceval.h",
    "internal/pycore_frame.h",
    "internal/pycore_interpframe.h",
    "internal/pycore_interpframe_structs.h",
    "internal/pycore_code.h",
    "internal/pycore_dict.h",
    "frameobject.h",
];

// One field on a line, as far as it goes.
#[rustfmt::skip]
pub(super) const GROUPS: &[Group] = &[
    Group {
        name: "runtime",
        rust: "RuntimeFields",
        fields: &[
            must("interpreters_head", &["runtime.interpreters_head"], &["offsetof(_PyRuntimeState, interpreters.head)"]),
            may("tstate_current", &["runtime.tstate_current"], &["offsetof(_PyRuntimeState, gilstate.tstate_current)"]),
            may("auto_tss_key", &["runtime.autoTSSkey"], &["offsetof(_PyRuntimeState, autoTSSkey)", "offsetof(_PyRuntimeState, gilstate.autoTSSkey)"]),
            may("gc_collecting", &["runtime.gc_collecting"], &["offsetof(_PyRuntimeState, gc.collecting)"]),
            may("gil", &["runtime.gil"], &["offsetof(_PyRuntimeState, ceval.gil)"]),
        ],
    },
    Group {
        name: "interp",
        rust: "InterpreterFields",
        fields: &[
            must("next", &["interp.next"], &["offsetof(PyInterpreterState, next)"]),
            must("id", &["interp.id"], &["offsetof(PyInterpreterState, id)"]),
            must("threads_head", &["interp.threads_head"], &["offsetof(PyInterpreterState, threads.head)", "offsetof(PyInterpreterState, tstate_head)"]),
            must("modules", &["interp.modules"], &["offsetof(PyInterpreterState, imports.modules)", "offsetof(PyInterpreterState, modules)"]),
            may("gil", &["interp.ceval_gil"], &["offsetof(PyInterpreterState, ceval.gil)"]),
            may("gc_collecting", &["interp.gc_collecting"], &["offsetof(PyInterpreterState, gc.collecting)"]),
            may("world_stopper", &["interp.stoptheworld+16"], &["offsetof(PyInterpreterState, stoptheworld.requester)"]),
        ],
    },
    Group {
        name: "gil",
        rust: "GilFields",
        fields: &[
            may("enabled", &["gil.enabled"], &["offsetof(struct _gil_runtime_state, enabled)"]),
            must("last_holder", &["gil.last_holder"], &["offsetof(struct _gil_runtime_state, last_holder)"]),
            must("locked", &["gil.locked"], &["offsetof(struct _gil_runtime_state, locked)"]),
            must("size", &["gil.size"], &["sizeof(struct _gil_runtime_state)"]),
        ],
    },
    Group {
        name: "tstate",
        rust: "ThreadStateFields",
        fields: &[
            must("next", &["tstate.next"], &["offsetof(PyThreadState, next)"]),
            must("interp", &["tstate.interp"], &["offsetof(PyThreadState, interp)"]),
            must("first_frame", &["tstate.current_frame", "tstate.frame", "tstate.cframe"], &["offsetof(PyThreadState, current_frame)", "offsetof(PyThreadState, frame)", "offsetof(PyThreadState, cframe)"]),
            must("thread_id", &["tstate.thread_id"], &["offsetof(PyThreadState, thread_id)"]),
            may("native_thread_id", &["tstate.native_thread_id"], &["offsetof(PyThreadState, native_thread_id)"]),
            must("id", &["tstate.id"], &["offsetof(PyThreadState, id)"]),
            may("status", &["tstate.status"], &["offsetof(PyThreadState, _status)", "offsetof(PyThreadState, _initialized)"]),
            may("status_active_mask", &["tstate_status_mask.active"], &["S:PyThreadState:_status:active"]),
            may("status_holds_gil_mask", &["tstate_status_mask.holds_gil"], &["S:PyThreadState:_status:holds_gil"]),
            may("holds_gil", &["tstate.holds_gil"], &["offsetof(PyThreadState, holds_gil)"]),
            may("gil_requested", &["tstate.gil_requested"], &["offsetof(PyThreadState, gil_requested)"]),
            may("state", &["tstate.state"], &["offsetof(PyThreadState, state)"]),
            may("exc_info", &["tstate.exc_info"], &["offsetof(PyThreadState, exc_info)"]),
            may("exc_state", &["tstate.exc_state"], &["offsetof(PyThreadState, exc_state)"]),
        ],
    },
    Group {
        name: "exc_item",
        rust: "ExcItemFields",
        fields: &[
            must("value", &["err_stackitem.exc_value"], &["offsetof(_PyErr_StackItem, exc_value)"]),
            must("previous", &["err_stackitem.previous_item"], &["offsetof(_PyErr_StackItem, previous_item)"]),
        ],
    },
    Group {
        name: "frame",
        rust: "FrameFields",
        fields: &[
            may("cframe_current", &["cframe.current_frame"], &["offsetof(_PyCFrame, current_frame)"]),
            may("cframe_previous", &["cframe.previous"], &["offsetof(_PyCFrame, previous)", "offsetof(CFrame, previous)"]),
            may("entry", &["iframe.is_entry"], &["offsetof(_PyInterpreterFrame, is_entry)"]),
            must("code", &["iframe.executable", "pyframe.f_code"], &["offsetof(_PyInterpreterFrame, f_executable)", "offsetof(_PyInterpreterFrame, f_code)", "offsetof(PyFrameObject, f_code)"]),
            must("previous", &["iframe.previous", "pyframe.f_back"], &["offsetof(_PyInterpreterFrame, previous)", "offsetof(PyFrameObject, f_back)"]),
            must("instr", &["iframe.instr_ptr", "iframe.prev_instr", "pyframe.f_lasti"], &["offsetof(_PyInterpreterFrame, instr_ptr)", "offsetof(_PyInterpreterFrame, prev_instr)", "offsetof(PyFrameObject, f_lasti)"]),
            may("owner", &["iframe.owner"], &["offsetof(_PyInterpreterFrame, owner)"]),
            may("generator_owner", &["frame_owner.GENERATOR"], &["FRAME_OWNED_BY_GENERATOR"]),
            may("generator", &["pyframe.f_gen"], &["offsetof(PyFrameObject, f_gen)"]),
            may("shim_owner", &["frame_owner.INTERPRETER", "frame_owner.CSTACK"], &["FRAME_OWNED_BY_INTERPRETER", "FRAME_OWNED_BY_CSTACK"]),
            may("of_object", &["pyframe.f_frame"], &["offsetof(PyFrameObject, f_frame)"]),
        ],
    },
    Group {
        name: "code",
        rust: "CodeFields",
        fields: &[
            must("flags", &["code.co_flags"], &["offsetof(PyCodeObject, co_flags)"]),
            must("first_line", &["code.co_firstlineno"], &["offsetof(PyCodeObject, co_firstlineno)"]),
            must("filename", &["code.co_filename"], &["offsetof(PyCodeObject, co_filename)"]),
            must("name", &["code.co_name"], &["offsetof(PyCodeObject, co_name)"]),
            may("qualname", &["code.co_qualname"], &["offsetof(PyCodeObject, co_qualname)"]),
            must("linetable", &["code.co_linetable"], &["offsetof(PyCodeObject, co_linetable)", "offsetof(PyCodeObject, co_lnotab)"]),
            may("code_adaptive", &["code.co_code_adaptive"], &["offsetof(PyCodeObject, co_code_adaptive)"]),
            may("first_traceable", &["code.co_firsttraceable"], &["offsetof(PyCodeObject, _co_firsttraceable)"]),
            may("copies", &["code.co_tlbc"], &["offsetof(PyCodeObject, co_tlbc)"]),
            may("bytecode", &["code.co_code"], &["offsetof(PyCodeObject, co_code)"]),
        ],
    },
    Group {
        name: "unicode",
        rust: "UnicodeFields",
        fields: &[
            must("length", &["unicode.length"], &["offsetof(PyASCIIObject, length)"]),
            must("state", &["unicode.state"], &["offsetof(PyASCIIObject, state)"]),
            must("ascii_size", &["unicode.ascii_size"], &["sizeof(PyASCIIObject)"]),
            must("compact_size", &["unicode.compact_size"], &["sizeof(PyCompactUnicodeObject)"]),
            must("kind_mask", &["unicode_state_mask.kind"], &["S:PyASCIIObject:state:kind"]),
            must("compact_mask", &["unicode_state_mask.compact"], &["S:PyASCIIObject:state:compact"]),
            must("ascii_mask", &["unicode_state_mask.ascii"], &["S:PyASCIIObject:state:ascii"]),
        ],
    },
    Group {
        name: "bytes",
        rust: "BytesFields",
        fields: &[
            must("size", &["bytes.ob_size"], &["offsetof(PyBytesObject, ob_base.ob_size)"]),
            must("data", &["bytes.ob_sval"], &["offsetof(PyBytesObject, ob_sval)"]),
        ],
    },
    Group {
        name: "object",
        rust: "ObjectFields",
        fields: &[
            must("size", &["object.size"], &["sizeof(PyObject)"]),
            must("ob_type", &["object.ob_type"], &["offsetof(PyObject, ob_type)"]),
        ],
    },
    Group {
        name: "class",
        rust: "TypeFields",
        fields: &[
            must("name", &["type.tp_name"], &["offsetof(PyTypeObject, tp_name)"]),
            must("flags", &["type.tp_flags"], &["offsetof(PyTypeObject, tp_flags)"]),
            must("basicsize", &["type.tp_basicsize"], &["offsetof(PyTypeObject, tp_basicsize)"]),
            must("dictoffset", &["type.tp_dictoffset"], &["offsetof(PyTypeObject, tp_dictoffset)"]),
            must("base", &["type.tp_base"], &["offsetof(PyTypeObject, tp_base)"]),
            must("cached_keys", &["type.ht_cached_keys"], &["offsetof(PyHeapTypeObject, ht_cached_keys)"]),
        ],
    },
    Group {
        name: "dict",
        rust: "DictFields",
        fields: &[
            must("keys", &["dict.ma_keys"], &["offsetof(PyDictObject, ma_keys)"]),
            must("values", &["dict.ma_values"], &["offsetof(PyDictObject, ma_values)"]),
            may("first_value", &["dictvalues.values"], &["offsetof(PyDictValues, values)"]),
        ],
    },
    Group {
        name: "keys",
        rust: "DictKeysFields",
        fields: &[
            may("size", &["dictkeys.dk_size"], &["offsetof(PyDictKeysObject, dk_size)"]),
            may("log2_index_bytes", &["dictkeys.dk_log2_index_bytes"], &["offsetof(PyDictKeysObject, dk_log2_index_bytes)"]),
            may("kind", &["dictkeys.dk_kind"], &["offsetof(PyDictKeysObject, dk_kind)"]),
            must("nentries", &["dictkeys.dk_nentries"], &["offsetof(PyDictKeysObject, dk_nentries)"]),
            must("indices", &["dictkeys.dk_indices"], &["offsetof(PyDictKeysObject, dk_indices)"]),
            must("entry_size", &["dictkeys.entry_size"], &["sizeof(PyDictKeyEntry)"]),
            must("entry_key", &["dictkeys.entry_key"], &["offsetof(PyDictKeyEntry, me_key)"]),
            must("entry_value", &["dictkeys.entry_value"], &["offsetof(PyDictKeyEntry, me_value)"]),
            may("str_entry_size", &["dictkeys.unicode_entry_size"], &["sizeof(PyDictUnicodeEntry)"]),
            may("str_entry_key", &["dictkeys.unicode_entry_key"], &["offsetof(PyDictUnicodeEntry, me_key)"]),
            may("str_entry_value", &["dictkeys.unicode_entry_value"], &["offsetof(PyDictUnicodeEntry, me_value)"]),
        ],
    },
    Group {
        name: "long",
        rust: "LongFields",
        fields: &[
            must("tag", &["long.tag_or_size"], &["offsetof(PyLongObject, long_value.lv_tag)", "offsetof(PyLongObject, ob_base.ob_size)"]),
            must("digits", &["long.ob_digit"], &["offsetof(PyLongObject, long_value.ob_digit)", "offsetof(PyLongObject, ob_digit)"]),
        ],
    },
    Group {
        name: "tss",
        rust: "TssFields",
        fields: &[
            must("initialized", &["tss_key.is_initialized"], &["offsetof(Py_tss_t, _is_initialized)"]),
            must("key", &["tss_key.key"], &["offsetof(Py_tss_t, _key)"]),
        ],
    },
    Group {
        name: "containers",
        rust: "ContainerFields",
        fields: &[
            must("set_mask", &["set.mask"], &["offsetof(PySetObject, mask)"]),
            must("set_table", &["set.table"], &["offsetof(PySetObject, table)"]),
            must("list_items", &["list.ob_item"], &["offsetof(PyListObject, ob_item)"]),
            must("tuple_items", &["tuple.ob_item"], &["offsetof(PyTupleObject, ob_item)"]),
            must("closure", &["function.func_code=16+32", "function.func_code+24"], &["offsetof(PyFunctionObject, func_closure)"]),
        ],
    },
    Group {
        name: "generator",
        rust: "GeneratorFields",
        fields: &[
            must("frame", &["gen.gi_iframe", "gen.gi_frame"], &["offsetof(PyGenObject, gi_iframe)", "offsetof(PyGenObject, gi_frame)"]),
            may("state", &["gen.gi_frame_state"], &["offsetof(PyGenObject, gi_frame_state)"]),
            may("frame_state", &["pyframe.f_state", "pyframe.f_executing"], &["offsetof(PyFrameObject, f_state)", "offsetof(PyFrameObject, f_executing)"]),
            may("stack_top", &["iframe.stackpointer", "pyframe.f_stacktop"], &["offsetof(_PyInterpreterFrame, stackpointer)", "offsetof(PyFrameObject, f_stacktop)"]),
            may("stack_depth", &["iframe.stacktop", "pyframe.f_stackdepth"], &["offsetof(_PyInterpreterFrame, stacktop)", "offsetof(PyFrameObject, f_stackdepth)"]),
            may("value_stack", &["pyframe.f_valuestack"], &["offsetof(PyFrameObject, f_valuestack)"]),
            may("localsplus", &["iframe.localsplus"], &["offsetof(_PyInterpreterFrame, localsplus)"]),
            may("executing", &["frame_state.EXECUTING"], &["(unsigned char)FRAME_EXECUTING"]),
            may("suspended", &["frame_state.SUSPENDED"], &["(unsigned char)FRAME_SUSPENDED"]),
            may("awaiting", &["frame_state.SUSPENDED_YIELD_FROM"], &["(unsigned char)FRAME_SUSPENDED_YIELD_FROM"]),
            may("awaiting_locked", &["frame_state.SUSPENDED_YIELD_FROM_LOCKED"], &["(unsigned char)FRAME_SUSPENDED_YIELD_FROM_LOCKED"]),
        ],
    },
    Group {
        name: "asyncio",
        rust: "AsyncioFields",
        fields: &[
            must("thread_dict", &["tstate.dict"], &["offsetof(PyThreadState, dict)"]),
            may("running_loop", &["tstate.asyncio_running_loop"], &["offsetof(_PyThreadStateImpl, asyncio_running_loop)"]),
            may("running_task", &["tstate.asyncio_running_task"], &["offsetof(_PyThreadStateImpl, asyncio_running_task)"]),
            may("thread_tasks", &["tstate.asyncio_tasks_head"], &["offsetof(_PyThreadStateImpl, asyncio_tasks_head)"]),
            may("interp_tasks", &["interp.asyncio_tasks_head"], &["offsetof(PyInterpreterState, asyncio_tasks_head)"]),
        ],
    },
    // `Modules/_asynciomodule.c` has them, which no header shows.
    Group {
        name: "task",
        rust: "TaskFields",
        fields: &[
            must("event_loop", &["task.loop"], &[]),
            must("callback0", &["future.callback0"], &[]),
            must("callbacks", &["future.callbacks"], &[]),
            must("state", &["task.state"], &[]),
            must("fut_waiter", &["task.fut_waiter"], &[]),
            must("coro", &["task.coro"], &[]),
            must("name", &["task.name"], &[]),
            may("awaited_by", &["task.awaited_by"], &[]),
            may("awaited_by_is_set", &["task.awaited_by+13"], &[]),
            may("node", &["task.node"], &[]),
        ],
    },
    Group {
        name: "gc",
        rust: "CollectorFields",
        fields: &[
            must("collecting", &["gc.collecting"], &["offsetof(struct _gc_runtime_state, collecting)"]),
            must("generations", &["gc.generations"], &["offsetof(struct _gc_runtime_state, generations)", "offsetof(struct _gc_runtime_state, young)"]),
            must("generation_size", &["gc.generation_size"], &["sizeof(struct gc_generation)"]),
        ],
    },
];
