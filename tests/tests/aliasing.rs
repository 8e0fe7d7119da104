//! Programs that repeat in step with the ticks: without jitter each tick sees the same instant of
//! every period, and the shares are all or nothing.

use anyhow::{Context, Result, ensure};
use tests::pythons;
use tests::rung::{self, Rung};
use tests::watched::{Watched, watch};

/// A program's period, the rate that is in step with it, and how long each of its threads runs:
/// some hundred ticks.
const CASES: [(&str, &str, &str); 2] = [("1", "1000", "1.5"), ("10", "100", "5")];

/// How far a share is from the truth, for each thread of the target and for all of them.
fn errors(watched: &Watched) -> Result<(Vec<f64>, f64)> {
    let profile = watched.profiles.first().context("no profile")?;
    let mut each = Vec::new();
    let mut sums = [0.0; 4];
    for account in &watched.accounts {
        let (major, minor) = (account.spent("major")?, account.spent("minor")?);
        let of = |function| profile.seconds(account.tid, |entry| profile.is_in(entry, function));
        let (saw_major, saw_minor) = (of("major"), of("minor"));
        each.push(saw_major / (saw_major + saw_minor) - major / (major + minor));
        for (sum, value) in sums.iter_mut().zip([saw_major, saw_minor, major, minor]) {
            *sum += value;
        }
    }
    let [saw_major, saw_minor, major, minor] = sums;
    let all = saw_major / (saw_major + saw_minor) - major / (major + minor);
    Ok((each, all))
}

#[test]
fn a_program_in_step_with_the_ticks_is_told_right() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(python) = pythons::any() else {
        return Ok(());
    };
    for (period, rate, seconds) in CASES {
        let watched = watch(python, "in_step.py", &[period, seconds], &[&["-r", rate]])?;
        let (each, all) = errors(&watched)?;
        // Of n ticks at random a share errs by 0.44/√n: a point at 2,000, two at 500.
        let told = format!("{rate} Hz: errors {each:.3?}, together {all:.3}");
        ensure!(each.iter().all(|error| error.abs() < 0.1), "{told}");
        ensure!(all.abs() < 0.05, "{told}");
    }
    Ok(())
}

/// What jitter is for. If this fails, the test above proves nothing.
#[test]
fn without_jitter_a_program_in_step_with_the_ticks_is_told_wrong() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(python) = pythons::any() else {
        return Ok(());
    };
    for (period, rate, seconds) in CASES {
        let arguments = ["-r", rate, "--no-jitter"];
        let watched = watch(python, "in_step.py", &[period, seconds], &[&arguments])?;
        let (each, _) = errors(&watched)?;
        // All or nothing is 26 or 74 points off. One of the four may be on the edge.
        let wrong = each.iter().filter(|error| error.abs() > 0.15).count();
        ensure!(wrong >= 3, "{rate} Hz: errors {each:.3?}");
    }
    Ok(())
}
