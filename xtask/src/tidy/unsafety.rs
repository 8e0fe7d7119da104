//! Unsafe code: where it may be, and the sentence beside it.

use super::Finding;
use super::tree::Tree;

/// Where unsafe code may be. The contract has only its promise of `Pod`.
const FENCED: &[&str] = &["profiler/src/sys", "profiler-ebpf/"];

/// Where only `unsafe impl` may be.
const PROMISES: &str = "profiler-common/src/";

/// How many lines above a block its sentence may begin.
const REACH: usize = 8;

/// No unsafe code outside its fence.
pub(super) fn is_fenced(tree: &Tree) -> Vec<Finding> {
    find(tree, |path, after| {
        let inside = FENCED.iter().any(|fence| path.starts_with(fence));
        let promise = path.starts_with(PROMISES) && after.starts_with("impl");
        !(inside || promise)
    })
    .map(|(path, line, _)| {
        Finding::new(
            path,
            line,
            "unsafe code is at home in profiler/src/sys alone",
        )
    })
    .collect()
}

/// Beside each unsafe block and promise, `SAFETY:` says why it holds.
pub(super) fn is_explained(tree: &Tree) -> Vec<Finding> {
    find(tree, |_, after| {
        after.starts_with('{') || after.starts_with("impl")
    })
    .filter(|(_, line, text)| {
        let first = line.saturating_sub(REACH + 1);
        let mut near = text.lines().skip(first).take(line - first);
        !near.any(|line| line.contains("SAFETY:"))
    })
    .map(|(path, line, _)| Finding::new(path, line, "no `SAFETY:` sentence beside it"))
    .collect()
}

/// Every word `unsafe` of the code that `wanted` takes by the path and by what follows it, with
/// the path, the line and the whole text.
fn find(
    tree: &Tree,
    wanted: impl Fn(&str, &str) -> bool,
) -> impl Iterator<Item = (&str, usize, &str)> {
    tree.rust().flat_map(move |file| {
        let found: Vec<_> = words(&file.code)
            .filter(|(_, after)| wanted(&file.path, after))
            .map(|(line, _)| (file.path.as_str(), line, file.text.as_str()))
            .collect();
        found
    })
}

fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |char: char| char.is_alphanumeric() || char == '_';
    code.match_indices("unsafe").filter_map(move |(at, word)| {
        let (before, after) = (&code[..at], &code[at + word.len()..]);
        if before.ends_with(is_part) || after.starts_with(is_part) {
            return None;
        }
        // In an attribute, `unsafe(…)` is part of the attribute's name.
        let after = after.trim_start();
        (!after.starts_with('(')).then(|| (before.matches('\n').count() + 1, after))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::testing::check;

    #[test]
    fn unsafe_code_outside_its_fence_is_found() {
        check(
            is_fenced,
            &[
                ("profiler/src/sys/vm.rs", "unsafe { f() }"),
                ("profiler-ebpf/src/main.rs", "unsafe { f() }"),
                ("profiler-common/src/lib.rs", "unsafe impl Pod for X {}"),
                ("profiler-common/src/walk.rs", "\nunsafe { f() }"),
                (
                    "profiler/src/wire.rs",
                    "#![expect(unsafe_code)]\n// unsafe\nunsafe { f() }",
                ),
                ("tests/src/lib.rs", "#[unsafe(no_mangle)]\nunsafe fn f() {}"),
            ],
            &[
                "profiler-common/src/walk.rs:2",
                "profiler/src/wire.rs:3",
                "tests/src/lib.rs:2",
            ],
        );
    }

    #[test]
    fn an_unsafe_block_without_its_sentence_is_found() {
        let far = format!("// SAFETY: far away.\n{}unsafe {{ f() }}", "\n".repeat(20));
        check(
            is_explained,
            &[
                ("a.rs", "// SAFETY: it is so.\nunsafe { f() }\n"),
                ("b.rs", "fn f() {}\nlet x = unsafe { f() };\n"),
                (
                    "c.rs",
                    "// SAFETY: so\n// and so.\nunsafe impl A for B {}\n",
                ),
                ("d.rs", &far),
                ("e.rs", "unsafe fn f() {}\n"),
            ],
            &["b.rs:2", "d.rs:22"],
        );
    }
}
