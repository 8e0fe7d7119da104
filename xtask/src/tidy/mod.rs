//! `cargo xtask tidy`: the house rules that a machine can hold.
//!
//! A rule takes the tree as text and gives what breaks it; it reads no file itself, so each has
//! its test on a small made-up tree. Formatting and what clippy knows are not here.

mod code;
mod form;
mod licences;
mod manifest;
mod paths;
mod rooms;
mod tree;
mod unsafety;
mod words;

use std::fmt;

use anyhow::{Result, bail};

use crate::cache;
use tree::Tree;

/// What was typed.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {}

/// A place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    /// 0 when it is the file as a whole.
    line: usize,
    what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            what: what.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}

type Rule = fn(&Tree) -> Vec<Finding>;

/// Every rule on the tree, in the order of the report.
const RULES: &[Rule] = &[
    form::opens_with_docs,
    form::is_short,
    rooms::are_entered_in_order,
    rooms::are_the_only_home_of_their_crate,
    unsafety::is_fenced,
    unsafety::is_explained,
    words::are_none_of_these,
    paths::belong_to_no_machine,
    manifest::names_a_home_for_each,
];

pub(crate) fn run(_: &Options) -> Result<()> {
    let workspace = cache::workspace_root();
    let tree = Tree::tracked(&workspace)?;
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    findings.extend(licences::are_allowed(&licences::metadata()?));
    for note in form::grows_long(&tree) {
        eprintln!("note: {note}");
    }
    findings.sort();
    for finding in &findings {
        eprintln!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} places break a house rule", findings.len());
    }
    eprintln!("tidy: {} files keep the house rules", tree.len());
    Ok(())
}

#[cfg(test)]
mod testing {
    //! One `check` for every rule's test.

    use super::{Finding, Rule, Tree};

    /// Holds a rule to its findings on a made-up tree, each as `path:line`.
    pub(super) fn check(rule: Rule, files: &[(&str, &str)], expected: &[&str]) {
        let place = |finding: Finding| format!("{}:{}", finding.path, finding.line);
        let mut found: Vec<String> = rule(&Tree::made_up(files)).into_iter().map(place).collect();
        found.sort();
        assert_eq!(found, expected, "on {files:?}");
    }
}
