//! What the program says beside its results: to standard error, by level.

use std::io::Write as _;

use log::{LevelFilter, Log, Metadata, Record};

struct Stderr;

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        // Libraries talk too; only what is ours is for the user, unless everything is asked for.
        let ours = record.target().starts_with("profiler");
        if self.enabled(record.metadata()) && (ours || log::max_level() == LevelFilter::Trace) {
            let level = record.level().as_str().to_ascii_lowercase();
            let _ = writeln!(std::io::stderr(), "{level}: {}", record.args());
        }
    }

    fn flush(&self) {}
}

/// Begin to log: warnings, with `-v` also what happens, with `-vv` also what the kernel programs
/// say.
pub(super) fn begin(verbose: u8) {
    if log::set_logger(&Stderr).is_ok() {
        log::set_max_level(match verbose {
            0 => LevelFilter::Warn,
            1 => LevelFilter::Info,
            2 => LevelFilter::Debug,
            _ => LevelFilter::Trace,
        });
    }
}
