//! Programs that collect garbage: the collector's share against their own clocks.

use anyhow::{Context, Result};
use tests::pythons::Python;
use tests::watched::watch;

use super::Setting;
use super::report::{Bound, Report};

pub(super) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    for python in &setting.pythons {
        for way in ["explicit", "automatic"] {
            if let Err(error) = share(python, way, setting.pick("1", "4"), report) {
                report.failed(&error.context(format!("{way} on {}", python.label)));
            }
        }
    }
    Ok(())
}

fn share(python: &Python, way: &str, seconds: &str, report: &mut Report) -> Result<()> {
    let case = format!("{}, {way}", python.label);
    for mode in ["cpu", "wall"] {
        let profiler = ["--mode", mode, "-r", "999"];
        let watched = watch(python, "collects.py", &[seconds, way], &[&profiler])?;
        let account = watched.account("collects")?;
        let truth = match mode {
            "cpu" => account.spent("gc_cpu")? / account.cpu_s,
            _ => account.spent("gc")? / account.wall_s,
        };
        let profile = watched.profiles.first().context("no profile")?;
        let of = |gc| profile.seconds(account.tid, |entry| entry.gc == gc);
        let share = of("collecting") / profile.seconds(account.tid, |_| true);
        report.plain(&case, &format!("{mode}: its clock"), 100.0 * truth, "%");
        let points = 100.0 * (share - truth).abs();
        let figure = format!("{mode}: error");
        report.bounded(&case, &figure, points, "points", Bound::AtMost(2.0));
    }
    Ok(())
}
