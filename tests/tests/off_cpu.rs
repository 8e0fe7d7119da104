//! Threads that wait, each for reasons of its own, under profilers of each mode: every reason's time
//! against the thread's own clocks.

use anyhow::{Context, Result, ensure};
use tests::on_each;
use tests::profile::{Entry, Profile};
use tests::pythons::{Python, WITH_GIL};
use tests::rung::Rung;
use tests::target::Account;
use tests::watched::{Watched, watch};

/// How long the threads wait, all in all.
const SECONDS: &str = "3";

/// How far a reason's share of a thread's time may be from the truth.
const TWO_PERCENT: f64 = 0.02;

/// The one that never lets the GIL go unless it is asked to.
const SPINNER: &str = "spins";

/// One thread of one profile, and what it says of itself.
struct Case<'a> {
    mode: &'static str,
    profile: &'a Profile,
    account: &'a Account,
    spinner: i64,
    /// Its time without a CPU that it could have used, by the profile of all time.
    kept_waiting: f64,
    slack: f64,
    /// Its interpreter runs without a GIL.
    free: bool,
}

fn is_kept_waiting(entry: &Entry) -> bool {
    entry.state == "runnable"
}

fn is_blocked(entry: &Entry) -> bool {
    entry.state == "blocked"
}

/// A look that caught it on its way: that it is off the CPU is all that is known.
fn is_unknown(entry: &Entry) -> bool {
    is_blocked(entry)
        && match &*entry.gil {
            "no_gil" => entry.frames_from == "none",
            gil => gil == "unknown",
        }
}

