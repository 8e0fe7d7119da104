//! The books: samples against the scheduler's account, the thread's own clock and `/proc`'s.

use anyhow::{Context, Result, ensure};
use tests::profiler::Running;
use tests::target::Target;

use super::report::{Bound, Report};
use super::{Setting, measure};

/// `/proc` counts in hundredths of a second, and once for each of two numbers.
const STAT_STEP_S: f64 = 0.02;

/// A thread with this share of the time is busy. One that only asks for the GIL now and then is
/// on a CPU for microseconds at a time: it takes more than seconds until its samples add up.
const BUSY: f64 = 0.1;

const CASES: &[(&str, &[&str])] = &[
    ("spin.py", &["20"]),
    ("spin.py", &["1000"]),
    ("two_spinners.py", &[]),
    ("sleepers.py", &["200"]),
    ("short_calls.py", &["4"]),
];

pub(super) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    for (script, arguments) in CASES {
        for rate in ["99", "999"] {
            let case = format!("{script} {} {rate} Hz", arguments.join(" "));
            if let Err(error) = balance(setting, &case, script, arguments, rate, report) {
                report.failed(&error.context(case));
            }
        }
    }
    Ok(())
}

fn balance(
    setting: &Setting,
    case: &str,
    script: &str,
    arguments: &[&str],
    rate: &str,
    report: &mut Report,
) -> Result<()> {
    let mut target = Target::start(setting.python()?, script, arguments)?;
    let mut profiler = Running::on(target.pid(), &["-r", rate])?;
    profiler.attached()?;
    target.tell("go")?;
    target.expect("running")?;
    let seconds = setting.pick(2.0, 10.0);
    measure::wait(seconds);
    target.tell("stop")?;
    let accounts = target.done()?;
    let ledger = profiler.stop()?.ledger()?;

    let unexplained = ledger.ticks.abs_diff(ledger.samples + ledger.lost());
    let bound = Bound::Exactly(0.0);
    report.bounded(
        case,
        "ticks - samples - losses",
        unexplained as f64,
        "ticks",
        bound,
    );
    // These reasons are faults of the profiler, never of the machine or the target.
    let faults: u64 = ["unaccounted", "malformed", "unknown_process"]
        .iter()
        .filter_map(|fault| ledger.losses.get(*fault))
        .sum();
    let name = "lost by the profiler's own fault";
    report.bounded(case, name, faults as f64, "ticks", Bound::Exactly(0.0));
    let share = 100.0 * ledger.lost() as f64 / ledger.ticks.max(1) as f64;
    report.plain(case, "lost", share, "%");
    let (mut worst, mut checked) = ([0.0_f64; 3], 0);
    for account in accounts.iter().filter(|it| it.cpu_s > BUSY * seconds) {
        checked += 1;
        let thread = ledger
            .thread(account.tid)
            .with_context(|| format!("the ledger has no thread {}", account.tid))?;
        let sampled = thread.sampled_s();
        let scheduled = thread.scheduler_s()?;
        let off = [
            (sampled / scheduled - 1.0).abs(),
            ((sampled - account.stat_s).abs() - STAT_STEP_S).max(0.0) / account.stat_s,
            (scheduled / account.cpu_s - 1.0).abs(),
        ];
        for (worst, off) in worst.iter_mut().zip(off) {
            *worst = worst.max(100.0 * off);
        }
    }
    ensure!(
        checked > 0,
        "no thread was busy, so none was checked: {accounts:?}"
    );
    let names = [
        "busy threads, worst: sampled, scheduler",
        "busy threads, worst: sampled, utime+stime",
        "busy threads, worst: scheduler, own clock",
    ];
    for (name, worst) in names.into_iter().zip(worst) {
        match rate {
            "999" => report.bounded(case, name, worst, "%", Bound::AtMost(1.0)),
            // So few samples err by about a percent for their number alone.
            _ => report.plain(case, name, worst, "%"),
        }
    }
    Ok(())
}
