//! The harness of the live tests and of `xtask bench`: interpreters, target programs, the built
//! `profiler` and what it wrote.
//!
//! Ground truth comes from the targets (`tests/targets`), never from the profiler: nothing here
//! uses the profiler's library.

pub mod calls;
pub mod container;
pub mod folded;
pub mod kinds;
pub mod ledger;
pub mod libraries;
pub mod parked;
pub mod privilege;
pub mod profile;
pub mod profiler;
pub mod pythons;
pub mod readme;
pub mod rung;
pub mod stolen;
pub mod target;
pub mod tasks;
pub mod told;
pub mod watched;

mod cargo;
mod lines;

pub use lines::PATIENCE_VARIABLE;

/// A test for each minor version of CPython, of one check: which rung it stands on, the function, and
/// the tests' names, each with its minor version.
#[macro_export]
macro_rules! on_each {
    ($rung:expr, $check:path; $($name:ident: $minor:expr;)+) => {
        $(
            #[test]
            fn $name() -> anyhow::Result<()> {
                $crate::pythons::check_each($rung, (3, $minor), $check)
            }
        )+
    };
}
