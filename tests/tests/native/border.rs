//! Python frames and C functions in their true order, against what each thread says its stack is.

use anyhow::{Context, Result, ensure};
use profiler::native::{MAX_STANDING_STACK, NativeFrame};
use profiler::stack::interleave::{Merged, Part, Rung as Share, Why};
use profiler::words::Tid;
use tests::on_each;
use tests::parked::Parked;
use tests::pythons::Python;
use tests::rung::Rung;

use crate::look::{Account, Look, MOST_FRAMES, Shown, Stack};

/// What stands between the Python frames that a thread expects, those in order.
fn gaps<'a>(frames: &'a [Shown], expected: &[String]) -> Result<Vec<Vec<&'a Shown>>> {
    let mut wanted = expected.iter().filter(|name| !name.starts_with("C "));
    let mut gaps = vec![Vec::new()];
    let mut next = wanted.next();
    for frame in frames {
        match (frame, next) {
            (_, None) => break,
            (Shown::Python(name), Some(expected)) => {
                ensure!(name == expected, "`{name}` is where `{expected}` should be");
                gaps.push(Vec::new());
                next = wanted.next();
            }
            (native, Some(_)) => gaps.last_mut().context("a gap")?.push(native),
        }
    }
    ensure!(next.is_none(), "{next:?} is missing");
    Ok(gaps)
}

/// One thread's merged stack against what it says: every Python frame where it is, every C function
/// between the two that it says, and, where all have names, no other.
fn is_as_it_says(stack: &Stack, expected: &[String]) -> Result<()> {
    ensure!(
        matches!(stack.merged.rung, Share::Full | Share::FramePointers)
            && stack.merged.why.is_none()
            && stack.end.is_root(),
        "{:?}, {:?}, {}",
        stack.merged.rung,
        stack.merged.why,
        stack.end
    );
    let mut gaps = gaps(&stack.frames, expected)?.into_iter();
    // Without names, a function that enters the evaluator itself is taken for machinery.
    let is_stripped = stack.frames.iter().any(|frame| {
        matches!(frame, Shown::Native(frame) if frame.function().is_none()
            && frame.module().is_some_and(|module| module.starts_with("python")))
    });
    let is_named =
        |frame: &&Shown| matches!(frame, Shown::Native(frame) if frame.function().is_some());
    let top = gaps.next().context("nothing on top")?;
    ensure!(!top.is_empty(), "nothing waits on top");
    let mut gap = top;
    let mut after = false;
    for name in expected {
        match name.strip_prefix("C ") {
            None => {
                let left = gap.iter().filter(|frame| is_named(frame)).count();
                let is_unexpected = after && left > 0 && gap.iter().all(is_named);
                ensure!(!is_unexpected, "above `{name}`: {gap:?}");
                gap = gaps.next().unwrap_or_default();
                after = true;
            }
            Some(names) => {
                let fits = |frame: &&Shown| {
                    matches!(frame, Shown::Native(frame) if frame.function().is_none_or(|own| {
                        names.split(' ').any(|name| own.starts_with(name))
                    }))
                };
                let at = gap.iter().position(fits);
                if at.is_none() && is_stripped && gap.is_empty() {
                    continue;
                }
                let at = at.with_context(|| format!("`{names}` is not in {gap:?}"))?;
                gap.drain(..=at);
                // What it has below itself until its caller is the C library's and its own.
                after = false;
            }
        }
    }
    Ok(())
}

