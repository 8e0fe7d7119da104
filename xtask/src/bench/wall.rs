//! All of a thread's time, by what it was spent on, against the thread's own clocks; and whether
//! it adds up.

use anyhow::{Context, Result};
use tests::profile::{Entry, Profile};
use tests::pythons::Python;
use tests::target::Account;
use tests::watched::watch;

use super::Setting;
use super::report::{Bound, Report};

const RATES: [&str; 2] = ["99", "999"];

pub(super) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    for python in &setting.pythons {
        for rate in RATES {
            let outcome = waits(python, rate, setting.pick("2", "5"), report)
                .and_then(|()| origin(python, rate, setting.pick("1", "3"), report))
                .and_then(|()| half(python, rate, setting.pick("2", "5"), report));
            if let Err(error) = outcome {
                report.failed(&error.context(format!("{rate} Hz on {}", python.label)));
            }
        }
    }
    Ok(())
}

/// One profile of a target's whole work.
fn profiled(
    python: &Python,
    mode: &str,
    rate: &str,
    script: &str,
    arguments: &[&str],
) -> Result<(Profile, Vec<Account>)> {
    let profiler = ["--mode", mode, "-r", rate];
    let mut watched = watch(python, script, arguments, &[&profiler])?;
    let profile = watched.profiles.pop().context("no profile")?;
    Ok((profile, watched.accounts))
}

/// What a thread needs to go on after a wait: the GIL and a CPU.
fn goes_on(entry: &Entry) -> bool {
    entry.gil == "waits" || entry.state == "runnable"
}

fn waits(python: &Python, rate: &str, seconds: &str, report: &mut Report) -> Result<()> {
    let case = format!("{}, {rate} Hz", python.label);
    let (profile, accounts) = profiled(python, "wall", rate, "reasons.py", &[seconds])?;
    let mut worst = 0.0_f64;
    for account in &accounts {
        for (reason, truth) in &account.spent_s {
            let counts = |entry: &Entry| {
                let named = match reason.as_str() {
                    "gil" => entry.gil == "waits",
                    other => entry.is_blocked_in(other),
                };
                profile.is_in(entry, reason) && (named || goes_on(entry))
            };
            let sampled = profile.seconds(account.tid, counts);
            worst = worst.max((sampled - truth).abs() / account.wall_s);
        }
    }
    let bound = Bound::AtMost(2.0);
    report.bounded(
        &case,
        "waits: worst of ten, error",
        100.0 * worst,
        "points",
        bound,
    );
    adds_up(&case, &profile, report)
}

/// The worst of the long threads: its states' sum against its life.
fn adds_up(case: &str, profile: &Profile, report: &mut Report) -> Result<()> {
    let (mut samples, mut scheduler) = (0.0_f64, 0.0_f64);
    for thread in &profile.ledger.threads {
        let wall = thread.wall_s().context("no wall time")?;
        if wall < 1.0 {
            continue;
        }
        let account = thread.all_scheduler_s().context("no scheduler's account")?;
        samples = samples.max((thread.all_sampled_s() / wall - 1.0).abs());
        scheduler = scheduler.max((account / wall - 1.0).abs());
    }
    let bound = Bound::AtMost(1.0);
    let figure = "on CPU + runnable + blocked, samples";
    report.bounded(case, figure, 100.0 * samples, "% of wall", bound);
    let figure = "on CPU + runnable + blocked, scheduler";
    report.bounded(case, figure, 100.0 * scheduler, "% of wall", bound);
    Ok(())
}

fn origin(python: &Python, rate: &str, sleep: &str, report: &mut Report) -> Result<()> {
    let case = format!("{}, {rate} Hz", python.label);
    let arguments = ["12", sleep, "8000000", "8"];
    let (profile, accounts) = profiled(python, "wall", rate, "origin.py", &arguments)?;
    let mut add = |account: &Account, figure: &str, truth: f64, counts: &dyn Fn(&Entry) -> bool| {
        let sampled = profile.seconds(account.tid, counts);
        let error = 100.0 * (sampled / truth - 1.0).abs();
        report.bounded(&case, figure, error, "%", Bound::AtMost(1.0));
    };
    for account in &accounts {
        match account.name.as_str() {
            "compress" => {
                let on_cpu = |entry: &Entry| entry.state == "on_cpu";
                add(account, "origin: compress on a CPU", account.cpu_s, &on_cpu);
            }
            "half_sleep" => {
                let on_cpu = |entry: &Entry| entry.state == "on_cpu";
                add(
                    account,
                    "origin: half_sleep on a CPU",
                    account.cpu_s,
                    &on_cpu,
                );
                let asleep = |entry: &Entry| {
                    let named = entry.is_blocked_in("sleep") || goes_on(entry);
                    profile.is_in(entry, "spend") && named
                };
                let truth = account.spent("sleep")?;
                add(account, "origin: half_sleep asleep", truth, &asleep);
            }
            _ => {
                let joins = |entry: &Entry| {
                    let named = entry.is_blocked_in("lock") || goes_on(entry);
                    profile.is_in(entry, "join") && named
                };
                add(
                    account,
                    "origin: main in join",
                    account.spent("lock")?,
                    &joins,
                );
            }
        }
    }
    adds_up(&case, &profile, report)
}

fn half(python: &Python, rate: &str, seconds: &str, report: &mut Report) -> Result<()> {
    let (profile, accounts) = profiled(python, "cpu", rate, "work_and_sleep.py", &[seconds])?;
    let account = accounts.first().context("no account")?;
    let truth = account.cpu_s / account.wall_s;
    let share = profile.seconds(account.tid, |_| true) / account.wall_s;
    let case = format!("{}, {rate} Hz", python.label);
    report.plain(
        &case,
        "1 ms work, 1 ms sleep: its clock",
        100.0 * truth,
        "% of wall",
    );
    let error = 100.0 * (share - truth).abs();
    let figure = "1 ms work, 1 ms sleep: error";
    report.bounded(&case, figure, error, "points", Bound::AtMost(1.0));
    Ok(())
}
