//! The target's own table of offsets (3.13+), at the start of its `_PyRuntime`: decoded, and laid
//! over the measured layout.
//!
//! It is right for that very binary, whatever its build options. The order of its fields is a
//! constant of the minor version and has grown in the middle each time
//! (`Include/internal/pycore_debug_offsets.h`, before 3.14 `pycore_runtime.h`).

use std::fmt;

use super::super::version::Version;
use super::{Layout, ThreadStateFields};

/// What the table begins with.
pub const COOKIE: &[u8; 8] = b"xdebugpy";
/// Cookie, version and the free-threaded word.
pub const HEAD_BYTES: usize = 24;
/// The largest offset that is believed of the runtime and of an interpreter, which take up to
/// 500 KB, and of any other structure, which take up to 1 KB.
const MAX_OFFSET: u64 = 1 << 24;
const MAX_SMALL_OFFSET: u64 = 1 << 12;

/// Groups and their fields, each a `u64`, in the order in which they follow the head.
type Schema = &'static [(&'static str, &'static [&'static str])];

const RUNTIME: &[&str] = &["size", "finalizing", "interpreters_head"];
const CODE_3_13: &[&str] = &[
    "size",
    "filename",
    "name",
    "qualname",
    "linetable",
    "firstlineno",
    "argcount",
    "localsplusnames",
    "localspluskinds",
    "co_code_adaptive",
];
const CODE_3_14: &[&str] = &[
    "size",
    "filename",
    "name",
    "qualname",
    "linetable",
    "firstlineno",
    "argcount",
    "localsplusnames",
    "localspluskinds",
    "co_code_adaptive",
    "co_tlbc",
];
const INTERPRETER_3_14: &[&str] = &[
    "size",
    "id",
    "next",
    "threads_head",
    "threads_main",
    "gc",
    "imports_modules",
    "sysdict",
    "builtins",
    "ceval_gil",
    "gil_runtime_state",
    "gil_runtime_state_enabled",
    "gil_runtime_state_locked",
    "gil_runtime_state_holder",
    "code_object_generation",
    "tlbc_generation",
];
const FRAME_3_14: &[&str] = &[
    "size",
    "previous",
    "executable",
    "instr_ptr",
    "localsplus",
    "owner",
    "stackpointer",
    "tlbc_index",
];
const OBJECT: &[&str] = &["size", "ob_type"];
const TUPLE: &[&str] = &["size", "ob_item", "ob_size"];
const LIST: &[&str] = &["size", "ob_item", "ob_size"];
const SET: &[&str] = &["size", "used", "table", "mask"];
const DICT: &[&str] = &["size", "ma_keys", "ma_values"];
const FLOAT: &[&str] = &["size", "ob_fval"];
const LONG: &[&str] = &["size", "lv_tag", "ob_digit"];
const BYTES: &[&str] = &["size", "ob_size", "ob_sval"];
const GENERATOR: &[&str] = &["size", "gi_name", "gi_iframe", "gi_frame_state"];

const V3_13: Schema = &[
    ("runtime", RUNTIME),
    (
        "interpreter",
        &[
            "size",
            "id",
            "next",
            "threads_head",
            "gc",
            "imports_modules",
            "sysdict",
            "builtins",
            "ceval_gil",
            "gil_runtime_state",
            "gil_runtime_state_enabled",
            "gil_runtime_state_locked",
            "gil_runtime_state_holder",
        ],
    ),
    (
        "thread",
        &[
            "size",
            "prev",
            "next",
            "interp",
            "current_frame",
            "thread_id",
            "native_thread_id",
            "datastack_chunk",
            "status",
        ],
    ),
    (
        "frame",
        &[
            "size",
            "previous",
            "executable",
            "instr_ptr",
            "localsplus",
            "owner",
        ],
    ),
    ("code", CODE_3_13),
    ("object", OBJECT),
    ("type", &["size", "tp_name", "tp_repr", "tp_flags"]),
    ("tuple", TUPLE),
    ("list", LIST),
    ("dict", DICT),
    ("float", FLOAT),
    ("long", LONG),
    ("bytes", BYTES),
    ("unicode", &["size", "state", "length", "asciiobject_size"]),
    ("gc", &["size", "collecting"]),
];

const V3_14: Schema = &[
    ("runtime", RUNTIME),
    ("interpreter", INTERPRETER_3_14),
    (
        "thread",
        &[
            "size",
            "prev",
            "next",
            "interp",
            "current_frame",
            "thread_id",
            "native_thread_id",
            "datastack_chunk",
            "status",
        ],
    ),
    ("frame", FRAME_3_14),
    ("code", CODE_3_14),
    ("object", OBJECT),
    ("type", &["size", "tp_name", "tp_repr", "tp_flags"]),
    ("tuple", TUPLE),
    ("list", LIST),
    ("set", SET),
    ("dict", DICT),
    ("float", FLOAT),
    ("long", LONG),
    ("bytes", BYTES),
    ("unicode", &["size", "state", "length", "asciiobject_size"]),
    ("gc", &["size", "collecting"]),
    ("gen_object", GENERATOR),
];

