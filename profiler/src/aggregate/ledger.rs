//! The ledger: the samples' accounts beside the kernel's, as numbers.
//!
//! It is the shape of the file that `--ledger` writes, its keys in this order; what it says in
//! words is in `accounts`. An account that could not be had is `null`, never zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::aggregate::{
    CLOCK, Entry, ProcessIndex, ProcessInfo, ProfileMeta, ThreadIndex, ThreadInfo,
};
use crate::sample::{Activity, FramesFrom, Gc, Gil, Handling};
use crate::words::DurationNs;

/// The accounts of a run; `ticks + looks = samples + Σ losses`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// The version of this shape, 1.
    pub schema: u32,
    /// The process, the first one when there are several.
    pub pid: u32,
    /// The interpreter's version; empty when it is not known.
    pub python: String,
    /// `default`, `free-threaded` or `debug`.
    pub build: String,
    /// `bpf` or `proc`.
    pub engine: String,
    /// Why the engine is `proc`, and what would make it `bpf`; none when it is, or when `proc` was
    /// asked for.
    #[serde(default)]
    pub why_not_bpf: Option<String>,
    /// `cpu`, `wall`, `gil` or `offcpu`.
    pub mode: String,
    /// The clock of every `_ns` here.
    #[serde(default)]
    pub clock: String,
    /// Samples a second and CPU, as asked for.
    pub rate_hz: u32,
    /// Nanoseconds between two ticks.
    pub period_ns: u64,
    /// Seconds from the first tick to the end.
    pub duration_s: f64,
    /// How often the `proc` engine looked at all threads; none with another.
    #[serde(default)]
    pub rounds: Option<u64>,
    /// Ticks that found a thread of the target. Of the `proc` engine: looks at a thread that was
    /// on a CPU or, in `cpu` mode, had been since the last one and was found waiting for it.
    pub ticks: u64,
    /// Those of them that came late, and are counted with the tick that came after them.
    #[serde(default)]
    pub late_ticks: u64,
    /// `kernel.perf_event_max_sample_rate`, the lowest that it was seen at, if the kernel held ticks
    /// back by it.
    #[serde(default)]
    pub max_rate_hz: Option<u32>,
    /// Looks at threads off the CPU, one for each period; none in `cpu` mode.
    #[serde(default)]
    pub looks: u64,
    /// Ticks and looks that became samples.
    pub samples: u64,
    /// Ticks and looks that are not, by the reason's key.
    pub losses: BTreeMap<String, u64>,
    /// Samples by where their frames came from, in ticks and looks, like all counts of samples.
    pub frames_from: FramesFromCounts,
    /// Looks at which the thread ran on each time it was walked: samples without frames.
    pub moved: u64,
    /// Samples for which two ways to name the thread disagreed.
    pub contradictions: u64,
    /// Samples by what the thread had to do with the GIL.
    pub gil: GilCounts,
    /// Samples in a collection.
    pub gc: u64,
    /// Samples by whether the thread was handling an exception.
    #[serde(default)]
    pub handling: HandlingCounts,
    /// Nanoseconds that samples of blocked threads stand for, by what those waited for.
    #[serde(default)]
    pub blocked: BTreeMap<String, u64>,
    /// The processes.
    #[serde(default)]
    pub processes: Vec<ProcessAccount>,
    /// Children that were not followed: as many processes as can be already were.
    #[serde(default)]
    pub not_followed: u64,
    /// The threads.
    pub threads: Vec<ThreadAccount>,
    /// The tasks; none when they were not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<super::TaskAccounts>,
    /// The native stacks; none when they were not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<super::NativeAccounts>,
    /// Threads that ended and were on a CPU at no tick: they are in nobody's samples.
    #[serde(default)]
    pub unsampled: Unsampled,
    /// Births and deaths of threads and programs that the ring had no room for.
    #[serde(default)]
    pub events_lost: u64,
    /// What the profiler itself cost.
    pub profiler: ProfilerCost,
}

/// Threads that no tick met, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsampled {
    /// Processes that ended without any sample.
    #[serde(default)]
    pub processes: u64,
    /// Threads that ended, those of such processes included.
    pub threads: u64,
    /// Nanoseconds on a CPU that the scheduler counted for them.
    pub on_cpu_ns: u64,
}

/// Samples by where their frames came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FramesFromCounts {
    /// Read in the kernel at the tick.
    pub kernel: u64,
    /// Read from user space, off the CPU.
    pub user: u64,
    /// The last walk's, the thread not having run since.
    pub cached: u64,
    /// Read from user space though the thread could run: may be torn.
    pub estimated: u64,
    /// No frames.
    pub none: u64,
}

