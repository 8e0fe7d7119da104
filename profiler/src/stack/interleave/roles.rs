//! What a native function is to the stack it is on, by its name alone.
//!
//! The evaluator stands for Python frames. The machinery that leads from the evaluator to a C
//! function and back says nothing that the Python frames and that function do not say. Everything
//! that is in no table here is shown.

use crate::native::NativeFrame;

/// What a native frame is to the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The interpreter's evaluator: it stands for the Python frames that it runs.
    Evaluator,
    /// A piece of the evaluator that it called or jumped to: it stands for nothing by itself.
    Piece,
    /// What the interpreter puts between the evaluator and what it calls, in either direction.
    Machinery,
    /// The same, and it gives up a Python frame: the evaluator that called it may have none left.
    Clears,
    /// How a thread or the program comes to its first Python frame.
    Start,
    /// Code without a name.
    Nameless {
        /// Whose it is.
        home: Home,
        /// A piece of a function that is elsewhere.
        piece: bool,
    },
    /// Any other function.
    Other,
}

/// Whose code it is that has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// That of the image with the evaluator.
    Interpreter,
    /// The C library's.
    Libc,
    /// Any other.
    Elsewhere,
}

/// A function by its name, or by how its name begins.
enum Name {
    Is(&'static str),
    Begins(&'static str),
}

use Name::{Begins, Is};

/// `_PyEval_EvalFrameDefault` is exported by every version; compilers split it (`.cold`, `.part.0`).
const EVALUATOR: &str = "_PyEval_EvalFrameDefault";

/// Where every instruction is a function of its own (3.14's tail calls), the evaluator begins the
/// first and each goes on to the next: <https://github.com/python/cpython/pull/128718>.
const PIECES: &[Name] = &[Begins("_TAIL_CALL_")];

/// Bytes of code below which an evaluator can only be one that tail-calls its instructions: any
/// other has all of them in it, ten thousand bytes and more.
const TAIL_CALLING_BYTES: u64 = 8192;

/// Gives a Python frame up, and may run destructors before it comes back.
const CLEARS: &[Name] = &[
    Begins("_PyEvalFrameClearAndPop"),
    Begins("_PyEval_FrameClearAndPop"),
    Begins("_PyFrame_Clear"),
    Begins("clear_thread_frame"),
    Begins("clear_gen_frame"),
    // The last that an evaluator calls up to 3.10, with its frame given up already.
    Begins("_Py_CheckFunctionResult"),
];

const MACHINERY: &[Name] = &[
    // Into the evaluator: a code object, or a function with its arguments.
    Begins("_PyEval_EvalFrame"),
    Begins("PyEval_EvalFrame"),
    Begins("_PyEval_EvalCode"),
    Begins("PyEval_EvalCode"),
    Begins("_PyEval_Vector"),
    Begins("_PyFunction_Vectorcall"),
    Begins("_PyFunction_FastCall"),
    Begins("function_code_fastcall"),
    Begins("function_call"),
    Begins("fast_function"),
    Is("run_eval_code_obj"),
    Is("run_mod"),
    // From the evaluator to any object that can be called.
    Begins("_PyObject_Call"),
    Begins("PyObject_Call"),
    Begins("_PyObject_FastCall"),
    Begins("_PyObject_Vectorcall"),
    Begins("PyObject_Vectorcall"),
    Begins("_PyObject_MakeTpCall"),
    Begins("_PyStack_"),
    Begins("PyVectorcall_Call"),
    Begins("_PyVectorcall_Call"),
    Begins("PyEval_CallObject"),
    Begins("PyEval_CallFunction"),
    Begins("PyEval_CallMethod"),
    Begins("object_vacall"),
    Is("call_function"),
    Is("do_call_core"),
    Is("trace_call_function"),
    Is("callmethod"),
    // To functions written in C, and to methods.
    Begins("_Py_BuiltinCall"),
    Begins("_Py_CallBuiltin"),
    Begins("_PyCallMethodDescriptor"),
    Begins("_Py_VectorCall"),
    Begins("_PyForIter_VirtualIteratorNext"),
    Begins("cfunction_vectorcall_"),
    Begins("cfunction_call"),
    Begins("cfunction_enter_call"),
    Begins("_PyCFunction_FastCall"),
    Begins("PyCFunction_Call"),
    Begins("_PyMethodDef_RawFastCall"),
    Begins("_PyMethodDescr_"),
    Begins("method_vectorcall"),
    Begins("method_call"),
    Begins("method_descr_call"),
    Begins("methoddescr_call"),
    Begins("classmethoddescr_call"),
    Begins("wrapperdescr_"),
    Begins("wrapper_call"),
    Begins("wrap_"),
    // From C to a method of a class written in Python.
    Begins("slot_tp_"),
    Begins("slot_nb_"),
    Begins("slot_sq_"),
    Begins("slot_mp_"),
    Begins("slot_am_"),
    Begins("slot_bf_"),
    Is("call_method"),
    Begins("call_unbound"),
    Begins("call_maybe"),
    Begins("vectorcall_method"),
    Begins("vectorcall_unbound"),
    Begins("vectorcall_maybe"),
    // To a class.
    Begins("type_call"),
    // Into a generator or coroutine.
    Begins("gen_send"),
    Begins("gen_iternext"),
    Begins("_PyGen_Send"),
    Begins("PyGen_am_send"),
    Begins("PyIter_Send"),
    // With `-X perf` a few instructions in front of each evaluator bear the Python function's name.
    Begins("py::"),
    Is("py_trampoline_evaluator"),
];

const START: &[Name] = &[
    // The C library's.
    Is("_start"),
    Begins("__libc_start_"),
    Is("start_thread"),
    Begins("clone"),
    Begins("__clone"),
    Is("start"),
    Is("start_c"),
    Is("_start_c"),
    Is("libc_start_main_stage2"),
    // The interpreter's.
    Begins("Py_BytesMain"),
    Begins("Py_RunMain"),
    Is("Py_Main"),
    Begins("pymain_"),
    Begins("_PyRun_"),
    Begins("PyRun_"),
    Begins("pyrun_"),
    Is("thread_run"),
    Is("t_bootstrap"),
    Is("pythread_wrapper"),
];

/// The C library's images, by how their names begin: strip takes the names of its start away.
const LIBC: &[&str] = &["libc.so", "libc-2.", "libpthread", "ld-musl-", "libc.musl-"];

/// The image of the launcher, whose `main` is the interpreter's.
const LAUNCHER: &str = "python";

impl Role {
    /// The role of what is at an address: the function whose code it is, the last of `frames`.
    /// `piece` is whether it is a piece of a function that is elsewhere.
    #[must_use]
    pub fn of(frames: &[NativeFrame], piece: bool) -> Self {
        match frames.last() {
            Some(NativeFrame::Known {
                function, module, ..
            }) => Self::of_function(function, module.as_deref()),
            other => {
                let module = other.and_then(NativeFrame::module).unwrap_or_default();
                let is_libc = LIBC.iter().any(|name| module.starts_with(name));
                let home = if is_libc { Home::Libc } else { Home::Elsewhere };
                Self::Nameless { home, piece }
            }
        }
    }

    /// The role of a function that was inlined into another one.
    fn of_inlined(frame: &NativeFrame, own: Self) -> Self {
        let role = Self::of(std::slice::from_ref(frame), false);
        match (own, role) {
            (_, Self::Clears) => role,
            (Self::Evaluator | Self::Piece, _) => Self::Piece,
            (Self::Machinery | Self::Clears, _) => Self::Machinery,
            (Self::Start, _) => Self::Start,
            // An evaluator that is inlined is entered by no call that could be counted.
            (_, Self::Evaluator) => Self::Other,
            _ => role,
        }
    }

    fn of_function(function: &str, module: Option<&str>) -> Self {
        // A version of a symbol, `@@GLIBC_2.34`, is no part of the function's name.
        let function = function.split('@').next().unwrap_or(function);
        let is_in = |table: &[Name]| {
            table.iter().any(|name| match name {
                Is(name) => base(function) == *name,
                Begins(name) => function.starts_with(name),
            })
        };
        let is_launcher = || module.is_some_and(|module| module.starts_with(LAUNCHER));
        if base(function) == EVALUATOR {
            Self::Evaluator
        } else if is_in(PIECES) {
            Self::Piece
        } else if is_in(CLEARS) {
            Self::Clears
        } else if is_in(MACHINERY) {
            Self::Machinery
        } else if is_in(START) || (function == "main" && is_launcher()) {
            Self::Start
        } else {
            Self::Other
        }
    }
}

/// The name without what compilers append to the pieces they make of a function.
fn base(function: &str) -> &str {
    match function.find('.') {
        Some(0) | None => function,
        Some(at) => &function[..at],
    }
}

/// A frame of a native chain: one of the functions at one of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeEntry {
    /// The address, by its index in the chain.
    pub address: usize,
    /// The function, by its index among those at the address.
    pub function: usize,
    /// What it is.
    pub role: Role,
}

/// All functions of a whole chain, leaf first, those that were inlined too. A chain's address comes
/// with what is there, and whether that is a piece of a function that is elsewhere.
///
/// What the interpreter's image is, its evaluator tells: so code without a name is known for the
/// interpreter's, and, right above an evaluator that tail-calls its instructions, for one of them.
#[must_use]
pub fn entries<'a>(chain: impl IntoIterator<Item = (&'a [NativeFrame], bool)>) -> Vec<NativeEntry> {
    let chain: Vec<(&[NativeFrame], bool)> = chain.into_iter().collect();
    let owns = roles(&chain);
    let mut entries = Vec::with_capacity(chain.len());
    for (address, ((frames, _), own)) in chain.iter().zip(owns).enumerate() {
        let inlined = frames.len().saturating_sub(1);
        entries.extend((0..inlined).map(|function| NativeEntry {
            address,
            function,
            role: Role::of_inlined(&frames[function], own),
        }));
        entries.push(NativeEntry {
            address,
            function: inlined,
            role: own,
        });
    }
    entries
}

