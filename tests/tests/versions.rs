//! Each version of CPython against everything that is asked of it, on one row of the README's table:
//! a cell is there because the check in its column held.
//!
//! `BLESS=1` writes the rows of the interpreters that are here.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tests::parked::{Account, Parked, ThreadAccount, frames_of};
use tests::profiler::{self, Running};
use tests::pythons::{self, Python};
use tests::readme;
use tests::rung::{self, Rung};
use tests::target::Target;

const BY: &str = "BLESS=1 cargo test -p tests --test versions";
const PATIENCE: Duration = Duration::from_secs(60);

/// The profiler keeps half of 1,024 frames at either end.
const LEAF_END: usize = 500;

/// One look at a target whose stacks are known.
struct Known<'a> {
    python: &'a Python,
    account: Account,
    dump: Value,
    maps: String,
}

impl<'a> Known<'a> {
    fn of(python: &'a Python) -> Result<Self> {
        let parked = Parked::start(python, "known_stacks.py", &[])?;
        Ok(Self {
            python,
            account: serde_json::from_str(&parked.line).context(parked.line.clone())?,
            dump: parked.dumped()?,
            maps: std::fs::read_to_string(format!("/proc/{}/maps", parked.pid()))?,
        })
    }

    /// Its threads, as it has them and as they were read.
    fn threads(&self) -> Result<Vec<(u64, &ThreadAccount, &Value)>> {
        let read = self.dump["threads"].as_array().context("no threads")?;
        let find = |ident: &u64| read.iter().find(|thread| thread["pthread_id"] == *ident);
        let both = self.account.threads.iter().map(|(ident, account)| {
            let thread = find(ident).with_context(|| format!("no thread {ident}"))?;
            Ok((*ident, account, thread))
        });
        both.collect()
    }

    fn discovery(&self) -> Result<()> {
        let said = &self.dump["python"];
        ensure!(*said == *self.python.release, "it is taken for {said}");
        let image = self.dump["image"].as_str().context("no image")?;
        ensure!(self.maps.contains(image), "`{image}` is not mapped");
        Ok(())
    }

    fn names(&self) -> Result<()> {
        for (_, account, thread) in self.threads()? {
            let frames = frames_of(thread);
            let read = frames.iter().map(|(name, ..)| name).take(LEAF_END);
            let told = account.stack.iter().map(|(name, ..)| name).take(LEAF_END);
            ensure!(read.eq(told), "names of {thread}, not of {account:?}");
        }
        Ok(())
    }

    fn lines(&self) -> Result<()> {
        for (_, account, thread) in self.threads()? {
            ensure!(
                account.has(&frames_of(thread)),
                "lines of {thread}, not of {account:?}"
            );
        }
        Ok(())
    }

    fn threads_are_theirs(&self) -> Result<()> {
        ensure!(self.dump["contradictions"] == 0, "contradictions");
        for (ident, account, thread) in self.threads()? {
            ensure!(thread["tid"] == account.native_id, "{ident} is {thread}");
            ensure!(thread["name"] == *account.name, "{ident} is {thread}");
            ensure!(thread["python"] == true, "{ident} is {thread}");
        }
        Ok(())
    }
}

/// Asked again until it is so, and not for ever.
fn once(target: &Target, mut is_so: impl FnMut(&Value) -> bool) -> Result<()> {
    let pid = target.pid().to_string();
    let started = Instant::now();
    loop {
        let finished = profiler::run(&["dump", "--json", "--pid", &pid])?.success()?;
        let dump: Value = serde_json::from_str(&finished.stdout)?;
        if is_so(&dump) {
            return Ok(());
        }
        ensure!(started.elapsed() < PATIENCE, "never: {dump}");
    }
}

