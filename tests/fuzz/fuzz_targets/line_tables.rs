//! See `entries::line_tables`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| profiler_fuzz::run("line_tables", data));