const V3_15: Schema = &[
    ("runtime", RUNTIME),
    ("interpreter", INTERPRETER_3_14),
    (
        "thread",
        &[
            "size",
            "prev",
            "next",
            "interp",
            "current_frame",
            "base_frame",
            "last_profiled_frame",
            "last_profiled_frame_seq",
            "thread_id",
            "native_thread_id",
            "datastack_chunk",
            "status",
            "holds_gil",
            "gil_requested",
            "current_exception",
            "exc_state",
        ],
    ),
    ("err_stackitem", &["exc_value"]),
    ("frame", FRAME_3_14),
    ("code", CODE_3_14),
    ("object", OBJECT),
    (
        "type",
        &[
            "size",
            "tp_name",
            "tp_repr",
            "tp_flags",
            "tp_basicsize",
            "tp_dictoffset",
        ],
    ),
    ("heap_type", &["size", "ht_cached_keys"]),
    ("tuple", TUPLE),
    ("list", LIST),
    ("set", SET),
    ("dict", DICT),
    ("float", FLOAT),
    ("long", LONG),
    ("bytes", BYTES),
    (
        "unicode",
        &[
            "size",
            "state",
            "length",
            "asciiobject_size",
            "compactunicodeobject_size",
        ],
    ),
    (
        "gc",
        &[
            "size",
            "collecting",
            "frame",
            "generation_stats_size",
            "generation_stats",
        ],
    ),
    ("gen_object", GENERATOR),
];

fn schema(version: Version) -> Option<Schema> {
    match (version.major, version.minor) {
        (3, 13) => Some(V3_13),
        (3, 14) => Some(V3_14),
        (3, 15) => Some(V3_15),
        _ => None,
    }
}

/// What a table begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The release of the target.
    pub version: Version,
    /// A build without the GIL.
    pub free_threaded: bool,
}

/// Decodes the head; none when it is no such table.
#[must_use]
pub fn head(bytes: &[u8]) -> Option<Head> {
    let rest = bytes.strip_prefix(COOKIE)?;
    let version = Version::from_word(word(rest, 0)?)?;
    let free_threaded = word(rest, 1)?;
    (free_threaded <= 1).then_some(Head {
        version,
        free_threaded: free_threaded == 1,
    })
}

fn word(bytes: &[u8], index: usize) -> Option<u64> {
    let at = index.checked_mul(8)?;
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// A table that cannot be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableError {
    /// Nobody has written down the order of this version's fields.
    UnknownOrder(Version),
    /// It ends before this field.
    Short(&'static str),
    /// A field holds a number that is no offset.
    Absurd {
        /// The group.
        group: &'static str,
        /// The field.
        field: &'static str,
        /// What it holds.
        value: u64,
    },
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownOrder(version) => {
                write!(
                    f,
                    "the order of the debug offsets of {version} is not known"
                )
            }
            Self::Short(field) => write!(f, "the debug offsets end before `{field}`"),
            Self::Absurd {
                group,
                field,
                value,
            } => write!(f, "the debug offset `{group}.{field}` is {value:#x}"),
        }
    }
}

impl std::error::Error for TableError {}

/// How many bytes the table of `version` takes, as far as it is read here; 0 before 3.13.
#[must_use]
pub fn table_bytes(version: Version) -> usize {
    let fields = schema(version).unwrap_or_default();
    match fields.iter().map(|(_, fields)| fields.len()).sum::<usize>() {
        0 => 0,
        words => HEAD_BYTES + 8 * words,
    }
}

struct Table<'a> {
    schema: Schema,
    bytes: &'a [u8],
}

impl Table<'_> {
    fn get(&self, group: &'static str, field: &'static str) -> Result<u32, TableError> {
        let mut index = HEAD_BYTES / 8;
        for (name, fields) in self.schema {
            if *name == group
                && let Some(place) = fields.iter().position(|name| *name == field)
            {
                let value = word(self.bytes, index + place).ok_or(TableError::Short(field))?;
                let most = match group {
                    "runtime" | "interpreter" => MAX_OFFSET,
                    _ => MAX_SMALL_OFFSET,
                };
                return match u32::try_from(value) {
                    Ok(offset) if value < most => Ok(offset),
                    _ => Err(TableError::Absurd {
                        group,
                        field,
                        value,
                    }),
                };
            }
            index += fields.len();
        }
        Err(TableError::Short(field))
    }
}

