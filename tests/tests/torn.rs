//! Programs whose callers and callees are known: no sample may show another.

use anyhow::{Context, Result, ensure};
use tests::profiler::Running;
use tests::pythons::{self, Python};
use tests::rung::{self, Rung};
use tests::target::Target;

/// No sample is read from user space, so there is no estimate for a torn stack to hide behind.
const KERNEL_ALONE: [&str; 6] = ["-r", "1999", "-d", "3s", "--walk", "kernel"];

/// Profiles a target for a while and judges its stacks by the pairs that it allows.
fn check(python: &Python, script: &str, arguments: &[&str]) -> Result<()> {
    let mut target = Target::start(python, script, arguments)?;
    let mut profiler = Running::on(target.pid(), &KERNEL_ALONE)?;
    profiler.attached()?;
    target.tell("go")?;
    target.expect("running")?;
    let finished = profiler.finish()?.success()?;
    target.tell("stop")?;
    target.done()?;

    let ledger = finished.ledger()?;
    let torn = finished.folded()?.torn(&target.pairs());
    // How many there are depends on what else the machine does; a torn walk shows in dozens.
    ensure!(torn.known > 300, "too few samples to judge: {torn:?}");
    // Each thread begins and ends outside of Python, however long the run is.
    let edges = 3 * ledger.threads.len() as u64;
    ensure!(
        torn.known * 100 + edges * 100 >= torn.samples * 99,
        "samples without any known function: {torn:?}"
    );
    // Nothing is asked again from user space here, so what the kernel could not read is a mark.
    ensure!(
        torn.marked * 1000 <= torn.samples + edges * 1000,
        "frames that could not be read: {torn:?}"
    );
    let not_kernel = ledger.samples - ledger.from("kernel");
    ensure!(
        not_kernel * 1000 <= ledger.samples + edges * 1000,
        "{not_kernel} of {} samples were not read in the kernel: {:?}",
        ledger.samples,
        ledger.frames_from
    );
    ensure!(
        ledger.from("estimated") == 0,
        "frames were read from user space: {:?}",
        ledger.frames_from
    );
    ensure!(torn.impossible == 0, "impossible stacks: {torn:?}");
    Ok(())
}

fn on_all(script: &str, arguments: &[&str]) -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    for python in pythons::required() {
        check(python, script, arguments)
            .with_context(|| format!("`{script}` on {}", python.label))?;
    }
    Ok(())
}

#[test]
fn short_calls_are_never_torn() -> Result<()> {
    on_all("short_calls.py", &["4"])
}

#[test]
fn generators_show_who_drives_them() -> Result<()> {
    on_all("generators.py", &[])
}

#[test]
fn c_code_shows_the_python_frame_that_called_it() -> Result<()> {
    on_all("c_call.py", &[])
}

#[test]
fn a_user_space_walk_of_a_running_thread_is_labelled_estimated() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(python) = pythons::any() else {
        return Ok(());
    };
    let mut target = Target::start(python, "short_calls.py", &["2"])?;
    let mut profiler = Running::on(target.pid(), &["-r", "499", "-d", "2s", "--walk", "user"])?;
    profiler.attached()?;
    target.tell("go")?;
    target.expect("running")?;
    let ledger = profiler.finish()?.success()?.ledger()?;
    let (estimated, none) = (ledger.from("estimated"), ledger.from("none"));
    ensure!(
        estimated > 0 && estimated + none == ledger.samples,
        "of {} samples not each is estimated or without frames: {:?}",
        ledger.samples,
        ledger.frames_from
    );
    Ok(())
}
