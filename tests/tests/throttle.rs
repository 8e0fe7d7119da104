//! A kernel that holds ticks back, because `kernel.perf_event_max_sample_rate` is too low for the
//! rate: `run` and `doctor` say so, and what to type.
//!
//! The setting is the whole machine's. It is lowered for the seconds that two commands take, and given
//! back whatever becomes of the test.

use std::fs;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use tests::ledger::Ledger;
use tests::profiler::{self, Finished};
use tests::pythons;
use tests::rung::{self, Rung};
use tests::target::Target;

const SETTING: &str = "/proc/sys/kernel/perf_event_max_sample_rate";
/// The kernel's own value.
const USUAL: &str = "100000";

/// The setting as it was; whoever holds this may change it.
///
/// It is a child that gives it back, once its standard input is closed: then it does not matter how
/// the test ends.
struct Borrowed(Child);

impl Borrowed {
    fn take() -> Result<Self> {
        let before = fs::read_to_string(SETTING)?;
        let give_back = format!(
            "trap '' INT TERM HUP; cat; echo {} > {SETTING}",
            before.trim()
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &give_back]).stdin(Stdio::piped());
        Ok(Self(shell.spawn()?))
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Its status is of no interest to a test that fails already.
        let _ = self.0.wait();
    }
}

fn run_at(rate: &str, target: &Target) -> Result<(Finished, Ledger)> {
    let pid = target.pid();
    let options = ["-r", rate, "-d", "500ms"];
    let finished = profiler::Running::on(pid, &options)?.finish()?.success()?;
    let ledger = finished.ledger()?;
    Ok((finished, ledger))
}

#[test]
fn ticks_that_the_kernel_holds_back_are_told_with_what_to_type() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(python) = pythons::any() else {
        return Ok(());
    };
    let mut target = Target::start(python, "spin.py", &["1"])?;
    target.tell("go")?;
    target.expect("running")?;

    let borrowed = Borrowed::take()?;
    let set = |value: &str| {
        let file = fs::OpenOptions::new().write(true).open(SETTING);
        file.and_then(|mut file| file.write_all(value.as_bytes()))
    };
    if let Err(error) = set(USUAL) {
        // Where `kernel.perf_cpu_time_max_percent` is 0 or 100, and where /proc/sys is read-only.
        rung::leave_out(&format!("{SETTING} cannot be written: {error}"));
        return Ok(());
    }
    let (usual, usual_ledger) = run_at("999", &target)?;
    set("1")?;
    let (low, low_ledger) = run_at("999", &target)?;
    let doctor = profiler::run(&["doctor"])?;
    drop(borrowed);

    let name = "kernel.perf_event_max_sample_rate";
    ensure!(!usual.stderr.contains(name), "{}", usual.stderr);
    ensure!(usual_ledger.max_rate_hz.is_none(), "{usual_ledger:?}");

    let line = format!("`sudo sysctl {name}={USUAL}`");
    let first = low.stderr.lines().next().context("it said nothing")?;
    let at_start = format!("warning: {name} is 1, too low for 999 ticks a second");
    ensure!(
        first.starts_with(&at_start) && first.contains(&line),
        "{first}"
    );
    let at_the_end = format!("came late, and count with the next that came: {name} was 1");
    ensure!(low.stderr.contains(&at_the_end), "{}", low.stderr);
    ensure!(low_ledger.max_rate_hz == Some(1), "{low_ledger:?}");
    ensure!(low_ledger.late_ticks > 0, "{low_ledger:?}");
    ensure!(low_ledger.late_ticks < low_ledger.ticks, "{low_ledger:?}");
    low_ledger.balances()?;

    let mut lines = doctor.stdout.lines();
    let row = format!("  no  {name}: 1");
    ensure!(lines.any(|line| line == row), "{}", doctor.stdout);
    let advice = lines.next().context("no advice")?;
    ensure!(advice.contains(&line), "{advice}");
    // What it reads is exact all the same.
    ensure!(doctor.status.code() == Some(0), "{doctor:?}");

    target.tell("stop")?;
    target.expect("done")?;
    Ok(())
}