fn roles(chain: &[(&[NativeFrame], bool)]) -> Vec<Role> {
    let mut roles: Vec<Role> = chain
        .iter()
        .map(|(frames, piece)| Role::of(frames, *piece))
        .collect();
    let evaluator = roles.iter().position(|role| *role == Role::Evaluator);
    let Some(NativeFrame::Known { module, bytes, .. }) =
        evaluator.and_then(|index| chain[index].0.last())
    else {
        return roles;
    };
    let is_tail_calling = bytes.is_some_and(|bytes| bytes < TAIL_CALLING_BYTES);
    for index in (0..roles.len()).rev() {
        let is_here = chain[index].0.last().and_then(NativeFrame::module) == module.as_deref();
        if let Role::Nameless { piece, .. } = roles[index]
            && is_here
        {
            let above_evaluator = roles.get(index + 1) == Some(&Role::Evaluator);
            let below = index.checked_sub(1).map(|below| roles[below]);
            roles[index] = if is_tail_calling && above_evaluator {
                Role::Piece
            } else if below == Some(Role::Evaluator) && !piece {
                // All that enter the evaluator are machinery.
                Role::Machinery
            } else {
                Role::Nameless {
                    home: Home::Interpreter,
                    piece,
                }
            };
        }
    }
    roles
}
