//! Which engine sees the threads of a run: eBPF, or what can be seen from outside.

use anyhow::{Result, bail};

use super::{
    settings::{Engine, RunPlan, Whom},
    voice::say,
};
use crate::{
    pipeline::Walk,
    source::{Kernel, KernelError, KernelOptions, capabilities, capabilities::PidNamespace},
};

/// An engine that is there.
#[derive(Debug)]
pub(super) enum Chosen {
    /// The kernel programs, loaded and ticking.
    Bpf(Box<Kernel>),
    /// None; why not, unless that was asked for.
    Proc(Option<String>),
}

/// Make the engine that the plan wants. Where it leaves the choice, what is refused is said.
pub(super) fn choose(plan: &RunPlan) -> Result<Chosen> {
    // Else a number would mean one process in `/proc` and another one to the kernel.
    let pid_namespace = capabilities::own_pid_namespace()?;
    if plan.engine == Engine::Proc {
        if is_of_many(plan) {
            bail!("`--engine proc` profiles {ONE_ALONE}");
        }
        return Ok(Chosen::Proc(None));
    }
    let why_not = match load(plan, pid_namespace) {
        Ok(mut kernel) => {
            let throttle = kernel.throttle();
            if let Some(throttle) = throttle.filter(|it| !it.spares(plan.run.rate_hz)) {
                say!("warning: {}", throttle.refusal(plan.run.rate_hz));
            }
            return Ok(Chosen::Bpf(Box::new(kernel)));
        }
        Err(error) => error.to_string(),
    };
    if is_of_many(plan) {
        bail!("{why_not}\nwithout eBPF a run profiles {ONE_ALONE}");
    }
    if plan.run.tasks.is_some() {
        bail!(
            "{why_not}\nwithout eBPF tasks are not told apart in a run: look once with \
             `profiler dump --tasks`"
        );
    }
    if plan.run.native.is_some() {
        bail!("{why_not}\nwithout eBPF there are no native frames: leave --native out");
    }
    // Where a walk by eBPF's means is asked for, nothing else is that.
    if plan.engine == Engine::Bpf || plan.run.walk != Walk::Auto {
        bail!("{why_not}");
    }
    say!("warning: no eBPF, so what threads do on a CPU is estimated (`--engine proc`): {why_not}");
    Ok(Chosen::Proc(Some(why_not)))
}

/// What a run without eBPF is about.
const ONE_ALONE: &str =
    "one process alone: give a single `--pid`, or a command, and no `--subprocesses`";

fn is_of_many(plan: &RunPlan) -> bool {
    plan.run.follow || matches!(&plan.whom, Whom::Processes(pids) if pids.len() > 1)
}

fn load(plan: &RunPlan, pid_namespace: Option<PidNamespace>) -> Result<Kernel, KernelError> {
    let mut kernel = Kernel::load(KernelOptions {
        period: plan.run.period(),
        ring_bytes: plan.ring_bytes,
        wake_bytes: wake_bytes(plan),
        looks_off_cpu: plan.run.mode.looks_off_cpu(),
        stacks: plan.run.native,
        pid_namespace,
    })?;
    // Nobody is a target yet; but a refusal comes while there still is a choice.
    kernel.tick_everywhere()?;
    Ok(kernel)
}

/// Wake the profiler at every sample when it walks itself, else when an eighth of the ring waits.
fn wake_bytes(plan: &RunPlan) -> u32 {
    match plan.run.walk {
        Walk::User => 0,
        Walk::Auto | Walk::Kernel => plan.ring_bytes / 8,
    }
}
