//! Chains in a few words, merged, in a few words.
//!
//! A native chain is its functions, leaf first: `E` is the evaluator, `?` and `P` are code of the
//! interpreter's without a name, the latter a piece of a function that is elsewhere; `…` at the end
//! says that there is more. A Python chain is its frames, leaf first: `|` stands where the next one
//! called into C, `…` where frames are missing.

use super::*;
use crate::native::NativeFrame;

fn known(function: &str, module: &str) -> NativeFrame {
    NativeFrame::Known {
        function: function.into(),
        module: Some(module.into()),
        file: None,
        line: None,
        bytes: Some(50_000),
    }
}

fn role(word: &str) -> Role {
    let nameless = |piece| Role::Nameless {
        home: Home::Interpreter,
        piece,
    };
    match word {
        "E" => Role::Evaluator,
        "?" => nameless(false),
        "P" => nameless(true),
        name => Role::of(&[known(name, "libpython3.12.so.1.0")], false),
    }
}

struct Case {
    names: Vec<String>,
    roles: Vec<Role>,
    native_is_whole: bool,
    pythons: Vec<String>,
    into_c: Vec<bool>,
    gap: Option<usize>,
    python_is_whole: bool,
}

impl Case {
    fn of(native: &str, python: &str) -> Self {
        let (native, native_is_whole) = match native.strip_suffix('…') {
            Some(rest) => (rest, false),
            None => (native, true),
        };
        let names: Vec<String> = native.split_whitespace().map(str::to_owned).collect();
        let (mut pythons, mut into_c, mut gap) = (Vec::new(), Vec::new(), None);
        let mut enters = false;
        for word in python.split_whitespace() {
            match word {
                "|" => enters = true,
                "…" => gap = Some(pythons.len()),
                name => {
                    pythons.push(name.to_owned());
                    into_c.push(std::mem::take(&mut enters));
                }
            }
        }
        // What is missing at the root is no gap but an end.
        let is_broken = gap == Some(pythons.len());
        Self {
            roles: names.iter().map(|name| role(name)).collect(),
            names,
            native_is_whole,
            python_is_whole: !is_broken,
            gap: gap.filter(|_| !is_broken),
            pythons,
            into_c,
        }
    }

    fn merged(&self, leaf_evaluator: Option<usize>) -> (String, &'static str, &'static str) {
        let merged = interleave(
            &NativeChain {
                roles: &self.roles,
                is_whole: self.native_is_whole,
                by_frame_pointer: false,
                leaf_evaluator,
            },
            &PythonChain {
                into_c: &self.into_c,
                gap: self.gap,
                is_whole: self.python_is_whole,
            },
        );
        let words = merged.parts.iter().map(|part| match *part {
            Part::Python(index) => &*self.pythons[index],
            Part::Native(index) => &*self.names[index],
        });
        let words: Vec<&str> = words.collect();
        let why = merged.why.map_or("", Why::key);
        (words.join(" "), merged.rung.key(), why)
    }
}

#[track_caller]
fn check(native: &str, python: &str, expected: &str, rung: &str, why: &str) {
    let merged = Case::of(native, python).merged(None);
    assert_eq!(
        merged,
        (expected.to_owned(), rung, why),
        "{native} with {python}"
    );
}

const START: &str = "_PyEval_Vector PyEval_EvalCode run_mod pymain_run_python Py_RunMain";

/// The end of a chain at the C library's start of a thread.
fn thread(native: &str) -> String {
    format!("{native} method_vectorcall thread_run pythread_wrapper start_thread clone3")
}

fn whole(native: &str, python: &str, expected: &str) {
    check(&thread(native), python, expected, "full", "");
}

#[test]
fn one_evaluator_for_each_frame_to_3_10() {
    whole(
        "E _PyFunction_Vectorcall E _PyFunction_Vectorcall E",
        "h | g | f",
        "h g f",
    );
    whole(
        "read os_read_impl os_read cfunction_vectorcall_FASTCALL E _PyFunction_Vectorcall E",
        "g | f",
        "read os_read_impl os_read g f",
    );
    whole(
        "deflate zlib_compress E _PyFunction_Vectorcall _PyObject_FastCallDict slot_tp_init \
         type_call _PyObject_MakeTpCall E",
        "__init__ | f",
        "deflate zlib_compress __init__ f",
    );
    whole(
        "E PyEval_EvalFrameEx gen_send_ex gen_iternext E",
        "generator | f",
        "generator f",
    );
}

