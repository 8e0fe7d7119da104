//! The `profiler` binary: everything is in the library.

fn main() {}
