//! The ledger as a reader of the documentation would declare it: the accounts of one run.
//!
//! Written from the documented form, not from the profiler's types, so that a change of the
//! form breaks a test. Keys it does not know are let through.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The accounts of one run.
#[derive(Clone, Debug, Deserialize)]
pub struct Ledger {
    /// The form's number.
    pub schema: u32,
    /// The process.
    pub pid: i64,
    /// The interpreter's version.
    pub python: String,
    /// `default`, `free-threaded` or `debug`.
    pub build: String,
    /// `bpf` or `proc`.
    pub engine: String,
    /// Why it is `proc`, where that was not asked for.
    #[serde(default)]
    pub why_not_bpf: Option<String>,
    /// What a sample's weight means.
    pub mode: String,
    /// The clock of every time.
    pub clock: String,
    /// Ticks a second and CPU.
    pub rate_hz: f64,
    /// Nanoseconds between ticks.
    pub period_ns: u64,
    /// Seconds from the first tick to the last.
    pub duration_s: f64,
    /// Ticks that found a thread of the target.
    pub ticks: u64,
    /// Those of them that came late.
    pub late_ticks: u64,
    /// The setting by which the kernel held ticks back, if it did.
    pub max_rate_hz: Option<u32>,
    /// Looks at threads off the CPU.
    pub looks: u64,
    /// Those that became samples, looks included.
    pub samples: u64,
    /// Those that did not, by reason.
    pub losses: BTreeMap<String, u64>,
    /// Samples by where their frames came from.
    pub frames_from: BTreeMap<String, u64>,
    /// Looks without frames, because the thread ran on each time it was read.
    pub moved: u64,
    /// Samples whose witnesses named different threads.
    pub contradictions: u64,
    /// Samples by what the thread had to do with the GIL.
    pub gil: BTreeMap<String, u64>,
    /// Samples of a thread that collected garbage.
    pub gc: u64,
    /// Samples by whether the thread was handling an exception.
    pub handling: BTreeMap<String, u64>,
    /// The time of blocked threads' samples, by what those waited for.
    pub blocked: BTreeMap<String, u64>,
    /// The processes.
    pub processes: Vec<Process>,
    /// Children for which there was no room.
    pub not_followed: u64,
    /// The threads.
    pub threads: Vec<Thread>,
    /// The tasks, where they were asked for.
    #[serde(default)]
    pub tasks: Option<Tasks>,
    /// How far native stacks went, where they were asked for.
    #[serde(default)]
    pub native: Option<Native>,
    /// Those that ended without a sample.
    pub unsampled: Unsampled,
    /// What the profiler itself cost.
    pub profiler: Cost,
}

/// One process's account.
#[derive(Clone, Debug, Deserialize)]
pub struct Process {
    /// Its kernel id.
    pub pid: i64,
    /// The process that made it, if that was seen.
    pub parent: Option<i64>,
    /// Its command line.
    pub command: String,
    /// The interpreter's version, empty without one.
    pub python: String,
    /// Its samples on a CPU.
    pub ticks: u64,
    /// All its samples.
    pub samples: u64,
    /// The time that its samples on a CPU stand for.
    pub sampled_ns: u64,
    /// The time that the scheduler gave its threads.
    pub scheduler_ns: Option<u64>,
    /// When it became a target, seconds from the first tick.
    pub started_s: f64,
    /// When it ended, if it did.
    pub ended_s: Option<f64>,
    /// What it ended with.
    pub ended_by: Option<String>,
    /// How close it was looked at.
    pub seen: String,
}

/// The accounts of tasks.
#[derive(Clone, Debug, Deserialize)]
pub struct Tasks {
    /// Their samples.
    pub samples: u64,
    /// Those of tasks whose coroutine was on a thread's stack.
    pub running: u64,
    /// Those of tasks that waited for their turn.
    pub runnable: u64,
    /// Those of tasks that waited for a future.
    pub waiting: u64,
    /// Those of tasks that could not be read, by the reason.
    pub unreadable: BTreeMap<String, u64>,
    /// Those that were read while a loop ran.
    pub estimated: u64,
    /// Those that have their coroutine's name for want of their own.
    pub by_coroutine: u64,
    /// How often all tasks were read.
    pub snapshots: u64,
    /// How often that was not needed.
    pub unchanged: u64,
    /// Tasks that nobody saw, at least.
    pub between_looks: u64,
}

/// How far the native stacks of samples went.
#[derive(Clone, Debug, Deserialize)]
pub struct Native {
    /// Samples with all native frames.
    pub full: u64,
    /// The same, some of them found by frame pointers alone.
    pub frame_pointers: u64,
    /// Samples with those of the leaf's end.
    pub leaf_end: u64,
    /// Samples with those above the innermost Python frame.
    pub top_only: u64,
    /// Samples without any.
    pub python_only: u64,
    /// Why not all, of the last three.
    pub reasons: BTreeMap<String, u64>,
}

impl Native {
    /// All samples.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.full + self.frame_pointers + self.leaf_end + self.top_only + self.python_only
    }

    /// Those that were not shown as a whole.
    #[must_use]
    pub fn less(&self) -> u64 {
        self.all() - self.full - self.frame_pointers
    }
}

