//! Threads that wait, each for reasons of its own: every reason's time against the thread's own
//! clock, in each mode that has it.

use anyhow::{Context, Result, ensure};
use tests::profile::{Entry, Profile};
use tests::pythons::{self, Python};
use tests::rung::{self, Rung};
use tests::target::Account;
use tests::watched::{Watched, watch};

/// How long the threads wait, all in all.
const SECONDS: &str = "3";

/// How far a reason's share of a thread's time may be from the truth.
const TWO_PERCENT: f64 = 0.02;

/// The one that never lets the GIL go unless it is asked to.
const SPINNER: &str = "spins";

fn waits_for_the_gil(entry: &Entry) -> bool {
    entry.gil == "waits"
}

/// One thread of one profile, and what it says of itself.
struct Case<'a> {
    mode: &'static str,
    profile: &'a Profile,
    account: &'a Account,
    spinner: i64,
    /// The time that its work without the GIL was kept waiting for a CPU, by the profile of all
    /// time: in the thread's clock that is no work either.
    kept_waiting: f64,
    /// The time for which nothing is known of it and the GIL, by the same.
    unknown: f64,
    slack: f64,
}

fn is_unknown(entry: &Entry) -> bool {
    entry.state == "blocked" && entry.gil == "unknown"
}

fn is_kept_waiting(entry: &Entry) -> bool {
    entry.state == "runnable" && !waits_for_the_gil(entry)
}

impl Case<'_> {
    fn seconds(&self, counts: impl Fn(&Entry) -> bool) -> f64 {
        self.profile.seconds(self.account.tid, counts)
    }

    /// A wait that is not for the GIL. At its end the thread takes the GIL back: that, too, is in
    /// its clock, and so is the time until it had a CPU.
    fn waits(&self, reason: &str, truth: f64) -> Result<()> {
        let inside = |entry: &Entry| self.profile.is_in(entry, reason);
        let named = self.seconds(|entry| inside(entry) && entry.is_blocked_in(reason));
        let after = self.seconds(|entry| {
            inside(entry) && (waits_for_the_gil(entry) || entry.state == "runnable")
        });
        let told = format!(
            "`{reason}` took {truth:.3} s, and is {named:.3} s with {after:.3} s to go on: {:?}",
            self.account
        );
        ensure!(named <= truth + self.slack, "{told}");
        ensure!(named + after >= truth - self.slack, "{told}");
        // Named as another function's wait it would be in neither.
        let elsewhere = self.seconds(|entry| {
            !inside(entry) && entry.is_blocked_in(reason) && !waits_for_the_gil(entry)
        });
        let other = format!("{elsewhere:.3} s are blocked in `{reason}` elsewhere: {told}");
        ensure!(elsewhere <= self.slack, "{other}");
        Ok(())
    }

    /// The loser asks for the GIL whenever it does not run. Its moments of work are without it.
    fn loses(&self, truth: f64) -> Result<()> {
        let waits = self.seconds(waits_for_the_gil);
        let kept = self.kept_waiting;
        // Looks that caught it on its way: that it is off the CPU is all that is known.
        let unknown = self.unknown;
        let told = format!(
            "it waited {truth:.3} s for the GIL, and waits {waits:.3} s, {kept:.3} s for a CPU, unknown {unknown:.3} s: {:?}",
            self.account
        );
        ensure!(waits <= truth + self.slack, "{told}");
        ensure!(waits + kept + unknown >= truth - self.slack, "{told}");
        ensure!(unknown <= 0.05 * truth, "{told}");
        let runs = self.seconds(|entry| waits_for_the_gil(entry) && entry.state == "on_cpu");
        ensure!(runs <= self.slack, "{runs:.3} s of them running: {told}");
        let other = self.seconds(|entry| entry.state == "blocked" && !entry.is_blocked_in("gil"));
        ensure!(
            other <= self.slack,
            "{other:.3} s blocked in other things: {told}"
        );
        let behind = self.seconds(|entry| {
            waits_for_the_gil(entry) && self.profile.behind(entry) == Some(self.spinner)
        });
        ensure!(
            behind >= 0.9 * waits,
            "{behind:.3} s of them behind the spinner: {told}"
        );
        Ok(())
    }

    /// It holds the GIL all of the time it runs.
    fn spins(&self) -> Result<()> {
        let holds = self.seconds(|entry| entry.gil == "holds" && entry.state == "on_cpu");
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
        Ok(())
    }

    fn check(&self) -> Result<()> {
        self.belongs()?;
        for (reason, truth) in &self.account.spent_s {
            match reason.as_str() {
                "gil" => self.loses(*truth)?,
                _ if self.mode == "gil" => {}
                other => self.waits(other, *truth)?,
            }
        }
        if self.account.name == SPINNER && self.mode != "offcpu" {
            self.spins()?;
        }
        Ok(())
    }
}

fn every_wait_is_told(python: &Python) -> Result<()> {
    const MODES: [&str; 3] = ["wall", "offcpu", "gil"];
    let arguments = MODES.map(|mode| ["--mode", mode, "-r", "199"]);
    let arguments: Vec<&[&str]> = arguments.iter().map(<[&str; 4]>::as_slice).collect();
    let watched: Watched = watch(python, "waits.py", &[SECONDS], &arguments)?;
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
                unknown: all_time.seconds(account.tid, is_unknown),
                slack: TWO_PERCENT * account.wall_s + watched.stolen_s,
            };
            case.check().with_context(|| format!("in mode {mode}"))?;
        }
    }
    Ok(())
}

fn on(minor: (u8, u8)) -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    for python in pythons::of_minor(minor) {
        every_wait_is_told(python).with_context(|| format!("on {}", python.label))?;
    }
    Ok(())
}

macro_rules! on_each {
    ($($name:ident: $minor:expr;)+) => {
        $(
            #[test]
            fn $name() -> Result<()> {
                on((3, $minor))
            }
        )+
    };
}

on_each! {
    every_wait_is_told_on_3_8: 8;
    every_wait_is_told_on_3_9: 9;
    every_wait_is_told_on_3_10: 10;
    every_wait_is_told_on_3_11: 11;
    every_wait_is_told_on_3_12: 12;
    every_wait_is_told_on_3_13: 13;
    every_wait_is_told_on_3_14: 14;
    every_wait_is_told_on_3_15: 15;
}
