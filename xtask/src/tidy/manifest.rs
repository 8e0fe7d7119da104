//! The root manifest: each dependency is named there once, with its home beside it.

use super::Finding;
use super::tree::Tree;

/// Every dependency of the workspace's table has a comment, and members take theirs from it.
pub(super) fn names_a_home_for_each(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files() {
        // The fuzz targets are a workspace of their own, with nightly's needs.
        let is_own = file.text.lines().any(|line| line.trim() == "[workspace]");
        let is_root = file.path == "Cargo.toml" || is_own;
        if !is_root && !file.path.ends_with("/Cargo.toml") {
            continue;
        }
        for (number, table, line) in entries(&file.text) {
            if !table.ends_with("dependencies") {
                continue;
            }
            let ours = line.contains("path = ");
            if is_root && !ours && !line.contains(" # ") {
                findings.push(Finding::new(
                    &file.path,
                    number,
                    "no comment says which room is its home",
                ));
            }
            if !is_root && !line.contains("workspace = true") {
                findings.push(Finding::new(
                    &file.path,
                    number,
                    "a version belongs in the root manifest",
                ));
            }
        }
    }
    findings
}

/// The lines `key = value` with their number and their table's name.
fn entries(text: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    let mut table = "";
    text.lines().enumerate().filter_map(move |(number, line)| {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[') {
            table = name.split(']').next().unwrap_or(name);
            return None;
        }
        let is_entry = !line.starts_with('#') && line.contains('=');
        // `name.workspace = true` is the short form.
        let is_entry = is_entry && !line.contains(".workspace = true");
        is_entry.then_some((number + 1, table, line))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::testing::check;

    #[test]
    fn a_dependency_without_a_home_or_with_its_own_version_is_found() {
        check(
            names_a_home_for_each,
            &[
                (
                    "Cargo.toml",
                    "[workspace.dependencies]\na = \"1\" # cli\nb = \"1\"\nc = { path = \"c\" }\n[profile.dev]\nx = 1\n",
                ),
                (
                    "c/Cargo.toml",
                    "[package]\nname = \"c\"\n[dependencies]\na.workspace = true\nb = { workspace = true }\nd = \"1\"\n",
                ),
            ],
            &["Cargo.toml:3", "c/Cargo.toml:6"],
        );
        check(
            names_a_home_for_each,
            &[(
                "own/Cargo.toml",
                "[workspace]\n[dependencies]\na = \"1\" # why\nb = \"1\"\n",
            )],
            &["own/Cargo.toml:4"],
        );
    }
}
