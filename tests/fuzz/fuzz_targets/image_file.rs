//! See `entries::image_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| profiler_fuzz::run("image_file", data));
