//! A run without eBPF: every thread is looked at from outside, once a period.
//!
//! The kernel shows anyone who may trace a process what it counts for each of its threads, so the
//! weights are the scheduler's own here too, and the frames of a thread off the CPU are proven.
//! What is only estimated is what a thread was doing *on* a CPU: it runs on while it is read.
//! Nobody is stopped.
//!
//! Each file is one part: the loop ([`run_proc()`]), who is who (`identity`), one look (`look`),
//! and whose the time was (`shares`).

mod close;
mod identity;
mod look;
mod person;
mod round;
mod run;
mod shares;

use std::collections::BTreeMap;

use profiler_common::plan::Plan;
use rustc_hash::FxHashMap;

use super::{
    attach::Attached,
    session::no_gil_to_show,
    settings::RunSettings,
    stacks::{ChainId, Stacks},
};
use crate::{
    aggregate::{ProcessIndex, ProfileBuilder, ThreadIndex},
    cpython::{self, GilLock, Runtime, Wishes},
    native::LiveSymbols,
    pystack::Walker,
    sample::{Gil, Mode},
    target::Memory,
    words::{DurationNs, MonotonicNs, ThreadStateAddr, Tid},
};
use close::Account;
use identity::Identity;
use person::{Met, Person};
use shares::Weights;

pub use run::run_proc;

/// An interpreter in the target and everything that is read through it.
#[derive(Debug)]
struct Python {
    runtime: Runtime,
    plan: Plan,
    stacks: Stacks,
    gils: Vec<GilLock>,
    /// Whether it runs without a GIL, as of the last time that was asked.
    no_gil: bool,
}

impl Python {
    /// Interpreters come and go with their locks, and a free-threaded build can be given one while
    /// it runs: ask now and then.
    fn ask_for_locks(&mut self, memory: &dyn Memory) {
        if let Ok(gils) = self.runtime.gils(memory) {
            self.gils = gils;
        }
        if let Ok(gil) = self.runtime.runs_with_gil(memory) {
            self.no_gil = !gil;
        }
    }
}

/// What a look found and is worth, until the codes of its frames were compared.
#[derive(Debug)]
struct Fresh {
    tid: Tid,
    met: Met,
    chain: Option<ChainId>,
    weights: Weights,
    time: MonotonicNs,
}

/// Everything that lives as long as a run.
#[derive(Debug)]
struct Watch {
    attached: Attached,
    builder: ProfileBuilder,
    settings: RunSettings,
    python: Option<Python>,
    had_python: bool,
    symbols: LiveSymbols,
    walker: Walker,
    identity: Identity,
    people: BTreeMap<Tid, Person>,
    by_state: FxHashMap<ThreadStateAddr, ThreadIndex>,
    /// Of those that have ended and those that live, in the order of their index.
    accounts: Vec<Option<Account>>,
    fresh: Vec<Fresh>,
    since: MonotonicNs,
    /// When the last round was.
    last: MonotonicNs,
    /// What the whole process had been on a CPU when the watch began.
    cpu_before: Option<DurationNs>,
    /// And at the last round.
    cpu_last: Option<DurationNs>,
    first: Option<MonotonicNs>,
    rounds: u64,
    /// Climbs in a row that could not read the interpreter.
    failures: u32,
    ticks: u64,
    looks: u64,
    moved: u64,
}

impl Watch {
    fn new(
        attached: Attached,
        builder: ProfileBuilder,
        settings: RunSettings,
        since: MonotonicNs,
    ) -> Self {
        Self {
            attached,
            builder,
            settings,
            python: None,
            had_python: false,
            symbols: LiveSymbols::default(),
            walker: Walker::default(),
            identity: Identity::default(),
            people: BTreeMap::new(),
            by_state: FxHashMap::default(),
            accounts: Vec::new(),
            fresh: Vec::new(),
            since,
            last: since,
            cpu_before: None,
            cpu_last: None,
            first: None,
            rounds: 0,
            failures: 0,
            ticks: 0,
            looks: 0,
            moved: 0,
        }
    }

    /// Read the process as the interpreter it runs.
    fn read_as(&mut self, runtime: Runtime) {
        let wishes = Wishes {
            since: self.since,
            flags: 0,
            max_frames: self.settings.max_frames,
        };
        let memory = &self.attached.memory;
        let Some(plan) = cpython::plan(&runtime, memory, wishes) else {
            log::warn!(
                "the interpreter's own table of offsets is out of reach; no frames are read"
            );
            return;
        };
        let found = runtime.found();
        log::info!(
            "Python {} in {}, found by {}",
            found.version,
            found.image,
            found.by
        );
        self.builder
            .python(&runtime.version().to_string(), runtime.build().key());
        self.builder
            .process_python(ProcessIndex(0), &runtime.version().to_string());
        self.had_python = true;
        let mut python = Python {
            gils: Vec::new(),
            no_gil: false,
            plan,
            stacks: Stacks::new(&runtime),
            runtime,
        };
        python.ask_for_locks(memory);
        if self.settings.mode == Mode::Gil && python.no_gil {
            log::warn!("{}", no_gil_to_show(self.attached.process.pid()));
        }
        self.python = Some(python);
        self.rename_all();
    }

    /// The program may be another one since its threads were met, and its threads are called so.
    fn rename_all(&mut self) {
        for person in self.people.values() {
            if let Ok(task) = self.attached.process.task(person.tid()) {
                let is_known = person.known.is_some();
                self.builder.rename(person.index, &task.name, is_known);
            }
        }
    }

    /// What a thread has to do with the GIL: `otherwise`, but where there is none.
    fn gil_or(&self, otherwise: Gil) -> Gil {
        match &self.python {
            Some(python) if python.no_gil => Gil::NoGil,
            _ => otherwise,
        }
    }

    /// The program was replaced, or its interpreter was taken down.
    fn forget_python(&mut self) {
        self.python = None;
        self.failures = 0;
        self.by_state.clear();
        self.identity.forget(&mut self.people);
    }
}
