//! A profiler and a way to run it, ours or a peer, as its users run it: started on a process,
//! measured from outside while it runs, and stopped for what it saw.
//!
//! What a tool says of itself is not believed where it can be measured for all alike. A tool that
//! cannot run here is an error that says why, never a gap.

mod launch;
mod mojo;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::Pid;
use tests::folded::{Folded, Stack};
use tests::profile::Profile;
use tests::profiler::Running;
use tests::pythons::Python;

use super::meter;

/// What a tool's samples are meant to add up to, and so what they are held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Claim {
    /// Time on a CPU.
    Cpu,
    /// All time.
    Wall,
}

/// A tool and a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    /// Ours, in a mode.
    Ours(&'static str),
    /// The same with an even beat: two seconds of the drawn ones have a percent or two more samples
    /// than are due, or less.
    OursEven(&'static str),
    /// py-spy, with flags. Without `--nonblocking` it stops the target for each sample.
    PySpy(&'static [&'static str]),
    /// austin, with flags.
    Austin(&'static [&'static str]),
    /// CPython's own `profiling.sampling`, with flags.
    CPython(&'static [&'static str]),
}

/// What a tool is asked to watch, beside the process as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Watched {
    /// Nothing more.
    #[default]
    Itself,
    /// Its children too.
    Children,
}

/// py-spy as it comes: it stops the target.
pub(super) const PY_SPY: Tool = Tool::PySpy(&[]);
/// py-spy that does not stop the target.
pub(super) const PY_SPY_NONBLOCKING: Tool = Tool::PySpy(&["--nonblocking"]);
/// The same, and only threads that hold the GIL.
pub(super) const PY_SPY_GIL: Tool = Tool::PySpy(&["--nonblocking", "--gil"]);

/// All that are compared, ours first.
pub(super) const TOOLS: &[Tool] = &[
    Tool::Ours("cpu"),
    Tool::Ours("wall"),
    PY_SPY,
    PY_SPY_NONBLOCKING,
    PY_SPY_GIL,
    Tool::Austin(&[]),
    Tool::Austin(&["-c"]),
    Tool::CPython(&["--mode", "wall"]),
    Tool::CPython(&["--mode", "cpu"]),
    Tool::CPython(&["--mode", "wall", "--blocking"]),
];

/// A tool that watches a process.
#[derive(Debug)]
pub(super) struct Watching {
    tool: Tool,
    running: Running,
    file: PathBuf,
    rate: u32,
    /// Its files, where they must lie in the target's root.
    _files: Option<tempfile::TempDir>,
}

/// What a tool saw.
#[derive(Debug)]
pub(super) struct Taken {
    /// The stacks, by the tool's own weights.
    pub(super) folded: Folded,
    /// The stacks by how many samples there were of each; else the weights are that number.
    pub(super) counts: Option<Folded>,
    /// The seconds that one of the counts stands for.
    pub(super) each_s: f64,
    /// The stacks by how many samples there were of each, where the tool's weights are ours and so
    /// never that.
    numbers: Option<Folded>,
    /// How many samples there were, of whatever.
    pub(super) samples: u64,
    /// How many it says it lost; a peer does not say.
    pub(super) lost: u64,
}

/// What a tool has spent up to now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    pub(super) cpu_s: f64,
    pub(super) rss_bytes: f64,
}

impl Tool {
    /// Its name in reports: as one types it.
    pub(super) fn name(self) -> String {
        let (name, flags) = match self {
            Self::Ours(mode) | Self::OursEven(mode) => return format!("profiler --mode {mode}"),
            Self::PySpy(flags) => ("py-spy", flags),
            Self::Austin(flags) => ("austin", flags),
            Self::CPython(flags) => ("profiling.sampling", flags),
        };
        [&[name], flags].concat().join(" ")
    }

    /// Whether it is the profiler of this workspace.
    pub(super) fn is_ours(self) -> bool {
        matches!(self, Self::Ours(_) | Self::OursEven(_))
    }

    /// What its samples add up to.
    pub(super) fn claim(self) -> Claim {
        match self {
            Self::Ours("wall") | Self::OursEven("wall") | Self::Austin([]) => Claim::Wall,
            Self::CPython(flags) if flags.contains(&"wall") => Claim::Wall,
            _ => Claim::Cpu,
        }
    }

    /// Starts it on a process of that interpreter, with so many samples a second, and waits until
    /// it samples, as far as it tells.
    pub(super) fn start(self, python: &Python, pid: Pid, rate: u32) -> Result<Watching> {
        self.start_on(python, pid, rate, Watched::Itself)
    }

