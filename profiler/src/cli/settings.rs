//! What the command line means. Everything that can be wrong with it is found here, before
//! anything is opened or attached.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use profiler_common::{record::MAX_STACK_BYTES, walk::MAX_FRAMES};

use super::args::{
    EngineArg, FormatArg, GranularityArg, ModeArg, RunArgs, StateFramesArg, TasksArg, WalkArg,
};
use crate::{
    export::{Format, Granularity, Options, StateFrames, Unit},
    pipeline::{RunSettings, Tasks, Walk},
    sample::Mode,
    source::{StackOptions, options::MAX_RATE},
    words::Pid,
};

/// Fewest and most frames of a stack.
const DEPTHS: std::ops::RangeInclusive<u32> = 2..=MAX_FRAMES as u32;
/// Fewest bytes of a ring: some samples at the greatest depth.
const MIN_RING: u32 = 64 * 1024;

/// Bytes of a ring when nothing else is said; with native stacks, each of which is 16 KiB.
const RING: u32 = 2 << 20;
const NATIVE_RING: u32 = 16 << 20;
/// Fewest and most bytes of a native stack.
const STACK_BYTES: std::ops::RangeInclusive<u32> = 1024..=MAX_STACK_BYTES as u32;

/// Wrong usage: what, and what would be right. It ends with exit status 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UsageError(pub String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Whom to profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    /// Processes that run, each once.
    Processes(Vec<Pid>),
    /// A command that is to be started.
    Command(Vec<String>),
}

/// How threads are to be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// By eBPF where that may be, else from outside.
    Auto,
    /// By eBPF alone.
    Bpf,
    /// From outside alone.
    Proc,
}

/// A run, as meant.
#[derive(Clone, Debug)]
pub(super) struct RunPlan {
    /// Whom.
    pub whom: Whom,
    /// How.
    pub run: RunSettings,
    /// By which engine.
    pub engine: Engine,
    /// Into which files, and how each is written.
    pub outputs: Vec<(PathBuf, Format)>,
    /// How they are written.
    pub options: Options,
    /// Where the ledger goes.
    pub ledger: Option<PathBuf>,
    /// Bytes of the ring.
    pub ring_bytes: u32,
    /// No progress, no report.
    pub quiet: bool,
}

/// Lower the arguments of `run`.
///
/// # Errors
/// [`UsageError`].
pub(super) fn run_plan(args: &RunArgs) -> Result<RunPlan, UsageError> {
    let whom = if args.pid.is_empty() {
        Whom::Command(args.command.clone())
    } else {
        let mut pids: Vec<Pid> = Vec::new();
        for pid in args.pid.iter().copied().map(Pid) {
            if !pids.contains(&pid) {
                pids.push(pid);
            }
        }
        Whom::Processes(pids)
    };
    let Some(rate_hz) = args
        .rate
        .parse()
        .ok()
        .filter(|hz| (1..=MAX_RATE).contains(hz))
    else {
        return wrong(format!(
            "--rate {} is no rate: give 1 to {MAX_RATE} ticks a second, for example `--rate 99`",
            args.rate
        ));
    };
    if !DEPTHS.contains(&args.max_depth) {
        return wrong(format!(
            "--max-depth {} is out of bounds: give {} to {} frames",
            args.max_depth,
            DEPTHS.start(),
            DEPTHS.end()
        ));
    }
    let usual_ring = if args.native { NATIVE_RING } else { RING };
    let ring_bytes = args.ring_bytes.unwrap_or(usual_ring);
    if ring_bytes < MIN_RING {
        return wrong(format!(
            "--ring-bytes {ring_bytes} is too small for a deep sample: give at least {MIN_RING}"
        ));
    }
    let native = args.native.then_some(StackOptions {
        bytes: args.stack_bytes,
        kernel: args.kernel,
    });
    if native.is_some() && !STACK_BYTES.contains(&args.stack_bytes) {
        return wrong(format!(
            "--stack-bytes {} is out of bounds: give {} to {} bytes",
            args.stack_bytes,
            STACK_BYTES.start(),
            STACK_BYTES.end()
        ));
    }
    if native.is_some() && args.engine == EngineArg::Proc {
        return wrong(
            "--native needs the bpf engine, which copies the stack at the tick: leave --engine \
             proc out"
                .to_owned(),
        );
    }
    if args.engine == EngineArg::Proc && args.walk != WalkArg::Auto {
        return wrong(
            "--walk says where the bpf engine reads stacks, and --engine proc reads all of them \
             from outside: leave one of the two out"
                .to_owned(),
        );
    }
    if args.tasks.is_some() && matches!(args.mode, ModeArg::Gil | ModeArg::Offcpu) {
        return wrong(
            "--tasks tells apart the time on a CPU (`--mode cpu`) and the time on the wall \
             (`--mode wall`)"
                .to_owned(),
        );
    }
    if args.tasks.is_some() && args.engine == EngineArg::Proc {
        return wrong(
            "--tasks needs the bpf engine, which knows when a loop's thread has run: leave \
             --engine proc out, or look once with `profiler dump --tasks`"
                .to_owned(),
        );
    }
    if args.tasks.is_some() && args.walk == WalkArg::User {
        return wrong(
            "--tasks needs the walk in the kernel, which notes whose coroutines it meets: leave \
             --walk user out"
                .to_owned(),
        );
    }
    let outputs = outputs(args)?;
    let mut files: Vec<&PathBuf> = outputs.iter().map(|(path, _)| path).collect();
    files.extend(&args.ledger);
    for (index, file) in files.iter().enumerate() {
        if files[..index].contains(file) {
            return wrong(format!(
                "`{}` is named twice: each output needs a file of its own",
                file.display()
            ));
        }
    }
    let run = RunSettings {
        mode: match args.mode {
            ModeArg::Cpu => Mode::Cpu,
            ModeArg::Wall => Mode::Wall,
            ModeArg::Gil => Mode::Gil,
            ModeArg::Offcpu => Mode::OffCpu,
        },
        rate_hz,
        duration: args.duration.as_deref().map(duration).transpose()?,
        walk: match args.walk {
            WalkArg::Auto => Walk::Auto,
            WalkArg::Kernel => Walk::Kernel,
            WalkArg::User => Walk::User,
        },
        jitter: !args.no_jitter,
        follow: args.subprocesses,
        max_frames: args.max_depth,
        native,
        tasks: args.tasks.map(|how| match how {
            TasksArg::Flat => Tasks::Flat,
            TasksArg::Tree => Tasks::Tree,
        }),
        began: crate::sys::monotonic(),
        timeline: outputs.iter().any(|(_, format)| format.shows_time()),
    };
    let options = Options {
        granularity: match args.granularity {
            GranularityArg::Function => Granularity::Function,
            GranularityArg::Line => Granularity::Line,
        },
        // Ticks are all worth the same; times off the CPU are not.
        unit: match run.mode {
            Mode::Cpu => Unit::Samples,
            Mode::Wall | Mode::Gil | Mode::OffCpu => Unit::Nanoseconds,
        },
        threads: args.threads,
        state_frames: args.state_frames.map(|place| match place {
            StateFramesArg::Root => StateFrames::Root,
            StateFramesArg::Leaf => StateFrames::Leaf,
        }),
        ..Options::default()
    };
    Ok(RunPlan {
        whom,
        run,
        engine: match args.engine {
            EngineArg::Auto => Engine::Auto,
            EngineArg::Bpf => Engine::Bpf,
            EngineArg::Proc => Engine::Proc,
        },
        outputs,
        options,
        ledger: args.ledger.clone(),
        ring_bytes,
        quiet: args.quiet,
    })
}

