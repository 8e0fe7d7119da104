//! `cargo xtask bench`: the profiler by its own yardstick, beside its peers.
//!
//! It runs the release build by its command line alone, on the target programs of the tests. A
//! figure stands beside its bound where it has one. It gates nothing: machines are noisy, and a
//! person reads it.

mod aliasing;
mod books;
mod border;
mod collects;
mod compared;
mod cost;
mod kill;
mod measure;
mod meter;
mod moved;
mod native;
mod page;
mod peers;
mod report;
mod shares;
mod sleepers;
mod slowdown;
mod switches;
mod tasks;
mod tool;
mod torn;
mod wall;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use nix::unistd::geteuid;
use tests::pythons::{self, Python};

use crate::{cache, setup, test};
use report::Report;

/// What was typed.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Shorter runs: to see that it works, not to quote
    #[arg(long)]
    quick: bool,
    /// Only this bench: shares, torn, books, cost, slowdown, wall, sleepers, moved, switches,
    /// tasks, collects, aliasing, kill, native, border, peers (repeatable)
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Only interpreters of this minor version, such as 3.12 (repeatable)
    #[arg(long, value_name = "MINOR")]
    python: Vec<String>,
    /// Of `peers` only this workload, or slowdown, stolen, warm, start, rates,
    /// gaps, growth (repeatable)
    #[arg(long, value_name = "NAME")]
    workload: Vec<String>,
    /// Fail when something could not be measured, whatever the figures are
    #[arg(long)]
    check: bool,
    /// Also write the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also write docs/benchmarks.md and its plots, from what the bench `peers` finds
    #[arg(long)]
    page: bool,
    /// With --page: from the JSON of an earlier run; nothing is measured
    #[arg(long, value_name = "FILE", requires = "page")]
    from: Option<PathBuf>,
    /// Measure this binary in place of the release build
    #[arg(long, value_name = "FILE")]
    bin: Option<PathBuf>,
    /// Measure the debug build, which the tests need anyway
    #[arg(long, conflicts_with = "bin")]
    debug: bool,
}

/// As much of an earlier run's JSON as the page needs.
#[derive(serde::Deserialize)]
struct Earlier {
    comparison: compared::Comparison,
}

/// What every bench knows.
#[derive(Debug)]
struct Setting {
    quick: bool,
    pythons: Vec<Python>,
    /// Whether these were asked for by name.
    by_name: bool,
    workloads: Vec<String>,
}

impl Setting {
    /// The first when it is to be quick, else the second.
    fn pick<T>(&self, quick: T, whole: T) -> T {
        if self.quick { quick } else { whole }
    }

    /// Whether that workload of `peers` is to be measured.
    fn wants(&self, workload: &str) -> bool {
        self.workloads.is_empty() || self.workloads.iter().any(|it| it == workload)
    }

    /// One interpreter for benches whose subject is not the version: 3.12, or the newest.
    fn python(&self) -> Result<&Python> {
        let found = &self.pythons;
        let usual = found.iter().rfind(|python| python.minor() == (3, 12));
        usual.or(found.last()).context("there is no interpreter")
    }
}

type Bench = fn(&Setting, &mut Report) -> Result<()>;

const BENCHES: &[(&str, Bench)] = &[
    ("shares", shares::run),
    ("torn", torn::run),
    ("books", books::run),
    ("cost", cost::run),
    ("slowdown", slowdown::run),
    ("wall", wall::run),
    ("sleepers", sleepers::run),
    ("moved", moved::run),
    ("switches", switches::run),
    ("tasks", tasks::run),
    ("collects", collects::run),
    ("aliasing", aliasing::run),
    ("kill", kill::run),
    ("native", native::run),
    ("border", border::run),
    ("peers", peers::run),
];

pub(crate) fn run(options: &Options) -> Result<()> {
    for name in &options.only {
        let known = BENCHES.iter().any(|(bench, _)| bench == name);
        ensure!(
            known,
            "there is no bench `{name}`: see `cargo xtask bench --help`"
        );
    }
    let docs = cache::workspace_root().join("docs");
    if let Some(earlier) = &options.from {
        let text = std::fs::read_to_string(earlier);
        let text = text.with_context(|| format!("`{}`", earlier.display()))?;
        let earlier: Earlier = serde_json::from_str(&text).context("not the JSON of a run")?;
        return page::write(&earlier.comparison, &docs);
    }
    if !geteuid().is_root() {
        bail!("the benches need root: type `sudo -E cargo xtask bench`");
    }
    setup::run(&setup::Options { peers: true })?;
    let binary = match &options.bin {
        Some(path) => path.clone(),
        None => test::build(!options.debug)?,
    };
    tests::profiler::use_binary(binary);
    let setting = Setting {
        quick: options.quick,
        pythons: chosen(&options.python)?,
        by_name: !options.python.is_empty(),
        workloads: options.workload.clone(),
    };
    let _stats = cost::BpfStats::switch(true)?;
    let mut report = Report::default();
    for (name, bench) in BENCHES {
        if !options.only.is_empty() && !options.only.iter().any(|only| only == name) {
            continue;
        }
        report.begin(name);
        // One bench that cannot run is a line of the report: the others still can.
        if let Err(error) = bench(&setting, &mut report) {
            report.failed(&error);
        }
    }
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report).context("the figures as JSON")?;
        std::fs::write(path, text + "\n").with_context(|| format!("`{}`", path.display()))?;
    }
    if options.page {
        page::write(&report.comparison, &docs)?;
    }
    let broken = report.summary();
    ensure!(
        !options.check || broken == 0,
        "{broken} could not be measured"
    );
    Ok(())
}

/// The newest interpreter of each minor version and build, or of those that were named.
fn chosen(minors: &[String]) -> Result<Vec<Python>> {
    let newest = pythons::all().iter().map(|it| (it.series(), it));
    let newest: BTreeMap<String, &Python> = newest.collect();
    let mut found: Vec<Python> = newest.into_values().cloned().collect();
    found.sort_by_key(|python| (python.version, python.free_threaded));
    if !minors.is_empty() {
        found.retain(|python| minors.contains(&python.series()));
    }
    ensure!(!found.is_empty(), "no interpreter of {}", minors.join(", "));
    Ok(found)
}
