//! `cargo xtask layouts`: generates the tables of `profiler/src/cpython/layout`, or measures an
//! interpreter's headers and says where a table differs.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail, ensure};

mod fields;
mod probe;
mod table;

/// What there is a table for: minor versions, and from 3.13 on their free-threaded builds.
const SERIES: &[Series] = &[
    Series::of(8),
    Series::of(9),
    Series::of(10),
    Series::of(11),
    Series::of(12),
    Series::of(13),
    Series::free_threaded(13),
    Series::of(14),
    Series::free_threaded(14),
    Series::of(15),
    Series::free_threaded(15),
];

/// A minor version of CPython 3, and whether the build is a free-threaded one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Series {
    minor: u8,
    free_threaded: bool,
}

impl Series {
    const fn of(minor: u8) -> Self {
        Self {
            minor,
            free_threaded: false,
        }
    }

    const fn free_threaded(minor: u8) -> Self {
        Self {
            minor,
            free_threaded: true,
        }
    }

    /// What Python itself puts behind the version of such a build.
    const fn suffix(self) -> &'static str {
        if self.free_threaded { "t" } else { "" }
    }

    fn file(self) -> String {
        format!("v3_{}{}.rs", self.minor, self.suffix())
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "3.{}{}", self.minor, self.suffix())
    }
}

/// What was typed.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Generate the tables from this file of measured layouts
    #[arg(long, value_name = "FILE", conflicts_with = "python")]
    json: Option<PathBuf>,
    /// With --json: change nothing, fail when a table is not current
    #[arg(long, requires = "json")]
    check: bool,
    /// Measure this interpreter's headers and compare; repeatable
    #[arg(long, value_name = "COMMAND")]
    python: Vec<String>,
    /// The C compiler
    #[arg(long, default_value = "gcc")]
    cc: String,
}

/// Status 1 when something differs.
pub(crate) fn run(args: &Options) -> anyhow::Result<ExitCode> {
    let same = match &args.json {
        Some(json) => generate(json, args.check)?,
        None if args.python.is_empty() => bail!("pass --json FILE or --python COMMAND"),
        None => {
            let mut same = true;
            for python in &args.python {
                same &= compare(python, &args.cc)?;
            }
            same
        }
    };
    Ok(if same {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn file_of(series: Series) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../profiler/src/cpython/layout")
        .join(series.file())
}

fn generate(json: &Path, check: bool) -> anyhow::Result<bool> {
    let text = std::fs::read_to_string(json)
        .with_context(|| format!("cannot read `{}`", json.display()))?;
    let layouts =
        serde_json::from_str(&text).with_context(|| format!("`{}` is not JSON", json.display()))?;
    let mut current = true;
    for series in SERIES.iter().copied() {
        let ranges = table::from_json(&layouts, series)?;
        let rust = formatted(&table::to_rust(series, &ranges))?;
        let (file, name) = (file_of(series), series.file());
        if std::fs::read_to_string(&file).is_ok_and(|have| have == rust) {
            continue;
        }
        current = false;
        if check {
            eprintln!("{name} is not current: run `cargo xtask layouts --json FILE`");
        } else {
            std::fs::write(&file, rust)
                .with_context(|| format!("cannot write `{}`", file.display()))?;
            eprintln!("{name} written");
        }
    }
    Ok(current || !check)
}

fn formatted(rust: &str) -> anyhow::Result<String> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let file = folder.path().join("table.rs");
    std::fs::write(&file, rust).context("cannot write the table")?;
    let status = Command::new("rustfmt")
        .args(["--edition", "2024"])
        .arg(&file)
        .status()
        .context("cannot run rustfmt: `rustup component add rustfmt`")?;
    ensure!(status.success(), "rustfmt ended by {status}");
    std::fs::read_to_string(&file).context("cannot read the table back")
}

fn compare(python: &str, cc: &str) -> anyhow::Result<bool> {
    let headers = probe::headers_of(python)?;
    let (series, patch) = (headers.series, headers.patch);
    let release = format!("3.{}.{patch}{}", series.minor, series.suffix());
    ensure!(SERIES.contains(&series), "there is no table for {release}");
    let file = file_of(series);
    let rust = std::fs::read_to_string(&file)
        .with_context(|| format!("cannot read `{}`", file.display()))?;
    let ranges = table::from_rust(&rust)
        .with_context(|| format!("`{}` is not as generated", file.display()))?;
    let range = ranges
        .iter()
        .find(|range| (range.first..=range.last).contains(&patch))
        .or(ranges.last())
        .context("the table has no ranges")?;
    let differences = table::differences(&range.table, &probe::measure(&headers, cc)?);
    if differences.is_empty() {
        println!("{release} (`{python}`): the table is right");
    }
    for line in &differences {
        println!("{release} (`{python}`): {line}");
    }
    Ok(differences.is_empty())
}
