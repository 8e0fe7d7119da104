//! pprof files, read by our own messages and, where it is installed, by pprof's own tool.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::read::GzDecoder;
use profiler::aggregate::Profile;
use profiler::export::pprof::{Label, ProfileProto};
use profiler::export::{Format, Granularity, Options};
use profiler::sample::{Gil, Mode};
use prost::Message;
use tests::rung::{self, Rung};

use super::made;
use super::made_off_cpu::{self, weight_of};

fn decoded(profile: &Profile, options: &Options) -> ProfileProto {
    let bytes = made::bytes(Format::Pprof, profile, options);
    let mut raw = Vec::new();
    let read = GzDecoder::new(&bytes[..]).read_to_end(&mut raw);
    read.expect("it is compressed");
    ProfileProto::decode(&raw[..]).expect("it is a profile.proto")
}

fn text(proto: &ProfileProto, number: i64) -> &str {
    &proto.string_table[usize::try_from(number).expect("not negative")]
}

fn labels(proto: &ProfileProto, labels: &[Label]) -> HashMap<String, String> {
    let labels = labels.iter().map(|label| {
        let value = match label.str {
            0 => label.num.to_string(),
            str => text(proto, str).to_owned(),
        };
        (text(proto, label.key).to_owned(), value)
    });
    labels.collect()
}

/// What pprof's own reader checks before it takes a file.
fn is_valid(proto: &ProfileProto) {
    assert_eq!(proto.string_table[0], "");
    for (at, function) in (1..).zip(&proto.function) {
        assert_eq!(function.id, at);
    }
    for (at, location) in (1..).zip(&proto.location) {
        assert_eq!(location.id, at);
        assert_eq!(location.mapping_id, 1);
        for line in &location.line {
            assert!((1..=proto.function.len() as u64).contains(&line.function_id));
        }
    }
    for sample in &proto.sample {
        assert_eq!(sample.value.len(), proto.sample_type.len());
        for id in &sample.location_id {
            assert!((1..=proto.location.len() as u64).contains(id));
        }
    }
}

