//! Code that is freed as soon as it has run: what came next at its address is not taken for it.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use tests::on_each;
use tests::profiler::Running;
use tests::pythons::Python;
use tests::rung::Rung;
use tests::target::Target;

/// Which parts of the target the frames of a stack are of.
fn parts(frames: &[String]) -> BTreeSet<&str> {
    let part = |frame| {
        let (_, rest) = str::split_once(frame, "/part_")?;
        Some(rest.split_once(".py")?.0)
    };
    let frames = frames.iter().map(String::as_str);
    frames.filter_map(part).collect()
}

/// Names were read a tenth of a second later: half of the samples had none, and in one of twenty the
/// function was of one file and its caller of another.
fn check(python: &Python) -> Result<()> {
    let mut target = Target::start(python, "code_in_turns.py", &["2"])?;
    let mut profiler = Running::on(target.pid(), &["-r", "999"])?;
    profiler.attached()?;
    target.tell("go")?;
    target.expect("done")?;
    let folded = profiler.stop()?.success()?.folded()?;
    let (mut known, mut mixed) = (0, 0);
    let mut seen = BTreeSet::new();
    for stack in &folded.stacks {
        let parts = parts(&stack.frames);
        known += if parts.is_empty() { 0 } else { stack.count };
        mixed += if parts.len() > 1 { stack.count } else { 0 };
        seen.extend(parts);
    }
    let told = format!(
        "{known} known and {mixed} mixed of {}, {} parts",
        folded.total(),
        seen.len()
    );
    ensure!(folded.total() > 1000, "{told}");
    ensure!(known * 100 > folded.total() * 85, "{told}");
    ensure!(mixed * 100 <= known, "{told}");
    ensure!(seen.len() > 100, "{told}");
    Ok(())
}

on_each! {
    Rung::Kernel, check;
    code_that_is_freed_as_soon_as_it_has_run_is_named_on_3_8: 8;
    code_that_is_freed_as_soon_as_it_has_run_is_named_on_3_10: 10;
    code_that_is_freed_as_soon_as_it_has_run_is_named_on_3_12: 12;
    code_that_is_freed_as_soon_as_it_has_run_is_named_on_3_13: 13;
    code_that_is_freed_as_soon_as_it_has_run_is_named_on_3_15: 15;
}
