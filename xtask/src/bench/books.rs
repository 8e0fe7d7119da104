//! The books: samples against the scheduler's account, the thread's own clock and `/proc`'s.

use anyhow::{Context, Result};
use tests::profiler::Running;
use tests::target::Target;

use super::report::{Bound, Report};
use super::{Setting, measure};

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
    measure::wait(setting.pick(2.0, 10.0));
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
    let share = 100.0 * ledger.lost() as f64 / ledger.ticks.max(1) as f64;
    report.plain(case, "lost", share, "%");
    let mut worst = [0.0_f64; 3];
    for account in &accounts {
        let thread = ledger
            .thread(account.tid)
            .with_context(|| format!("the ledger has no thread {}", account.tid))?;
        let sampled = thread.sampled_s();
        let scheduled = thread.scheduler_s()?;
        let off = [
            (sampled / scheduled - 1.0).abs(),
            (sampled / account.stat_s - 1.0).abs(),
            (scheduled / account.cpu_s - 1.0).abs(),
        ];
        for (worst, off) in worst.iter_mut().zip(off) {
            *worst = worst.max(100.0 * off);
        }
    }
    let bound = Bound::AtMost(1.0);
    report.bounded(
        case,
        "worst thread: sampled against scheduler",
        worst[0],
        "%",
        bound,
    );
    report.bounded(
        case,
        "worst thread: sampled against utime+stime",
        worst[1],
        "%",
        bound,
    );
    report.bounded(
        case,
        "worst thread: scheduler against own clock",
        worst[2],
        "%",
        bound,
    );
    Ok(())
}
