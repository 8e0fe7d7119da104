//! The rooms of the house: entered in the order of `profiler/src/lib.rs`, and each mandated crate
//! in its one home.

use super::Finding;
use super::tree::Tree;

const HOUSE: &str = "profiler/src/";

/// A crate and where it may be named, by the beginnings of paths.
const HOMES: &[(&str, &[&str])] = &[
    // The contract's `Pod` is aya's trait; a test asks the kernel which programs it still holds, and
    // one waits at the ring itself.
    (
        "aya",
        &[
            "profiler/src/source",
            "profiler-common/src/lib.rs",
            "tests/tests/kill.rs",
        ],
    ),
    ("aya_log", &["profiler/src/source"]),
    (
        "tokio",
        &[
            "profiler/src/source",
            "profiler/src/export",
            "profiler/src/pipeline",
            "profiler/src/cli",
            "tests/tests/coroutines.rs",
        ],
    ),
    (
        "bytes",
        &[
            "profiler/src/source",
            "profiler/src/wire.rs",
            "profiler/benches/",
            "tests/",
        ],
    ),
    ("procfs", &["profiler/src/source", "profiler/src/target"]),
    (
        "object",
        &["profiler/src/cpython/find", "profiler/src/native"],
    ),
    ("blazesym", &["profiler/src/native"]),
    ("framehop", &["profiler/src/native"]),
    ("gimli", &["profiler/src/native"]),
    ("clap", &["profiler/src/cli", "xtask/"]),
    ("clap_complete", &["profiler/src/cli"]),
    ("clap_mangen", &["profiler/src/cli"]),
    (
        "anyhow",
        &[
            "profiler/src/cli",
            "profiler/src/main.rs",
            "xtask/",
            "tests/",
        ],
    ),
];

/// A room imports only from rooms before it.
pub(super) fn are_entered_in_order(tree: &Tree) -> Vec<Finding> {
    let Some(lib) = tree.file("profiler/src/lib.rs") else {
        return Vec::new();
    };
    let rooms: Vec<&str> = lib
        .code
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub mod ")?.strip_suffix(';'))
        .collect();
    let place = |name: &str| rooms.iter().position(|room| *room == name);
    let mut findings = Vec::new();
    for file in tree.rust() {
        let Some(inside) = file.path.strip_prefix(HOUSE) else {
            continue;
        };
        let room = inside.split(['/', '.']).next().unwrap_or(inside);
        let Some(here) = place(room) else {
            continue;
        };
        for (line, other) in entered(&file.code) {
            if place(other).is_some_and(|there| there > here) {
                let what = format!("`{room}` enters `{other}`, a room after it");
                findings.push(Finding::new(&file.path, line, what));
            }
        }
    }
    findings
}

/// The names that follow `crate::`, also in a group, each with its line.
fn entered(code: &str) -> Vec<(usize, &str)> {
    let mut names = Vec::new();
    for (at, key) in code.match_indices("crate::") {
        let rest = &code[at + key.len()..];
        let line = code[..at].matches('\n').count() + 1;
        match rest.strip_prefix('{') {
            Some(group) => names.extend(heads(group).into_iter().map(|name| (line, name))),
            None => names.push((line, word(rest))),
        }
    }
    names
}

/// The first names of a group's members, up to its own closing brace.
fn heads(group: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let mut fresh = true;
    let mut names = Vec::new();
    for (at, char) in group.char_indices() {
        match char {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            _ if depth == 0 && fresh && !char.is_whitespace() => {
                names.push(word(&group[at..]));
                fresh = false;
            }
            _ => {}
        }
    }
    names
}

/// The word at the beginning.
fn word(text: &str) -> &str {
    let is_part = |char: char| char.is_alphanumeric() || char == '_';
    let end = text.find(|char| !is_part(char)).unwrap_or(text.len());
    &text[..end]
}

/// Each mandated crate is named in its home alone.
pub(super) fn are_the_only_home_of_their_crate(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        for (name, homes) in HOMES {
            if homes.iter().any(|home| file.path.starts_with(home)) {
                continue;
            }
            for (line, code) in file.code_lines() {
                if names_crate(code, name) {
                    let what = format!("`{name}` is at home in {}", homes.join(", "));
                    findings.push(Finding::new(&file.path, line, what));
                }
            }
        }
    }
    findings
}

/// Whether a line has `name::` or `use name`, and not as a part of a longer path or word.
fn names_crate(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + name.len()..]);
        let begins = !before.ends_with(|char: char| char.is_alphanumeric() || "_:.".contains(char));
        let used = before.trim_end().ends_with("use") && !after.starts_with(char::is_alphanumeric);
        begins && (after.starts_with("::") || (used && !after.starts_with('_')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::testing::check;

    const LIB: (&str, &str) = (
        "profiler/src/lib.rs",
        "pub mod a;\npub mod b;\npub mod c;\n",
    );

    #[test]
    fn a_room_that_enters_a_later_one_is_found() {
        check(
            are_entered_in_order,
            &[
                LIB,
                ("profiler/src/a.rs", "use crate::a::X;\nuse crate::b::Y;\n"),
                (
                    "profiler/src/b/mod.rs",
                    "use crate::{a::{c, X}, b};\n\nfn f() { crate::c::g() }\n",
                ),
                (
                    "profiler/src/b/d.rs",
                    "use crate::{\n    a,\n    c::Z,\n};\n",
                ),
                ("profiler/src/c.rs", "use crate::{a, b};\n// crate::d\n"),
                ("profiler/src/main.rs", "use crate::c;\n"),
                ("xtask/src/a.rs", "use crate::c;\n"),
            ],
            &[
                "profiler/src/a.rs:2",
                "profiler/src/b/d.rs:1",
                "profiler/src/b/mod.rs:3",
            ],
        );
    }

    #[test]
    fn a_crate_out_of_its_home_is_found() {
        check(
            are_the_only_home_of_their_crate,
            &[
                ("profiler/src/source/kernel.rs", "use aya::Ebpf;\n"),
                ("profiler/src/wire.rs", "use aya::Ebpf;\nuse aya_obj::X;\n"),
                (
                    "profiler/src/stack/mod.rs",
                    "use object;\nlet object = x.object();\n",
                ),
                (
                    "profiler/src/threads/mod.rs",
                    "self::object::f();\nmyobject::g();\n",
                ),
                (
                    "profiler/src/words.rs",
                    "/// [`aya::Ebpf`]\nfn f() -> anyhow::Result<()> {}\n",
                ),
                ("tests/tests/a.rs", "use anyhow::Result;\n"),
            ],
            &[
                "profiler/src/stack/mod.rs:1",
                "profiler/src/wire.rs:1",
                "profiler/src/words.rs:2",
            ],
        );
    }
}
