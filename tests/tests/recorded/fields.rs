//! The words of an image that mean something, by what they mean: links of lists, frames, sizes,
//! states. They are found by the layout, so that each kind of lie is told for sure.

use profiler::cpython::{Layout, Objects, Runtime};
use profiler::target::Memory;
use profiler::words::{CodeAddr, RemoteAddr, ThreadStateAddr};

use super::reading::Reading;

/// Frames of each thread whose fields are taken, from the leaf and from the root.
const FRAMES: usize = 2;

/// A field: what it is and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// Such as `frame.previous`.
    pub(crate) what: &'static str,
    /// Of the 64-bit word that it is or begins in.
    pub(crate) addr: u64,
}

/// Collects the fields of one process.
struct Fields<'a> {
    memory: &'a dyn Memory,
    layout: &'a Layout,
    found: Vec<Field>,
}

/// The telling fields of a process.
pub(crate) fn of(reading: &Reading, memory: &dyn Memory) -> Vec<Field> {
    let runtime = &reading.runtime;
    let mut fields = Fields {
        memory,
        layout: runtime.layout(),
        found: Vec::new(),
    };
    fields.interpreters(runtime);
    for thread in &reading.threads {
        fields.state(thread.state.addr);
        fields.frames(thread.state.addr);
        let codes = &thread.chain.frames;
        let ends = codes
            .iter()
            .take(FRAMES)
            .chain(codes.iter().rev().take(FRAMES));
        for frame in ends {
            fields.code(CodeAddr(frame.code));
        }
    }
    fields.dicts(runtime);
    fields.found.sort_by_key(|field| (field.addr, field.what));
    fields.found.dedup_by_key(|field| field.addr);
    fields.found
}

/// Where the sizes of the tables of keys lie which the names of threads are looked up in, and an
/// entry of `threading._active`: an int and a thread.
pub(crate) fn tables_of_names(runtime: &Runtime, memory: &dyn Memory) -> (Vec<u64>, [u64; 2]) {
    let layout = runtime.layout();
    let objects = runtime.objects(memory);
    let dicts = dicts_to_names(runtime, &objects);
    let active = *dicts.last().expect("`threading._active`");
    let entries = objects.dict_entries(active).expect("threads");
    let (ident, thread) = *entries.first().expect("a thread");
    let class = objects.type_of(thread).expect("its type");
    let keys_of = |dict: &RemoteAddr| memory.pointer(dict.plus(layout.dict.keys.into()));
    let mut tables: Vec<_> = dicts.iter().map(keys_of).collect();
    tables.push(memory.pointer(class.plus(layout.class.cached_keys.into())));
    if layout.keys.kind.is_none() {
        let offset = memory.u64(class.plus(layout.class.dictoffset.into()));
        let dict = memory.pointer(thread.plus(offset.expect("to 3.10")));
        tables.push(keys_of(&dict.expect("its dict")));
    }
    let sizes = tables
        .into_iter()
        .flatten()
        .map(|keys| keys.plus(layout.keys.nentries.into()).0);
    (sizes.collect(), [ident.0, thread.0])
}

/// `sys.modules`, the variables of `threading`, and its `_active`.
fn dicts_to_names(runtime: &Runtime, objects: &Objects<'_>) -> Vec<RemoteAddr> {
    let memory = objects.memory;
    let interpreters = runtime.interpreters(memory).expect("it is whole");
    let main = RemoteAddr::from(*interpreters.last().expect("the main one"));
    let field = main.plus(runtime.layout().interp.modules.into());
    let modules = memory.pointer(field).expect("it is whole");
    let threading = objects.dict_get(modules, "threading");
    let threading = threading.expect("readable").expect("imported");
    let variables = objects.module_dict(threading).expect("its variables");
    let active = objects.dict_get(variables, "_active");
    vec![
        modules,
        variables,
        active.expect("readable").expect("there"),
    ]
}

