//! `cargo xtask instructions`: how many instructions the steps of a sample's path take, held to the
//! committed counts.
//!
//! valgrind counts them, so a busy machine makes no difference; another compiler or C library makes
//! a small one. The steps are in `tests/benches/instructions`; times are `cargo xtask bench`'s.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cache::{self, Cache};
use crate::{setup, shell};

/// What was typed.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {}

/// The counts that are held, below the workspace.
const TABLE: &str = "tests/benches/instructions/counts.txt";

/// How to take new counts for the right ones.
const BLESS: &str = "BLESS=1 cargo xtask instructions";

/// So much more than its count is too much, percent.
const SLACK: u64 = 5;

/// The runner's version: that of `gungraun` in the root manifest.
const RUNNER: &str = "0.20.0";

/// valgrind needs what strip takes away from the C library's loader.
const PROGRAMS: &[(&[&str], &[&str])] = &[(&["valgrind"], &["valgrind", "libc6-dbg"])];

/// Steps and their instructions.
type Counts = BTreeMap<String, u64>;

pub(crate) fn run(_: &Options) -> Result<()> {
    setup::install_missing(PROGRAMS)?;
    let counted = count(&runner()?)?;
    let path = cache::workspace_root().join(TABLE);
    if std::env::var_os("BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, written(&counted)).with_context(|| format!("`{TABLE}`"))?;
        println!("{TABLE} has {} counts", counted.len());
        return Ok(());
    }
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let (lines, wrong) = compared(&counted, &read(&text)?);
    print!("{lines}");
    ensure!(
        wrong == 0,
        "{wrong} of the counts do not hold: if the change is worth it, type `{BLESS}` and commit {TABLE}"
    );
    Ok(())
}

/// Installs the runner into the cache, unless it is there.
fn runner() -> Result<PathBuf> {
    let cache = Cache::open()?;
    let _lock = cache.lock()?;
    let place = cache.gungraun();
    let program = place.join("bin/gungraun-runner");
    let works = || {
        let said = shell::output(Command::new(&program).arg("--version"));
        said.is_ok_and(|version| version.contains(RUNNER))
    };
    if !works() {
        let mut install = shell::cargo();
        install
            .args(["install", "gungraun-runner", "--locked", "--force"])
            .args(["--version", RUNNER, "--root"])
            .arg(&place)
            .env_remove("CARGO_TARGET_DIR");
        shell::run(&mut install, "is crates.io reached? try again")?;
        ensure!(works(), "`{}` does not run", program.display());
    }
    Ok(place.join("bin"))
}

/// Builds the steps and counts them.
fn count(runner: &Path) -> Result<Counts> {
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(runner.to_owned()).chain(std::env::split_paths(&usual));
    let mut bench = shell::cargo();
    bench
        .args(["bench", "--package", "tests", "--bench", "instructions"])
        .args(["--features", "instructions", "--", "--output-format=json"])
        .env("PATH", std::env::join_paths(folders)?)
        .stderr(std::process::Stdio::inherit());
    let said = shell::output(&mut bench)?;
    let counted: Counts = said.lines().map(one).collect::<Result<_>>()?;
    ensure!(!counted.is_empty(), "nothing was counted");
    Ok(counted)
}

/// A step's name and count, of a line of the runner's.
fn one(line: &str) -> Result<(String, u64)> {
    let said: Value = serde_json::from_str(line).context("not a line of the runner's")?;
    let word = |key: &str| said[key].as_str();
    let function = word("function_name").context("a step without a name")?;
    let name = match word("id") {
        Some(id) => format!("{function}/{id}"),
        None => function.to_owned(),
    };
    let metrics = &said["profiles"][0]["data"]["total"]["metrics"];
    // Beside it is that of the run before, if there was one.
    let count = metrics["Ir"]["values"]["new"].as_u64();
    let count = count.with_context(|| format!("no count of `{name}`"))?;
    Ok((name, count))
}

fn written(counted: &Counts) -> String {
    let mut text = format!("# Instructions of each step, written by `{BLESS}`.\n");
    for (name, count) in counted {
        let _ = writeln!(text, "{name} {count}");
    }
    text
}

fn read(text: &str) -> Result<Counts> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let one = |line: &str| {
        let (name, count) = line.split_once(' ')?;
        Some((name.to_owned(), count.parse().ok()?))
    };
    lines
        .map(|line| one(line).with_context(|| format!("{TABLE}: not a count: `{line}`")))
        .collect()
}

/// A line for each step, and how many do not hold.
fn compared(counted: &Counts, held: &Counts) -> (String, usize) {
    let (mut text, mut wrong) = (String::new(), 0);
    for (name, count) in counted {
        let verdict = match held.get(name) {
            None => {
                wrong += 1;
                "it is not in the table".to_owned()
            }
            Some(held) => {
                let more = 100.0 * (*count as f64 / *held as f64 - 1.0);
                let (count, held) = (100 * count, *held);
                let word = if count > (100 + SLACK) * held {
                    wrong += 1;
                    ": TOO MANY"
                } else if count < (100 - SLACK) * held {
                    ": fewer, worth committing"
                } else {
                    ""
                };
                format!("{more:+.1} % of {held}{word}")
            }
        };
        let _ = writeln!(text, "  {name:<28} {count:>9}  {verdict}");
    }
    for name in held.keys().filter(|name| !counted.contains_key(*name)) {
        wrong += 1;
        let _ = writeln!(text, "  {name:<28} is in the table and was not counted");
    }
    (text, wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(counted: &[(&str, u64)], held: &[(&str, u64)], expected: usize) {
        let counts = |of: &[(&str, u64)]| -> Counts {
            of.iter()
                .map(|(name, it)| ((*name).to_owned(), *it))
                .collect()
        };
        let (text, wrong) = compared(&counts(counted), &counts(held));
        assert_eq!(wrong, expected, "{text}");
    }

    #[test]
    fn a_count_beyond_its_slack_does_not_hold() {
        check(&[("a", 105), ("b", 50)], &[("a", 100), ("b", 100)], 0);
        check(&[("a", 106)], &[("a", 100)], 1);
    }

    #[test]
    fn a_step_without_a_count_does_not_hold_and_neither_does_a_count_without_a_step() {
        check(&[("a", 1)], &[], 1);
        check(&[], &[("a", 1)], 1);
    }

    #[test]
    fn the_table_is_read_as_it_is_written() {
        let counts = Counts::from([("decode/of_20".to_owned(), 7)]);
        assert_eq!(read(&written(&counts)).unwrap(), counts);
        assert!(read("decode").is_err());
    }
}
