//! What came of it: read from the files that the job left, printed as the README has it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ::tests::readme;
use anyhow::{Result, ensure};

use super::kernels::Kernel;
use crate::cache;

/// What came of one kernel.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Its exact version, and Debian's release.
    pub(super) kernel: String,
    /// Whether `doctor` says that `run` works there.
    works: bool,
    /// What `doctor` says is not there.
    lacks: Vec<String>,
    programs: Vec<Program>,
    /// What the tests left out.
    left_out: Vec<String>,
    took: Duration,
}

/// What came of one program of tests.
#[derive(Debug)]
struct Program {
    name: String,
    passed: u32,
    /// Tests that failed; none when it did not come to its end.
    failed: Option<Vec<String>>,
}

impl Program {
    fn is_well(&self) -> bool {
        self.failed.as_ref().is_some_and(Vec::is_empty)
    }

    /// As the table has it.
    fn cell(&self) -> String {
        match &self.failed {
            None => "did not end".to_owned(),
            Some(failed) if failed.is_empty() => self.passed.to_string(),
            Some(failed) => format!("{} of {}", self.passed, self.passed as usize + failed.len()),
        }
    }

    fn read(name: &str, log: &str) -> Self {
        // "test NAME ... FAILED", and at the end "test result: ok. 3 passed; 0 failed; …".
        let failed = log.lines().filter_map(|line| {
            let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
            Some(name.to_owned())
        });
        let passed = log
            .lines()
            .find_map(|line| {
                line.strip_prefix("test result: ")?
                    .split_once(". ")?
                    .1
                    .split_once(' ')
            })
            .and_then(|(passed, _)| passed.parse().ok());
        Self {
            name: name.to_owned(),
            passed: passed.unwrap_or(0),
            failed: passed.map(|_| failed.collect()),
        }
    }
}

impl Outcome {
    /// Whether everything held.
    pub(super) fn is_well(&self) -> bool {
        self.works && self.programs.iter().all(Program::is_well)
    }
}

/// Reads what the job left in its folder.
pub(super) fn read(kernel: &Kernel, folder: &Path, took: Duration) -> Result<Outcome> {
    let file = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    let version = file("version");
    ensure!(
        !version.is_empty(),
        "the machine came not as far as the job: see its console above"
    );
    // "#1 SMP Debian 5.10.223-1 (2024-08-10)"
    let mut words = version.split_whitespace();
    let exact = words
        .by_ref()
        .skip_while(|word| *word != "Debian")
        .nth(1)
        .unwrap_or(kernel.series);
    let mut programs = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "log") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            programs.push(Program::read(&name, &file(&format!("{name}.log"))));
        }
    }
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Outcome {
        kernel: format!("{exact} ({})", kernel.suite),
        works: file("doctor.status").trim() == "0",
        lacks: lacks(&file("doctor")),
        programs,
        left_out: file("left-out").lines().map(str::to_owned).collect(),
        took,
    })
}

/// The lines of `doctor` that say no, each with the one below it that says what follows.
fn lacks(doctor: &str) -> Vec<String> {
    let lines: Vec<&str> = doctor.lines().collect();
    let says_no = |line: &&str| line.trim_start().starts_with("no  ");
    (0..lines.len())
        .filter(|at| says_no(&lines[*at]))
        .map(|at| {
            let what = lines[at].trim_start().trim_start_matches("no  ");
            match lines.get(at + 1).filter(|line| line.starts_with("      ")) {
                Some(then) => format!("{what}; {}", then.trim()),
                None => what.to_owned(),
            }
        })
        .collect()
}

/// The table as Markdown: a row a program of tests, a column a kernel.
fn table(outcomes: &[Outcome]) -> String {
    let mut rows = vec![
        ["tests passed on Linux".to_owned()]
            .into_iter()
            .chain(outcomes.iter().map(|outcome| outcome.kernel.clone()))
            .collect::<Vec<_>>(),
    ];
    rows.push(vec!["---".to_owned(); outcomes.len() + 1]);
    let mut row = |name: &str, cell: &dyn Fn(&Outcome) -> String| {
        let cells = outcomes.iter().map(cell);
        rows.push([name.to_owned()].into_iter().chain(cells).collect());
    };
    row("`doctor` says that all works", &|outcome| {
        if outcome.works { "yes" } else { "no" }.to_owned()
    });
    for program in outcomes.iter().flat_map(|outcome| &outcome.programs) {
        let name = format!("`{}`", program.name);
        row(&name, &|outcome| {
            let mut programs = outcome.programs.iter();
            let found = programs.find(|other| other.name == program.name);
            found.map_or("not run".to_owned(), Program::cell)
        });
    }
    let mut seen = Vec::new();
    rows.retain(|row| {
        let is_new = !seen.contains(row);
        seen.push(row.clone());
        is_new
    });
    let lines = rows.iter().map(|row| format!("| {} |\n", row.join(" | ")));
    lines.collect()
}

/// Prints everything; with `BLESS=1` the table goes into the README.
pub(super) fn print(outcomes: &[Outcome], whole: bool) -> Result<()> {
    let table = table(outcomes);
    println!("\n{table}");
    for outcome in outcomes {
        println!(
            "Linux {}: {:.0} s",
            outcome.kernel,
            outcome.took.as_secs_f64()
        );
        for lack in &outcome.lacks {
            println!("  no  {lack}");
        }
        for program in outcome.programs.iter().filter(|program| !program.is_well()) {
            let failed = program.failed.as_deref().unwrap_or_default();
            println!("  FAILED {}: {}", program.name, failed.join(", "));
        }
        for line in &outcome.left_out {
            println!("  {line}");
        }
    }
    if whole && std::env::var_os("BLESS").is_some_and(|value| value == "1") {
        let place = cache::workspace_root().join("README.md");
        readme::put(&place, "BLESS=1 cargo xtask test --vm", &table)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_tells_what_passed_what_failed_and_whether_it_ended() {
        let check = |log: &str, cell: &str, is_well: bool| {
            let program = Program::read("books", log);
            assert_eq!(
                (program.cell().as_str(), program.is_well()),
                (cell, is_well)
            );
        };
        check("", "did not end", false);
        check("test a ... ok\ntest b ... ", "did not end", false);
        check(
            "test a ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored\n",
            "1",
            true,
        );
        check(
            "test a ... ok\ntest b ... FAILED\n\ntest result: FAILED. 1 passed; 1 failed; 0\n",
            "1 of 2",
            false,
        );
    }

    #[test]
    fn what_doctor_misses_comes_with_what_follows() {
        let doctor = "This machine\n  no  kernel 5.10 or newer: 5.4.0\n      boot another\n  ok  x\n  no  y\n";
        assert_eq!(
            lacks(doctor),
            ["kernel 5.10 or newer: 5.4.0; boot another", "y"]
        );
    }
}
