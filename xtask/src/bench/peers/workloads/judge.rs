//! What was true of a run, by the target's own account, and how far a tool is from it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tests::folded::{self, Stack, Torn};
use tests::target::{Account, Target};

use super::{Truth, Workload};
use crate::bench::tool::{Claim, Taken};

/// The name under which a target tells the time of a thread that has no frames.
const FRAMELESS: &str = "frameless";

/// What was true of a run.
#[derive(Debug)]
pub(in crate::bench::peers) struct Facts {
    /// Seconds on a CPU, and in all, of each function.
    seconds: BTreeMap<String, (f64, f64)>,
    /// Seconds in all of a thread that works in part of them.
    whole_s: f64,
}

impl Facts {
    /// From a target's last words.
    pub(in crate::bench::peers) fn of(workload: &Workload, done: &Value) -> Result<Self> {
        let accounts: Vec<Account> = serde_json::from_value(done["threads"].clone())?;
        let first = accounts.first();
        let mut seconds: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        let mut add = |name: &str, cpu: f64, wall: f64| {
            let entry = seconds.entry(name.to_owned()).or_default();
            entry.0 += cpu;
            entry.1 += wall;
        };
        match workload.truth {
            Truth::Threads(names) => {
                for account in accounts.iter().filter(|it| names.contains(&&*it.name)) {
                    add(&account.name, account.cpu_s, account.wall_s);
                }
            }
            Truth::Spent | Truth::Frameless | Truth::Seen => {
                let lasted = &done["threads"][0]["lasted_s"];
                for (name, spent) in &first.context("no account")?.spent_s {
                    add(name, *spent, lasted[name].as_f64().unwrap_or(*spent));
                }
            }
            Truth::Collects => {
                let account = first.context("no account")?;
                let (cpu, wall) = (account.spent("gc_cpu")?, account.spent("gc")?);
                add("collect", cpu, wall);
                add("compute", account.cpu_s - cpu, account.wall_s - wall);
            }
            Truth::Churn => {
                let told: Vec<(i64, u32)> = serde_json::from_value(done["told"].clone())?;
                // As long as `thread_churn.py` lets each live.
                for (_, kind) in told {
                    add(&format!("kind_{kind}"), 0.0007, 0.0007);
                }
            }
            Truth::Duty => {
                let account = first.context("no account")?;
                // Kept from a CPU it is in its work all the same.
                let asleep = account.spent("asleep")?;
                add("work", account.cpu_s, account.wall_s - asleep);
            }
            Truth::Deep(_) => {
                let account = first.context("no account")?;
                add("leaf", account.cpu_s, account.wall_s);
            }
        }
        ensure!(!seconds.is_empty(), "the target told nothing: {done}");
        let whole_s = first.map_or(0.0, |account| account.wall_s);
        Ok(Self { seconds, whole_s })
    }

    fn of_claim(&self, claim: Claim) -> Vec<(&str, f64)> {
        let entries = self.seconds.iter();
        let of = |it: &(f64, f64)| match claim {
            Claim::Cpu => it.0,
            Claim::Wall => it.1,
        };
        entries.map(|(name, it)| (name.as_str(), of(it))).collect()
    }

    /// How far the shares are from the truth, percentage points: the farthest one. None where
    /// there is only one thing to see.
    pub(in crate::bench::peers) fn error(
        &self,
        workload: &Workload,
        taken: &Taken,
        claim: Claim,
    ) -> Option<f64> {
        let with = |name: &str| match (workload.truth, name) {
            (Truth::Frameless, FRAMELESS) => without_frames(&taken.folded.stacks) as f64,
            _ => taken.folded.with(name) as f64,
        };
        if let Truth::Seen = workload.truth {
            return Some((self.got(taken, claim) - 100.0).abs());
        }
        if let Truth::Duty = workload.truth {
            let truth = self.of_claim(claim).first()?.1 / self.whole_s;
            let seen = match claim {
                Claim::Cpu => taken.seconds_in(&["work".to_owned()]) / self.whole_s,
                Claim::Wall => with("work") / with("works_and_sleeps"),
            };
            return Some(100.0 * (seen - truth).abs());
        }
        let truth = self.of_claim(claim);
        if truth.len() < 2 {
            return None;
        }
        let all: f64 = truth.iter().map(|(_, seconds)| seconds).sum();
        let seen: f64 = truth.iter().map(|(name, _)| with(name)).sum();
        let off = |(name, seconds): &(&str, f64)| {
            // Nothing seen at all is as wrong as can be.
            let share = if seen > 0.0 { with(name) / seen } else { 1.0 };
            100.0 * (share - seconds / all).abs()
        };
        truth.iter().map(off).reduce(f64::max)
    }

    /// The time in which a function was seen, of the time that there was, percent.
    pub(in crate::bench::peers) fn got(&self, taken: &Taken, claim: Claim) -> f64 {
        let truth = self.of_claim(claim);
        let names: Vec<String> = truth.iter().map(|(name, _)| (*name).to_owned()).collect();
        let due: f64 = truth.iter().map(|(_, seconds)| seconds).sum();
        let counts = taken.counts.as_ref().unwrap_or(&taken.folded);
        let frameless = match names.iter().any(|name| name == FRAMELESS) {
            true => without_frames(&counts.stacks) as f64 * taken.each_s,
            false => 0.0,
        };
        100.0 * (taken.seconds_in(&names) + frameless) / due
    }
}

/// The weight of the stacks without a function of a Python file: whatever a tool puts in place of
/// one, a mark or the names of native functions.
fn without_frames(stacks: &[Stack]) -> u64 {
    let has_none = |stack: &&Stack| !stack.frames.iter().any(|frame| frame.contains(".py:"));
    stacks.iter().filter(has_none).map(|it| it.count).sum()
}

/// Stacks that cannot be, of a million in which one could tell; none where nothing is known. One
/// that says where it is cut is not among them.
pub(in crate::bench::peers) fn impossible(
    workload: &Workload,
    taken: &Taken,
    target: &Target,
) -> Option<f64> {
    let torn = match workload.truth {
        Truth::Deep(depth) => deep(taken, depth),
        _ => {
            let pairs = target.pairs();
            let counts = taken.counts.as_ref().unwrap_or(&taken.folded);
            (!pairs.is_empty()).then(|| counts.torn(&pairs))?
        }
    };
    (torn.known > 0).then(|| 1e6 * torn.impossible as f64 / torn.known as f64)
}

/// Stacks of a recursion that say that they are cut, percent.
pub(in crate::bench::peers) fn cut(workload: &Workload, taken: &Taken) -> Option<f64> {
    let Truth::Deep(depth) = workload.truth else {
        return None;
    };
    let torn = deep(taken, depth);
    (torn.known > 0).then(|| 100.0 * torn.marked as f64 / torn.known as f64)
}

/// The stacks at the end of a recursion this deep: known are those that show it.
fn deep(taken: &Taken, depth: usize) -> Torn {
    let counts = taken.counts.as_ref().unwrap_or(&taken.folded);
    let mut torn = Torn::default();
    for stack in &counts.stacks {
        let names: Vec<&str> = stack.frames.iter().map(|it| folded::name(it)).collect();
        let of = |name: &str| names.iter().filter(|it| **it == name).count();
        torn.samples += stack.count;
        if of("leaf") == 0 {
            continue;
        }
        torn.known += stack.count;
        if names.iter().any(|name| folded::is_mark(name)) {
            torn.marked += stack.count;
        } else if (of("recurse"), of("_bootstrap")) != (depth, 1) {
            torn.impossible += stack.count;
        }
    }
    torn
}
