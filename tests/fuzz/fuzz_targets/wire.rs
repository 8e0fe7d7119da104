//! See `entries::wire`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| profiler_fuzz::run("wire", data));
