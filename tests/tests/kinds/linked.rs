//! Interpreters that are part of a program: its static library, linked in three ways.

use anyhow::{Context, Result, ensure};
use tests::kinds::{self, Made};
use tests::pythons;
use tests::rung::{self, Rung};

use crate::{is_found_whole_and_deleted, spin, spins, with_all_rights, with_few_rights};

/// Each interpreter of the machine that brings its static library, linked anew.
fn on_every_static_library(arguments: &[&str], check: impl Fn(Made) -> Result<()>) -> Result<()> {
    if !rung::reached(Rung::Live) {
        return Ok(());
    }
    let mut any = false;
    for python in pythons::required() {
        if python.root.is_none()
            && let Some(made) = kinds::linked(python, arguments)?
        {
            any = true;
            check(made).with_context(|| format!("on {}", python.label))?;
        }
    }
    if !any {
        rung::leave_out("no interpreter here has a static library");
    }
    Ok(())
}

/// As conda's and python.org's are: all in one program, at any address.
#[test]
fn an_interpreter_linked_into_its_program_is_found() -> Result<()> {
    on_every_static_library(&["-pie", "-rdynamic"], |made| {
        is_found_whole_and_deleted(&made).map(drop)
    })
}

/// Such a program needs no dynamic symbols: then its file tells, and what it points to.
#[test]
fn an_interpreter_that_exports_nothing_is_found_by_its_file_and_without_it() -> Result<()> {
    on_every_static_library(&["-no-pie"], |made| {
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
    on_every_static_library(&["-static-pie"], |made| {
        let made = made
            .change(kinds::strip)?
            .change(kinds::drop_section_headers)?;
        is_found_whole_and_deleted(&made).map(drop)
    })
}
