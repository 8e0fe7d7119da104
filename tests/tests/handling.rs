//! Exceptions that are being handled, on real interpreters; `sys.exc_info()` is the truth.

use anyhow::{Context, Result, ensure};
use profiler::cpython::{HandlingPlan, Runtime};
use profiler::pipeline::Attached;
use profiler::sample::Handling;
use profiler::target::Memory;
use profiler::words::{Pid, RemoteAddr, ThreadStateAddr};
use tests::pythons::{self, Python};
use tests::rung::{self, Rung};
use tests::target::Target;

/// What a kernel program does with the plan.
fn by_plan(memory: &dyn Memory, plan: &HandlingPlan, state: ThreadStateAddr) -> Result<bool> {
    let state = RemoteAddr::from(state);
    let oldest = state.plus(plan.oldest.into());
    let mut entry = memory.pointer(state.plus(plan.newest.into()))?;
    for _ in 0..8 {
        let value = memory.pointer(entry.plus(plan.value.into()))?;
        if value != RemoteAddr(0) && value != plan.none {
            return Ok(true);
        }
        if entry == oldest {
            return Ok(false);
        }
        entry = memory.pointer(entry.plus(plan.previous.into()))?;
    }
    anyhow::bail!("the oldest entry never came")
}

fn check(python: &Python) -> Result<()> {
    let target = Target::start(python, "exceptions.py", &[])?;
    let attached = Attached::open(Pid(target.pid().as_raw().cast_unsigned()))?;
    let memory = &attached.memory;
    let runtime: Runtime = attached.discover()?;
    let plan = runtime.handling_plan(memory).context("no plan")?;
    let threads: Vec<(u32, u64, String, bool)> =
        serde_json::from_value(target.ready()["threads"].clone())?;
    ensure!(threads.len() == 10, "{threads:?}");
    let states = runtime.thread_states(memory)?;
    for (_, ident, name, handles) in threads {
        let state = states.iter().find(|state| state.pthread_id.0 == ident);
        let state = state.context("a thread without a state")?.addr;
        let now = runtime.state_now(memory, state)?;
        let expected = if handles {
            Handling::Exception
        } else {
            Handling::Nothing
        };
        ensure!(now.handling == expected, "{name}: {now:?}");
        ensure!(now.pthread_id.0 == ident, "{name}: {now:?}");
        ensure!(
            by_plan(memory, &plan, state)? == handles,
            "{name} by the plan"
        );
    }
    Ok(())
}

#[test]
fn what_sys_exc_info_says_is_what_is_read() -> Result<()> {
    if !rung::reached(Rung::Live) {
        return Ok(());
    }
    for python in pythons::required() {
        check(python).with_context(|| format!("on {}", python.label))?;
    }
    Ok(())
}
