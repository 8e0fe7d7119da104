//! Native frames: programs whose callers and callees in Python, C and Rust are known. No sample
//! may show another, and none is lost for the sake of its native frames.

use anyhow::{Context, Result, ensure};
use tests::calls::is_of;
use tests::libraries::Made;
use tests::on_each;
use tests::profile::{Entry, Frame, Profile};
use tests::profiler::Running;
use tests::pythons::{self, Python};
use tests::rung::{self, Rung};
use tests::target::{Account, Target};
use tests::told::Told;

fn each_made(
    python: &Python,
    arguments: &[&str],
    options: &[&str],
    check: impl Fn(&Told) -> Result<()>,
) -> Result<()> {
    for made in Made::all_of(python) {
        let all = Told::of(python, *made, arguments, options).and_then(|told| check(&told));
        all.with_context(|| format!("{made:?} {arguments:?} {options:?}"))?;
    }
    Ok(())
}

/// Those of the border between all three languages.
const ALL_THREE: &[(&str, &str)] = &[
    ("calls", "a"),
    ("c2", "c_spin"),
    ("call_back", "b"),
    ("b", "r1"),
    ("r_spin", "turn"),
    ("r2", "leaf"),
];

fn border_holds(python: &Python) -> Result<()> {
    each_made(python, &["calls", "1.2"], &["-r", "4999"], |told| {
        told.is_full()?;
        ensure!(told.judged.known > 5000, "{} samples", told.judged.known);
        told.has_seen(ALL_THREE)
    })
}
on_each! {
    Rung::Kernel, border_holds;
    no_sample_crosses_the_border_where_nobody_calls_on_3_8: 8;
    no_sample_crosses_the_border_where_nobody_calls_on_3_9: 9;
    no_sample_crosses_the_border_where_nobody_calls_on_3_10: 10;
    no_sample_crosses_the_border_where_nobody_calls_on_3_11: 11;
    no_sample_crosses_the_border_where_nobody_calls_on_3_12: 12;
    no_sample_crosses_the_border_where_nobody_calls_on_3_13: 13;
    no_sample_crosses_the_border_where_nobody_calls_on_3_14: 14;
    no_sample_crosses_the_border_where_nobody_calls_on_3_15: 15;
}

/// Where Python frames are estimated, or a task's alone, native frames may be missing.
fn border_holds_in_other_ways(python: &Python) -> Result<()> {
    each_made(
        python,
        &["calls", "0.4"],
        &["-r", "1999", "--walk", "user"],
        |told| told.is_sound(),
    )?;
    each_made(
        python,
        &["tasks", "0.4"],
        &["-r", "1999", "--tasks"],
        |told| {
            told.is_sound()?;
            told.has_seen(&[("in_task", "a")])
        },
    )
}
on_each! {
    Rung::Kernel, border_holds_in_other_ways;
    no_estimate_and_no_task_crosses_it_either_on_3_8: 8;
    no_estimate_and_no_task_crosses_it_either_on_3_9: 9;
    no_estimate_and_no_task_crosses_it_either_on_3_10: 10;
    no_estimate_and_no_task_crosses_it_either_on_3_11: 11;
    no_estimate_and_no_task_crosses_it_either_on_3_12: 12;
    no_estimate_and_no_task_crosses_it_either_on_3_13: 13;
    no_estimate_and_no_task_crosses_it_either_on_3_14: 14;
    no_estimate_and_no_task_crosses_it_either_on_3_15: 15;
}

/// Generators, destructors and exceptions: C is between the Python functions, or was and is gone.
fn ways_hold(python: &Python) -> Result<()> {
    each_made(python, &["ways", "0.5"], &["-r", "1999"], |told| {
        told.is_full()?;
        told.has_seen(&[
            ("sums", "numbers"),
            ("numbers", "leaf"),
            ("drops", "__del__"),
            ("orders", "key"),
        ])?;
        match told.made {
            Made::Library => Ok(()),
            Made::Extension => told.has_seen(&[("call_back", "raises"), ("fails", "leaf")]),
        }
    })
}
on_each! {
    Rung::Kernel, ways_hold;
    generators_destructors_and_exceptions_are_below_their_c_on_3_8: 8;
    generators_destructors_and_exceptions_are_below_their_c_on_3_9: 9;
    generators_destructors_and_exceptions_are_below_their_c_on_3_10: 10;
    generators_destructors_and_exceptions_are_below_their_c_on_3_11: 11;
    generators_destructors_and_exceptions_are_below_their_c_on_3_12: 12;
    generators_destructors_and_exceptions_are_below_their_c_on_3_13: 13;
    generators_destructors_and_exceptions_are_below_their_c_on_3_14: 14;
    generators_destructors_and_exceptions_are_below_their_c_on_3_15: 15;
}

