//! `profiler doctor`: what works here, what does not, and what to type.

use std::io::{self, Write as _};

use anyhow::Result;

use super::{DONE, FAILED, args::DoctorArgs, remedy};
use crate::{
    pipeline::Attached,
    source::{Kernel, KernelOptions, StackOptions, capabilities},
    target::may_call_vm_readv,
    words::{DurationNs, Pid},
};

/// Look at everything; the exit status says whether `run` would be exact.
pub(super) fn main(args: &DoctorArgs) -> Result<u8> {
    super::log::begin(0);
    let mut out = io::stdout().lock();
    let mut well = true;
    writeln!(out, "This machine")?;
    for capability in capabilities::survey() {
        // Privileges alone decide nothing: the trial below does.
        let mark = if capability.there { "ok" } else { "no" };
        writeln!(out, "  {mark}  {}: {}", capability.name, capability.seen)?;
        if !capability.there {
            writeln!(out, "      {}", capability.without)?;
        }
    }
    if may_call_vm_readv() {
        writeln!(out, "  ok  process_vm_readv: allowed")?;
    } else {
        writeln!(
            out,
            "  ok  process_vm_readv: refused, as by a seccomp filter; /proc/PID/mem is read in its place"
        )?;
    }
    match trial() {
        Ok(()) => writeln!(out, "  ok  the kernel programs load, attach and tick")?,
        Err(error) => {
            well = false;
            writeln!(out, "  no  {error}")?;
            writeln!(
                out,
                "      `profiler run` takes `--engine proc`: times are exact, what threads do on a CPU is estimated"
            )?;
        }
    }
    // With a strange `/proc` they tick, and no process can be opened.
    well &= capabilities::own_pid_namespace().is_ok();
    remedy::write(&mut out)?;
    if let Some(pid) = args.pid {
        writeln!(out, "\nProcess {pid}")?;
        well &= process(&mut out, Pid(pid))?;
    }
    Ok(if well { DONE } else { FAILED })
}

/// The only test that counts: load everything, tick once a second, let go.
fn trial() -> Result<()> {
    let options = KernelOptions {
        period: DurationNs(1_000_000_000),
        ring_bytes: 64 * 1024,
        wake_bytes: 32 * 1024,
        looks_off_cpu: true,
        // Whatever a run may ask for is part of the trial.
        stacks: Some(StackOptions {
            bytes: 4096,
            kernel: true,
        }),
        pid_namespace: capabilities::own_pid_namespace().unwrap_or(None),
    };
    let mut kernel = Kernel::load(options)?;
    kernel.tick_everywhere()?;
    Ok(())
}

fn process(out: &mut dyn io::Write, pid: Pid) -> Result<bool> {
    let attached = match Attached::open(pid) {
        Ok(attached) => attached,
        Err(error) => {
            writeln!(out, "  no  {error}")?;
            return Ok(false);
        }
    };
    if let Some(exe) = attached.process.exe() {
        writeln!(out, "  ok  runs {}", exe.display())?;
    }
    let namespaces = attached.process.namespaces();
    for (other, what) in [
        (namespaces.other_pids, "pid namespace"),
        (namespaces.other_mounts, "mount namespace"),
        (namespaces.other_root, "root folder"),
    ] {
        if other == Some(true) {
            writeln!(out, "  ok  lives in another {what} (no hindrance)")?;
        }
    }
    match attached.discover() {
        Ok(runtime) => {
            let found = runtime.found();
            writeln!(
                out,
                "  ok  Python {} in {} (found by {})",
                found.version, found.image, found.by
            )?;
            let states = runtime.thread_states(&attached.memory);
            match states {
                Ok(states) => writeln!(out, "  ok  {} Python threads", states.len())?,
                Err(error) => writeln!(out, "  no  {error}")?,
            }
            Ok(true)
        }
        Err(error) => {
            writeln!(out, "  no  {error}")?;
            Ok(false)
        }
    }
}
