//! Interpreters that are part of a program: its static library, linked in three ways.

use anyhow::{Context, Result, ensure};
use tests::kinds::{self, Made};
use tests::pythons::{self, Python};
use tests::rung::{self, Rung};

use crate::{is_found_whole_and_deleted, spin, spins, with_all_rights, with_few_rights};

/// Which of the interpreters that bring their static library: linking takes its time.
enum Which {
    All,
    OldestAndNewest,
}

fn on_static_libraries(
    which: Which,
    arguments: &[&str],
    check: impl Fn(Made) -> Result<()>,
) -> Result<()> {
    if !rung::reached(Rung::Live) {
        return Ok(());
    }
    let has_one = |python: &&Python| python.root.is_none() && kinds::has_static_library(python);
    let mut all: Vec<&Python> = pythons::required().iter().filter(has_one).collect();
    if let (Which::OldestAndNewest, 3..) = (which, all.len()) {
        all.drain(1..all.len() - 1);
    }
    if all.is_empty() {
        rung::leave_out("no interpreter here has a static library");
    }
    for python in all {
        let made = kinds::linked(python, arguments).and_then(&check);
        made.with_context(|| format!("on {}", python.label))?;
    }
    Ok(())
}

/// As conda's and python.org's are: all in one program, at any address.
#[test]
fn an_interpreter_linked_into_its_program_is_found() -> Result<()> {
    on_static_libraries(Which::OldestAndNewest, &["-pie", "-rdynamic"], |made| {
        is_found_whole_and_deleted(&made).map(drop)
    })
}

/// Such a program needs no dynamic symbols: then its file tells, and what it points to.
#[test]
fn an_interpreter_that_exports_nothing_is_found_by_its_file_and_without_it() -> Result<()> {
    on_static_libraries(Which::All, &["-no-pie"], |made| {
        let target = spin(&made.python)?;
        let pid = target.pid().to_string();
        let found = |how: &str| {
            spins(&made.python, &pid, with_few_rights)?;
            let dump = with_all_rights(&["doctor", "--pid", &pid])?;
            let said = format!("found by {how}");
            ensure!(dump.stdout.contains(&said), "not {said}: {dump:?}");
            Ok(())
        };
        found("its s").context("by its symbols for debuggers, or its section")?;
        made.delete()?;
        let how = if made.python.minor() >= (3, 13) {
            "its table of offsets in memory"
        } else {
            "its interpreter in memory"
        };
        spins(&made.python, &pid, with_few_rights).context(how)
    })
}

/// The loader adds nothing to a program of this kind: it has no library, and moves itself.
#[test]
fn an_interpreter_linked_with_its_c_library_is_found_once_its_symbols_are_gone() -> Result<()> {
    on_static_libraries(Which::OldestAndNewest, &["-static-pie"], |made| {
        let made = made
            .change(kinds::strip)?
            .change(kinds::drop_section_headers)?;
        is_found_whole_and_deleted(&made).map(drop)
    })
}
