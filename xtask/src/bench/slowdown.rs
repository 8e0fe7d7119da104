//! How much slower the target is while it is profiled: a fixed amount of work, each way in turn.

use anyhow::{Context, Result};
use tests::profiler::Running;
use tests::pythons::Python;
use tests::target::Target;

use super::report::{Bound, Report};
use super::tool::{PY_SPY, PY_SPY_NONBLOCKING, Tool};
use super::{Setting, measure};

/// Who watches.
pub(super) enum Side {
    Nobody,
    /// In a mode, so often a second, and how much slower the target may be by the bench's clock.
    Ours(&'static str, u32, f64),
    /// With native frames, in cpu mode, likewise.
    Native(u32, f64),
    Peer(Tool, u32),
}

impl Side {
    fn name(&self) -> String {
        match self {
            Self::Nobody => "nobody".to_owned(),
            Self::Ours("cpu", rate, _) => format!("profiler at {rate} Hz"),
            Self::Ours(mode, rate, _) => format!("profiler, {mode}, at {rate} Hz"),
            Self::Native(rate, _) => format!("profiler --native at {rate} Hz"),
            Self::Peer(tool, rate) => format!("{} at {rate} Hz", tool.name()),
        }
    }

    fn bound(&self) -> Option<Bound> {
        match self {
            Self::Ours(_, _, most) | Self::Native(_, most) => Some(Bound::AtMost(*most)),
            _ => None,
        }
    }
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    Wall,
    Cpu,
    /// The CPU's time, of which only interruptions count: each piece of the work is held against its
    /// neighbours, so that the speed of the CPU, which drifts by more than they take, cancels out.
    Interruptions,
}

impl Clock {
    fn name(self) -> &'static str {
        match self {
            Self::Wall => "time",
            Self::Cpu => "CPU time",
            Self::Interruptions => "interruptions",
        }
    }
}

/// A target that does counted work, and the clock by which it may be slower only so much.
pub(super) struct Work<'a> {
    pub(super) script: &'a str,
    pub(super) arguments: &'a [&'a str],
    pub(super) case: String,
    pub(super) judged_by: Clock,
    pub(super) rounds: Rounds,
}

/// How often each side is measured, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounds {
    pub(super) count: usize,
    pub(super) seconds: f64,
}

impl Rounds {
    /// Enough for work whose speed drifts little between neighbours.
    pub(super) fn usual(setting: &Setting) -> Self {
        Self {
            count: setting.pick(4, 30),
            seconds: setting.pick(0.5, 1.0),
        }
    }

    /// Short ones, many: chance falls with the root of their number, and the nearer two runs are to
    /// each other, the less the machine has changed between them.
    pub(super) fn many(setting: &Setting) -> Self {
        Self {
            count: setting.pick(6, 100),
            seconds: 0.25,
        }
    }
}

pub(super) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let mut sides = vec![
        Side::Nobody,
        // A second time nobody: what this machine cannot tell apart.
        Side::Nobody,
        Side::Ours("cpu", 99, 1.005),
        Side::Ours("cpu", 999, 1.02),
    ];
    if !setting.quick {
        sides.push(Side::Peer(PY_SPY_NONBLOCKING, 1000));
        sides.push(Side::Peer(PY_SPY, 1000));
    }
    for depth in ["20", "100"] {
        let work = Work {
            script: "count_work.py",
            arguments: &[depth],
            case: format!("depth {depth}"),
            judged_by: Clock::Interruptions,
            rounds: Rounds::usual(setting),
        };
        paired(setting, &sides, &work, report).with_context(|| work.case.clone())?;
    }
    stolen(setting, report).context("the time stolen by a tick")
}

/// The work with each side in turn, and how much longer it took than with the first.
pub(super) fn paired(
    setting: &Setting,
    sides: &[Side],
    of: &Work<'_>,
    report: &mut Report,
) -> Result<()> {
    let mut target = Target::start(setting.python()?, of.script, of.arguments)?;
    let Rounds {
        count: rounds,
        seconds,
    } = of.rounds;
    let units = calibrated(&mut target, seconds)?;
    let mut runs = Vec::new();
    measure::ratios(sides, rounds, |side| {
        let run = watched(setting.python()?, &mut target, side, &units)?;
        runs.push(run);
        Ok(1.0)
    })?;
    for clock in [Clock::Wall, Clock::Cpu, Clock::Interruptions] {
        // The same runs by each clock, brought back into the order of the sides.
        let mut again = runs.iter().map(|run| run.by(clock));
        if again.clone().any(|took| took.is_none()) {
            continue;
        }
        let ratios = measure::ratios(sides, rounds, |_| {
            again.next().flatten().context("a run is missing")
        })?;
        for (side, ratios) in sides.iter().zip(&ratios).skip(1) {
            let bound = side.bound().filter(|_| clock == of.judged_by);
            let case = format!("{}, {}", of.case, clock.name());
            let ratio = measure::median(ratios);
            match bound {
                Some(bound) => report.bounded(&case, &side.name(), ratio, "×", bound),
                None => report.plain(&case, &side.name(), ratio, "×"),
            }
            let spread = measure::spread(ratios);
            report.plain(&case, &format!("{}: spread", side.name()), spread, "×");
            if let Some([from, to]) = measure::interval(ratios) {
                for (end, value) in [("from", from), ("to", to)] {
                    let figure = format!("{}: 95 % sure {end}", side.name());
                    report.plain(&case, &figure, value, "×");
                }
            }
        }
    }
    Ok(())
}

