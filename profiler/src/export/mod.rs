//! A profile as a file: one file per format, each a pure function from a [`Profile`] to bytes,
//! and [`Sink`], the one place that opens, replaces and renames output files.
//!
//! Nothing here changes a profile or reads a target.

use std::io;

use crate::aggregate::Profile;

mod escape;
pub(crate) use escape::printable;
pub mod flamegraph;
mod fold;
pub mod folded;
mod format;
pub mod json;
mod palette;
mod paths;
pub mod pprof;
mod sink;
pub mod speedscope;
mod states;
mod table;
pub mod text;
mod view;

pub use format::{Format, FormatError, Granularity, UnknownWord};
pub use sink::{Sink, SinkError};
pub use states::StateFrames;

/// What a weight is counted in, where the format leaves the choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Ticks.
    #[default]
    Samples,
    /// Nanoseconds.
    Nanoseconds,
}

/// How to write a profile; each format uses what concerns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which frames count as one.
    pub granularity: Granularity,
    /// Whether each stack begins with its thread (folded, flamegraph).
    pub threads: bool,
    /// Where each stack has a frame for its thread's state (folded, flamegraph, speedscope).
    pub state_frames: Option<StateFrames>,
    /// What weights are counted in (folded).
    pub unit: Unit,
    /// Whether to colour with ANSI sequences (text).
    pub style: bool,
    /// Columns to keep within (text).
    pub width: usize,
    /// Rows of each table at most (text).
    pub rows: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            granularity: Granularity::default(),
            threads: false,
            state_frames: None,
            unit: Unit::default(),
            style: false,
            width: 100,
            rows: 20,
        }
    }
}

/// Writes `profile` to `out` in `format`.
///
/// # Errors
/// Those of `out`.
pub fn write(
    format: Format,
    profile: &Profile,
    options: &Options,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    match format {
        Format::Folded => folded::write(profile, options, out),
        Format::Flamegraph => flamegraph::write(profile, options, out),
        Format::Speedscope => speedscope::write(profile, options, out),
        Format::Pprof => pprof::write(profile, options, out),
        Format::Text => text::write(profile, options, out),
        Format::Json => json::write(profile, options, out),
    }
}
