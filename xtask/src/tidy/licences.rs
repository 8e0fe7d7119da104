//! The licences of everything that is linked: each must be one that we may ship.

use anyhow::{Context, Result};
use serde_json::Value;

use super::Finding;
use crate::shell;

/// The licences that may be linked into a program under MIT or Apache-2.0.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    // inferno's: by the file, so that its own files stay under it.
    "CDDL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// What cargo knows of the packages that Linux needs.
pub(super) fn metadata() -> Result<Value> {
    let mut cargo = shell::cargo();
    cargo.args(["metadata", "--format-version", "1", "--locked"]);
    cargo.args(["--filter-platform", "x86_64-unknown-linux-gnu"]);
    serde_json::from_str(&shell::output(&mut cargo)?).context("the form of `cargo metadata`")
}

/// Every package has a licence that is allowed.
pub(super) fn are_allowed(metadata: &Value) -> Vec<Finding> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .filter_map(|package| {
            let text = |key: &str| package[key].as_str().unwrap_or_default();
            let licence = text("license");
            let what = format!("the licence of `{}` is `{licence}`", text("name"));
            (!is_allowed(licence)).then(|| Finding::new("Cargo.lock", 0, what))
        })
        .collect()
}

/// Whether an expression of licences can be met by allowed ones. `/` is an old way of `OR`.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any(&mut rest) && rest.is_empty()
}

fn any(rest: &mut &[&str]) -> bool {
    let mut met = all(rest);
    while let ["OR", after @ ..] = *rest {
        *rest = after;
        met |= all(rest);
    }
    met
}

fn all(rest: &mut &[&str]) -> bool {
    let mut met = one(rest);
    while let ["AND", after @ ..] = *rest {
        *rest = after;
        met &= one(rest);
    }
    met
}

fn one(rest: &mut &[&str]) -> bool {
    match *rest {
        ["(", after @ ..] => {
            *rest = after;
            let met = any(rest);
            if let [")", after @ ..] = *rest {
                *rest = after;
            }
            met
        }
        [name, "WITH", exception, after @ ..] => {
            *rest = after;
            ALLOWED.contains(&format!("{name} WITH {exception}").as_str())
        }
        [name, after @ ..] => {
            *rest = after;
            ALLOWED.contains(name)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_met_by_allowed_licences_or_not() {
        let check = |text: &str, expected: bool| assert_eq!(is_allowed(text), expected, "{text}");
        check("MIT OR Apache-2.0", true);
        check("MIT/Apache-2.0", true);
        check("MIT OR GPL-2.0", true);
        check("MIT AND GPL-2.0", false);
        check("(MIT OR Apache-2.0) AND Unicode-3.0", true);
        check("(GPL-2.0 OR AGPL-3.0) AND MIT", false);
        check("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT", true);
        check("GPL-3.0", false);
        check("", false);
        check("MIT OR", true);
    }

    #[test]
    fn a_package_whose_licence_is_not_allowed_is_named() {
        let metadata = serde_json::json!({"packages": [
            {"name": "good", "license": "MIT"},
            {"name": "bad", "license": "GPL-3.0"},
            {"name": "none", "license": null},
        ]});
        let found = are_allowed(&metadata);
        let named = |name: &str| {
            found
                .iter()
                .any(|it| it.what.contains(&format!("`{name}`")))
        };
        assert_eq!(found.len(), 2);
        assert!(named("bad") && named("none"));
    }
}
