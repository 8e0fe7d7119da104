//! Tables of the README that are written by what was run.

use std::path::Path;

use anyhow::{Context, Result};

/// What ends each of them.
const END: &str = "<!-- until here -->\n";

fn begin(by: &str) -> String {
    format!("<!-- written by `{by}` -->\n")
}

/// Splits the README around the table that this command writes.
fn around<'a>(text: &'a str, by: &str) -> Result<(&'a str, &'a str, &'a str)> {
    let split = || {
        let (before, rest) = text.split_once(&begin(by))?;
        let (table, after) = rest.split_once(END)?;
        Some((before, table, after))
    };
    split().with_context(|| format!("the README has no place for the table of `{by}`"))
}

/// The table that this command wrote.
///
/// # Errors
///
/// When the README cannot be read or has no such place.
pub fn table(readme: &Path, by: &str) -> Result<String> {
    let text = std::fs::read_to_string(readme).context("the README")?;
    Ok(around(&text, by)?.1.to_owned())
}

/// Puts a table in the place of the one that this command wrote before.
///
/// # Errors
///
/// When the README cannot be read or written, or has no such place.
pub fn put(readme: &Path, by: &str, table: &str) -> Result<()> {
    let text = std::fs::read_to_string(readme).context("the README")?;
    let (before, _, after) = around(&text, by)?;
    let begin = begin(by);
    std::fs::write(readme, format!("{before}{begin}{table}{END}{after}")).context("the README")
}