impl Case<'_> {
    fn seconds(&self, counts: impl Fn(&Entry) -> bool) -> f64 {
        self.profile.seconds(self.account.tid, counts)
    }

    /// A wait that is not for the GIL. At its end the thread wants a CPU, and then the GIL: that,
    /// too, is in its clock.
    fn waits(&self, reason: &str, truth: f64) -> Result<()> {
        let inside = |entry: &Entry| self.profile.is_in(entry, reason);
        let named = self.seconds(|entry| inside(entry) && entry.is_blocked_in(reason));
        let gil = self.seconds(|entry| inside(entry) && entry.is_blocked_in("gil"));
        let kept = self.seconds(|entry| inside(entry) && is_kept_waiting(entry));
        let unknown = self.seconds(is_unknown);
        let told = format!(
            "`{reason}` took {truth:.3} s, and is {named:.3} s, {gil:.3} s for the GIL, {kept:.3} s \
             for a CPU, unknown {unknown:.3} s: {:?}",
            self.account
        );
        ensure!(named <= truth + self.slack, "{told}");
        let all = named + gil + kept + unknown;
        ensure!(all >= truth - self.slack, "{told}");
        ensure!(unknown <= 2.0 * self.slack, "{told}");
        let elsewhere = self.seconds(|entry| !inside(entry) && entry.is_blocked_in(reason));
        ensure!(
            elsewhere <= self.slack,
            "{elsewhere:.3} s are blocked in `{reason}` elsewhere: {told}"
        );
        Ok(())
    }

    /// The loser asks for the GIL whenever it is blocked.
    fn loses(&self, truth: f64) -> Result<()> {
        let inside = |entry: &Entry| self.profile.is_in(entry, "gil");
        let waits =
            |entry: &Entry| inside(entry) && entry.is_blocked_in("gil") && entry.gil == "waits";
        let behind = |entry: &Entry| self.profile.behind(entry);
        let all = self.seconds(waits);
        let unknown = self.seconds(is_unknown);
        let kept = self.kept_waiting;
        let told = format!(
            "it waited {truth:.3} s for the GIL, and waits {all:.3} s, {kept:.3} s for a CPU, \
             unknown {unknown:.3} s: {:?}",
            self.account
        );
        ensure!(all <= truth + self.slack, "{told}");
        ensure!(all + kept + unknown >= truth - self.slack, "{told}");
        ensure!(unknown <= 2.0 * self.slack, "{told}");
        let runs = self.seconds(|entry| entry.gil == "waits" && entry.state == "on_cpu");
        ensure!(runs <= self.slack, "{runs:.3} s of them running: {told}");
        let known = self.seconds(|entry| waits(entry) && behind(entry).is_some());
        let right = self.seconds(|entry| waits(entry) && behind(entry) == Some(self.spinner));
        ensure!(
            known >= 0.8 * all && right >= 0.85 * known,
            "{known:.3} s behind somebody, {right:.3} s behind the spinner: {told}"
        );
        Ok(())
    }

    /// Without a GIL nothing holds it, and nobody loses it.
    fn is_free(&self) -> Result<()> {
        let on_cpu = |entry: &Entry| entry.state == "on_cpu";
        let others = self.seconds(|entry| entry.gil != "no_gil" || entry.is_blocked_in("gil"));
        ensure!(others == 0.0, "{others:.3} s have to do with a GIL");
        if self.account.spent_s.contains_key("gil") && self.mode == "wall" {
            let inside = |entry: &Entry| self.profile.is_in(entry, "gil") && on_cpu(entry);
            let (runs, truth) = (self.seconds(inside), self.account.cpu_s);
            let told = format!("{runs:.3} s on a CPU in place of {truth:.3} s");
            ensure!((runs - truth).abs() <= self.slack, "{told}");
        }
        Ok(())
    }

    /// It holds the GIL all of the time it runs.
    fn spins(&self) -> Result<()> {
        let holds = if self.free { "no_gil" } else { "holds" };
        let holds = self.seconds(|entry| entry.gil == holds && entry.state == "on_cpu");
        let truth = self.account.cpu_s;
        ensure!(
            (holds - truth).abs() <= self.slack,
            "it holds the GIL for {holds:.3} s on a CPU: {:?}",
            self.account
        );
        Ok(())
    }

    /// What there is in a profile of this mode, and how much.
    fn belongs(&self) -> Result<()> {
        let all = self.seconds(|_| true);
        let told = format!("all its samples are {all:.3} s: {:?}", self.account);
        let on_cpu = match self.mode {
            "wall" => 0.0,
            "offcpu" => self.account.cpu_s,
            _ => {
                let neither = self.seconds(|entry| !matches!(&*entry.gil, "holds" | "waits"));
                ensure!(neither == 0.0, "{neither:.3} s without the GIL: {told}");
                return Ok(());
            }
        };
        ensure!(all + on_cpu >= self.account.wall_s - self.slack, "{told}");
        ensure!(all + on_cpu <= self.account.life_s + self.slack, "{told}");
        let runs = self.seconds(|entry| entry.state == "on_cpu");
        let expected = if self.mode == "wall" {
            self.account.cpu_s
        } else {
            0.0
        };
        ensure!(
            (runs - expected).abs() <= self.slack,
            "{runs:.3} s on a CPU: {told}"
        );
        // The kernel's own number is the most that it can be.
        let kept = self.kept_waiting;
        let after = self.account.life_s - self.account.wall_s;
        ensure!(
            kept <= self.account.runnable_s + after + self.slack,
            "{kept:.3} s kept waiting for a CPU: {told}"
        );
        Ok(())
    }

    fn check(&self) -> Result<()> {
        self.belongs()?;
        if self.free {
            self.is_free()?;
        }
        for (reason, truth) in &self.account.spent_s {
            match reason.as_str() {
                "gil" if self.free => {}
                "gil" => self.loses(*truth)?,
                _ if self.mode == "gil" => {}
                other => self.waits(other, *truth)?,
            }
        }
        let spins = match self.mode {
            "wall" => true,
            "gil" => !self.free,
            _ => false,
        };
        if self.account.name == SPINNER && spins {
            self.spins()?;
        }
        Ok(())
    }
}

