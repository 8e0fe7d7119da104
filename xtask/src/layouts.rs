//! `cargo xtask layouts`: generates the tables of `profiler/src/cpython/layout`, or measures an
//! interpreter's headers and says where a table differs.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail, ensure};

mod fields;
mod probe;
mod table;

const MINORS: std::ops::RangeInclusive<u8> = 8..=15;

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

fn file_of(minor: u8) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../profiler/src/cpython/layout/v3_{minor}.rs"))
}

fn generate(json: &Path, check: bool) -> anyhow::Result<bool> {
    let text = std::fs::read_to_string(json)
        .with_context(|| format!("cannot read `{}`", json.display()))?;
    let layouts =
        serde_json::from_str(&text).with_context(|| format!("`{}` is not JSON", json.display()))?;
    let mut current = true;
    for minor in MINORS {
        let rust = formatted(&table::to_rust(minor, &table::from_json(&layouts, minor)?))?;
        let file = file_of(minor);
        if std::fs::read_to_string(&file).is_ok_and(|have| have == rust) {
            continue;
        }
        current = false;
        if check {
            eprintln!("v3_{minor}.rs is not current: run `cargo xtask layouts --json FILE`");
        } else {
            std::fs::write(&file, rust)
                .with_context(|| format!("cannot write `{}`", file.display()))?;
            eprintln!("v3_{minor}.rs written");
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
    let (minor, patch) = (headers.minor, headers.patch);
    let release = format!("3.{minor}.{patch}");
    ensure!(MINORS.contains(&minor), "there is no table for {release}");
    let file = file_of(minor);
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
