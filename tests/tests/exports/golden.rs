//! Outputs of the rich profile as they are, to be read by people when they change.

use std::path::Path;
use std::{env, fs};

use profiler::export::{Format, Granularity, Options, Unit};

use super::made;

fn check(name: &str, format: Format, options: &Options) {
    let found = made::text(format, &made::rich(), options);
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/goldens/exports")
        .join(name);
    if env::var_os("BLESS").is_some() {
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder can be made");
        fs::write(&path, &found).expect("the golden can be written");
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "{} is not what is written now; if it should be, run with BLESS=1\n{found}",
        path.display(),
    );
}

#[test]
fn folded() {
    let options = Options::default();
    check("function.folded", Format::Folded, &options);
    let lines = Options {
        granularity: Granularity::Line,
        threads: true,
        unit: Unit::Nanoseconds,
        ..options
    };
    check("threads-line-ns.folded", Format::Folded, &lines);
}

#[test]
fn text() {
    let options = Options::default();
    check("function.txt", Format::Text, &options);
    let narrow = Options {
        granularity: Granularity::Line,
        style: true,
        width: 60,
        rows: 4,
        ..options
    };
    check("narrow-line-style.txt", Format::Text, &narrow);
}

#[test]
fn speedscope() {
    check(
        "function.speedscope.json",
        Format::Speedscope,
        &Options::default(),
    );
}