/// Lays the target's table over the measured layout of the same version.
///
/// # Errors
/// When the table is short or holds what cannot be offsets: the process is then not profiled,
/// for a guess would be worse.
pub fn overlay(layout: &mut Layout, version: Version, bytes: &[u8]) -> Result<(), TableError> {
    let schema = schema(version).ok_or(TableError::UnknownOrder(version))?;
    let table = Table { schema, bytes };
    layout.runtime.interpreters_head = table.get("runtime", "interpreters_head")?;

    layout.interp.next = table.get("interpreter", "next")?;
    layout.interp.id = table.get("interpreter", "id")?;
    layout.interp.threads_head = table.get("interpreter", "threads_head")?;
    layout.interp.modules = table.get("interpreter", "imports_modules")?;
    layout.interp.gil = Some(table.get("interpreter", "ceval_gil")?);
    // The collector's fields count from the start of its own structure.
    let collecting = table.get("interpreter", "gc")? + table.get("gc", "collecting")?;
    layout.interp.gc_collecting = Some(collecting);
    if layout.gil.enabled.is_some() {
        // Unlike its neighbours in the table it counts from the start of the GIL's structure.
        layout.gil.enabled = Some(table.get("interpreter", "gil_runtime_state_enabled")?);
    }

    let before = layout.tstate;
    layout.tstate.next = table.get("thread", "next")?;
    layout.tstate.interp = table.get("thread", "interp")?;
    layout.tstate.first_frame = table.get("thread", "current_frame")?;
    layout.tstate.thread_id = table.get("thread", "thread_id")?;
    layout.tstate.native_thread_id = Some(table.get("thread", "native_thread_id")?);
    let status = table.get("thread", "status")?;
    layout.tstate.status = Some(status);
    // Ints of the same version's state that have no entry keep their distance from that word.
    let beside = |field: Option<u32>| {
        let (field, before) = (field?, before.status?);
        Some(status + field.saturating_sub(before))
    };
    layout.tstate.state = beside(layout.tstate.state);
    if version.is_at_least(15) {
        layout.tstate.holds_gil = Some(table.get("thread", "holds_gil")?);
        layout.tstate.gil_requested = Some(table.get("thread", "gil_requested")?);
    } else {
        layout.tstate.holds_gil = beside(layout.tstate.holds_gil);
    }
    // Of the stack of exceptions it has the oldest entry, from 3.15 on. The pointer to the newest
    // lies among these two, and is believed to be where it was measured if they are.
    let around = |fields: &ThreadStateFields| (fields.first_frame, fields.thread_id);
    if around(&before) != around(&layout.tstate) {
        layout.tstate.exc_info = None;
    }
    if version.is_at_least(15) {
        layout.tstate.exc_state = Some(table.get("thread", "exc_state")?);
        layout.exc_item.value = table.get("err_stackitem", "exc_value")?;
    }

    layout.frame.code = table.get("frame", "executable")?;
    layout.frame.previous = table.get("frame", "previous")?;
    layout.frame.instr = table.get("frame", "instr_ptr")?;
    layout.frame.owner = Some(table.get("frame", "owner")?);

    layout.generator.localsplus = Some(table.get("frame", "localsplus")?);
    layout.containers.list_items = table.get("list", "ob_item")?;
    layout.containers.tuple_items = table.get("tuple", "ob_item")?;
    if version.is_at_least(14) {
        layout.generator.stack_top = Some(table.get("frame", "stackpointer")?);
        layout.containers.set_table = table.get("set", "table")?;
        layout.containers.set_mask = table.get("set", "mask")?;
        layout.generator.frame = table.get("gen_object", "gi_iframe")?;
    }

    layout.code.first_line = table.get("code", "firstlineno")?;
    layout.code.filename = table.get("code", "filename")?;
    layout.code.name = table.get("code", "name")?;
    layout.code.qualname = Some(table.get("code", "qualname")?);
    layout.code.linetable = table.get("code", "linetable")?;
    layout.code.code_adaptive = Some(table.get("code", "co_code_adaptive")?);
    if layout.code.copies.is_some() {
        layout.code.copies = Some(table.get("code", "co_tlbc")?);
    }

    layout.object.size = table.get("object", "size")?;
    layout.object.ob_type = table.get("object", "ob_type")?;
    layout.class.name = table.get("type", "tp_name")?;
    layout.class.flags = table.get("type", "tp_flags")?;
    if version.is_at_least(15) {
        layout.class.basicsize = table.get("type", "tp_basicsize")?;
        layout.class.dictoffset = table.get("type", "tp_dictoffset")?;
        layout.class.cached_keys = table.get("heap_type", "ht_cached_keys")?;
        layout.unicode.compact_size = table.get("unicode", "compactunicodeobject_size")?;
    }
    layout.dict.keys = table.get("dict", "ma_keys")?;
    layout.dict.values = table.get("dict", "ma_values")?;
    layout.long.tag = table.get("long", "lv_tag")?;
    layout.long.digits = table.get("long", "ob_digit")?;
    layout.bytes.size = table.get("bytes", "ob_size")?;
    layout.bytes.data = table.get("bytes", "ob_sval")?;
    layout.unicode.state = table.get("unicode", "state")?;
    layout.unicode.length = table.get("unicode", "length")?;
    layout.unicode.ascii_size = table.get("unicode", "asciiobject_size")?;
    Ok(())
}

#[cfg(test)]
mod tests;