#[test]
fn one_evaluator_for_many_frames_from_3_11_on() {
    whole("E", "i h g f", "i h g f");
    whole(
        "deflate zlib_compress cfunction_vectorcall_FASTCALL_KEYWORDS PyObject_Vectorcall E",
        "g f",
        "deflate zlib_compress g f",
    );
    whole(
        "E _PyEval_Vector PyObject_CallOneArg list_sort_impl list_sort \
         method_vectorcall_FASTCALL_KEYWORDS builtin_sorted cfunction_vectorcall_FASTCALL E",
        "inner key | helper f",
        "inner key list_sort_impl list_sort method_vectorcall_FASTCALL_KEYWORDS builtin_sorted \
         helper f",
    );
    whole(
        "memcpy E _PyEval_Vector functools_reduce cfunction_vectorcall_FASTCALL E _PyEval_Vector \
         list_sort_impl cfunction_call E",
        "step | key other | f",
        "memcpy step functools_reduce key other list_sort_impl f",
    );
    whole(
        "E gen_send_ex2 gen_iternext builtin_sum cfunction_vectorcall_FASTCALL_KEYWORDS E",
        "inner generator | f",
        "inner generator builtin_sum f",
    );
}

#[test]
fn callbacks_through_foreign_code_are_in_order() {
    whole(
        "E _PyFunction_Vectorcall _PyObject_Call _CallPythonObject closure_fcn ffi_closure_unix64 \
         msort_with_tmp qsort ffi_call_unix64 ffi_call _ctypes_callproc PyCFuncPtr_call \
         _PyObject_MakeTpCall E",
        "compare | f",
        "compare _CallPythonObject closure_fcn ffi_closure_unix64 msort_with_tmp qsort \
         ffi_call_unix64 ffi_call _ctypes_callproc PyCFuncPtr_call f",
    );
    // Machinery that touches no evaluator is between two C functions, and stays.
    whole(
        "inner_c cfunction_vectorcall_O PyObject_Call outer_c cfunction_vectorcall_O E",
        "f",
        "inner_c cfunction_vectorcall_O PyObject_Call outer_c f",
    );
}

#[test]
fn how_a_thread_begins_is_folded_if_it_is_the_interpreters_own() {
    check(&format!("E {START} _start"), "f", "f", "full", "");
    check(&format!("E {START} main _start"), "f", "f main", "full", "");
    let embedded = "E _PyEval_Vector PyObject_Call serve handle main __libc_start_main _start";
    check(embedded, "f", "f serve handle main", "full", "");
    check("E ? ? ? start_thread clone3", "f", "f", "full", "");
    check("E ? ? serve ? clone3", "f", "f ? ? serve ?", "full", "");
    check("E ? ? ?", "f", "f", "full", "");
    check(
        "poll work start_thread clone3",
        "",
        "poll work start_thread clone3",
        "full",
        "",
    );
    check(
        "poll work …",
        "",
        "poll work",
        "leaf_end",
        "native_chain_ended",
    );
    check(
        "E start_thread clone3",
        "",
        "E start_thread clone3",
        "full",
        "",
    );
}

#[test]
fn an_evaluator_that_has_no_frame_yet_or_any_more_is_told_by_the_count() {
    whole(
        "E _PyEval_Vector PyObject_CallOneArg list_sort_impl cfunction_call E",
        "f",
        "list_sort_impl f",
    );
    whole("E _PyEval_Vector E", "h g f", "h g f");
    // The frame that it runs is being cleared, which runs a destructor.
    whole(
        "memcpy E slot_tp_finalize subtype_dealloc _PyFrame_ClearExceptCode E list_sort_impl E",
        "__del__ | f",
        "memcpy __del__ subtype_dealloc list_sort_impl f",
    );
    // Clearing a frame that was not its last.
    whole(
        "memcpy E slot_tp_finalize subtype_dealloc _PyFrame_ClearExceptCode E list_sort_impl E",
        "__del__ | g | f",
        "memcpy __del__ subtype_dealloc g list_sort_impl f",
    );
    // Two explanations for one evaluator too many: nothing that depends on which it is.
    check(
        &thread("E subtype_dealloc _PyFrame_ClearExceptCode E list_sort_impl E"),
        "g | f",
        "g f",
        "python_only",
        "may_be_entering_python",
    );
}