/// A stack that is deeper than what is kept of it: C functions are between the Python frames of
/// both ends.
fn has_both_ends(stack: &Stack, expected: &[String]) -> Result<()> {
    let merged = &stack.merged;
    ensure!(
        merged.rung == Share::LeafEnd && merged.why == Some(Why::PythonMissing),
        "{:?}, {:?}, {}",
        merged.rung,
        merged.why,
        stack.end
    );
    let is_python = |frame: &Shown| matches!(frame, Shown::Python(_));
    let ends: Vec<&[Shown]> = stack.frames.split_inclusive(is_python).collect();
    ensure!(
        ends.len() == MOST_FRAMES,
        "{} frames: {:?} … {:?}",
        ends.len(),
        ends.first(),
        ends.last()
    );
    let name = |end: &[Shown]| match end.last() {
        Some(Shown::Python(name)) => name.clone(),
        _ => String::new(),
    };
    let deepest = expected.last().context("a root")?;
    for (index, pair) in ends.windows(2).enumerate() {
        if name(pair[0]) != *deepest || name(pair[1]) != *deepest {
            continue;
        }
        // Right behind the missing ones nobody knows what was between.
        let is_gap = index + 1 == MOST_FRAMES / 2;
        ensure!(
            (pair[1].len() == 1) == is_gap,
            "{index}: {:?}, {}, {:?}",
            pair[1],
            stack.end,
            &stack.frames[stack.frames.len() - 30..]
        );
    }
    let own = ends.iter().filter(|end| name(end) == *deepest).count();
    ensure!(own > MOST_FRAMES - 16, "{own} of {MOST_FRAMES}");
    Ok(())
}

/// A merged stack of a part of the C stack has nothing at another place than the whole one.
fn is_part_of(part: &Merged, whole: &Merged) -> Result<()> {
    let mut rest = whole.parts.iter();
    let is_in_order = part
        .parts
        .iter()
        .all(|part| rest.any(|other| other == part));
    ensure!(is_in_order, "{part:?} of {whole:?}");
    let pythons = |merged: &Merged| {
        let is_python = |part: &&Part| matches!(part, Part::Python(_));
        merged.parts.iter().filter(is_python).count()
    };
    ensure!(pythons(part) == pythons(whole), "Python frames are lost");
    Ok(())
}

fn check(python: &Python) -> Result<()> {
    merges(python, false)?;
    // From 3.12 on, each Python function can have instructions of its own, named in a file.
    if python.minor() >= (3, 12) && !python.free_threaded {
        merges(&python.with(&["-X", "perf"]), true).context("with `-X perf`")?;
    }
    Ok(())
}

fn merges(python: &Python, has_perf_map: bool) -> Result<()> {
    let parked = Parked::start(python, "native_border.py", &[])?;
    let account: Account = serde_json::from_str(&parked.line).context(parked.line.clone())?;
    let mut look = Look::at(parked.pid().parse()?, &account)?;
    for (tid, expected) in &account.threads {
        let whole = look.stack(Tid(*tid), MAX_STANDING_STACK)?;
        let told = || format!("{expected:?}: {:#?}", whole.frames);
        if expected.len() > MOST_FRAMES {
            has_both_ends(&whole, expected)?;
            continue;
        }
        is_as_it_says(&whole, expected).with_context(told)?;
        if has_perf_map {
            let of_map = |frame: &NativeFrame| {
                let function = frame.function().unwrap_or_default();
                function.starts_with("py::wait:") && function.ends_with("native_border.py")
            };
            ensure!(
                look.named().iter().any(of_map),
                "no name by the map: {}",
                told()
            );
        }
        for bytes in (0..24).map(|step| step * 700) {
            let part = look.stack(Tid(*tid), bytes)?;
            is_part_of(&part.merged, &whole.merged).with_context(told)?;
        }
    }
    Ok(())
}

on_each! {
    Rung::Live, check;
    every_thread_is_merged_as_it_says_on_3_8: 8;
    every_thread_is_merged_as_it_says_on_3_9: 9;
    every_thread_is_merged_as_it_says_on_3_10: 10;
    every_thread_is_merged_as_it_says_on_3_11: 11;
    every_thread_is_merged_as_it_says_on_3_12: 12;
    every_thread_is_merged_as_it_says_on_3_13: 13;
    every_thread_is_merged_as_it_says_on_3_14: 14;
    every_thread_is_merged_as_it_says_on_3_15: 15;
}
