//! The fuzz targets' functions, which are those of the tests over recorded memory.
//!
//! In `tests`: `cargo +nightly fuzz run walk fuzz/corpus/walk fuzz/seeds/walk`.

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/recorded/entries.rs"]
mod entries;
#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/recorded/images.rs"]
mod images;
#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/recorded/lying.rs"]
mod lying;
#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/recorded/reading.rs"]
mod reading;
#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/recorded/victim.rs"]
mod victim;

/// Runs the function of this name on some bytes.
pub fn run(name: &str, data: &[u8]) {
    let entry = entries::ALL.iter().find(|entry| entry.0 == name);
    let (_, run) = entry.expect("the target bears an entry's name");
    run(data);
}
