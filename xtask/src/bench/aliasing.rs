//! A program that repeats in step with the ticks: how far the shares are from the truth, with
//! jitter and without.

use anyhow::{Context, Result};
use tests::watched::watch;

use super::Setting;
use super::report::{Bound, Report};

/// A program's period in milliseconds, the rate that is in step with it, seconds of each thread.
const CASES: [(&str, &str, &str); 2] = [("1", "1000", "2"), ("10", "100", "10")];

pub(super) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    for (period, rate, seconds) in CASES {
        for jitter in [&[][..], &["--no-jitter"]] {
            let arguments = [&["-r", rate], jitter].concat();
            let seconds = setting.pick("2", seconds);
            let python = setting.python()?;
            let watched = watch(python, "in_step.py", &[period, seconds], &[&arguments])?;
            let profile = watched.profiles.first().context("no profile")?;
            let case = format!("every {period} ms at {rate} Hz");
            let word = if jitter.is_empty() {
                "jitter"
            } else {
                "no jitter"
            };
            let mut worst = 0.0_f64;
            for account in &watched.accounts {
                let (major, minor) = (account.spent("major")?, account.spent("minor")?);
                let truth = major / (major + minor);
                let of = |name| profile.seconds(account.tid, |entry| profile.is_in(entry, name));
                let share = of("major") / (of("major") + of("minor"));
                worst = worst.max(100.0 * (share - truth).abs());
            }
            let figure = format!("{word}: worst of four phases, error");
            match word {
                // 2,000 or 1,000 ticks a phase at random err by one or 1.4 points.
                "jitter" => report.bounded(&case, &figure, worst, "points", Bound::AtMost(5.0)),
                _ => report.plain(&case, &figure, worst, "points"),
            }
        }
    }
    Ok(())
}