/// Its functions in a stack, leaf first.
fn names<'a>(profile: &'a Profile, entry: &'a Entry) -> Vec<&'a str> {
    let frames = profile.stack(entry);
    frames.map(|frame| frame.function.as_str()).collect()
}

fn c_has_a_thread(python: &Python) -> Result<()> {
    each_made(python, &["beside", "0.3"], &["-r", "1999"], |told| {
        told.is_sound()?;
        let tid = told.beside.context("no thread of C")?;
        let (mut all, mut whole) = (0, 0);
        for entry in told.profile.of(tid) {
            all += entry.ticks;
            let is_native = told
                .profile
                .stack(entry)
                .all(|frame| frame.kind != "python");
            ensure!(is_native, "{:?}", names(&told.profile, entry));
            let names = names(&told.profile, entry);
            whole += match names.iter().position(|name| *name == "c_thread") {
                // What the C library starts a thread with is all that is below.
                Some(root) if names.len() - root <= 3 => entry.ticks,
                _ => 0,
            };
        }
        ensure!(
            all > 300 && whole * 100 >= all * 98,
            "{whole} of {all} are below its first function"
        );
        told.has_seen(&[("c_work", "c_spin")])
    })
}
on_each! {
    Rung::Kernel, c_has_a_thread;
    a_thread_without_python_has_its_native_stack_on_3_8: 8;
    a_thread_without_python_has_its_native_stack_on_3_9: 9;
    a_thread_without_python_has_its_native_stack_on_3_10: 10;
    a_thread_without_python_has_its_native_stack_on_3_11: 11;
    a_thread_without_python_has_its_native_stack_on_3_12: 12;
    a_thread_without_python_has_its_native_stack_on_3_13: 13;
    a_thread_without_python_has_its_native_stack_on_3_14: 14;
    a_thread_without_python_has_its_native_stack_on_3_15: 15;
}

/// The system calls that `time.sleep` is made of; to 3.10 it is one of the others.
const SLEEPS: &[&str] = &[
    "[kernel] clock_nanosleep",
    "[kernel] pselect6",
    "[kernel] select",
];

/// A thread that sleeps in a function that C called back.
fn sleep_is_in_the_kernel(python: &Python) -> Result<()> {
    let options = ["--mode", "wall", "-r", "199"];
    each_made(python, &["sleeps", "1"], &options, |told| {
        told.is_sound()?;
        let profile = &told.profile;
        let mut asleep = 0.0;
        for entry in profile.of(told.account.tid) {
            let names = names(profile, entry);
            let is_asleep = names.first().is_some_and(|leaf| SLEEPS.contains(leaf))
                && ["naps", "c2", "c1", "a_nap", "sleeps"]
                    .iter()
                    .all(|name| profile.is_in(entry, name));
            asleep += if is_asleep { entry.weight_s() } else { 0.0 };
        }
        // Where CPUs are shared, its life is longer than its second of sleep.
        ensure!(
            (asleep - 1.0_f64).abs() <= 0.05,
            "{asleep:.3} seconds asleep of one: {:?} {:?}",
            profile.ledger.native,
            profile.folded(|_| true).stacks.first()
        );
        told.has_seen(&[("call_back", "naps")])
    })
}
on_each! {
    Rung::Kernel, sleep_is_in_the_kernel;
    a_sleeper_is_in_the_kernel_below_c_below_python_on_3_8: 8;
    a_sleeper_is_in_the_kernel_below_c_below_python_on_3_9: 9;
    a_sleeper_is_in_the_kernel_below_c_below_python_on_3_10: 10;
    a_sleeper_is_in_the_kernel_below_c_below_python_on_3_11: 11;
    a_sleeper_is_in_the_kernel_below_c_below_python_on_3_12: 12;
    a_sleeper_is_in_the_kernel_below_c_below_python_on_3_13: 13;
    a_sleeper_is_in_the_kernel_below_c_below_python_on_3_14: 14;
    a_sleeper_is_in_the_kernel_below_c_below_python_on_3_15: 15;
}