/// What the work took, in seconds, and by what share interruptions made it longer, where the target
/// tells.
#[derive(Clone, Copy, Debug)]
struct Took {
    wall_s: f64,
    cpu_s: f64,
    lost: Option<f64>,
}

impl Took {
    fn by(&self, clock: Clock) -> Option<f64> {
        match clock {
            Clock::Wall => Some(self.wall_s),
            Clock::Cpu => Some(self.cpu_s),
            Clock::Interruptions => self.lost.map(|lost| 1.0 + lost),
        }
    }
}

/// How many units take about so long here.
pub(super) fn calibrated(target: &mut Target, seconds: f64) -> Result<String> {
    target.tell("2000")?;
    let took = target.expect("work")?["wall_s"].as_f64().unwrap_or(1.0);
    Ok(((2000.0 * seconds / took) as u64).max(1).to_string())
}

/// What the work takes while one watches.
fn watched(python: &Python, target: &mut Target, side: &Side, units: &str) -> Result<Took> {
    let work = |target: &mut Target| -> Result<Took> {
        target.tell(units)?;
        let took = target.expect("work")?;
        let number = |key: &str| took[key].as_f64().with_context(|| format!("no `{key}`"));
        Ok(Took {
            wall_s: number("wall_s")?,
            cpu_s: number("cpu_s")?,
            lost: took["lost"].as_f64(),
        })
    };
    match side {
        Side::Nobody => work(target),
        Side::Ours(mode, rate, _) => ours(target, &["--mode", mode], *rate, work),
        Side::Native(rate, _) => ours(target, &["--native"], *rate, work),
        Side::Peer(tool, rate) => {
            let spying = tool.start(python, target.pid(), *rate)?;
            let took = work(target)?;
            spying.stop()?;
            Ok(took)
        }
    }
}

/// The work under our own profiler.
fn ours(
    target: &mut Target,
    arguments: &[&str],
    rate: u32,
    work: impl FnOnce(&mut Target) -> Result<Took>,
) -> Result<Took> {
    let rate = rate.to_string();
    let mut profiler = Running::on(target.pid(), &[arguments, &["-r", &rate]].concat())?;
    profiler.attached()?;
    let took = work(target)?;
    profiler.stop()?;
    Ok(took)
}

/// The gaps that a native loop sees in its own time, with and without the profiler.
fn stolen(setting: &Setting, report: &mut Report) -> Result<()> {
    let mut target = Target::start_gap_meter(setting.python()?)?;
    let seconds = setting.pick("1", "4");
    let mut gaps = |watched: bool| -> Result<f64> {
        let profiler = match watched {
            true => {
                let mut profiler = Running::on(target.pid(), &["-r", "999"])?;
                profiler.attached()?;
                Some(profiler)
            }
            false => None,
        };
        target.tell(seconds)?;
        let gaps = target.expect("gaps")?;
        if let Some(profiler) = profiler {
            profiler.stop()?;
        }
        let number = |key: &str| gaps[key].as_f64().with_context(|| format!("no `{key}`"));
        // Nanoseconds in interrupts for each second of looking.
        Ok(number("short_ns")? / (number("wall_ns")? / 1e9))
    };
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..setting.pick(3, 9) {
        without.push(gaps(false)?);
        with.push(gaps(true)?);
    }
    let (without, with) = (measure::median(&without), measure::median(&with));
    report.plain(
        "native loop",
        "interrupted, nobody watching",
        without / 1e3,
        "µs/s",
    );
    report.plain(
        "native loop",
        "interrupted, profiler at 999 Hz",
        with / 1e3,
        "µs/s",
    );
    report.plain(
        "native loop",
        "stolen by a tick",
        (with - without) / 999.0 / 1e3,
        "µs",
    );
    Ok(())
}