#[test]
fn values_sum_to_the_samples_and_labels_tell_the_thread() {
    let profile = made::rich();
    let proto = decoded(&profile, &Options::default());
    is_valid(&proto);
    let sum = |at: usize| proto.sample.iter().map(|s| s.value[at]).sum::<i64>();
    assert_eq!(sum(0), i64::try_from(profile.ticks()).expect("few"));
    assert_eq!(sum(1), i64::try_from(profile.weight().0).expect("few"));
    let types: Vec<_> = proto
        .sample_type
        .iter()
        .map(|t| (text(&proto, t.r#type), text(&proto, t.unit)))
        .collect();
    assert_eq!(types, [("samples", "count"), ("cpu", "nanoseconds")]);
    assert_eq!(text(&proto, proto.default_sample_type), "cpu");
    assert_eq!(proto.period, made::PERIOD as i64);
    assert_eq!(proto.time_nanos, 1_700_000_000_000_000_000);

    let found = labels(&proto, &proto.sample[0].label);
    let expected = [
        ("thread", "MainThread"),
        ("tid", "4242"),
        ("pid", "4242"),
        ("state", "on_cpu"),
        ("gil", "holds"),
        ("gc", "idle"),
        ("handling", "unknown"),
        ("frames_from", "kernel"),
    ];
    let expected = expected.map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(found, HashMap::from(expected));
}

#[test]
fn each_kind_of_time_has_its_column_and_labels_say_what_a_thread_did() {
    let cases: [(Mode, &[&str]); 4] = [
        (Mode::Cpu, &["cpu"]),
        (Mode::Wall, &["wall"]),
        (Mode::OffCpu, &["offcpu"]),
        (Mode::Gil, &["gil_held", "gil_waited"]),
    ];
    for (mode, columns) in cases {
        let profile = made_off_cpu::profile(mode, false);
        let proto = decoded(&profile, &Options::default());
        is_valid(&proto);
        let types: Vec<_> = proto
            .sample_type
            .iter()
            .map(|t| text(&proto, t.r#type))
            .collect();
        assert_eq!(types[0], "samples");
        assert_eq!(types[1..], *columns);
        assert_eq!(text(&proto, proto.default_sample_type), columns[0]);
        for time in &proto.sample_type[1..] {
            assert_eq!(text(&proto, time.unit), "nanoseconds");
        }
        let comments = proto.comment.iter().map(|comment| text(&proto, *comment));
        assert!(
            comments
                .into_iter()
                .any(|c| c == "times are nanoseconds of CLOCK_MONOTONIC")
        );
        let sum = |at: usize| -> u64 {
            let values = proto.sample.iter().map(|sample| sample.value[at]);
            values
                .map(|value| u64::try_from(value).expect("not negative"))
                .sum()
        };
        assert_eq!(sum(0), profile.ticks());
        let waited = weight_of(&profile, |entry| entry.gil == Gil::Waits);
        if mode == Mode::Gil {
            assert_eq!(sum(1), profile.weight().0 - waited);
            assert_eq!(sum(2), waited);
        } else {
            assert_eq!(sum(1), profile.weight().0);
        }
        assert_eq!(proto.sample.len(), profile.entries().len());
        for (sample, entry) in proto.sample.iter().zip(profile.entries()) {
            let found = labels(&proto, &sample.label);
            let reason = entry.activity.wait().map(|wait| wait.key().into_owned());
            assert_eq!(found.get("reason"), reason.as_ref());
            let behind = (entry.gil == Gil::Waits).then(|| match entry.behind {
                None => "unknown",
                Some(thread) => &profile.threads()[thread.0 as usize].name,
            });
            assert_eq!(found.get("gil_behind").map(String::as_str), behind);
            let same = [
                ("state", entry.activity.key()),
                ("gil", entry.gil.key()),
                ("gc", entry.gc.key()),
                ("handling", entry.handling.key()),
                ("frames_from", entry.frames_from.key()),
            ];
            for (key, value) in same {
                assert_eq!(found[key], value);
            }
        }
    }
}

#[test]
fn a_function_has_its_first_line_and_a_location_the_current_one() {
    let options = Options {
        granularity: Granularity::Line,
        ..Options::default()
    };
    let proto = decoded(&made::rich(), &options);
    is_valid(&proto);
    let fibs: Vec<_> = proto
        .function
        .iter()
        .filter(|function| text(&proto, function.name) == "fib")
        .collect();
    assert_eq!(fibs.len(), 1, "one function, whatever the line");
    assert_eq!(fibs[0].start_line, 1);
    assert_eq!(text(&proto, fibs[0].filename), "/srv/app/fib.py");
    let lines = proto.location.iter().flat_map(|location| &location.line);
    let mut lines: Vec<i64> = lines
        .filter(|line| line.function_id == fibs[0].id)
        .map(|line| line.line)
        .collect();
    lines.sort_unstable();
    assert_eq!(lines, [2, 3]);
}

#[test]
fn a_profile_without_samples_is_a_valid_file() {
    for profile in [made::empty(), made::bare()] {
        let proto = decoded(&profile, &Options::default());
        is_valid(&proto);
        assert_eq!(proto.sample, []);
        assert_eq!(proto.sample_type.len(), 2);
    }
}

/// pprof's own tool: in a Go of some version, in the PATH, or not there.
fn pprof_tool() -> Option<PathBuf> {
    let go = |root: &Path| root.join("pkg/tool/linux_amd64/pprof");
    let mut places = Vec::new();
    if let Ok(libraries) = Path::new("/usr/lib").read_dir() {
        places.extend(libraries.flatten().map(|entry| go(&entry.path())));
    }
    places.push(go(Path::new("/usr/local/go")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    places.extend(std::env::split_paths(&path).map(|folder| folder.join("pprof")));
    places.into_iter().find(|place| place.is_file())
}

#[test]
fn pprofs_own_tool_reads_it() {
    let Some(tool) = pprof_tool() else {
        assert!(
            !rung::must_run(Rung::Kernel),
            "pprof's own tool is not here: run `cargo xtask setup`, which installs golang-1.19-go"
        );
        rung::leave_out("pprof's own tool is not here, so only our own messages read the file");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let run = |name: &str, profile: &Profile, options: &Options, arguments: &[&str]| {
        let file = folder.path().join(name);
        std::fs::write(&file, made::bytes(Format::Pprof, profile, options)).expect("written");
        let output = Command::new(&tool)
            .args(arguments)
            .arg(&file)
            .env("PPROF_TMPDIR", folder.path())
            .output()
            .expect("it starts");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        String::from_utf8(output.stdout).expect("text")
    };
    let by_line = Options {
        granularity: Granularity::Line,
        ..Options::default()
    };
    let top = run("rich.pb.gz", &made::rich(), &Options::default(), &["-top"]);
    assert!(top.contains("File: python3\n"), "{top}");
    assert!(top.contains("Type: cpu\n"), "{top}");
    assert!(top.contains("  JSONDecoder.raw_decode\n"), "{top}");
    let lines = run(
        "line.pb.gz",
        &made::rich(),
        &by_line,
        &["-top", "-lines", "-sample_index=samples"],
    );
    assert!(lines.contains("fib /srv/app/fib.py:2"), "{lines}");
    assert!(lines.contains("Total samples = 42 "), "{lines}");
    let tags = run("tags.pb.gz", &made::rich(), &Options::default(), &["-tags"]);
    assert!(tags.contains("thread: Total"), "{tags}");
    let gil = run(
        "gil.pb.gz",
        &made_off_cpu::profile(Mode::Gil, false),
        &Options::default(),
        &[
            "-top",
            "-sample_index=gil_waited",
            "-tagfocus=gil_behind=MainThread",
        ],
    );
    assert!(gil.contains("Type: gil_waited\n"), "{gil}");
    assert!(gil.contains("40.40ms"), "{gil}");
    let behind = run(
        "behind.pb.gz",
        &made_off_cpu::profile(Mode::Gil, false),
        &Options::default(),
        &["-top", "-sample_index=gil_waited", "-tagroot=gil_behind"],
    );
    assert!(behind.contains("  MainThread"), "{behind}");
    let states = run(
        "states.pb.gz",
        &made_off_cpu::profile(Mode::Wall, false),
        &Options::default(),
        &["-top", "-tagroot=state,reason"],
    );
    assert!(states.contains("  io_socket"), "{states}");
    run(
        "empty.pb.gz",
        &made::empty(),
        &Options::default(),
        &["-top"],
    );
}
