//! The ladder of privilege: which tests may run here, and a loud word where one does not.
//!
//! `PROFILER_TEST_RUNG` is the highest rung that must run (1 when unset): a test of that rung or
//! below fails where the machine does not allow it; a test above it does not run, and is said and
//! counted. Nothing here decides what a test does with its rung.

use std::fs::OpenOptions;
use std::io::Write;

/// What a test needs of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rung {
    /// Nothing: no privilege, no Python.
    Offline = 1,
    /// Interpreters, as children of the test.
    Live = 2,
    /// Root, and a kernel that loads eBPF programs.
    Kernel = 3,
}

/// The variable that names the highest rung that must run.
pub const RUNG_VARIABLE: &str = "PROFILER_TEST_RUNG";

/// The variable that names the file in which tests that did not run are counted, a line each.
pub const LEFT_OUT_VARIABLE: &str = "PROFILER_TEST_LEFT_OUT";

/// Whether tests of this rung must run: what they need and is missing is then a failure.
#[must_use]
pub fn must_run(rung: Rung) -> bool {
    let asked = std::env::var(RUNG_VARIABLE)
        .ok()
        .and_then(|text| text.parse::<u8>().ok())
        .unwrap_or(Rung::Offline as u8);
    rung as u8 <= asked
}

/// Whether a test of this rung is to run. When it is not, that has been said and counted.
///
/// # Panics
///
/// When the rung must run and the machine does not allow it.
#[must_use]
pub fn reached(rung: Rung) -> bool {
    if !must_run(rung) {
        leave_out(&format!(
            "it is of rung {}: type `cargo xtask test --rung {}`",
            rung as u8, rung as u8
        ));
        return false;
    }
    if rung == Rung::Kernel && !nix::unistd::geteuid().is_root() {
        panic!("rung 3 must run, but this is not root: run the tests with sudo, or --rung 2");
    }
    true
}

/// Says that the running test, or a part of it, does not run, and counts it.
///
/// The standard error is written past the test runner, which would keep it to itself.
pub fn leave_out(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let line = format!("LEFT OUT {test}: {why}\n");
    // Neither can fail the test that it speaks of: the word is lost with the stream.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os(LEFT_OUT_VARIABLE)
        && let Ok(mut file) = OpenOptions::new().append(true).create(true).open(path)
    {
        let _ = file.write_all(line.as_bytes());
    }
}