/// How a recursion through C is shown, leaf first: on how many levels of it, from the leaf on, is
/// what is native between them, and how many are shown. Behind the first that is without there may
/// be nothing native, and where frames were cut it is said how many.
fn levels(told: &Told, entry: &Entry) -> Result<(u64, u64)> {
    let (mut shown, mut with_native, mut cut) = (0, 0, 0);
    let (mut is_native, mut ended) = (false, false);
    for frame in told.profile.stack(entry) {
        match (&*frame.kind, &*frame.function) {
            ("native" | "unknown", _) => {
                ensure!(
                    !ended,
                    "`{}` is behind the end of what is native",
                    frame.label
                );
                is_native = true;
            }
            ("cut", _) => {
                let number = frame
                    .label
                    .split(' ')
                    .find_map(|word| word.parse::<u64>().ok());
                cut += number.with_context(|| frame.label.clone())?;
                ended = true;
            }
            ("python", "dive") => {
                with_native += u64::from(shown > 0 && is_native);
                ended |= shown > 0 && !is_native;
                shown += 1;
                is_native = false;
            }
            _ => {}
        }
    }
    ensure!(
        shown + cut == told.depth + 1,
        "{shown} levels are shown and {cut} cut, of {}",
        told.depth + 1
    );
    Ok((with_native, shown))
}

/// A recursion through C beyond what is copied of the stack: Python is whole, or has both its
/// ends and the number of what is between, and what is native is at the leaf.
fn deep_ends_are_kept(python: &Python) -> Result<()> {
    let check = |depth: &str, is_right: &dyn Fn(u64, u64) -> bool| {
        let options = ["-r", "499", "--max-depth", depth];
        each_made(python, &["deep", "0.5"], &options, |told| {
            told.is_sound()?;
            let native = told.profile.ledger.native.as_ref().context("no account")?;
            let cut = native.reasons.iter().filter(|(why, _)| {
                [
                    "stack_copy_ended",
                    "python_frames_missing",
                    // To 3.10 nothing but what it calls tells that the innermost has its frame.
                    "may_be_entering_python",
                ]
                .contains(&why.as_str())
            });
            let cut: u64 = cut.map(|(_, samples)| samples).sum();
            let (mut right, mut deepest) = (0, 0);
            for entry in told.profile.of(told.account.tid) {
                let names = names(&told.profile, entry);
                let is_whole = names.last() == Some(&"Thread._bootstrap")
                    || names.last() == Some(&"_bootstrap");
                if !is_whole || !names.contains(&"dive") || !names.contains(&"deep") {
                    continue;
                }
                // Of a dive that has not come to its end, or comes back, there are fewer levels.
                let is_down = names.iter().any(|name| ["leaf", "is_over"].contains(name));
                if !is_down {
                    continue;
                }
                let (with_native, shown) = levels(told, entry)?;
                deepest = deepest.max(with_native);
                right += if is_right(shown, told.depth) {
                    entry.ticks
                } else {
                    0
                };
            }
            ensure!(
                right * 100 >= told.judged.samples * 90 && cut * 100 >= told.judged.samples * 90,
                "{right} of {} have their Python frames: {native:?}",
                told.judged.samples
            );
            // The leaf's end has what is between the innermost of them.
            let through_c = ("dive".to_owned(), "dive".to_owned());
            ensure!(
                native.leaf_end * 100 >= native.all() * 25
                    && deepest >= 2
                    && told.judged.seen.contains_key(&through_c),
                "what is native is on {deepest} levels: {native:?}"
            );
            Ok(())
        })
    };
    check("1024", &|dives, depth| dives == depth + 1)?;
    check("100", &|dives, _| (80..100).contains(&dives))
}
on_each! {
    Rung::Kernel, deep_ends_are_kept;
    a_deep_recursion_through_c_keeps_both_ends_on_3_8: 8;
    a_deep_recursion_through_c_keeps_both_ends_on_3_9: 9;
    a_deep_recursion_through_c_keeps_both_ends_on_3_10: 10;
    a_deep_recursion_through_c_keeps_both_ends_on_3_11: 11;
    a_deep_recursion_through_c_keeps_both_ends_on_3_12: 12;
    a_deep_recursion_through_c_keeps_both_ends_on_3_13: 13;
    a_deep_recursion_through_c_keeps_both_ends_on_3_14: 14;
    a_deep_recursion_through_c_keeps_both_ends_on_3_15: 15;
}