#[test]
fn evaluators_without_a_name_are_told_by_the_count() {
    whole(
        "memcpy P list_sort_impl E",
        "g | f",
        "memcpy g list_sort_impl f",
    );
    whole(
        "memcpy ? P list_sort_impl P",
        "g | f",
        "memcpy ? g list_sort_impl f",
    );
    // A piece of another function, for there are enough evaluators.
    whole("P E list_sort_impl E", "g | f", "P g list_sort_impl f");
    check(
        &thread("memcpy E reduce P P list_sort_impl E"),
        "h | g | f",
        "memcpy h g f",
        "top_only",
        "fewer_evaluators_than_python",
    );
}

#[test]
fn chains_that_contradict_each_other_show_the_top_alone() {
    check(
        &thread("memcpy E list_sort_impl E"),
        "h | g | f",
        "memcpy h g f",
        "top_only",
        "fewer_evaluators_than_python",
    );
    check(
        &thread("memcpy E list_sort_impl E reduce E"),
        "g | f",
        "memcpy g f",
        "top_only",
        "more_evaluators_than_python",
    );
}

#[test]
fn a_native_chain_that_ends_early_is_shown_as_far_as_it_is_proven() {
    let ended = "native_chain_ended";
    check(
        "memcpy E list_sort_impl E reduce …",
        "h | g | f",
        "memcpy h list_sort_impl g f",
        "leaf_end",
        ended,
    );
    check(
        "memcpy deflate …",
        "g | f",
        "memcpy deflate g f",
        "top_only",
        ended,
    );
    check(
        "memcpy E list_sort_impl …",
        "g | f",
        "memcpy g f",
        "top_only",
        ended,
    );
    // All evaluators are there; what is missing is how the thread began.
    check(
        "memcpy E list_sort_impl E run_mod …",
        "g | f",
        "memcpy g list_sort_impl f",
        "full",
        "",
    );
    check(
        "E list_sort_impl E reduce …",
        "h | g | f",
        "h g f",
        "python_only",
        "may_be_entering_python",
    );
    check("", "g | f", "g f", "python_only", "no_native_chain");
}

#[test]
fn what_proves_the_innermost_evaluator_helps_where_counts_do_not() {
    let case = Case::of("E list_sort_impl E reduce …", "h | g | f");
    assert_eq!(
        case.merged(Some(0)),
        (
            "h list_sort_impl g f".to_owned(),
            "leaf_end",
            "native_chain_ended"
        )
    );
    let case = Case::of("E list_sort_impl E reduce E …", "g | f");
    assert_eq!(
        case.merged(Some(2)),
        ("list_sort_impl g reduce f".to_owned(), "full", "")
    );
}

#[test]
fn python_frames_that_are_missing_are_between_two_proven_ends() {
    check(
        &thread("memcpy E a E b E c E d E e E"),
        "z | y | … x | w",
        "memcpy z a y x e w",
        "leaf_end",
        "python_frames_missing",
    );
    // The callers from there on are not known.
    check(
        &thread("memcpy E a E b E"),
        "z | y | …",
        "memcpy z a y",
        "leaf_end",
        "python_frames_missing",
    );
    check(
        "memcpy E a E b …",
        "z | y … x | w",
        "memcpy z a y x w",
        "leaf_end",
        "python_frames_missing",
    );
}

