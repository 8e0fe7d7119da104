//! Native frames: what they cost, how complete they are, and how much slower they make the target.

use ::tests::folded::{Folded, name};
use ::tests::profiler::Running;
use ::tests::target::Target;
use anyhow::{Context, Result, ensure};

use super::report::{Bound, Report};
use super::slowdown::{Clock, Side, Work, paired};
use super::tool::Tool;
use super::{Setting, cost, measure};

const SCRIPT: &str = "native_depth.py";
/// Twenty functions of Python, each called by one of C, and the work in C.
const DEPTH: &str = "20";
const PY_SPY: Tool = Tool::PySpy(&["--native"]);
const PY_SPY_NONBLOCKING: Tool = Tool::PySpy(&["--native", "--nonblocking"]);

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
    let mut sides = vec![
        Side::Nobody,
        // A second time nobody: what this machine cannot tell apart.
        Side::Nobody,
        Side::Native(99, 1.02),
        Side::Native(999, 1.02),
    ];
    if !setting.quick {
        sides.push(Side::Peer(PY_SPY_NONBLOCKING, 999));
        sides.push(Side::Peer(PY_SPY, 999));
    }
    let work = Work {
        script: SCRIPT,
        arguments: &[DEPTH],
        case: case.to_owned(),
        judged_by: Clock::Cpu,
    };
    paired(setting, &sides, &work, report)
}

/// The share of stacks that have every function of the target, Python's and C's, in order.
fn complete(setting: &Setting, report: &mut Report) -> Result<()> {
    let seconds = setting.pick(2.0, 10.0);
    for depth in ["5", DEPTH] {
        let case = format!("depth {depth} in Python, {depth} in C");
        let mut target = Target::start(setting.python()?, "native_spin.py", &[depth])?;
        target.tell("go")?;
        target.expect("running")?;
        let levels: usize = depth.parse()?;
        let mut add = |tool: &str, folded: &Folded| -> Result<()> {
            let all = folded.total();
            ensure!(all > 0, "{tool} has no samples");
            let whole = folded
                .stacks
                .iter()
                .filter(|it| is_whole(&it.frames, levels));
            let whole: u64 = whole.map(|stack| stack.count).sum();
            let share = 100.0 * whole as f64 / all as f64;
            report.plain(&case, &format!("{tool}: complete stacks"), share, "%");
            Ok(())
        };
        let mut ours = Running::on(target.pid(), &["--native", "-r", "999"])?;
        ours.attached()?;
        measure::wait(seconds);
        add("profiler --native", &ours.stop()?.success()?.folded()?)?;
        for peer in [PY_SPY, PY_SPY_NONBLOCKING] {
            let watching = peer.start(setting.python()?, target.pid(), 999)?;
            measure::wait(seconds);
            add(&peer.name(), &watching.stop()?.folded)?;
        }
    }
    Ok(())
}

/// Whether `level` stands on the stack as often as it must, each time but the first called by
/// `reduce`.
fn is_whole(frames: &[String], levels: usize) -> bool {
    let mut found = 0;
    let mut by_reduce = false;
    for frame in frames {
        match name(frame) {
            "level" => {
                if found > 0 && !by_reduce {
                    return false;
                }
                found += 1;
                by_reduce = false;
            }
            // Each tool has its own words around it.
            function if function.contains("reduce") => by_reduce = true,
            _ => {}
        }
    }
    found == levels + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_whole_with_every_level_and_c_between() {
        let frames = |of: &[&str]| of.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let cases: [(&[&str], bool); 5] = [
            (
                &[
                    "<module> (a.py:1)",
                    "level (a.py:2)",
                    "functools_reduce (libpython.so)",
                    "level (a.py:2)",
                    "work (a.py:1)",
                ],
                true,
            ),
            (
                &[
                    "level (a.py:2)",
                    "functools_reduce",
                    "call",
                    "level (a.py:2)",
                ],
                true,
            ),
            (&["level (a.py:2)", "level (a.py:2)"], false),
            (&["level (a.py:2)"], false),
            (&["level", "reduce", "level", "reduce", "level"], false),
        ];
        for (stack, expected) in cases {
            assert_eq!(is_whole(&frames(stack), 1), expected, "{stack:?}");
        }
    }
}
