//! The harness of the live tests and of `xtask bench`: interpreters, target programs, the built
//! `profiler` and what it wrote.
//!
//! Ground truth comes from the targets (`tests/targets`), never from the profiler: nothing here
//! uses the profiler's library.

pub mod folded;
pub mod kinds;
pub mod ledger;
pub mod parked;
pub mod privilege;
pub mod profile;
pub mod profiler;
pub mod pythons;
pub mod readme;
pub mod rung;
pub mod stolen;
pub mod target;
pub mod watched;

mod cargo;
mod lines;

pub use lines::PATIENCE_VARIABLE;
