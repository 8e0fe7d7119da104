//! How the kernel is to read a process: its interpreter, once it is found, as a plan.

use profiler_common::plan::{PLAN_FOLLOW, PLAN_NO_WALK, Plan};

use super::{Kit, member::Member};
use crate::{
    cpython::{self, GilLock, Runtime, Wishes},
    pipeline::{people, settings::Walk, stacks::Stacks},
    source::{Kernel, KernelError},
};

/// An interpreter in a process and everything that is read through it.
#[derive(Debug)]
pub(super) struct Python {
    pub(super) runtime: Runtime,
    pub(super) plan: Plan,
    pub(super) stacks: Stacks,
    pub(super) gils: Vec<GilLock>,
}

impl Member {
    fn wishes(&self, kit: &Kit) -> Wishes {
        let settings = &kit.settings;
        let mut flags = 0;
        if settings.walk == Walk::User {
            flags |= PLAN_NO_WALK;
        }
        if settings.follow {
            flags |= PLAN_FOLLOW;
        }
        Wishes {
            since: self.since,
            flags,
            max_frames: settings.max_frames,
        }
    }

    /// Tick on the process although it runs no Python (yet).
    pub(super) fn plan_without_python(
        &mut self,
        kit: &Kit,
        kernel: &mut Kernel,
    ) -> Result<(), KernelError> {
        let plan = cpython::plan_without_python(self.wishes(kit));
        self.set_plan(kernel, &plan)
    }

    /// Read the process as the interpreter it runs.
    pub(super) fn plan_with(
        &mut self,
        kit: &mut Kit,
        kernel: &mut Kernel,
        runtime: Runtime,
    ) -> Result<(), KernelError> {
        let memory = self.hold.memory();
        let Some(plan) = cpython::plan(&runtime, memory, self.wishes(kit)) else {
            log::warn!(
                "the interpreter's own table of offsets is out of reach; no frames are read"
            );
            return self.plan_without_python(kit, kernel);
        };
        self.states_wanted |= lacks_ways(&plan);
        let (found, state) = (runtime.found(), &plan.state);
        log::info!(
            "process {}: Python {} in {}, found by {}; {} hops from the TLS base to the thread state",
            self.pid,
            found.version,
            found.image,
            found.by,
            state.n_hops
        );
        kit.met_python(self.index, &runtime);
        let stacks = Stacks::new(&runtime);
        self.python = Some(Python {
            gils: runtime.gils(memory).unwrap_or_default(),
            runtime,
            plan,
            stacks,
        });
        self.fill_states(kernel)?;
        self.set_plan(kernel, &plan)
    }

    fn set_plan(&mut self, kernel: &mut Kernel, plan: &Plan) -> Result<(), KernelError> {
        kernel.set_plan(self.pid, plan)?;
        self.planned = crate::sys::monotonic();
        Ok(())
    }

    /// After an exec: take back a plan that was set after it and meant the program before.
    pub(super) fn correct_plan(
        &mut self,
        kit: &Kit,
        kernel: &mut Kernel,
    ) -> Result<(), KernelError> {
        if std::mem::take(&mut self.replan) {
            self.plan_without_python(kit, kernel)?;
        }
        Ok(())
    }

    /// Tell the tick of every thread state, when some thread's storage did not.
    pub(super) fn fill_states(&mut self, kernel: &mut Kernel) -> Result<(), KernelError> {
        if !std::mem::take(&mut self.states_wanted) {
            return Ok(());
        }
        let Some(python) = &self.python else {
            return Ok(());
        };
        for (thread, state) in people::all_states(&python.runtime, self.hold.memory()) {
            kernel.set_state(self.pid, thread, state)?;
        }
        Ok(())
    }
}

/// Whether the kernel needs to be told of thread states one by one.
pub(super) const fn lacks_ways(plan: &Plan) -> bool {
    plan.state.n_hops == 0 && plan.state.holder_addr == 0
}
