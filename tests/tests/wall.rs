//! All of a thread's time: on a CPU, runnable and blocked are its wall time, by the samples and by
//! the scheduler, in whatever mode, and the shares are the threads' own.

use anyhow::{Context, Result, ensure};
use tests::ledger::Ledger;
use tests::on_each;
use tests::profile::{Entry, Profile};
use tests::profiler::Running;
use tests::pythons::{self, Python};
use tests::rung::{self, Rung};
use tests::target::Target;
use tests::watched::{Watched, watch};

/// How far two accounts of one time may be apart.
const ONE_PERCENT: f64 = 0.01;

/// A thread that lived so long is judged by the percent.
const LONG_S: f64 = 1.0;

const CPU: &[&str] = &["--mode", "cpu", "-r", "999"];
const WALL: &[&str] = &["--mode", "wall", "-r", "199"];
const OFF_CPU: &[&str] = &["--mode", "offcpu", "-r", "199"];

fn is_on_cpu(entry: &Entry) -> bool {
    entry.state == "on_cpu"
}

/// Ticks and looks are samples and losses, and the entries are the ledger's. A mode that leaves
/// some samples out leaves them out of the entries alone.
fn adds_up(profile: &Profile) -> Result<()> {
    let ledger = &profile.ledger;
    ensure!(
        ledger.ticks + ledger.looks == ledger.samples + ledger.lost(),
        "ticks {} and looks {} are not samples {} and losses {:?}",
        ledger.ticks,
        ledger.looks,
        ledger.samples,
        ledger.losses
    );
    for sum in [&ledger.frames_from, &ledger.gil] {
        let counted: u64 = sum.values().sum();
        ensure!(
            counted == ledger.samples,
            "{sum:?} are not {}",
            ledger.samples
        );
    }
    let off_cpu = ledger.mode == "offcpu";
    let ticks: u64 = profile.entries.iter().map(|entry| entry.ticks).sum();
    let expected = if off_cpu {
        ledger.looks
    } else {
        ledger.samples
    };
    ensure!(ticks == expected, "the entries are {ticks}: {ledger:?}");
    for thread in &ledger.threads {
        for (state, sampled) in [
            ("on_cpu", if off_cpu { 0 } else { thread.sampled_ns }),
            ("runnable", thread.sampled_runnable_ns),
            ("blocked", thread.sampled_blocked_ns),
        ] {
            let entries = profile.of(thread.tid).filter(|entry| entry.state == state);
            let entries: u64 = entries.map(|entry| entry.weight_ns).sum();
            ensure!(entries == sampled, "{entries} ns {state}: {thread:?}");
        }
    }
    Ok(())
}

/// The long threads of a profile of all time, and of one of the time on or off a CPU.
fn is_all_time(ledger: &Ledger) -> Result<()> {
    for thread in &ledger.threads {
        let wall = thread.wall_s().context("no wall time")?;
        if wall < LONG_S {
            continue;
        }
        let scheduler = thread.all_scheduler_s().context("no scheduler's account")?;
        for (whose, all) in [
            ("scheduler", scheduler),
            ("samples", thread.all_sampled_s()),
        ] {
            ensure!(
                (all / wall - 1.0).abs() <= ONE_PERCENT,
                "the {whose} know {all:.3} s of {wall:.3} s: {thread:?}"
            );
        }
    }
    Ok(())
}

/// What the three modes say of a thread that all of them saw be born and end: the time off the CPU
/// is all time without that on it.
fn agree(tid: i64, wall: &Profile, cpu: &Profile, off_cpu: &Profile) -> Result<()> {
    let of = |profile: &Profile| profile.seconds(tid, |_| true);
    let (wall, cpu, off) = (of(wall), of(cpu), of(off_cpu));
    ensure!(
        (wall - cpu - off).abs() <= ONE_PERCENT * wall,
        "thread {tid}: wall {wall:.3} s, cpu {cpu:.3} s, offcpu {off:.3} s"
    );
    Ok(())
}

fn the_origin_is_told(python: &Python) -> Result<()> {
    let arguments = ["12", "3", "8000000", "8"];
    let watched = watch(python, "origin.py", &arguments, &[WALL, CPU, OFF_CPU])?;
    let [wall, cpu, off_cpu] = watched.profiles.as_slice() else {
        anyhow::bail!("three profilers wrote {} profiles", watched.profiles.len());
    };
    for profile in &watched.profiles {
        adds_up(profile).with_context(|| format!("in mode {}", profile.ledger.mode))?;
    }
    is_all_time(&wall.ledger)?;

    let near = |what: &str, sampled: f64, truth: f64| {
        let slack = ONE_PERCENT * truth.max(LONG_S) + watched.stolen_s;
        ensure!(
            (sampled - truth).abs() <= slack,
            "{what}: {sampled:.3} s of samples, by its own clock {truth:.3} s: {:?}",
            watched.accounts
        );
        Ok(())
    };
    let compress = watched.account("compress")?;
    let half_sleep = watched.account("half_sleep")?;
    for account in [compress, half_sleep] {
        agree(account.tid, wall, cpu, off_cpu)?;
        let name = account.name.as_str();
        let all = wall.seconds(account.tid, |_| true);
        near(name, all, all.clamp(account.wall_s, account.life_s))?;
        let works = |entry: &Entry| is_on_cpu(entry) && wall.is_in(entry, name);
        near(name, wall.seconds(account.tid, works), account.cpu_s)?;
    }
    // What it wants afterwards, a CPU and the GIL, is in its clock too.
    let off = |function: &'static str, reason: &'static str| {
        move |entry: &Entry| {
            let wants = entry.state == "runnable" || entry.is_blocked_in("gil");
            wall.is_in(entry, function) && (wants || entry.is_blocked_in(reason))
        }
    };
    // It may also want a CPU between its clock and the function's ends.
    let asleep = |entry: &Entry| entry.is_blocked_in("sleep");
    let (least, most) = (
        wall.seconds(half_sleep.tid, asleep),
        wall.seconds(half_sleep.tid, off("spend", "sleep")),
    );
    let truth = half_sleep.spent("sleep")?;
    near("half_sleep asleep", truth.clamp(least, most), truth)?;
    let main = watched.account("main")?;
    let joined = wall.seconds(main.tid, off("join", "lock"));
    near("main in join", joined, main.spent("lock")?)?;
    // While others are to run, it may want a CPU anywhere; to begin they need one, too.
    let waits = |entry: &Entry| {
        let places = [
            ("start", "lock"),
            ("join", "lock"),
            ("command", "io_pipe"),
            ("accounts_of", "sleep"),
        ];
        let mut places = places.into_iter();
        entry.state == "runnable" || places.any(|(function, reason)| off(function, reason)(entry))
    };
    let all = wall.seconds(main.tid, |_| true);
    near("main, all its waits", wall.seconds(main.tid, waits), all)
}

