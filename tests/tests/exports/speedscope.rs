//! speedscope files: the rules of its published schema, by hand, and what its reader does with
//! them.

use profiler::aggregate::{Limits, Profile, ProfileBuilder, Timeline};
use profiler::export::{Format, Options, StateFrames};
use profiler::sample::Mode;
use profiler::stack::Frame;
use serde_json::Value;

use super::made::{self, Making};
use super::made_off_cpu;

/// The file, of which the schema's rules hold.
fn file(profile: &Profile) -> Value {
    file_with(profile, &Options::default())
}

fn file_with(profile: &Profile, options: &Options) -> Value {
    let text = made::text(Format::Speedscope, profile, options);
    let file: Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(
        file["$schema"],
        "https://www.speedscope.app/file-format-schema.json"
    );
    let frames = file["shared"]["frames"].as_array().expect("frames");
    for frame in frames {
        assert!(frame["name"].is_string());
        assert!(frame.get("file").is_none_or(Value::is_string));
        assert!(frame.get("line").is_none_or(Value::is_number));
    }
    let profiles = file["profiles"].as_array().expect("profiles");
    let active = file["activeProfileIndex"].as_u64().expect("an index");
    assert!(
        (active as usize) < profiles.len(),
        "its reader shows this one"
    );
    for profile in profiles {
        assert_eq!(profile["type"], "sampled");
        assert_eq!(profile["unit"], "nanoseconds");
        assert!(profile["name"].is_string());
        let samples = profile["samples"].as_array().expect("samples");
        let weights = profile["weights"].as_array().expect("weights");
        assert_eq!(samples.len(), weights.len());
        let sum: u64 = weights.iter().filter_map(Value::as_u64).sum();
        assert_eq!(profile["startValue"], 0);
        assert_eq!(profile["endValue"], sum);
        for frame in samples.iter().flat_map(|s| s.as_array().expect("a stack")) {
            let frame = frame.as_u64().expect("an index");
            assert!((frame as usize) < frames.len());
        }
    }
    file
}

/// Nanoseconds in stacks, the stretches without one left out.
pub(crate) fn busy(profile: &Value) -> u64 {
    let samples = profile["samples"].as_array().expect("samples").iter();
    let weights = profile["weights"].as_array().expect("weights").iter();
    let busy = samples
        .zip(weights)
        .filter(|(stack, _)| **stack != Value::Array(Vec::new()));
    busy.filter_map(|(_, weight)| weight.as_u64()).sum()
}

#[test]
fn there_is_a_profile_for_every_thread_with_samples_and_nothing_is_lost() {
    for profile in [made::rich(), made::timed()] {
        let file = file(&profile);
        let threads = file["profiles"].as_array().expect("profiles");
        let names: Vec<_> = threads.iter().filter_map(|t| t["name"].as_str()).collect();
        let expected = [
            "MainThread (tid 4242)",
            "worker; the\nsecond (tid 4243)",
            "größe 変数 (tid 4250)",
        ];
        assert_eq!(names, expected);
        assert_eq!(threads.iter().map(busy).sum::<u64>(), profile.weight().0);
        assert_eq!(file["activeProfileIndex"], 0);
    }
}

#[test]
fn with_a_timeline_threads_stand_side_by_side_as_they_ran() {
    let mut making = Making::new(ProfileBuilder::new(made::meta()).with_timeline());
    let (a, b) = (making.thread(1, "a", true), making.thread(2, "b", true));
    let f = [Frame::python("f", "a.py", Some(1), Some(1))];
    let g = [Frame::python("g", "a.py", Some(9), Some(9))];
    making.add(a, &f, 2);
    making.add(b, &g, 3);
    making.add(a, &g, 1);
    making.add(a, &g, 1);
    let file = file(&making.close());
    let row = |at: usize| {
        let thread = &file["profiles"][at];
        let weights = thread["weights"].as_array().expect("weights");
        let weights = weights
            .iter()
            .filter_map(Value::as_u64)
            .map(|w| w / made::PERIOD);
        (thread["samples"].to_string(), weights.collect::<Vec<_>>())
    };
    assert_eq!(row(0), ("[[1],[],[2]]".to_owned(), vec![2, 3, 2]));
    assert_eq!(row(1), ("[[],[2]]".to_owned(), vec![2, 3]));
}