/// Who ended without a sample.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Unsampled {
    /// Processes.
    pub processes: u64,
    /// Threads.
    pub threads: u64,
    /// Their time on a CPU.
    pub on_cpu_ns: u64,
}

/// One thread's account.
#[derive(Clone, Debug, Deserialize)]
pub struct Thread {
    /// Its process.
    pub pid: i64,
    /// Its kernel id, as the target's processes see it.
    pub tid: i64,
    /// Its name.
    pub name: Option<String>,
    /// Its pthread id.
    pub pthread_id: Option<u64>,
    /// Whether it has a Python thread state.
    pub python: bool,
    /// The rungs of the ladder that named it.
    pub matched_by: Vec<String>,
    /// Its samples.
    pub samples: u64,
    /// The time that those on a CPU stand for.
    pub sampled_ns: u64,
    /// The time the scheduler gave it; none where that could not be had.
    pub scheduler_ns: Option<u64>,
    /// The time that its samples stand for while it waited for a CPU.
    pub sampled_runnable_ns: u64,
    /// The time that its samples stand for while it was blocked.
    pub sampled_blocked_ns: u64,
    /// The time it waited for a CPU, as the scheduler has it; none in `cpu` mode.
    pub runnable_ns: Option<u64>,
    /// The time it was blocked, as the scheduler has it; none in `cpu` mode.
    pub blocked_ns: Option<u64>,
    /// The time it lived while it was watched.
    pub wall_ns: Option<u64>,
}

impl Thread {
    /// The samples' time, seconds.
    #[must_use]
    pub fn sampled_s(&self) -> f64 {
        self.sampled_ns as f64 / 1e9
    }

    /// The scheduler's time, seconds.
    ///
    /// # Errors
    ///
    /// When it could not be had.
    pub fn scheduler_s(&self) -> Result<f64> {
        let ns = self
            .scheduler_ns
            .with_context(|| format!("thread {} has no scheduler's account", self.tid))?;
        Ok(ns as f64 / 1e9)
    }

    /// All of its samples' time, seconds: on a CPU, runnable, blocked.
    #[must_use]
    pub fn all_sampled_s(&self) -> f64 {
        (self.sampled_ns + self.sampled_runnable_ns + self.sampled_blocked_ns) as f64 / 1e9
    }

    /// All time that the scheduler knows of, seconds; none where it is not measured.
    #[must_use]
    pub fn all_scheduler_s(&self) -> Option<f64> {
        let ns = self.scheduler_ns? + self.runnable_ns? + self.blocked_ns?;
        Some(ns as f64 / 1e9)
    }

    /// The time it lived while it was watched, seconds; none where it is not measured.
    #[must_use]
    pub fn wall_s(&self) -> Option<f64> {
        Some(self.wall_ns? as f64 / 1e9)
    }
}

/// What the profiler itself cost.
#[derive(Clone, Debug, Deserialize)]
pub struct Cost {
    /// CPU time of its process.
    pub cpu_ns: Option<u64>,
    /// Time of its kernel programs, where the kernel counts it.
    pub bpf_ns: Option<u64>,
    /// Runs of its kernel programs, where the kernel counts them.
    pub bpf_runs: Option<u64>,
    /// Its largest resident memory.
    pub rss_bytes: Option<u64>,
    /// Time of the program that ticks alone.
    #[serde(default)]
    pub tick_ns: Option<u64>,
    /// Nanoseconds from its start to its first sample.
    #[serde(default)]
    pub first_sample_ns: Option<u64>,
}

impl Ledger {
    /// Checks what must hold of every run of whatever processes.
    ///
    /// # Errors
    ///
    /// Which sum is not what it should be.
    pub fn balances(&self) -> Result<()> {
        ensure!(
            self.ticks + self.looks == self.samples + self.lost(),
            "ticks {} and looks {} are not samples {} and losses {:?}",
            self.ticks,
            self.looks,
            self.samples,
            self.losses
        );
        for fault in ["unaccounted", "malformed", "unknown_process"] {
            let lost = self.losses.get(fault).copied().unwrap_or(0);
            ensure!(lost == 0, "{lost} ticks are lost as `{fault}`");
        }
        let of_processes: u64 = self.processes.iter().map(|it| it.samples).sum();
        let of_threads: u64 = self.threads.iter().map(|it| it.samples).sum();
        ensure!(
            (of_processes, of_threads) == (self.samples, self.samples),
            "{of_processes} samples of processes and {of_threads} of threads: {self:?}"
        );
        ensure!(
            self.contradictions == 0,
            "{} contradictions",
            self.contradictions
        );
        Ok(())
    }

    /// Reads a ledger's file.
    ///
    /// # Errors
    ///
    /// When it cannot be read or is of another form.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("no ledger at {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("the ledger is `{text}`"))
    }

    /// All losses together.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.losses.values().sum()
    }

    /// The samples whose frames came from there.
    #[must_use]
    pub fn from(&self, source: &str) -> u64 {
        self.frames_from.get(source).copied().unwrap_or(0)
    }

    /// One thread by its kernel id.
    #[must_use]
    pub fn thread(&self, tid: i64) -> Option<&Thread> {
        self.threads.iter().find(|thread| thread.tid == tid)
    }
}
