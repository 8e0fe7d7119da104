//! Outputs of the rich profile as they are, to be read by people when they change.

use std::path::Path;
use std::{env, fs};

use profiler::aggregate::Profile;
use profiler::export::{Format, Granularity, Options, StateFrames, Unit};

use super::made;
use super::made_off_cpu::{self, MODES};

fn check(name: &str, format: Format, options: &Options) {
    check_of(&made::rich(), name, format, options);
}

fn check_of(profile: &Profile, name: &str, format: Format, options: &Options) {
    let found = made::text(format, profile, options);
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

#[test]
fn every_mode() {
    for mode in MODES {
        let key = mode.key();
        let profile = made_off_cpu::profile(mode, true);
        let options = Options::default();
        check_of(&profile, &format!("{key}.mode.txt"), Format::Text, &options);
        let states = Options {
            threads: true,
            state_frames: Some(StateFrames::Root),
            unit: Unit::Nanoseconds,
            ..options
        };
        let name = format!("{key}.states.folded");
        check_of(&profile, &name, Format::Folded, &states);
        let name = format!("{key}.mode.speedscope.json");
        check_of(&profile, &name, Format::Speedscope, &options);
    }
}

#[test]
fn a_report_without_samples_says_why() {
    let text = |profile| made::text(Format::Text, &profile, &Options::default());
    let expected = "\
python3 /srv/app/main.py --name a<b>&\"c\"
pid 4242 · CPython 3.12.1 · cpu at 99 Hz · 1.00 s watched · 0 samples for 0.00 s of CPU
time on a CPU · nanoseconds of CLOCK_MONOTONIC, shown as seconds

no samples: nothing of the target ran on a CPU while it was watched (`profiler dump --pid 4242` shows what it waits for)

0 ticks = 0 samples + 0 lost
";
    assert_eq!(text(made::empty()), expected);
    assert!(text(made::bare()).contains("no samples"));
    // As at one tick a second: it ran, and no tick met it.
    let ran = text(made::unmet()).replace('\n', " ");
    assert!(
        ran.contains("no samples: no tick met the target in its 0.50 s on a CPU: watch it for"),
        "{ran}"
    );
}