/// Samples by what the thread had to do with the GIL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GilCounts {
    /// Held it.
    pub holds: u64,
    /// Asked for it.
    pub waits: u64,
    /// Neither.
    pub neither: u64,
    /// There was none.
    #[serde(default)]
    pub no_gil: u64,
    /// Could not be told.
    pub unknown: u64,
}

/// Samples by whether the thread was handling an exception.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandlingCounts {
    /// It was.
    pub exception: u64,
    /// It was not.
    pub nothing: u64,
    /// Could not be told.
    pub unknown: u64,
}

/// One process's account.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessAccount {
    /// Its number in the kernel.
    pub pid: u32,
    /// The process that made it, where that was seen.
    pub parent: Option<u32>,
    /// The command line of the last program that it ran; only the program's name when it ended
    /// before more could be read.
    pub command: String,
    /// The interpreter's version; empty when it ran none.
    pub python: String,
    /// Its samples on a CPU.
    pub ticks: u64,
    /// Its samples, looks at threads off the CPU included.
    pub samples: u64,
    /// Nanoseconds its samples on a CPU stand for.
    pub sampled_ns: u64,
    /// Nanoseconds on a CPU as the scheduler has it, of all its threads for which that could be
    /// read; those that no tick met included.
    pub scheduler_ns: Option<u64>,
    /// When it became a target, seconds from the first tick.
    pub started_s: f64,
    /// When it ended, likewise; none when it outlived the run.
    pub ended_s: Option<f64>,
    /// What it ended with: `exit 0`, `signal 9`.
    pub ended_by: Option<String>,
    /// How close it was looked at: `read` (its memory was, while it lived), `inherited` (it ended
    /// before it was; its frames have the names that its parent's code had), `too_short` (it
    /// ended before it was, and has no sample), `unread` (it is still there and has none).
    pub seen: String,
}

/// One thread's account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadAccount {
    /// Its process.
    #[serde(default)]
    pub pid: u32,
    /// Its number in the kernel.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// `pthread_self()`, where it is known.
    pub pthread_id: Option<u64>,
    /// Whether it has a Python thread state.
    pub python: bool,
    /// The ways that tied the two together, strongest first.
    pub matched_by: Vec<String>,
    /// Its samples.
    pub samples: u64,
    /// Nanoseconds its samples on a CPU stand for.
    pub sampled_ns: u64,
    /// Nanoseconds on a CPU as the scheduler has it, where that could be read.
    pub scheduler_ns: Option<u64>,
    /// Nanoseconds its samples stand for while it could run and had no CPU.
    #[serde(default)]
    pub sampled_runnable_ns: u64,
    /// Nanoseconds its samples stand for while it was blocked.
    #[serde(default)]
    pub sampled_blocked_ns: u64,
    /// Nanoseconds it waited for a CPU as the scheduler has it; not measured in `cpu` mode.
    #[serde(default)]
    pub runnable_ns: Option<u64>,
    /// Nanoseconds it was blocked as the scheduler has it; not measured in `cpu` mode.
    #[serde(default)]
    pub blocked_ns: Option<u64>,
    /// Nanoseconds it lived while it was watched.
    #[serde(default)]
    pub wall_ns: Option<u64>,
}

/// What the profiler itself cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfilerCost {
    /// Nanoseconds of CPU of its own process.
    pub cpu_ns: Option<u64>,
    /// Nanoseconds in its kernel programs.
    pub bpf_ns: Option<u64>,
    /// How often those ran.
    pub bpf_runs: Option<u64>,
    /// Of how many nanoseconds of the run the kernel counted that; it is scaled up from them.
    #[serde(default)]
    pub bpf_counted_ns: Option<u64>,
    /// Its largest resident memory, bytes.
    pub rss_bytes: Option<u64>,
    /// Nanoseconds in the program that ticks alone.
    #[serde(default)]
    pub tick_ns: Option<u64>,
    /// Nanoseconds from its start to its first sample.
    #[serde(default)]
    pub first_sample_ns: Option<u64>,
}

/// Who may have samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parties<'a> {
    pub(super) processes: &'a [ProcessInfo],
    pub(super) threads: &'a [ThreadInfo],
    /// The process of each thread.
    pub(super) process_of: &'a [ProcessIndex],
}