/// Of two spinners, one is seen to hold the GIL and the other to wait behind it; or there is none.
fn gil(python: &Python) -> Result<()> {
    let mut target = Target::start(python, "two_spinners.py", &[])?;
    target.tell("go")?;
    target.expect("running")?;
    let mut seen = BTreeMap::new();
    once(&target, |dump| {
        let threads = dump["threads"].as_array().into_iter().flatten();
        let all: Vec<&Value> = threads.collect();
        for thread in &all {
            if let Some(gil) = thread["gil"].as_str() {
                *seen.entry(gil.to_owned()).or_insert(0) += 1;
            }
        }
        if python.free_threaded {
            return all.iter().all(|thread| thread["gil"] == "no_gil");
        }
        let holder = all.iter().find(|thread| thread["gil"] == "holds");
        let behind = |thread: &&&Value| {
            thread["gil_behind"]["tid"] == holder.map_or(Value::Null, |it| it["tid"].clone())
        };
        let waits = |thread: &&&Value| thread["gil"] == "waits";
        holder.is_some() && all.iter().any(|thread| waits(&thread) && behind(&thread))
    })
    .with_context(|| format!("{seen:?}"))
}

/// Short calls, sampled for a moment: whatever was read is a stack that can be, and labelled for what
/// it is.
fn walk(python: &Python, way: &str, label: &str) -> Result<()> {
    let mut target = Target::start(python, "short_calls.py", &["2"])?;
    let arguments = ["-r", "999", "-d", "1s", "--walk", way];
    let mut profiler = Running::on(target.pid(), &arguments)?;
    profiler.attached()?;
    target.tell("go")?;
    target.expect("running")?;
    let finished = profiler.finish()?.success()?;
    let ledger = finished.ledger()?;
    let torn = finished.folded()?.torn(&target.pairs());
    let (read, none) = (ledger.from(label), ledger.from("none"));
    ensure!(read + none == ledger.samples, "{:?}", ledger.frames_from);
    ensure!(torn.known > 100, "too few to judge: {torn:?}");
    ensure!(
        label == "estimated" || torn.impossible == 0,
        "impossible stacks: {torn:?}"
    );
    // Of a thread that runs on, most are right, and none claims to be.
    ensure!(torn.impossible * 2 < torn.known, "mostly wrong: {torn:?}");
    Ok(())
}

const COLUMNS: [&str; 7] = [
    "discovery",
    "names",
    "lines",
    "threads",
    "GIL",
    "kernel walk",
    "user walk",
];

/// What each column says of an interpreter.
fn row(python: &Python) -> Result<String> {
    let known = Known::of(python)?;
    let checks: [Result<()>; 7] = [
        known.discovery(),
        known.names(),
        known.lines(),
        known.threads_are_theirs(),
        gil(python),
        walk(python, "kernel", "kernel"),
        walk(python, "user", "estimated"),
    ];
    let mut row = format!("| {} |", python.label);
    for (column, outcome) in COLUMNS.iter().zip(checks) {
        outcome.with_context(|| format!("{column} of {}", python.label))?;
        let cell = match (*column, python.free_threaded) {
            ("GIL", true) => "none, seen",
            ("user walk", _) => "estimates",
            _ => "yes",
        };
        write!(row, " {cell} |")?;
    }
    row.push('\n');
    Ok(row)
}

#[test]
fn each_version_is_what_the_readme_says() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let mut rows = String::new();
    for python in pythons::required() {
        rows += &row(python)?;
    }
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("README.md");
    let head = format!("| CPython | {} |\n", COLUMNS.join(" | "));
    let rule = format!("|{}\n", " --- |".repeat(COLUMNS.len() + 1));
    if std::env::var_os("BLESS").is_some_and(|value| value == "1") {
        return readme::put(&readme, BY, &format!("{head}{rule}{rows}"));
    }
    let table = readme::table(&readme, BY)?;
    ensure!(table.starts_with(&head), "other columns: {table}");
    // Another machine has other releases: those that are in both are the same.
    let label = |row: &str| row.split(" |").next().map(str::to_owned);
    let told: BTreeMap<_, &str> = table.lines().map(|row| (label(row), row)).collect();
    for row in rows.lines() {
        let said = told.get(&label(row)).copied().unwrap_or(row);
        ensure!(said == row, "the README says `{said}`, and it is `{row}`");
    }
    Ok(())
}
