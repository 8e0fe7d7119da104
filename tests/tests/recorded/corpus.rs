//! The fuzz targets' functions over their committed seeds and a few thousand changes of them.

use std::fs;
use std::path::{Path, PathBuf};

use super::entries::{ALL, Entry};
use super::mutations::Chance;

/// Changes of all seeds of one target together.
const CHANGES: usize = 1500;

fn seeds((name, _): &Entry) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/seeds")
        .join(name);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut paths: Vec<PathBuf> = files.flatten().map(|file| file.path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let bytes = fs::read(&path).expect("a seed can be read");
        (path, bytes)
    };
    paths.into_iter().map(read).collect()
}

fn check(entry: &Entry, changes: usize) {
    let (_, run) = entry;
    let seeds = seeds(entry);
    assert!(!seeds.is_empty());
    for (number, (path, bytes)) in seeds.iter().enumerate() {
        println!("{}", path.display());
        run(bytes);
        let mut chance = Chance::new(number as u64 + 1);
        for _ in 0..changes / seeds.len() {
            let changed = chance.mutate(bytes);
            // The last line before a failure is the input.
            println!("{changed:02x?}");
            run(&changed);
        }
    }
}

fn entry(name: &str) -> &'static Entry {
    let found = ALL.iter().find(|entry| entry.0 == name);
    found.expect("an entry of that name")
}

#[test]
fn lies_about_recorded_processes_are_survived() {
    // A reading takes longer than all else, and `hostile` has many more.
    check(entry("walk"), CHANGES / 10);
}

#[test]
fn records_of_the_ring_are_decoded_or_refused() {
    check(entry("wire"), CHANGES);
}

#[test]
fn line_tables_are_read_or_refused() {
    check(entry("line_tables"), CHANGES);
}

#[test]
fn image_files_are_read_or_refused() {
    check(entry("image_file"), CHANGES);
}

#[test]
fn images_of_processes_are_searched_whatever_they_are() {
    check(entry("elf"), CHANGES);
}

#[test]
fn type_information_is_read_or_refused() {
    check(entry("btf"), CHANGES);
}