impl Ledger {
    /// What the samples themselves tell; the kernel's side is the caller's to fill in.
    pub(super) fn of_samples(
        meta: &ProfileMeta,
        duration: DurationNs,
        parties: Parties<'_>,
        entries: &[Entry],
    ) -> Self {
        let mut ledger = Self {
            schema: 1,
            pid: meta.pid.0,
            python: meta.python.clone(),
            build: meta.build.clone(),
            engine: meta.engine.clone(),
            mode: meta.mode.key().to_owned(),
            clock: CLOCK.to_owned(),
            rate_hz: meta.rate_hz,
            period_ns: meta.period.0,
            duration_s: duration.0 as f64 / 1e9,
            processes: parties
                .processes
                .iter()
                .map(ProcessAccount::empty)
                .collect(),
            threads: parties.threads.iter().map(ThreadAccount::empty).collect(),
            ..Self::default()
        };
        for entry in entries {
            let process = parties.process_of.get(entry.thread.0 as usize);
            ledger.count(entry, process.copied());
        }
        ledger
    }

    /// What of it is about one process. Losses, looks without frames and the profiler's own cost
    /// are of the whole run.
    pub(super) fn of_process(
        &self,
        process: ProcessIndex,
        meta: &ProfileMeta,
        is_its: impl Fn(ThreadIndex) -> bool,
    ) -> Self {
        let account = self.processes.get(process.0 as usize);
        let account = account.cloned().unwrap_or_default();
        let threads = self.threads.iter().zip(0..);
        let threads = threads.filter(|(_, index)| is_its(ThreadIndex(*index)));
        Self {
            schema: self.schema,
            pid: meta.pid.0,
            python: meta.python.clone(),
            build: self.build.clone(),
            engine: self.engine.clone(),
            mode: self.mode.clone(),
            clock: self.clock.clone(),
            rate_hz: self.rate_hz,
            period_ns: self.period_ns,
            duration_s: self.duration_s,
            ticks: account.ticks,
            looks: account.samples - account.ticks.min(account.samples),
            samples: account.samples,
            threads: threads.map(|(thread, _)| thread.clone()).collect(),
            processes: vec![account],
            ..Self::default()
        }
    }

    fn count(&mut self, entry: &Entry, process: Option<ProcessIndex>) {
        self.samples += entry.ticks;
        *match entry.frames_from {
            FramesFrom::Kernel => &mut self.frames_from.kernel,
            FramesFrom::User => &mut self.frames_from.user,
            FramesFrom::Cached => &mut self.frames_from.cached,
            FramesFrom::Estimated => &mut self.frames_from.estimated,
            FramesFrom::None => &mut self.frames_from.none,
        } += entry.ticks;
        *match entry.gil {
            Gil::Holds => &mut self.gil.holds,
            Gil::Waits => &mut self.gil.waits,
            Gil::Neither => &mut self.gil.neither,
            Gil::NoGil => &mut self.gil.no_gil,
            Gil::Unknown => &mut self.gil.unknown,
        } += entry.ticks;
        if entry.gc == Gc::Collecting {
            self.gc += entry.ticks;
        }
        *match entry.handling {
            Handling::Exception => &mut self.handling.exception,
            Handling::Nothing => &mut self.handling.nothing,
            Handling::Unknown => &mut self.handling.unknown,
        } += entry.ticks;
        if let Some(wait) = entry.activity.wait() {
            let sum = self.blocked.entry(wait.key().into_owned()).or_default();
            *sum = sum.saturating_add(entry.weight.0);
        }
        if let Some(process) = process.and_then(|it| self.processes.get_mut(it.0 as usize)) {
            process.samples += entry.ticks;
            if matches!(entry.activity, Activity::OnCpu | Activity::Unknown) {
                process.ticks += entry.ticks;
                process.sampled_ns = process.sampled_ns.saturating_add(entry.weight.0);
            }
        }
        if let Some(thread) = self.threads.get_mut(entry.thread.0 as usize) {
            thread.samples += entry.ticks;
            let sampled = match entry.activity {
                Activity::OnCpu | Activity::Unknown => &mut thread.sampled_ns,
                Activity::Runnable => &mut thread.sampled_runnable_ns,
                Activity::Blocked(_) => &mut thread.sampled_blocked_ns,
            };
            *sampled = sampled.saturating_add(entry.weight.0);
        }
    }
}

impl ProcessAccount {
    fn empty(info: &ProcessInfo) -> Self {
        Self {
            pid: info.pid.0,
            parent: info.parent.map(|parent| parent.0),
            command: info.command.clone(),
            python: info.python.clone(),
            seen: String::from("read"),
            ..Self::default()
        }
    }
}

impl ThreadAccount {
    fn empty(info: &ThreadInfo) -> Self {
        Self {
            pid: info.pid.0,
            tid: info.tid.0,
            name: info.name.clone(),
            python: info.python,
            ..Self::default()
        }
    }
}
