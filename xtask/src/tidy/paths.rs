//! No file speaks of one machine's folders.

use super::Finding;
use super::tree::Tree;

/// Beginnings of paths that only one machine has; written apart, or this file would break its
/// own rule.
const ONE_MACHINES: &[&str] = &[
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/wo", "rk/"),
];

/// Who lives on no machine: in examples and in tests they may have a home.
const MADE_UP: &[&str] = &["me/", "you/", "user/"];

/// No absolute path of one machine.
pub(super) fn belong_to_no_machine(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files() {
        for (number, line) in file.text.lines().enumerate() {
            for path in ONE_MACHINES {
                if begins_with(line, path) {
                    let what = format!("`{path}` is a folder of one machine");
                    findings.push(Finding::new(&file.path, number + 1, what));
                }
            }
        }
    }
    findings
}

/// Whether the path begins there, and is not the inside of a longer one such as
/// `/proc/PID/root/`, whose part before may also be a placeholder.
fn begins_with(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let inside = |char: char| char.is_alphanumeric() || "}>]).*_~-$".contains(char);
        let after = &line[at + path.len()..];
        let made_up = MADE_UP.iter().any(|name| after.starts_with(name));
        !line[..at].ends_with(inside) && !made_up
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::testing::check;

    #[test]
    fn a_machines_folder_is_found_and_a_root_in_proc_is_not() {
        let (mine, work) = (concat!("/ro", "ot/x"), concat!("/wo", "rk/y"));
        let found = format!("cd {mine}\n`{work}`\n");
        let you = concat!("/ho", "me/you/x");
        let fine = format!("{you}\n/proc/PID{mine}\n/proc/{{pid}}{mine}\nnet{work}\n");
        check(
            belong_to_no_machine,
            &[("a.md", &found), ("b.rs", &fine)],
            &["a.md:1", "a.md:2"],
        );
    }
}
