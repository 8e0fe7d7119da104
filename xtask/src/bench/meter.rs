//! What a running profiler has spent so far, read from outside: its process by the process's own
//! CPU clock, its kernel programs by the kernel's clock on them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use super::cost::BpfStats;

/// CPU seconds since the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    pub(super) process_s: f64,
    pub(super) programs_s: f64,
}

impl Spent {
    /// By a profiler up to now. `BpfStats` must be on.
    pub(super) fn by(profiler: Pid) -> Result<Self> {
        ensure!(BpfStats::is_on(), "the kernel's clock on programs is off");
        Ok(Self {
            process_s: process_s(profiler)?,
            programs_s: programs_ns(profiler)? as f64 / 1e9,
        })
    }

    /// From `before` to this, as a share of one CPU over `seconds`.
    pub(super) fn since(self, before: Self, seconds: f64) -> Result<f64> {
        let process = self.process_s - before.process_s;
        let programs = self.programs_s - before.programs_s;
        ensure!(
            process > 0.0 && programs > 0.0,
            "nothing was spent: {before:?}, then {self:?}"
        );
        Ok((process + programs) / seconds)
    }
}

/// What a process has spent.
pub(super) fn process_s(pid: Pid) -> Result<f64> {
    let clock: ClockId = clock_getcpuclockid(pid).context("its CPU clock")?;
    let time = clock_gettime(clock).context("its CPU clock")?;
    Ok(time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9)
}

/// `run_time_ns` of each program it holds (`bpf_prog_show_fdinfo` of the kernel); one program may
/// have several descriptors.
fn programs_ns(profiler: Pid) -> Result<u64> {
    let folder = format!("/proc/{profiler}/fdinfo");
    let mut programs = BTreeMap::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("`{folder}`"))? {
        // Descriptors come and go while this looks.
        let Ok(text) = std::fs::read_to_string(entry?.path()) else {
            continue;
        };
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse::<u64>().ok()
        };
        if let (Some(id), Some(ns)) = (number("prog_id:"), number("run_time_ns:")) {
            programs.insert(id, ns);
        }
    }
    ensure!(!programs.is_empty(), "`{folder}` has no kernel programs");
    Ok(programs.values().sum())
}
