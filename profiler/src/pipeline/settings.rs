//! What a run is to do, as meant: no strings, nothing to look up any more.

use std::time::Duration;

use crate::{
    aggregate::{ProfileMeta, Whose},
    sample::Mode,
    source::StackOptions,
    words::{DurationNs, MonotonicNs, Pid},
};

/// Where the Python frames of a running thread are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Walk {
    /// In the kernel; from user space, as an estimate, where the kernel could not.
    #[default]
    Auto,
    /// In the kernel alone.
    Kernel,
    /// From user space alone, as estimates.
    User,
}

/// How tasks are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tasks {
    /// Each by itself.
    Flat,
    /// Below the tasks that wait for it.
    Tree,
}

/// Whom to profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The processes, the profile's own first.
    pub pids: Vec<Pid>,
    /// The command that it is about to become, when the profiler started it: it runs no Python
    /// yet.
    pub command: Option<String>,
}

/// Everything that a run needs to know.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// Which samples are wanted.
    pub mode: Mode,
    /// Ticks a second on each CPU.
    pub rate_hz: u32,
    /// Whether the times of ticks and looks are drawn at random, so that nothing keeps step.
    pub jitter: bool,
    /// How long; without it until the target ends or the user has enough.
    pub duration: Option<Duration>,
    /// Where frames are read.
    pub walk: Walk,
    /// Most Python frames of a stack.
    pub max_frames: u32,
    /// Whether their children are targets too, those that are there and those to come.
    pub follow: bool,
    /// Whether tasks are told apart, and how.
    pub tasks: Option<Tasks>,
    /// Whether native frames are shown, and what the kernel sends for that.
    pub native: Option<StackOptions>,
    /// Whether every sample's time is kept (for formats that show it).
    pub timeline: bool,
    /// When the program began, to tell how soon the first sample came.
    pub began: MonotonicNs,
}

impl RunSettings {
    /// The time between two ticks.
    #[must_use]
    pub const fn period(&self) -> DurationNs {
        DurationNs(1_000_000_000 / self.rate_hz as u64)
    }

    /// What the profile will say of itself.
    #[must_use]
    pub fn meta(&self, pid: Pid, command: String, host: String, start: MonotonicNs) -> ProfileMeta {
        self.meta_of("bpf", "cpu-clock", pid, command, host, start)
    }

    /// The same for an engine, whose samples are set off by `clock`.
    #[must_use]
    pub fn meta_of(
        &self,
        engine: &str,
        clock: &str,
        pid: Pid,
        command: String,
        host: String,
        start: MonotonicNs,
    ) -> ProfileMeta {
        ProfileMeta {
            pid,
            command,
            python: String::new(),
            build: String::new(),
            mode: self.mode,
            whose: match (self.tasks, self.mode) {
                (None, _) => Whose::Threads,
                (Some(_), Mode::Wall) => Whose::Tasks,
                (Some(_), _) => Whose::ThreadsByTask,
            },
            engine: engine.to_owned(),
            rate_hz: self.rate_hz,
            period: self.period(),
            clock: clock.to_owned(),
            host,
            started_at: std::time::SystemTime::now(),
            start,
        }
    }
}
