//! Words that code must not have: what leaves a test out or a thing undone.

use super::Finding;
use super::tree::Tree;

/// The word without its blanks, where it is banned, and why.
const BANNED: &[(&str, &str, &str)] = &[
    (
        "#[ignore",
        "",
        "a test that does not hold today asserts what holds, and says so",
    ),
    ("todo!(", "", "what is not done is an error that says so"),
    (
        "unimplemented!(",
        "",
        "what is not done is an error that says so",
    ),
    (
        "thread::sleep",
        "tests/",
        "a test waits for a line or an event, never for a while",
    ),
    (
        "sleep(Duration",
        "tests/",
        "a test waits for a line or an event, never for a while",
    ),
];

/// None of the banned words is in the code.
pub(super) fn are_none_of_these(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        for (line, code) in file.code_lines() {
            let squeezed: String = code.split_whitespace().collect();
            for (word, place, why) in BANNED {
                if file.path.starts_with(place) && squeezed.contains(word) {
                    findings.push(Finding::new(&file.path, line, format!("`{word}`: {why}")));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::testing::check;

    #[test]
    fn a_banned_word_is_found_in_code_alone() {
        check(
            are_none_of_these,
            &[
                ("a.rs", "// todo!()\nlet a = \"todo!()\";\ntodo!();\n"),
                ("b.rs", "#[ignore]\nfn f() {}\n# [ ignore = \"slow\" ]\n"),
                ("c.rs", "fn f() { unimplemented!(\"x\") }"),
                ("profiler/src/d.rs", "thread::sleep(x)"),
                ("tests/src/e.rs", "std::thread::sleep(x)"),
            ],
            &["a.rs:3", "b.rs:1", "b.rs:3", "c.rs:1", "tests/src/e.rs:1"],
        );
    }
}