#[test]
fn names_have_their_roles_on_every_version_and_from_every_compiler() {
    let check = |names: &str, expected: Role| {
        for name in names.split_whitespace() {
            assert_eq!(role(name), expected, "{name}");
        }
    };
    check(
        "_PyEval_EvalFrameDefault _PyEval_EvalFrameDefault.cold _PyEval_EvalFrameDefault.part.0 \
         _PyEval_EvalFrameDefault.lto_priv.0",
        Role::Evaluator,
    );
    check("_TAIL_CALL_LOAD_FAST _TAIL_CALL_error", Role::Piece);
    check(
        "_PyEval_EvalFrame PyEval_EvalFrameEx _PyEval_EvalCodeWithName _PyEval_Vector \
         _PyFunction_Vectorcall function_code_fastcall call_function do_call_core \
         PyObject_Vectorcall _PyObject_MakeTpCall cfunction_vectorcall_NOARGS \
         method_vectorcall_FASTCALL_KEYWORDS slot_tp_call type_call gen_send_ex2 \
         call_method.constprop.0 _PyObject_VectorcallTstate.lto_priv.13 py::f:/a.py",
        Role::Machinery,
    );
    check(
        "_PyEvalFrameClearAndPop _PyFrame_ClearExceptCode _Py_CheckFunctionResult",
        Role::Clears,
    );
    check(
        "_start __libc_start_main@@GLIBC_2.34 clone3 thread_run",
        Role::Start,
    );
    check(
        "list_sort_impl zlib_compress deflate main _PyEval_SetTrace",
        Role::Other,
    );
    let main = Role::of(&[known("main", "python3.12")], false);
    assert_eq!(main, Role::Start);
}

/// Regression: below a task, whose chain ends above the thread's root, the caller of what had just
/// returned was shown in its place, and all others one call too high.
#[test]
fn an_evaluator_that_checks_what_it_returns_may_have_left_its_frame() {
    check(
        "_Py_CheckFunctionResult E closure_fcn r1 E closure_fcn c_call E …",
        "b | a | in_task …",
        "b a in_task",
        "python_only",
        "may_be_entering_python",
    );
}

#[test]
fn inlined_functions_are_entries_of_their_own() {
    let inlined = [
        known("PyObject_CallOneArg", "libpython3.12.so.1.0"),
        known("list_sort_impl", "l"),
    ];
    let evaluator = [
        known("_PyFrame_Push", "l"),
        known("_PyEval_EvalFrameDefault", "libpython3.12.so.1.0"),
    ];
    let entries = entries([(&inlined[..], false), (&evaluator[..], false)]);
    let roles: Vec<Role> = entries.iter().map(|entry| entry.role).collect();
    assert_eq!(
        roles,
        [Role::Machinery, Role::Other, Role::Piece, Role::Evaluator]
    );
    let places: Vec<(usize, usize)> = entries
        .iter()
        .map(|entry| (entry.address, entry.function))
        .collect();
    assert_eq!(places, [(0, 0), (0, 1), (1, 0), (1, 1)]);
}

#[test]
fn code_without_a_name_right_above_an_evaluator_that_tail_calls_is_one_of_its_instructions() {
    let nameless = |module: &str| {
        [NativeFrame::Unknown {
            addr: crate::words::RemoteAddr(1),
            module: Some((module.into(), 1)),
            reason: "module without symbols",
        }]
    };
    let evaluator = |bytes| {
        [NativeFrame::Known {
            function: "_PyEval_EvalFrameDefault".into(),
            module: Some("python3.15".into()),
            file: None,
            line: None,
            bytes: Some(bytes),
        }]
    };
    let (own, libc) = (nameless("python3.15"), nameless("libc.so.6"));
    let home = |home| Role::Nameless { home, piece: false };
    for (bytes, above) in [(844, Role::Piece), (60_000, home(Home::Interpreter))] {
        let evaluator = evaluator(bytes);
        let chain = [&libc[..], &own[..], &evaluator[..], &own[..], &own[..]];
        let entries = entries(chain.map(|frames| (frames, false)));
        let roles: Vec<Role> = entries.iter().map(|entry| entry.role).collect();
        assert_eq!(
            roles,
            [
                home(Home::Libc),
                above,
                Role::Evaluator,
                Role::Machinery,
                home(Home::Interpreter)
            ],
            "{bytes}"
        );
    }
}