fn wrong<T>(message: String) -> Result<T, UsageError> {
    Err(UsageError(message))
}

fn outputs(args: &RunArgs) -> Result<Vec<(PathBuf, Format)>, UsageError> {
    let chosen = args.format.map(|format| match format {
        FormatArg::Folded => Format::Folded,
        FormatArg::Flamegraph => Format::Flamegraph,
        FormatArg::Speedscope => Format::Speedscope,
        FormatArg::Pprof => Format::Pprof,
        FormatArg::Text => Format::Text,
        FormatArg::Json => Format::Json,
    });
    let named = args.output.iter().map(|path| {
        let format = match chosen {
            Some(format) => format,
            // Beside files, standard output is for people.
            None if path.as_os_str() == "-" => Format::Text,
            None => Format::from_extension(path).map_err(|error| UsageError(error.to_string()))?,
        };
        let path = if args.split {
            split(path)?
        } else {
            path.clone()
        };
        Ok((path, format))
    });
    let mut outputs = named.collect::<Result<Vec<_>, UsageError>>()?;
    // A format without a file is meant for standard output.
    if let (true, Some(format)) = (outputs.is_empty(), chosen) {
        outputs.push((PathBuf::from("-"), format));
    }
    if args.split && args.output.is_empty() {
        return wrong(String::from(
            "--split writes files: name one, as in `-o profile.svg`",
        ));
    }
    Ok(outputs)
}

/// What stands for the number of a process in the name of a file that each process has for itself.
pub(super) const PID_MARK: &str = "{pid}";

/// The name with a place for the process's number, before what tells the format.
fn split(path: &Path) -> Result<PathBuf, UsageError> {
    const LONG_EXTENSIONS: [&str; 2] = [".speedscope.json", ".pb.gz"];
    let name = path.file_name().map(|name| name.to_string_lossy());
    let Some(name) = name.filter(|name| name != "-") else {
        return wrong(format!(
            "--split needs a file for each process, and `{}` is one",
            path.display()
        ));
    };
    if name.contains(PID_MARK) {
        return Ok(path.to_owned());
    }
    let long = LONG_EXTENSIONS.iter().find(|it| name.ends_with(**it));
    let at = match long {
        Some(long) => name.len() - long.len(),
        None => name.rfind('.').unwrap_or(name.len()),
    };
    let (stem, extension) = name.split_at(at);
    Ok(path.with_file_name(format!("{stem}.{PID_MARK}{extension}")))
}