on_each! {
    Rung::Kernel, the_origin_is_told;
    the_origin_is_told_on_3_8: 8;
    the_origin_is_told_on_3_9: 9;
    the_origin_is_told_on_3_10: 10;
    the_origin_is_told_on_3_11: 11;
    the_origin_is_told_on_3_12: 12;
    the_origin_is_told_on_3_13: 13;
    the_origin_is_told_on_3_14: 14;
    the_origin_is_told_on_3_15: 15;
}

#[test]
fn half_of_a_time_is_half_of_it_at_any_rate() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(python) = pythons::any() else {
        return Ok(());
    };
    let slow = ["--mode", "cpu", "-r", "99"];
    let profilers: [&[&str]; 4] = [CPU, &slow, WALL, OFF_CPU];
    let watched: Watched = watch(python, "work_and_sleep.py", &["4"], &profilers)?;
    let account = watched.account("works_and_sleeps")?;
    let truth = account.cpu_s / account.wall_s;
    let asleep = 1.0 - truth;
    let slack = ONE_PERCENT + watched.stolen_s / account.wall_s;
    for profile in &watched.profiles {
        adds_up(profile)?;
        let mode = profile.ledger.mode.as_str();
        let works = profile.seconds(account.tid, is_on_cpu) / account.wall_s;
        let rate = profile.ledger.rate_hz;
        // Samples tell of the time up to the last one. Of few ticks, all of one draw of their rate
        // may meet the program asleep: half of those 200 ms is then behind the last sample.
        let unmet = if rate < 900.0 {
            0.1 / account.wall_s
        } else {
            0.0
        };
        ensure!(
            mode == "offcpu" || (works - truth).abs() <= slack + unmet,
            "{works:.4} of the time at work by mode {mode} at {rate} Hz, {truth:.4} by its clock"
        );
        let sleeps = |entry: &Entry| entry.is_blocked_in("sleep") || entry.state == "runnable";
        let sleeps = profile.seconds(account.tid, sleeps) / account.wall_s;
        ensure!(
            mode == "cpu" || (sleeps - asleep).abs() <= slack,
            "{sleeps:.4} of the time off the CPU by mode {mode}, {asleep:.4} by its clock"
        );
    }
    let [cpu, _, wall, off_cpu] = watched.profiles.as_slice() else {
        anyhow::bail!("four profilers wrote {} profiles", watched.profiles.len());
    };
    is_all_time(&wall.ledger)?;
    agree(account.tid, wall, cpu, off_cpu)
}

#[test]
fn every_sleeper_has_all_of_its_time() -> Result<()> {
    const SLEEPERS: usize = 300;
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    for python in pythons::required() {
        let mut target = Target::start(python, "sleepers.py", &[&SLEEPERS.to_string()])?;
        target.tell("go")?;
        target.expect("running")?;
        let mut profiler = Running::in_detail(target.pid(), &["--mode", "wall"])?;
        profiler.attached()?;
        // A second target is the clock: it works for a known while.
        let mut clock = Target::start(python, "count_work.py", &["1"])?;
        clock.tell("40000")?;
        let lasted = clock.expect("work")?["wall_s"].as_f64();
        let lasted = lasted.context("the clock does not say how long it took")?;
        let profile = profiler.stop()?.profile()?;
        target.tell("stop")?;
        target.done()?;

        let told = |what: &str| format!("on {}: {what}", python.label);
        adds_up(&profile).with_context(|| told("the sums"))?;
        is_all_time(&profile.ledger).with_context(|| told("the sums"))?;
        let duration = profile.ledger.duration_s;
        ensure!(
            duration >= lasted,
            told("the run was shorter than its clock")
        );
        let asleep = profile.threads.iter().filter(|thread| {
            let is_asleep =
                |entry: &Entry| entry.is_blocked_in("lock") && profile.is_in(entry, "asleep");
            let slept = profile.seconds(thread.tid, is_asleep);
            (slept / duration - 1.0).abs() <= ONE_PERCENT
        });
        let asleep = asleep.count();
        ensure!(
            asleep == SLEEPERS,
            told(&format!("{asleep} slept all the time"))
        );
        // Each is walked when it is first looked at, and has not run since.
        let walks = profile
            .entries
            .iter()
            .filter(|entry| entry.frames_from == "user" && profile.is_in(entry, "asleep"));
        let walks: u64 = walks.map(|entry| entry.ticks).sum();
        let told = told(&format!("{walks} walks of {SLEEPERS} sleepers"));
        ensure!(walks <= 2 * SLEEPERS as u64, told);
    }
    Ok(())
}
