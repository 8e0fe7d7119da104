//! How the kernel is to read a process: its interpreter, once it is found, as a plan.

use std::cell::RefCell;

use profiler_common::plan::{
    NO_FIELD, PLAN_FOLLOW, PLAN_GENERATORS, PLAN_INTO_C, PLAN_NO_WALK, Plan,
};
use rustc_hash::FxHashMap;

use super::{Kit, member::Member, no_gil_to_show};
use crate::{
    cpython::{self, Build, GilLock, KnownKeys, Runtime, ThreadName, Wishes, thread_names_of},
    pipeline::{
        natives::Base,
        people::{self, PythonWitness},
        sampler::Lock,
        settings::Walk,
        stacks::{ChainId, Stacks},
    },
    sample::Mode,
    source::{Kernel, KernelError},
    stack::StackId,
    target::Memory,
    words::{InnerTid, PthreadId, ThreadStateAddr},
};

/// An interpreter in a process and everything that is read through it.
#[derive(Debug)]
pub(super) struct Python {
    pub(super) runtime: Runtime,
    pub(super) plan: Plan,
    pub(super) stacks: Stacks,
    pub(super) gils: Vec<GilLock>,
    pub(super) lock: Lock,
    /// Whether there were several interpreters at the end of the last batch but one, and of the last,
    /// where a thread shows only those of its frames that are of the first.
    pub(super) several: [bool; 2],
    /// Where names of threads were found.
    pub(super) keys: RefCell<KnownKeys>,
}

impl PythonWitness for Python {
    fn native_id(&self, memory: &dyn Memory, state: ThreadStateAddr) -> Option<InnerTid> {
        let state = self.runtime.thread_state_at(memory, state).ok()?;
        state.native_thread_id
    }

    fn names(
        &self,
        memory: &dyn Memory,
        wanted: &dyn Fn(PthreadId) -> bool,
    ) -> FxHashMap<PthreadId, ThreadName> {
        thread_names_of(&self.runtime, memory, &mut self.keys.borrow_mut(), wanted)
    }
}

impl Python {
    fn new(runtime: Runtime, plan: Plan, memory: &dyn Memory) -> Self {
        let mut python = Self {
            gils: runtime.gils(memory).unwrap_or_default(),
            lock: match runtime.build() {
                Build::Default => Lock::Gil,
                Build::FreeThreaded => Lock::Unknown,
            },
            stacks: Stacks::new(&runtime),
            runtime,
            plan,
            several: [false; 2],
            keys: RefCell::default(),
        };
        python.ask_for_lock(memory);
        python
    }

    /// What a stack of a chain is made of.
    pub(super) fn base(&self, stack: StackId, id: ChainId) -> Base<'_> {
        // To 3.10 there is no owner of a frame: each is an object, and a C frame of its own.
        let each_in_c = self.plan.walk.frame_owner == NO_FIELD;
        Base {
            may_be_anothers: self.several.contains(&true),
            ..self.stacks.base(stack, id, each_in_c)
        }
    }

    /// To 3.11 a thread's state is that of the interpreter that it began in, whatever it runs now:
    /// ask once a batch whether there are others, whose evaluators are on the C stack then.
    pub(super) fn ask_for_interpreters(&mut self, memory: &dyn Memory) {
        if self.runtime.version().minor >= 12 {
            return;
        }
        let several = match self.runtime.interpreters(memory) {
            Ok(interpreters) => interpreters.len() > 1,
            // A process that is over has none any more.
            Err(_) => self.several[1],
        };
        self.several = [self.several[1], several];
    }

    /// A free-threaded build can be given a GIL while it runs: ask now and then.
    pub(super) fn ask_for_lock(&mut self, memory: &dyn Memory) {
        if self.runtime.build() == Build::Default {
            return;
        }
        if let (Ok(gil), Ok(gils)) = (
            self.runtime.runs_with_gil(memory),
            self.runtime.gils(memory),
        ) {
            self.lock = if gil { Lock::Gil } else { Lock::NoGil };
            self.gils = gils;
        }
    }
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
        if settings.tasks.is_some() {
            flags |= PLAN_GENERATORS;
        }
        if kit.settings.native.is_some() {
            flags |= PLAN_INTO_C;
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
        let python = Python::new(runtime, plan, memory);
        if kit.settings.mode == Mode::Gil && python.lock == Lock::NoGil {
            log::warn!("{}", no_gil_to_show(self.pid));
        }
        self.python = Some(python);
        // Who sleeps on was met without.
        kit.off.forget();
        self.fill_states(kernel)?;
        self.set_plan(kernel, &plan)?;
        if kit.settings.tasks.is_some() && kit.settings.mode == Mode::Cpu {
            self.learn_tasks(kit);
        }
        Ok(())
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