fn every_wait_is_told(python: &Python, free: bool) -> Result<()> {
    const MODES: [&str; 3] = ["wall", "offcpu", "gil"];
    let arguments = MODES.map(|mode| ["--mode", mode, "-r", "199"]);
    let arguments: Vec<&[&str]> = arguments.iter().map(<[&str; 4]>::as_slice).collect();
    let watched: Watched = watch(python, "reasons.py", &[SECONDS], &arguments)?;
    let spinner = watched.account(SPINNER)?.tid;
    let all_time = watched.profiles.first().context("no profile")?;
    for (mode, profile) in MODES.into_iter().zip(&watched.profiles) {
        for account in &watched.accounts {
            let case = Case {
                mode,
                profile,
                account,
                spinner,
                kept_waiting: all_time.seconds(account.tid, is_kept_waiting),
                slack: TWO_PERCENT * account.wall_s + watched.stolen_s,
                free,
            };
            case.check().with_context(|| format!("in mode {mode}"))?;
        }
    }
    Ok(())
}

/// Whether a time is the truth, of which `in_vain` at most was spent without a CPU.
fn is_within(told: f64, truth: f64, in_vain: f64, slack: f64) -> bool {
    (truth - in_vain - slack..=truth + slack).contains(&told)
}

/// A stop is none of the target's doing, and meets all of its threads. Who waited before it waits on
/// afterwards, for the same: the kernel has another name for that call then, `restart_syscall`.
fn a_stop_is_told(python: &Python) -> Result<()> {
    const MODES: [&str; 2] = ["wall", "offcpu"];
    let arguments = MODES.map(|mode| ["--mode", mode, "-r", "199"]);
    let arguments: Vec<&[&str]> = arguments.iter().map(<[&str; 4]>::as_slice).collect();
    let watched = watch(python, "stops.py", &["1"], &arguments)?;
    let stops = watched.account("stops")?;
    let truth = *stops.spent_s.get("stopped").context("no stop")?;
    for (mode, profile) in MODES.into_iter().zip(&watched.profiles) {
        for account in &watched.accounts {
            let told = profile.seconds(account.tid, |entry| entry.is_blocked_in("stopped"));
            let slack = TWO_PERCENT * account.wall_s + watched.stolen_s;
            // Its clock tells of the time as well in which it could go on and had no CPU.
            ensure!(
                is_within(told, truth, stops.runnable_s, slack),
                "in mode {mode} it is stopped for {told:.3} s of {truth:.3} s: {account:?}"
            );
            let waited = account.spent_s.iter().filter(|(why, _)| *why != "stopped");
            for (reason, all) in waited {
                let told = profile.seconds(account.tid, |entry| entry.is_blocked_in(reason));
                ensure!(
                    is_within(told + truth, *all, account.runnable_s, slack),
                    "in mode {mode} it is in `{reason}` for {told:.3} s of {all:.3} s, of which it \
                     was stopped for {truth:.3} s: {account:?}, by its profile {:#?}",
                    profile.of(account.tid).collect::<Vec<_>>()
                );
            }
        }
    }
    Ok(())
}

fn every_absence_is_told(python: &Python) -> Result<()> {
    every_wait_is_told(python, python.free_threaded)?;
    if python.free_threaded {
        every_wait_is_told(&python.with(&WITH_GIL), false).context("with the GIL on")?;
    }
    a_stop_is_told(python)
}

on_each! {
    Rung::Kernel, every_absence_is_told;
    every_wait_is_told_on_3_8: 8;
    every_wait_is_told_on_3_9: 9;
    every_wait_is_told_on_3_10: 10;
    every_wait_is_told_on_3_11: 11;
    every_wait_is_told_on_3_12: 12;
    every_wait_is_told_on_3_13: 13;
    every_wait_is_told_on_3_14: 14;
    every_wait_is_told_on_3_15: 15;
}
