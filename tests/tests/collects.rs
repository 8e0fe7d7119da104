//! Programs that collect garbage and measure it themselves: the collector's share of the samples.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use tests::on_each;
use tests::profile::{Entry, Profile};
use tests::pythons::Python;
use tests::rung::Rung;
use tests::watched::{Watched, watch};

/// How far the collector's share may be from the truth.
const TWO_POINTS: f64 = 0.02;

/// How much of its time may be unknown, since it ran on each time it was looked at.
const TEN_POINTS: f64 = 0.1;

const CPU: &[&str] = &["--mode", "cpu", "-r", "1999"];
const WALL: &[&str] = &["--mode", "wall", "-r", "1999"];

fn collects(entry: &Entry) -> bool {
    entry.gc == "collecting"
}

/// Of a thread that ran on each time it was looked at, it is not known. And where a build has no
/// GIL, a collection is known while it has stopped the others; whose it is in its other moments,
/// when they run beside it, nobody can tell.
fn may_collect(entry: &Entry) -> bool {
    entry.gc != "idle"
}

/// The leaf says what the state says, and no other frame does.
fn the_leaf_is_the_collector(profile: &Profile) -> Result<()> {
    for entry in &profile.entries {
        let is_collector = |kind: &str| kind == "gc";
        let mut kinds = profile.stack(entry).map(|frame| frame.kind.as_str());
        let leaf = kinds.next().is_some_and(is_collector);
        ensure!(
            leaf == collects(entry) && !kinds.any(is_collector),
            "its state and its leaf differ: {entry:?}"
        );
    }
    Ok(())
}

/// A thread's seconds by what it did and what its collector did.
fn by_state(profile: &Profile, tid: i64) -> BTreeMap<(&str, &str), f64> {
    let mut seconds = BTreeMap::new();
    for entry in profile.of(tid) {
        *seconds
            .entry((entry.state.as_str(), entry.gc.as_str()))
            .or_default() += entry.weight_s();
    }
    seconds
}

fn shares(watched: &Watched, free: bool) -> Result<()> {
    let account = watched.account("collects")?;
    for profile in &watched.profiles {
        the_leaf_is_the_collector(profile)?;
        let mode = profile.ledger.mode.as_str();
        let (all, truth) = match mode {
            "cpu" => (account.cpu_s, account.spent("gc_cpu")?),
            _ => (account.wall_s, account.spent("gc")?),
        };
        let whole = profile.seconds(account.tid, |_| true);
        let share = profile.seconds(account.tid, collects) / whole;
        let certain = mode == "cpu" && !free;
        let most = if certain { collects } else { may_collect };
        let most = profile.seconds(account.tid, most) / whole;
        ensure!(
            free || most - share <= TEN_POINTS,
            "{:.4} is not known in mode {mode}: {account:?}",
            most - share
        );
        let truth = truth / all;
        let slack = TWO_POINTS + watched.stolen_s / all;
        ensure!(
            (share - slack..most + slack).contains(&truth),
            "the collector has {share:.4} to {most:.4} in mode {mode}, and {truth:.4} by its own clock: {account:?}\n{:#?}",
            by_state(profile, account.tid),
        );
        for other in watched.accounts.iter().filter(|it| it.tid != account.tid) {
            let share = profile.seconds(other.tid, collects) / other.wall_s;
            ensure!(
                share <= TWO_POINTS,
                "{share:.4} of a bystander's time: {other:?}"
            );
        }
    }
    Ok(())
}

fn shares_in_all_ways(python: &Python) -> Result<()> {
    let check = |arguments: &[&str], profilers: &[&[&str]]| {
        let told = || format!("{arguments:?}");
        let watched = watch(python, "collects.py", arguments, profilers);
        shares(&watched.with_context(told)?, python.free_threaded).with_context(told)
    };
    check(&["2", "explicit"], &[CPU, WALL])?;
    check(&["2", "automatic"], &[CPU, WALL])?;
    // Between a collection's end and the clock the bystander may take the GIL: no truth of
    // all time there.
    check(&["2", "explicit", "bystander"], &[CPU])
}

on_each! {
    Rung::Kernel, shares_in_all_ways;
    the_collectors_share_is_its_time_on_3_8: 8;
    the_collectors_share_is_its_time_on_3_9: 9;
    the_collectors_share_is_its_time_on_3_10: 10;
    the_collectors_share_is_its_time_on_3_11: 11;
    the_collectors_share_is_its_time_on_3_12: 12;
    the_collectors_share_is_its_time_on_3_13: 13;
    the_collectors_share_is_its_time_on_3_14: 14;
    the_collectors_share_is_its_time_on_3_15: 15;
}