/// A library at work below Python: what its threads say, and what the profiler says.
fn leaves(python: &Python, arguments: &[&str]) -> Result<(Vec<Account>, Profile)> {
    let mut target = Target::start(python, "native_leaves.py", arguments)?;
    let mut profiler = Running::in_detail(target.pid(), &["--native", "-r", "999"])?;
    profiler.attached()?;
    target.tell("go")?;
    let accounts = target.done()?;
    let profile = profiler.stop()?.profile()?;
    profile.ledger.balances()?;
    Ok((accounts, profile))
}

/// zlib's own code is below the Python function that compresses.
fn zlib_is_a_leaf(python: &Python) -> Result<()> {
    let (accounts, profile) = leaves(python, &["compresses", "0.5"])?;
    let account = accounts.first().context("no account")?;
    let (mut all, mut right) = (0, 0);
    for entry in profile.of(account.tid) {
        all += entry.ticks;
        // The kernel may be at work for it.
        let mut frames = profile
            .stack(entry)
            .skip_while(|frame| frame.kind == "kernel");
        let leaf = frames.next().is_some_and(|frame| {
            // In some interpreters it is linked in.
            frame.kind == "native"
                && is_of(frame, &["libz", "zlib", "libc.", "python3", "libpython3"])
        });
        let mut python = profile.stack(entry).filter(|frame| frame.kind == "python");
        let is_called = python
            .next()
            .is_some_and(|frame| frame.function == "compresses");
        let in_zlib = profile
            .stack(entry)
            .any(|frame| is_of(frame, &["libz", "zlib"]) || frame.function.contains("zlib"));
        right += if leaf && is_called && in_zlib {
            entry.ticks
        } else {
            0
        };
    }
    ensure!(
        all > 300 && right * 100 >= all * 95,
        "{right} of {all} are in zlib: {:?}",
        profile.ledger.native
    );
    Ok(())
}
on_each! {
    Rung::Kernel, zlib_is_a_leaf;
    zlib_is_below_who_compresses_on_3_8: 8;
    zlib_is_below_who_compresses_on_3_9: 9;
    zlib_is_below_who_compresses_on_3_10: 10;
    zlib_is_below_who_compresses_on_3_11: 11;
    zlib_is_below_who_compresses_on_3_12: 12;
    zlib_is_below_who_compresses_on_3_13: 13;
    zlib_is_below_who_compresses_on_3_14: 14;
    zlib_is_below_who_compresses_on_3_15: 15;
}

#[test]
fn each_thread_of_a_blas_has_its_own_native_stack() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(python) = pythons::any() else {
        return Ok(());
    };
    let Some(packages) = pythons::packages(python, "numpy") else {
        rung::leave_out("there is no numpy: run `cargo xtask setup`");
        return Ok(());
    };
    let (accounts, profile) = leaves(python, &["multiplies", "1", &packages])?;
    let caller = accounts.first().context("no account")?.tid;
    let is_blas = |frame: &Frame| is_of(frame, &["libscipy_openblas", "libopenblas"]);
    for thread in &profile.ledger.threads {
        if thread.samples < 100 {
            continue;
        }
        let (mut all, mut right) = (0, 0);
        for entry in profile.of(thread.tid) {
            all += entry.ticks;
            let in_blas = profile.stack(entry).any(is_blas);
            let below_caller = profile.is_in(entry, "multiplies");
            let is_right = in_blas && below_caller == (thread.tid == caller);
            right += if is_right { entry.ticks } else { 0 };
        }
        ensure!(
            right * 100 >= all * 90,
            "{right} of {all} samples of {thread:?} are in the BLAS: {:?}",
            profile.ledger.native
        );
    }
    let sampled = profile.ledger.thread(caller).map(|thread| thread.samples);
    ensure!(sampled > Some(100), "{:?}", profile.ledger.threads);
    Ok(())
}
