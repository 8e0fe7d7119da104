//! Native frames: what they cost, how complete they are, and how much slower they make the target.

use ::tests::folded::{Folded, name};
use ::tests::profiler::Running;
use ::tests::target::Target;
use anyhow::{Context, Result, anyhow, ensure};

use super::report::{Bound, Report};
use super::slowdown::{Clock, Rounds, Side, Work, paired};
use super::tool::Tool;
use super::{Setting, cost, measure};

const SCRIPT: &str = "native_depth.py";
/// Twenty functions of Python, each called by one of C, and the work in C.
const DEPTH: &str = "20";
/// It can do that only while it stops the target.
const PY_SPY: Tool = Tool::PySpy(&["--native"]);

pub(super) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let case = "depth 20 in Python, 20 in C";
    let each = cost::each(setting, &["--native"], "native_spin.py", DEPTH)?;
    let all = each.kernel_us + each.user_us;
    report.plain(case, "tick program, a sample", each.kernel_us, "µs");
    report.bounded(case, "CPU, a sample", all, "µs", Bound::AtMost(100.0));
    let rss = each.rss_bytes as f64 / 1e6;
    report.bounded(case, "resident memory", rss, "MB", Bound::AtMost(150.0));
    cost::first_sample(setting, &["--native"], "native_spin.py", 500.0, report)?;
    complete(setting, report).context("how complete stacks are")?;
    with_numpy(setting, report).context("numpy")?;
    let mut sides = vec![
        Side::Nobody,
        // A second time nobody: what this machine cannot tell apart.
        Side::Nobody,
        Side::Native(99, 1.02),
        Side::Native(999, 1.02),
    ];
    if !setting.quick {
        sides.push(Side::Peer(PY_SPY, 999));
    }
    let work = Work {
        script: SCRIPT,
        arguments: &[DEPTH],
        case: case.to_owned(),
        judged_by: Clock::Interruptions,
        rounds: Rounds::usual(setting),
    };
    paired(setting, &sides, &work, report)
}

/// The memory that a program with large libraries and many threads of C takes, after some seconds.
fn with_numpy(setting: &Setting, report: &mut Report) -> Result<()> {
    let case = "numpy's matmul";
    let python = setting.python()?;
    let Some(packages) = ::tests::pythons::packages(python, "numpy") else {
        report.failed(&anyhow!("numpy is missing: run `cargo xtask setup`"));
        return Ok(());
    };
    let mut target = Target::start(python, "native_leaves.py", &["multiplies", "5", &packages])?;
    let mut ours = Running::on(target.pid(), &["--native", "-r", "999"])?;
    ours.attached()?;
    target.tell("go")?;
    target.expect("done")?;
    let ledger = ours.stop()?.success()?.ledger()?;
    let rss = ledger.profiler.rss_bytes.context("no memory")? as f64 / 1e6;
    report.bounded(case, "resident memory", rss, "MB", Bound::AtMost(150.0));
    Ok(())
}

/// The share of stacks that have every function of the target, Python's and C's.
fn complete(setting: &Setting, report: &mut Report) -> Result<()> {
    let seconds = setting.pick(2.0, 10.0);
    for depth in ["5", DEPTH] {
        let case = format!("depth {depth} in Python, {depth} in C");
        let mut target = Target::start(setting.python()?, "native_spin.py", &[depth])?;
        target.tell("go")?;
        target.expect("running")?;
        let levels: usize = depth.parse()?;
        let mut add = |tool: &str, folded: &Folded| -> Result<()> {
            let all = folded.with("level");
            ensure!(all > 0, "{tool} does not see it");
            let mut share = |what: &str, is_so: &dyn Fn(&Seen) -> bool| {
                let seen = folded
                    .stacks
                    .iter()
                    .map(|it| (Seen::of(&it.frames), it.count));
                let so: u64 = seen
                    .filter(|(seen, _)| is_so(seen))
                    .map(|(_, count)| count)
                    .sum();
                let share = 100.0 * so as f64 / all as f64;
                report.plain(&case, &format!("{tool}: {what}"), share, "%");
            };
            share("all of Python, and C at the leaf", &|seen| {
                seen.levels == levels + 1 && seen.ends_in_c
            });
            share("and all of C between", &|seen| {
                seen.levels == levels + 1 && seen.ends_in_c && seen.by_c == levels
            });
            Ok(())
        };
        let mut ours = Running::on(target.pid(), &["--native", "-r", "999"])?;
        ours.attached()?;
        measure::wait(seconds);
        add("profiler --native", &ours.stop()?.success()?.folded()?)?;
        let watching = PY_SPY.start(setting.python()?, target.pid(), 999)?;
        measure::wait(seconds);
        add(&PY_SPY.name(), &watching.stop()?.folded)?;
    }
    Ok(())
}

/// What a stack has of the target.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// Functions of Python that call the next by way of C.
    levels: usize,
    /// How many of them stand on the function of C that called them.
    by_c: usize,
    /// Whether the work in C is on top of them.
    ends_in_c: bool,
}

impl Seen {
    fn of(frames: &[String]) -> Self {
        let mut seen = Self {
            levels: 0,
            by_c: 0,
            ends_in_c: false,
        };
        let mut in_c = false;
        for frame in frames {
            match name(frame) {
                "level" => {
                    seen.levels += 1;
                    seen.by_c += usize::from(in_c);
                    in_c = false;
                }
                // Each tool has its own words around it.
                function if function.contains("reduce") => in_c = true,
                function => seen.ends_in_c |= seen.levels > 0 && function.contains("crc32"),
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_told_by_its_levels_and_what_is_of_c_between_and_above() {
        let check = |stack: &[&str], levels, by_c, ends_in_c| {
            let frames: Vec<String> = stack.iter().map(|it| (*it).to_owned()).collect();
            let expected = Seen {
                levels,
                by_c,
                ends_in_c,
            };
            assert_eq!(Seen::of(&frames), expected, "{stack:?}");
        };
        let level = "level (a.py:2)";
        check(
            &[
                "<module> (a.py:1)",
                level,
                "functools_reduce (libpython.so)",
                level,
                "crc32_z",
            ],
            2,
            1,
            true,
        );
        check(&[level, "functools_reduce", "call", level], 2, 1, false);
        check(&[level, level, "zlib_crc32 (zlib.so)"], 2, 0, true);
        check(&["crc32", level], 1, 0, false);
    }
}