#[test]
fn a_timeline_beyond_its_limit_is_summed_up_and_says_so() {
    let limits = Limits {
        timeline: 5,
        ..Limits::default()
    };
    let profile = made::fill(made::narrow(limits));
    assert_eq!(profile.timeline(), &Timeline::TooLong { limit: 5 });
    let file = file(&profile);
    let name = file["name"].as_str().expect("a name");
    assert!(
        name.ends_with(" (summed up: more than 5 samples)"),
        "{name}"
    );
    let threads = file["profiles"].as_array().expect("profiles");
    assert_eq!(threads.iter().map(busy).sum::<u64>(), profile.weight().0);
}

#[test]
fn a_profile_without_samples_has_one_thread_without_samples() {
    for profile in [made::empty(), made::bare()] {
        let file = file(&profile);
        assert_eq!(file["profiles"][0]["name"], "no samples");
    }
}

#[test]
fn off_the_cpu_each_kind_of_time_has_a_profile_unless_frames_tell_it() {
    let names = |mode, state_frames| -> Vec<String> {
        let options = Options {
            state_frames,
            ..Options::default()
        };
        let summed = file_with(&made_off_cpu::profile(mode, false), &options);
        let timed = file_with(&made_off_cpu::profile(mode, true), &options);
        let names = |file: &Value| -> Vec<String> {
            let profiles = file["profiles"].as_array().expect("profiles").iter();
            let names = profiles.filter_map(|profile| profile["name"].as_str());
            names.map(str::to_owned).collect()
        };
        assert_eq!(names(&summed), names(&timed));
        names(&timed)
    };
    let threads = [
        "MainThread (tid 4242)",
        "worker; the\nsecond (tid 4243)",
        "child (tid 5001)",
    ];
    let [main, worker, child] = threads;
    let of = |parts: &[(&str, &str)]| -> Vec<String> {
        let names = parts
            .iter()
            .map(|(thread, kind)| format!("{thread}: {kind}"));
        names.collect()
    };
    let wall = [
        (main, "on CPU"),
        (main, "blocked"),
        (worker, "runnable"),
        (worker, "blocked"),
        (child, "on CPU"),
        (child, "state unknown"),
    ];
    assert_eq!(names(Mode::Wall, None), of(&wall));
    let off_cpu = [
        (worker, "runnable"),
        (worker, "blocked"),
        (main, "blocked"),
        (child, "state unknown"),
    ];
    assert_eq!(names(Mode::OffCpu, None), of(&off_cpu));
    assert_eq!(names(Mode::Wall, Some(StateFrames::Leaf)), threads);
    assert_eq!(names(Mode::Gil, None), threads[..2]);
    assert_eq!(names(Mode::Cpu, None), [main, child]);
}

#[test]
fn who_holds_the_gil_and_who_waits_behind_whom_are_roots_in_the_order_of_time() {
    let file = file(&made_off_cpu::profile(Mode::Gil, true));
    let frames = &file["shared"]["frames"];
    let roots = |thread: usize| -> Vec<String> {
        let samples = file["profiles"][thread]["samples"].as_array();
        let busy = samples.expect("samples").iter().filter(|s| s[0].is_u64());
        let name = |at: &Value| frames[at.as_u64().expect("an index") as usize]["name"].clone();
        let roots = busy.map(|stack| match name(&stack[0]).as_str() {
            Some("[waits for the GIL]") => name(&stack[1]).as_str().expect("text").to_owned(),
            other => other.expect("text").to_owned(),
        });
        roots.collect()
    };
    let holds = "[holds the GIL]";
    let behind_worker = "[behind worker; the\nsecond (tid 4243)]";
    assert_eq!(roots(0), [holds, holds, holds, behind_worker]);
    let behind_main = "[behind MainThread (tid 4242)]";
    assert_eq!(
        roots(1),
        [holds, behind_main, "[behind nobody known]", behind_main]
    );
}
