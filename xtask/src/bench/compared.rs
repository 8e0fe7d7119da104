//! What a comparison of tools leaves: every value by measure, workload, interpreter and tool, and
//! under which conditions it was had. `cargo xtask bench --json` writes it, `--page` reads it.

use serde::{Deserialize, Serialize};

use super::measure;
use super::tool::Claim;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Measure {
    /// How far the shares are from the truth, percentage points.
    Error,
    /// Stacks that cannot be, of a million.
    Impossible,
    /// Stacks that say that they are cut, percent.
    Cut,
    /// Samples of those that were due, percent.
    Got,
    /// CPU milliseconds for 1,000 samples.
    Cpu,
    /// Peak resident memory, megabytes.
    Memory,
    /// From the tool's start to its first sample, milliseconds.
    First,
    /// The target's time for the same work, against nobody watching, percent more.
    Slowdown,
    /// Time taken from a native loop, microseconds a second.
    Stolen,
    /// The highest rate at which all samples come.
    Highest,
    /// How much equal stretches of time differ in their samples, percent of the mean.
    Gaps,
}

/// One measure of one tool on one workload: a value a round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Compared {
    pub(super) measure: Measure,
    pub(super) workload: String,
    pub(super) python: String,
    pub(super) tool: String,
    pub(super) values: Vec<f64>,
}

/// A tool under an interpreter: whether it could run, and what it was held against.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ran {
    pub(super) tool: String,
    pub(super) python: String,
    pub(super) claim: Claim,
    pub(super) ours: bool,
    /// Why it could not run.
    pub(super) missing: Option<String>,
}

/// When, where and how.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Conditions {
    pub(super) command: String,
    pub(super) date: String,
    pub(super) processor: String,
    pub(super) cpus: usize,
    pub(super) memory_gb: f64,
    pub(super) kernel: String,
    pub(super) version: String,
    /// The interpreters and peers, with their versions.
    #[serde(default)]
    pub(super) parties: Vec<String>,
    pub(super) quick: bool,
    /// The kernel's own limit for clocks of our kind, ticks a second.
    #[serde(default)]
    pub(super) most_hz: Option<u64>,
    /// Others' work on the machine as it began: the average of the last minute.
    pub(super) load: f64,
}

/// A comparison.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Comparison {
    pub(super) conditions: Conditions,
    pub(super) rate_hz: u32,
    pub(super) ran: Vec<Ran>,
    pub(super) compared: Vec<Compared>,
    /// What a tool could not do, as it said.
    pub(super) failures: Vec<String>,
}

impl Measure {
    /// In a few words.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Error => "error of the shares",
            Self::Impossible => "impossible stacks",
            Self::Cut => "stacks cut short",
            Self::Got => "samples got of those due",
            Self::Cpu => "CPU for 1,000 samples",
            Self::Memory => "peak memory",
            Self::First => "time to the first sample",
            Self::Slowdown => "slowdown",
            Self::Stolen => "time stolen",
            Self::Highest => "highest rate without loss",
            Self::Gaps => "unevenness of the samples",
        }
    }

    /// What its values count.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Error => "points",
            Self::Impossible => "of 10⁶",
            Self::Cut | Self::Got | Self::Slowdown | Self::Gaps => "%",
            Self::Highest => "Hz",
            Self::Cpu | Self::First => "ms",
            Self::Memory => "MB",
            Self::Stolen => "µs/s",
        }
    }
}

impl Compared {
    /// The middle of the rounds.
    pub(super) fn median(&self) -> f64 {
        measure::median(&self.values)
    }
}

impl Comparison {
    /// Adds a round's value.
    pub(super) fn add(
        &mut self,
        measure: Measure,
        workload: &str,
        python: &str,
        tool: &str,
        value: f64,
    ) {
        let known = self.compared.iter_mut().find(|it| {
            (it.measure, it.workload.as_str()) == (measure, workload)
                && (it.python.as_str(), it.tool.as_str()) == (python, tool)
        });
        match known {
            Some(known) => known.values.push(value),
            None => self.compared.push(Compared {
                measure,
                workload: workload.to_owned(),
                python: python.to_owned(),
                tool: tool.to_owned(),
                values: vec![value],
            }),
        }
    }
}

impl Conditions {
    /// Of this machine, now.
    pub(super) fn here(quick: bool) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            let value = line.and_then(|line| line.split_once(':'));
            value.map_or(String::new(), |(_, value)| value.trim().to_owned())
        };
        let kilobytes = field(&read("/proc/meminfo"), "MemTotal");
        let kilobytes = kilobytes.trim_end_matches(" kB").parse().unwrap_or(0.0);
        let words: Vec<String> = std::env::args().skip(1).map(|word| typed(&word)).collect();
        let load = read("/proc/loadavg");
        let load = load.split(' ').next().and_then(|load| load.parse().ok());
        let mut date = std::process::Command::new("date");
        let date = crate::shell::output(date.args(["-u", "+%Y-%m-%d"])).unwrap_or_default();
        Self {
            command: format!("cargo xtask {}", words.join(" ")),
            date: date.trim().to_owned(),
            processor: field(&read("/proc/cpuinfo"), "model name"),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gb: kilobytes * 1024.0 / 1e9,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            parties: Vec::new(),
            quick,
            most_hz: read("/proc/sys/kernel/perf_event_max_sample_rate")
                .trim()
                .parse()
                .ok(),
            load: load.unwrap_or(0.0),
        }
    }
}

/// A word of the command line without the folders of this machine.
fn typed(word: &str) -> String {
    let (before, value) = match word.split_once('=') {
        Some((option, value)) if option.starts_with("--") => (format!("{option}="), value),
        _ => (String::new(), word),
    };
    let name = std::path::Path::new(value).file_name();
    let is_path = value.starts_with(['/', '.', '~']);
    let name = name.filter(|_| is_path).map(|name| name.to_string_lossy());
    before + name.as_deref().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_names_no_folder_of_the_machine() {
        let check = |word: &str, expected: &str| assert_eq!(typed(word), expected);
        check("--only", "--only");
        check("/home/me/run.json", "run.json");
        check("--json=../run.json", "--json=run.json");
        check("call tree, wide", "call tree, wide");
    }
}
