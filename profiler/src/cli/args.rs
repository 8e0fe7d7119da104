//! The command line, just as typed. Nothing is looked up here; `settings` says what it means.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use profiler_common::walk::MAX_FRAMES;

use crate::source::options::USUAL_RATE;

const EXIT_STATUS: &str = "Exit status: 0 a profile was written; 1 it could not profile; 2 wrong usage; \
     with `run -- CMD` the command's own status once a profile was written.";

/// A profiler for CPython that knows what every thread is doing, without pausing it.
#[derive(Debug, Parser)]
#[command(name = "profiler", version, after_help = EXIT_STATUS, max_term_width = 100)]
pub(super) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// A process id as typed.
fn pid(typed: &str) -> Result<u32, String> {
    typed.parse().map_err(|_| {
        "that is no process id: `pgrep -a python` lists those that may be meant".to_owned()
    })
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Profile until Ctrl-C, the duration, or the target's end
    #[command(
        visible_alias = "record",
        after_help = EXIT_STATUS,
        override_usage = "profiler run [OPTIONS] --pid <PID>...\n       profiler run [OPTIONS] -- <CMD> [ARG]..."
    )]
    Run(RunArgs),
    /// One look now: every thread, its state, and its frames with lines
    Dump(DumpArgs),
    /// What works here, what does not, and what to type
    Doctor(DoctorArgs),
    /// Become a command when told to; how `run -- CMD` starts what it profiles
    #[command(name = "__become", hide = true)]
    Become {
        /// The pipe to wait at.
        gate: PathBuf,
        /// The command.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Write completions for a shell to standard output
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual page to standard output
    Man,
}

/// What a sample's weight means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ModeArg {
    /// Time on a CPU.
    Cpu,
    /// All time of each thread: on a CPU, runnable, blocked.
    Wall,
    /// Time with the GIL, and time spent waiting for it.
    Gil,
    /// Time off the CPU, by reason.
    Offcpu,
}

/// Where the Python frames of a running thread are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum WalkArg {
    /// In the kernel; from user space, labelled estimated, where the kernel could not.
    Auto,
    /// In the kernel alone.
    Kernel,
    /// From user space alone; its samples are labelled estimated.
    User,
}

/// How threads are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum EngineArg {
    /// By eBPF; where the system refuses that, from outside, with a word on it.
    Auto,
    /// By eBPF alone: what threads do on a CPU is exact.
    Bpf,
    /// From outside, by /proc and the target's memory: no eBPF and no capability is needed for
    /// one's own processes; what threads do on a CPU is estimated.
    Proc,
}

/// Where the frame of a thread's state stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum StateFramesArg {
    /// Above the first function of a stack, below its thread.
    Root,
    /// Below the last function of a stack.
    Leaf,
}

/// How tasks are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum TasksArg {
    /// Each by itself.
    Flat,
    /// Below the tasks that wait for it.
    Tree,
}

/// What frames are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum GranularityArg {
    /// By function.
    Function,
    /// By line.
    Line,
}

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum FormatArg {
    /// Collapsed stacks, one a line.
    Folded,
    /// A flame graph, SVG.
    Flamegraph,
    /// speedscope's JSON.
    Speedscope,
    /// pprof's gzipped protocol buffer.
    Pprof,
    /// The report as text.
    Text,
    /// The profile and its ledger as JSON.
    Json,
}

