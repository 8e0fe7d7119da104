//! Thousands of threads that sleep beside one that works: what all time costs, and that the time
//! on a CPU costs nothing more for them.

use std::time::Instant;

use anyhow::Result;
use tests::ledger::Ledger;
use tests::profiler::Running;
use tests::target::Target;

use super::meter::Spent;
use super::report::{Bound, Report};
use super::{Setting, measure};

/// Sleepers, and how many percent of a CPU the profiler may take for all time at 99 Hz.
const CASES: &[(&str, Option<f64>)] = &[("0", None), ("1000", Some(2.0)), ("5000", Some(4.0))];

pub(super) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    for (sleepers, most) in CASES {
        let case = format!("{sleepers} sleepers beside one");
        let outcome = beside(setting, &case, sleepers, *most, report);
        if let Err(error) = outcome {
            report.failed(&error.context(case));
        }
    }
    Ok(())
}

fn beside(
    setting: &Setting,
    case: &str,
    sleepers: &str,
    most: Option<f64>,
    report: &mut Report,
) -> Result<()> {
    let mut target = Target::start(setting.python()?, "sleepers.py", &[sleepers])?;
    target.tell("go")?;
    target.expect("running")?;
    for mode in ["wall", "cpu"] {
        let (mut starts, mut costs, mut shares, mut rss) = (vec![], vec![], vec![], 0);
        for _ in 0..setting.pick(1, 5) {
            let arguments = ["--mode", mode, "-r", "99"];
            let mut profiler = Running::on(target.pid(), &arguments)?;
            profiler.attached()?;
            // In the first second everybody is walked for the first time.
            measure::wait(1.0);
            let (before, started) = (Spent::by(profiler.pid())?, Instant::now());
            measure::wait(setting.pick(3.0, 10.0));
            let seconds = started.elapsed().as_secs_f64();
            let cost = Spent::by(profiler.pid())?.since(before, seconds)?;
            let ledger = profiler.stop()?.ledger()?;
            starts.push(before.process_s + before.programs_s);
            costs.push(cost);
            shares.push(busy_share(&ledger));
            rss = rss.max(ledger.profiler.rss_bytes.unwrap_or(u64::MAX));
        }
        let start = measure::median(&starts);
        let name = format!("{mode}: profiler, to the end of the first second");
        report.plain(case, &name, start, "s of CPU");
        let cost = 100.0 * measure::median(&costs);
        let name = format!("{mode}: profiler, after that");
        match most.filter(|_| mode == "wall") {
            Some(most) => report.bounded(case, &name, cost, "% of CPU", Bound::AtMost(most)),
            None => report.plain(case, &name, cost, "% of CPU"),
        }
        let share = 100.0 * measure::median(&shares);
        let name = format!("{mode}: busy thread, sampled on CPU");
        report.plain(case, &name, share, "% of its");
        report.plain(case, &format!("{mode}: resident"), rss as f64 / 1e6, "MB");
    }
    Ok(())
}

/// The samples of the thread that was most on a CPU against the scheduler's account of it.
fn busy_share(ledger: &Ledger) -> f64 {
    let busy = ledger.threads.iter().max_by_key(|it| it.scheduler_ns);
    busy.and_then(|it| Some(it.sampled_ns as f64 / it.scheduler_ns? as f64))
        .unwrap_or(f64::NAN)
}
