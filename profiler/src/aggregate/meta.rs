//! What a profile says of itself and of its threads, as plain values.

use std::time::SystemTime;

use crate::sample::Mode;
use crate::words::{DurationNs, MonotonicNs, Pid, Tid};

/// The unit of every time and weight, whatever the mode.
pub const UNIT: &str = "nanoseconds";
/// The clock of every time and weight, whatever the mode.
pub const CLOCK: &str = "CLOCK_MONOTONIC";

/// What was profiled, how, and when it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileMeta {
    /// The process, the first one when there are several.
    pub pid: Pid,
    /// Its command line, words joined by blanks.
    pub command: String,
    /// The interpreter's version, such as `3.12.1`; empty when it is not known.
    pub python: String,
    /// `default`, `free-threaded` or `debug`.
    pub build: String,
    /// What a sample's weight means.
    pub mode: Mode,
    /// Whose samples they are.
    pub whose: Whose,
    /// `bpf` or `proc`.
    pub engine: String,
    /// Samples a second and CPU, as asked for.
    pub rate_hz: u32,
    /// The time between two ticks.
    pub period: DurationNs,
    /// What drives the ticks, such as `cpu-clock`; it measures nothing, that does [`CLOCK`].
    pub clock: String,
    /// The machine's name; empty when it is not known.
    pub host: String,
    /// The wall clock at the first tick.
    pub started_at: SystemTime,
    /// The samples' own clock at the first tick.
    pub start: MonotonicNs,
}

/// Whose time a profile is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Whose {
    /// That of threads.
    #[default]
    Threads,
    /// That of threads, with the tasks told apart that they run.
    ThreadsByTask,
    /// That of tasks: many of them share a thread, and most have none at the moment.
    Tasks,
}

impl Whose {
    /// The word for it in files.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::ThreadsByTask => "threads_by_task",
            Self::Tasks => "tasks",
        }
    }
}

/// A process's place in its profile, in the order of registration, counted from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessIndex(pub u32);

/// A process that may have samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Its number in the kernel; a number used again later is another process.
    pub pid: Pid,
    /// The process that made it, where that was seen.
    pub parent: Option<Pid>,
    /// Its command line, words joined by blanks; of the last program that it ran.
    pub command: String,
    /// The interpreter's version; empty when it is not known, or there is none.
    pub python: String,
}

/// A thread's place in its profile, in the order of registration, counted from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadIndex(pub u32);

/// A thread that may have samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadInfo {
    /// Its process.
    pub pid: Pid,
    /// Its number in the kernel; a number used again later is another thread.
    pub tid: Tid,
    /// Its name, Python's when there is one.
    pub name: String,
    /// Whether it has a Python thread state.
    pub python: bool,
}