    /// The same, with what more it is to watch.
    pub(super) fn start_on(
        self,
        python: &Python,
        pid: Pid,
        rate: u32,
        watched: Watched,
    ) -> Result<Watching> {
        let mut watching = launch::start(self, python, pid, rate, watched)?;
        let running = &mut watching.running;
        let begun = match self {
            Self::Ours(_) | Self::OursEven(_) => running.attached().map(drop),
            Self::PySpy(_) => running
                .says(|line| line.contains("Sampling process"))
                .map(drop),
            Self::Austin(_) => running.says(|line| line.contains("version:")).map(drop),
            Self::CPython(_) => launch::samples(running.pid(), rate),
        };
        match begun {
            Ok(()) => Ok(watching),
            Err(error) => {
                // It ended, or is made to: what it said is the reason, if it said anything.
                let _ = watching.running.interrupt();
                let said = watching.running.finish()?.stderr;
                match launch::sentence(&said) {
                    said if said.is_empty() => Err(error),
                    said => bail!("{said}"),
                }
            }
        }
    }
}

impl Watching {
    /// What it has spent since its start; with our kernel programs, whose clock must be on.
    pub(super) fn cost(&self) -> Result<Cost> {
        let pid = self.running.pid();
        let cpu_s = if self.tool.is_ours() {
            let spent = meter::Spent::by(pid)?;
            spent.process_s + spent.programs_s
        } else {
            meter::process_s(pid)?
        };
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
        let status = status.with_context(|| format!("{} is gone", self.tool.name()))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = peak.and_then(|rest| rest.trim().strip_suffix("kB"));
        let kilobytes: f64 = kilobytes.context("no VmHWM")?.trim().parse()?;
        Ok(Cost {
            cpu_s,
            rss_bytes: kilobytes * 1024.0,
        })
    }

    /// Ends it, as Ctrl-C does, and reads what it saw.
    pub(super) fn stop(self) -> Result<Taken> {
        let name = self.tool.name();
        self.running.interrupt().with_context(|| name.clone())?;
        let finished = self.running.finish()?;
        let each_s = 1.0 / f64::from(self.rate);
        let taken = match self.tool {
            Tool::Ours(mode) | Tool::OursEven(mode) => {
                let finished = finished.success()?;
                let folded = finished.folded()?;
                let ledger = finished.ledger()?;
                ensure!(ledger.engine == "bpf", "the engine is {}", ledger.engine);
                // In the other modes the counts are nanoseconds.
                let each_s = match mode {
                    "cpu" => ledger.period_ns as f64 / 1e9,
                    _ => 1e-9,
                };
                Taken {
                    folded,
                    counts: None,
                    each_s,
                    numbers: Some(numbers(&finished.profile()?)),
                    samples: ledger.samples,
                    lost: ledger.lost(),
                }
            }
            Tool::Austin(_) => {
                let bytes = std::fs::read(&self.file).context("it wrote no file")?;
                let (folded, counts) = mojo::stacks(&bytes)?;
                Taken {
                    samples: counts.total(),
                    folded,
                    counts: Some(counts),
                    each_s,
                    numbers: None,
                    lost: 0,
                }
            }
            Tool::PySpy(_) | Tool::CPython(_) => {
                let Ok(text) = std::fs::read_to_string(&self.file) else {
                    bail!(
                        "{name} wrote no file: {}",
                        launch::sentence(&finished.stderr)
                    );
                };
                let folded = match self.tool {
                    Tool::CPython(_) => {
                        let all = text + &launch::of_children(&self.file)?;
                        Folded::parse(&launch::labels(&all))?
                    }
                    _ => Folded::parse(&text)?,
                };
                Taken {
                    samples: folded.total(),
                    folded,
                    counts: None,
                    each_s,
                    numbers: None,
                    lost: 0,
                }
            }
        };
        Ok(taken)
    }
}

/// The stacks of our own profile by their samples: what is in a folded file is time, in most modes.
fn numbers(profile: &Profile) -> Folded {
    let mut counts = BTreeMap::new();
    for entry in &profile.entries {
        *counts.entry(entry.stack).or_default() += entry.ticks;
    }
    let label = |frame: &usize| {
        let frame = profile.frames.get(*frame);
        frame.map_or(String::new(), |frame| frame.label.clone())
    };
    let stack = |(stack, count): (usize, u64)| {
        let frames = profile.stacks.get(stack)?.iter().rev();
        let frames = frames.map(label).collect();
        Some(Stack { frames, count })
    };
    Folded {
        stacks: counts.into_iter().filter_map(stack).collect(),
    }
}

impl Taken {
    /// The stacks by how many samples there were of each.
    pub(super) fn by_number(&self) -> &Folded {
        let numbers = self.numbers.as_ref().or(self.counts.as_ref());
        numbers.unwrap_or(&self.folded)
    }

    /// The seconds in which one of the functions was seen, by the number of samples.
    pub(super) fn seconds_in(&self, functions: &[String]) -> f64 {
        let counts = self.counts.as_ref().unwrap_or(&self.folded);
        let any = |frame: &String| {
            let name = tests::folded::name(frame);
            functions.iter().any(|function| function == name)
        };
        let stacks = counts.stacks.iter();
        let with = stacks.filter(|stack| stack.frames.iter().any(any));
        with.map(|stack| stack.count).sum::<u64>() as f64 * self.each_s
    }
}