/// `10`, `10s`, `2m`, `1m 30s`: a bare number is seconds.
fn duration(typed: &str) -> Result<Duration, UsageError> {
    let parsed = match typed.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => humantime::parse_duration(typed).ok(),
    };
    match parsed {
        Some(duration) if !duration.is_zero() => Ok(duration),
        _ => wrong(format!(
            "--duration {typed} is no duration: write 10, 10s, 500ms or 2m"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Command};
    use clap::Parser as _;

    fn lower(line: &str) -> Result<RunPlan, UsageError> {
        let words = std::iter::once("profiler").chain(line.split(' '));
        match Cli::try_parse_from(words).expect("clap takes it").command {
            Command::Run(args) => run_plan(&args),
            _ => panic!("not a run"),
        }
    }

    #[test]
    fn durations_are_seconds_or_have_a_unit() {
        let cases = [
            ("10", 10_000),
            ("10s", 10_000),
            ("2m", 120_000),
            ("500ms", 500),
            ("0.5", 500),
        ];
        for (typed, millis) in cases {
            let plan = lower(&format!("run --pid 1 -d {typed}")).expect("a duration");
            assert_eq!(
                plan.run.duration,
                Some(Duration::from_millis(millis)),
                "{typed}"
            );
        }
    }

    #[test]
    fn what_makes_no_sense_is_wrong_usage_and_says_what_would() {
        let cases = [
            ("run --pid 1 --rate 0", "give 1 to 50000"),
            ("run --pid 1 --rate 1000000", "give 1 to 50000"),
            ("run --pid 1 -r -5", "give 1 to 50000"),
            ("run --pid 1 -r 99.5", "give 1 to 50000"),
            ("run --pid 1 -d 0", "write 10, 10s"),
            ("run --pid 1 -d NaN", "write 10, 10s"),
            ("run --pid 1 -d soon", "write 10, 10s"),
            ("run --pid 1 --max-depth 1", "give 2 to 1024"),
            ("run --pid 1 --ring-bytes 5", "at least 65536"),
            ("run --pid 1 --engine proc --walk kernel", "leave one of"),
            ("run --pid 1 -o profile.xyz", "profile.xyz"),
            ("run --pid 1 -o a.json --ledger a.json", "named twice"),
            ("run --pid 1 --tasks -m gil", "--mode wall"),
            ("run --pid 1 --tasks=tree -m offcpu", "--mode wall"),
            ("run --pid 1 --tasks --engine proc", "dump --tasks"),
            ("run --pid 1 --tasks --walk user", "leave"),
            ("run --pid 1 --split", "name one"),
            ("run --pid 1 --split -f folded -o -", "`-` is one"),
        ];
        for (line, hint) in cases {
            let error = lower(line).expect_err(line);
            assert!(error.0.contains(hint), "{line}: {}", error.0);
        }
    }

    #[test]
    fn a_file_for_each_process_has_its_number_before_the_extension() {
        let path = |line: String| lower(&line).expect("a run").outputs[0].0.clone();
        let cases = [
            ("-o a.svg", "a.svg"),
            ("-o a.{pid}.svg", "a.{pid}.svg"),
            ("--split -o a.b.svg", "a.b.{pid}.svg"),
            (
                "--split -o d/a.speedscope.json",
                "d/a.{pid}.speedscope.json",
            ),
            ("--split -o {pid}/a.pb.gz", "{pid}/a.{pid}.pb.gz"),
            ("--split -o p{pid}.json", "p{pid}.json"),
            ("--split -f json -o plain", "plain.{pid}"),
        ];
        for (typed, expected) in cases {
            let path = path(format!("run --pid 1 {typed}"));
            assert_eq!(path, PathBuf::from(expected), "{typed}");
        }
    }

    #[test]
    fn a_process_named_twice_is_one() {
        let plan = lower("run -p 3 -p 4 --pid 3").expect("a run");
        assert_eq!(plan.whom, Whom::Processes(vec![Pid(3), Pid(4)]));
    }

    #[test]
    fn states_have_frames_only_where_that_is_asked_for() {
        let place = |line| lower(line).expect("a run").options.state_frames;
        assert_eq!(place("run --pid 1"), None);
        let root = place("run --pid 1 -m wall --state-frames root");
        assert_eq!(root, Some(StateFrames::Root));
        let leaf = place("run --pid 1 --state-frames leaf");
        assert_eq!(leaf, Some(StateFrames::Leaf));
    }

    #[test]
    fn the_extension_chooses_the_format_unless_one_is_given() {
        let formats = |line| -> Vec<Format> {
            lower(line)
                .expect("a run")
                .outputs
                .into_iter()
                .map(|(_, format)| format)
                .collect()
        };
        assert_eq!(
            formats("run --pid 1 -o a.svg -o b.pb.gz"),
            [Format::Flamegraph, Format::Pprof]
        );
        assert_eq!(formats("run --pid 1 -o a.svg -f folded"), [Format::Folded]);
        assert_eq!(formats("run --pid 1 -f folded"), [Format::Folded]);
        assert!(formats("run -- python3 x.py").is_empty());
    }
}