impl Fields<'_> {
    fn add(&mut self, what: &'static str, base: RemoteAddr, offset: u32) {
        let addr = base.plus(offset.into()).0 & !7;
        self.found.push(Field { what, addr });
    }

    fn interpreters(&mut self, runtime: &Runtime) {
        let fields = self.layout.interp;
        let base = runtime.found().runtime;
        self.add(
            "runtime.interpreters",
            base,
            self.layout.runtime.interpreters_head,
        );
        if let Some(key) = self.layout.runtime.auto_tss_key {
            self.add("runtime.tss_key", base, key);
        }
        for interpreter in runtime.interpreters(self.memory).expect("it is whole") {
            let base = interpreter.into();
            self.add("interpreter.next", base, fields.next);
            self.add("interpreter.id", base, fields.id);
            self.add("interpreter.threads", base, fields.threads_head);
            self.add("interpreter.modules", base, fields.modules);
            if let Some(gil) = fields.gil {
                self.add("interpreter.gil", base, gil);
            }
        }
    }

    fn state(&mut self, state: ThreadStateAddr) {
        let fields = self.layout.tstate;
        let base = state.into();
        self.add("state.next", base, fields.next);
        self.add("state.interpreter", base, fields.interp);
        self.add("state.first_frame", base, fields.first_frame);
        self.add("state.thread_id", base, fields.thread_id);
        let native = fields.native_thread_id;
        for (what, offset) in [("state.native_id", native), ("state.status", fields.status)] {
            if let Some(offset) = offset {
                self.add(what, base, offset);
            }
        }
    }

    fn frames(&mut self, state: ThreadStateAddr) {
        let fields = self.layout.frame;
        let first = RemoteAddr::from(state).plus(self.layout.tstate.first_frame.into());
        let mut next = self.memory.pointer(first);
        if let (Ok(cframe), Some(offset)) = (next, fields.cframe_current) {
            self.add("cframe.current", cframe, offset);
            next = self.memory.pointer(cframe.plus(offset.into()));
        }
        for _ in 0..2 * FRAMES {
            let Ok(frame @ RemoteAddr(1..)) = next else {
                return;
            };
            self.add("frame.code", frame, fields.code);
            self.add("frame.previous", frame, fields.previous);
            self.add("frame.instr", frame, fields.instr);
            if let Some(owner) = fields.owner {
                self.add("frame.owner", frame, owner);
            }
            next = self.memory.pointer(frame.plus(fields.previous.into()));
        }
    }

    fn code(&mut self, code: CodeAddr) {
        let fields = self.layout.code;
        let base = RemoteAddr::from(code);
        self.add("object.type", base, self.layout.object.ob_type);
        self.add("code.first_line", base, fields.first_line);
        if let Some(first) = fields.first_traceable {
            self.add("code.first_traceable", base, first);
        }
        let name = fields.qualname.unwrap_or(fields.name);
        for (what, offset) in [("code.filename", fields.filename), ("code.name", name)] {
            self.add(what, base, offset);
            if let Ok(text) = self.memory.pointer(base.plus(offset.into())) {
                self.add("str.length", text, self.layout.unicode.length);
                self.add("str.state", text, self.layout.unicode.state);
            }
        }
        self.add("code.linetable", base, fields.linetable);
        if let Ok(table) = self.memory.pointer(base.plus(fields.linetable.into())) {
            self.add("bytes.size", table, self.layout.bytes.size);
            self.add("bytes.data", table, self.layout.bytes.data);
        }
    }

    fn dicts(&mut self, runtime: &Runtime) {
        let objects = runtime.objects(self.memory);
        let fields = self.layout.keys;
        for dict in dicts_to_names(runtime, &objects) {
            self.add("object.type", dict, self.layout.object.ob_type);
            self.add("dict.keys", dict, self.layout.dict.keys);
            self.add("dict.values", dict, self.layout.dict.values);
            let keys = dict.plus(self.layout.dict.keys.into());
            let Ok(keys) = self.memory.pointer(keys) else {
                continue;
            };
            self.add("keys.nentries", keys, fields.nentries);
            for offset in [fields.size, fields.log2_index_bytes, fields.kind] {
                self.add("keys.shape", keys, offset.unwrap_or(fields.nentries));
            }
        }
    }
}
