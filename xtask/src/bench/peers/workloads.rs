//! The programs on which the tools are compared, and what each says is true.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tests::folded::{self, Torn};
use tests::target::{Account, Target};

use crate::bench::tool::{Claim, Taken};

/// How a target's work ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// By itself, without another word.
    Itself,
    /// By itself, after it said that it runs.
    AfterRunning,
    /// When it is told.
    Told,
}

/// What a target's account means.
#[derive(Clone, Copy, Debug)]
pub(super) enum Truth {
    /// Each thread is of the function that it ran.
    Threads(&'static [&'static str]),
    /// It has measured what each function spent.
    Spent,
    /// It has measured its collections, beside computing.
    Collects,
    /// It has counted its threads of each kind.
    Churn,
    /// One function works in as much of the time as it has measured.
    Duty,
    /// One function works at the end of a recursion this deep.
    Deep(usize),
}

/// A program and how it is judged.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    pub(super) script: &'static str,
    pub(super) arguments: Vec<String>,
    pub(super) end: End,
    pub(super) truth: Truth,
    /// Each round has the argument's last word of its own: which quarter of a period.
    pub(super) by_quarters: bool,
}

/// All workloads, each for so many seconds.
pub(super) fn all(seconds: f64, quick: bool) -> Vec<Workload> {
    let long = format!("{seconds}");
    let mut all = Vec::new();
    let mut add = |name, script, arguments: &[&str], end, truth| {
        all.push(Workload {
            name,
            script,
            arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
            end,
            truth,
            by_quarters: script == "in_step.py",
        });
    };
    let origin = match quick {
        true => ["4", "0.5", "6000000"],
        false => ["8", "1", "12000000"],
    };
    let threads = Truth::Threads(&["compress", "half_sleep"]);
    add(
        "the origin's program",
        "origin.py",
        &origin,
        End::Itself,
        threads,
    );
    let known = [
        ("call tree, recursive", "recursive"),
        ("call tree, wide", "wide"),
        ("slices of 75 and 25 %", "slices"),
        ("C and Python", "in_c"),
        ("generators", "generators"),
        ("coroutines", "coroutines"),
    ];
    for (name, way) in known {
        let arguments = [way, &*long];
        add(
            name,
            "known_shares.py",
            &arguments,
            End::AfterRunning,
            Truth::Spent,
        );
    }
    add(
        "1 ms work, 1 ms sleep",
        "work_and_sleep.py",
        &[&long],
        End::Itself,
        Truth::Duty,
    );
    let truth = Truth::Threads(&["work"]);
    add("short calls", "short_calls.py", &["2"], End::Told, truth);
    let truth = Truth::Threads(&["consume"]);
    add(
        "short calls in generators",
        "generators.py",
        &[],
        End::Told,
        truth,
    );
    let kinds = Truth::Threads(&["kind_0", "kind_1", "kind_2", "kind_3"]);
    let crowds = [
        ("1 thread", "1"),
        ("20 threads", "20"),
        ("200 threads", "200"),
    ];
    for (name, count) in crowds {
        let arguments = [count, &*long];
        add(
            name,
            "kinds_of_threads.py",
            &arguments,
            End::AfterRunning,
            kinds,
        );
    }
    if !quick {
        let arguments = ["1000", &*long];
        let name = "1000 threads";
        add(
            name,
            "kinds_of_threads.py",
            &arguments,
            End::AfterRunning,
            kinds,
        );
    }
    let arguments = ["2", &*long, "pinned"];
    let name = "two spinners on one CPU";
    add(
        name,
        "kinds_of_threads.py",
        &arguments,
        End::AfterRunning,
        kinds,
    );
    for (name, depth, argument) in [
        ("1 deep", 1, "1"),
        ("20 deep", 20, "20"),
        ("100 deep", 100, "100"),
        ("300 deep", 300, "300"),
        ("1000 deep", 1000, "1000"),
    ] {
        add(name, "spin.py", &[argument], End::Told, Truth::Deep(depth));
    }
    let name = "in step with the clock";
    add(name, "in_step.py", &["1", &long], End::Itself, Truth::Spent);
    let arguments = [&*long, "explicit"];
    add(
        "collecting garbage",
        "collects.py",
        &arguments,
        End::Itself,
        Truth::Collects,
    );
    add(
        "threads of a millisecond",
        "thread_churn.py",
        &[],
        End::Told,
        Truth::Churn,
    );
    all
}

/// What was true of a run.
#[derive(Debug)]
pub(super) struct Facts {
    /// Seconds on a CPU, and in all, of each function.
    seconds: BTreeMap<String, (f64, f64)>,
    /// Seconds in all of a thread that works in part of them.
    whole_s: f64,
}

impl Facts {
    /// From a target's last words.
    pub(super) fn of(workload: &Workload, done: &Value) -> Result<Self> {
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
            Truth::Spent => {
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
    pub(super) fn error(&self, workload: &Workload, taken: &Taken, claim: Claim) -> Option<f64> {
        let with = |name: &str| taken.folded.with(name) as f64;
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
    pub(super) fn got(&self, taken: &Taken, claim: Claim) -> f64 {
        let truth = self.of_claim(claim);
        let names: Vec<String> = truth.iter().map(|(name, _)| (*name).to_owned()).collect();
        let due: f64 = truth.iter().map(|(_, seconds)| seconds).sum();
        100.0 * taken.seconds_in(&names) / due
    }
}

/// Stacks that cannot be, of a million in which one could tell; none where nothing is known. One
/// that says where it is cut is not among them.
pub(super) fn impossible(workload: &Workload, taken: &Taken, target: &Target) -> Option<f64> {
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
pub(super) fn cut(workload: &Workload, taken: &Taken) -> Option<f64> {
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
