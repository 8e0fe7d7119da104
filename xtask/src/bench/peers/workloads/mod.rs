//! The programs on which the tools are compared: a table, and what is true of each.

mod judge;

pub(super) use judge::{Facts, cut, impossible};

use anyhow::{Context, Result};
use tests::pythons::{self, Python};

use crate::bench::tool::Watched;

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
    /// The same, and one of its threads has no frames: what has none is that thread's.
    Frameless,
    /// It has measured what one function spent, all of which is to be seen.
    Seen,
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
    /// The package from PyPI that it needs; the first argument is then where that is.
    pub(super) package: Option<&'static str>,
    /// What the tools are asked for.
    pub(super) watched: Watched,
}

impl Workload {
    fn new(
        name: &'static str,
        script: &'static str,
        arguments: &[&str],
        end: End,
        truth: Truth,
    ) -> Self {
        Self {
            name,
            script,
            arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
            end,
            truth,
            by_quarters: false,
            package: None,
            watched: Watched::Itself,
        }
    }

    /// Where the package that it needs is, as the interpreter sees it.
    pub(super) fn packages(&self, python: &Python) -> Result<Option<String>> {
        let Some(package) = self.package else {
            return Ok(None);
        };
        let folder = pythons::packages(python, package);
        let folder = folder.with_context(|| format!("pip has no `{package}` for it"))?;
        Ok(Some(folder))
    }
}

/// All workloads, each for so many seconds. A quick run has fewer of those that differ in size alone.
pub(super) fn all(seconds: f64, quick: bool) -> Vec<Workload> {
    let long = format!("{seconds}");
    let long = long.as_str();
    let mut all = vec![origin(quick)];
    all.extend(known(long));
    all.extend(crowds(long, quick));
    all.extend(depths());
    all.extend(odd_ones(long));
    all.extend(children(long, quick));
    all.extend(usual(long, quick));
    all
}

/// The program with which it began: threads that compress, sleep and wait.
fn origin(quick: bool) -> Workload {
    let arguments = match quick {
        true => ["4", "0.5", "6000000"],
        false => ["8", "1", "12000000"],
    };
    let threads = Truth::Threads(&["compress", "half_sleep"]);
    let name = "the origin's program";
    Workload::new(name, "origin.py", &arguments, End::Itself, threads)
}

/// Who calls whom is known, and what each spends.
fn known(long: &str) -> Vec<Workload> {
    let ways = [
        ("call tree, recursive", "recursive"),
        ("call tree, wide", "wide"),
        ("slices of 75 and 25 %", "slices"),
        ("C and Python", "in_c"),
        ("generators", "generators"),
        ("coroutines", "coroutines"),
    ];
    let known = ways.map(|(name, way)| {
        let (script, end) = ("known_shares.py", End::AfterRunning);
        Workload::new(name, script, &[way, long], end, Truth::Spent)
    });
    let work = Truth::Threads(&["work"]);
    let consume = Truth::Threads(&["consume"]);
    let (calls, in_generators) = ("short calls", "short calls in generators");
    let mut all = known.to_vec();
    all.extend([
        Workload::new(
            "1 ms work, 1 ms sleep",
            "work_and_sleep.py",
            &[long],
            End::Itself,
            Truth::Duty,
        ),
        Workload::new(calls, "short_calls.py", &["2"], End::Told, work),
        Workload::new(in_generators, "generators.py", &[], End::Told, consume),
    ]);
    all
}

/// Threads that all want to run.
fn crowds(long: &str, quick: bool) -> Vec<Workload> {
    let kinds = Truth::Threads(&["kind_0", "kind_1", "kind_2", "kind_3"]);
    let of = |name, arguments: &[&str]| {
        let script = "kinds_of_threads.py";
        Workload::new(name, script, arguments, End::AfterRunning, kinds)
    };
    let mut all = vec![
        of("1 thread", &["1", long]),
        of("20 threads", &["20", long]),
        of("200 threads", &["200", long]),
    ];
    if !quick {
        all.push(of("1000 threads", &["1000", long]));
    }
    all.push(of("two spinners on one CPU", &["2", long, "pinned"]));
    all
}

/// A function that works at the end of a recursion.
fn depths() -> Vec<Workload> {
    let depths = [
        ("1 deep", 1),
        ("20 deep", 20),
        ("100 deep", 100),
        ("300 deep", 300),
        ("1000 deep", 1000),
        ("2000 deep", 2000),
    ];
    let of = |(name, depth): (_, usize)| {
        let arguments = [&*depth.to_string()];
        Workload::new(name, "spin.py", &arguments, End::Told, Truth::Deep(depth))
    };
    depths.map(of).to_vec()
}

/// What samplers stumble over.
fn odd_ones(long: &str) -> Vec<Workload> {
    let in_step = Workload::new(
        "in step with the clock",
        "in_step.py",
        &["1", long],
        End::Itself,
        Truth::Spent,
    );
    vec![
        Workload {
            by_quarters: true,
            ..in_step
        },
        Workload::new(
            "collecting garbage",
            "collects.py",
            &[long, "explicit"],
            End::Itself,
            Truth::Collects,
        ),
        Workload::new(
            "threads of a millisecond",
            "thread_churn.py",
            &[],
            End::Told,
            Truth::Churn,
        ),
        Workload::new(
            "a thread without frames",
            "frameless.py",
            &[long],
            End::Itself,
            Truth::Frameless,
        ),
    ]
}

/// Processes that come and go, one after the other.
fn children(long: &str, quick: bool) -> Vec<Workload> {
    let of = |(name, way, life)| Workload {
        watched: Watched::Children,
        ..Workload::new(
            name,
            "short_lives.py",
            &[way, life, long],
            End::Itself,
            Truth::Seen,
        )
    };
    let mut all = vec![("children of 100 ms", "fork", "0.1")];
    if !quick {
        all.insert(0, ("children of 20 ms", "fork", "0.02"));
        all.push(("children of 500 ms", "fork", "0.5"));
        all.push(("interpreters of 500 ms", "start", "0.5"));
    }
    all.into_iter().map(of).collect()
}

/// What people run.
fn usual(long: &str, quick: bool) -> Vec<Workload> {
    let of = |name, script, arguments: &[&str]| {
        Workload::new(name, script, arguments, End::Itself, Truth::Spent)
    };
    let with = |package, workload| Workload {
        package: Some(package),
        ..workload
    };
    let mut all = vec![
        of("asyncio", "loop_of_tasks.py", &[long]),
        of("objects", "classics.py", &["objects", long]),
        with("numpy", of("numpy", "numbers_in_c.py", &[long])),
        with("django", of("web service", "web_service.py", &[long])),
    ];
    if !quick {
        all.push(of("numbers", "classics.py", &["numbers", long]));
        all.push(of("texts", "classics.py", &["texts", long]));
    }
    all
}
