//! The form of a file: it opens with what it is for, and it is short.

use super::Finding;
use super::tree::{File, Tree};

/// No file is longer, but for tables.
const MOST_LINES: usize = 500;

/// Longer than this is worth a word.
const MANY_LINES: usize = 300;

/// Tables of CPython's layouts are data.
const TABLES: &str = "profiler/src/cpython/layout/";

/// Every Rust file opens with `//!`.
pub(super) fn opens_with_docs(tree: &Tree) -> Vec<Finding> {
    tree.rust()
        .filter(|file| !file.text.trim_start().starts_with("//!"))
        .map(|file| {
            Finding::new(
                &file.path,
                1,
                "a file opens with `//!`: what it does, and what not",
            )
        })
        .collect()
}

/// No Rust file is over 500 lines.
pub(super) fn is_short(tree: &Tree) -> Vec<Finding> {
    longer_than(tree, MOST_LINES)
        .map(|(file, lines)| {
            Finding::new(
                &file.path,
                0,
                format!("{lines} lines: {MOST_LINES} are the most"),
            )
        })
        .collect()
}

/// The files that come near.
pub(super) fn grows_long(tree: &Tree) -> Vec<Finding> {
    longer_than(tree, MANY_LINES)
        .map(|(file, lines)| Finding::new(&file.path, 0, format!("{lines} lines")))
        .collect()
}

fn longer_than(tree: &Tree, most: usize) -> impl Iterator<Item = (&File, usize)> {
    tree.rust()
        .filter(|file| !file.path.starts_with(TABLES))
        .map(|file| (file, file.text.lines().count()))
        .filter(move |(_, lines)| *lines > most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::testing::check;

    #[test]
    fn a_file_without_opening_docs_is_found() {
        check(
            opens_with_docs,
            &[
                ("a.rs", "//! A.\n"),
                ("b.rs", "/// B.\nstruct B;"),
                ("c.rs", "fn c() {}"),
                ("d.py", "pass"),
            ],
            &["b.rs:1", "c.rs:1"],
        );
    }

    #[test]
    fn a_long_file_is_found_unless_it_is_a_table() {
        let (long, short) = ("\n".repeat(501), "\n".repeat(500));
        check(
            is_short,
            &[
                ("a.rs", &long),
                ("b.rs", &short),
                ("profiler/src/cpython/layout/v3_8.rs", &long),
                ("c.md", &long),
            ],
            &["a.rs:0"],
        );
    }
}