/// Arguments of `run`.
#[derive(Args, Debug)]
pub(super) struct RunArgs {
    /// The process to profile; repeatable
    #[arg(
        short,
        long,
        value_name = "PID",
        required_unless_present = "command",
        conflicts_with = "command",
        allow_negative_numbers = true,
        value_parser = pid
    )]
    pub pid: Vec<u32>,
    /// Profile children too, and theirs: those that are there and those to come, whatever they run
    /// in between; the run ends with the last of them
    #[arg(long)]
    pub subprocesses: bool,
    /// What a sample's weight means
    #[arg(short, long, value_enum, default_value_t = ModeArg::Cpu)]
    pub mode: ModeArg,
    /// Ticks a second on each CPU (a prime does not fall into step with the program)
    #[arg(
        short,
        long,
        value_name = "HZ",
        default_value_t = USUAL_RATE.to_string(),
        allow_negative_numbers = true
    )]
    pub rate: String,
    /// Tick and look at a fixed beat: a program that keeps the same beat is then seen wrongly
    #[arg(long)]
    pub no_jitter: bool,
    /// How long: 10, 10s, 2m [default: until Ctrl-C or the target's end]
    #[arg(short, long, value_name = "TIME", allow_negative_numbers = true)]
    pub duration: Option<String>,
    /// Write the profile here; the extension chooses the format (.folded .svg .speedscope.json .pb.gz .txt .json); repeatable
    #[arg(short, long, value_name = "FILE")]
    pub output: Vec<PathBuf>,
    /// Write a file for each process that has samples: NAME.PID.EXT, or with the pid where the name
    /// has `{pid}`, which asks for the same
    #[arg(long)]
    pub split: bool,
    /// The format of every output, whatever its extension
    #[arg(short, long, value_enum)]
    pub format: Option<FormatArg>,
    /// Put a frame for the thread at the root of each stack
    #[arg(long)]
    pub threads: bool,
    /// Tell tasks apart. In cpu mode each sample is below the task that ran; in wall mode the samples
    /// are of all tasks that are alive, running or not
    #[arg(
        long,
        value_enum,
        value_name = "HOW",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "flat"
    )]
    pub tasks: Option<TasksArg>,
    /// Show the native frames (C, C++, Rust) that Python called, between the Python frames
    #[arg(long)]
    pub native: bool,
    /// With --native: the kernel's own frames, instead of one for the system call
    #[arg(long, requires = "native")]
    pub kernel: bool,
    /// With --native: unwind from so many bytes of each stack, 1024 to 16384
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 16384,
        requires = "native"
    )]
    pub stack_bytes: u32,
    /// Add a frame to each stack for what the thread was doing: [on CPU], [blocked: lock], …
    #[arg(long, value_enum, value_name = "WHERE")]
    pub state_frames: Option<StateFramesArg>,
    /// What frames are told apart by
    #[arg(long, value_enum, default_value_t = GranularityArg::Function)]
    pub granularity: GranularityArg,
    /// Write the accounts (ticks, samples, losses, threads, cost) here as JSON
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
    /// How threads are seen
    #[arg(long, value_enum, default_value_t = EngineArg::Auto)]
    pub engine: EngineArg,
    /// Where the Python frames of a running thread are read (by the bpf engine)
    #[arg(long, value_enum, default_value_t = WalkArg::Auto)]
    pub walk: WalkArg,
    /// Keep at most this many Python frames of a stack, half at either end
    #[arg(long, value_name = "FRAMES", default_value_t = MAX_FRAMES as u32)]
    pub max_depth: u32,
    /// Room for samples between kernel and profiler, bytes [default: 2097152; with --native
    /// 16777216]
    #[arg(long, value_name = "BYTES")]
    pub ring_bytes: Option<u32>,
    /// No progress line, no report
    #[arg(short, long)]
    pub quiet: bool,
    /// Say more about what happens (twice: also what the kernel programs say)
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// The command to start and profile
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// Arguments of `dump`.
#[derive(Args, Debug)]
pub(super) struct DumpArgs {
    /// The process to look at
    #[arg(short, long, value_name = "PID", allow_negative_numbers = true, value_parser = pid)]
    pub pid: u32,
    /// Also every asyncio task and greenlet: what it awaits, and which task awaits it
    #[arg(long)]
    pub tasks: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `doctor`.
#[derive(Args, Debug)]
pub(super) struct DoctorArgs {
    /// Also look at this process
    #[arg(short, long, value_name = "PID", allow_negative_numbers = true, value_parser = pid)]
    pub pid: Option<u32>,
}
