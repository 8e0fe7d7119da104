//! What threads did, in every format and every mode: nothing is lost on the way, and each time
//! stands under its own state.

use profiler::aggregate::Profile;
use profiler::export::{Format, Granularity, Options, StateFrames, Unit};
use profiler::sample::{Activity, Gil, Handling, Mode};
use serde_json::Value;

use super::made;
use super::made_off_cpu::{self, MODES, WAITS, weight_of};

/// Folded lines: frames and weight.
fn folded(profile: &Profile, options: &Options) -> Vec<(Vec<String>, u64)> {
    let text = made::text(Format::Folded, profile, options);
    let lines = text.lines().map(|line| {
        let (stack, weight) = line.rsplit_once(' ').expect("a blank before the weight");
        let stack = stack.split(';').map(str::to_owned).collect();
        (stack, weight.parse().expect("a whole number"))
    });
    lines.collect()
}

fn nanoseconds(state_frames: Option<StateFrames>, threads: bool) -> Options {
    Options {
        state_frames,
        threads,
        unit: Unit::Nanoseconds,
        ..Options::default()
    }
}

/// Everything that decides how stacks look, in each combination.
fn every_option() -> Vec<Options> {
    let mut all = Vec::new();
    for state_frames in [None, Some(StateFrames::Root), Some(StateFrames::Leaf)] {
        for threads in [false, true] {
            for granularity in Granularity::ALL {
                for unit in [Unit::Samples, Unit::Nanoseconds] {
                    all.push(Options {
                        granularity,
                        threads,
                        state_frames,
                        unit,
                        ..Options::default()
                    });
                }
            }
        }
    }
    all
}

#[test]
fn a_mode_keeps_what_it_is_about_and_the_ledger_everything() {
    let ticks = MODES.map(|mode| made_off_cpu::profile(mode, false).ticks());
    assert_eq!(ticks, [12, 116, 21, 104]);
    for mode in MODES {
        let profile = made_off_cpu::profile(mode, false);
        let ledger = profile.ledger();
        assert_eq!(ledger.samples, 116);
        assert_eq!(ledger.imbalance(), 0);
        let blocked: u64 = ledger.threads.iter().map(|t| t.sampled_blocked_ns).sum();
        assert_eq!(ledger.blocked.values().sum::<u64>(), blocked);
        assert_eq!(ledger.blocked.len(), WAITS.len());
        assert_eq!(ledger.blocked["io_socket"], 4 * 3_000_001);
        let handling = ledger.handling;
        let all = [handling.exception, handling.nothing, handling.unknown];
        assert_eq!(all, [1, 112, 3]);
    }
}

#[test]
fn every_format_sums_to_the_profile_in_every_mode() {
    for mode in MODES {
        for timeline in [false, true] {
            let profile = made_off_cpu::profile(mode, timeline);
            for options in every_option() {
                sums(&profile, &options);
            }
        }
    }
}

fn sums(profile: &Profile, options: &Options) {
    let told = format!("{:?} {options:?}", profile.meta().mode);
    let weight = profile.weight().0;
    let lines = folded(profile, options);
    let expected = match options.unit {
        Unit::Samples => profile.ticks(),
        Unit::Nanoseconds => weight,
    };
    let sum: u64 = lines.iter().map(|(_, n)| n).sum();
    assert_eq!(sum, expected, "folded, {told}");
    let mut stacks: Vec<_> = lines.iter().map(|(stack, _)| stack).collect();
    stacks.sort();
    stacks.dedup();
    assert_eq!(stacks.len(), lines.len(), "each stack once, {told}");

    let svg = made::text(Format::Flamegraph, profile, options);
    let all = svg.split("<title>all (").nth(1).expect("the whole");
    let micros = all.split(" µs").next().expect("a number").replace(',', "");
    let micros: f64 = micros.parse().expect("a number");
    assert!((micros - weight as f64 / 1e3).abs() <= 1.0, "{told}");

    let text = made::text(Format::Speedscope, profile, options);
    let file: Value = serde_json::from_str(&text).expect("it is JSON");
    let profiles = file["profiles"].as_array().expect("profiles");
    let busy: u64 = profiles.iter().map(super::speedscope::busy).sum();
    assert_eq!(busy, weight, "speedscope, {told}");

    let text = made::text(Format::Json, profile, options);
    let file: Value = serde_json::from_str(&text).expect("it is JSON");
    let entries = file["entries"].as_array().expect("entries");
    let sum: u64 = entries.iter().filter_map(|e| e["weight_ns"].as_u64()).sum();
    assert_eq!(sum, weight, "json, {told}");
}

#[test]
fn a_states_frame_is_below_the_thread_or_at_the_end_and_has_the_states_time() {
    let profile = made_off_cpu::profile(Mode::Wall, false);
    let mut words = vec![
        ("[on CPU]".to_owned(), Activity::OnCpu),
        ("[runnable]".to_owned(), Activity::Runnable),
        ("[state unknown]".to_owned(), Activity::Unknown),
    ];
    words.extend(WAITS.map(|wait| {
        (
            format!("[blocked: {}]", wait.key()),
            Activity::Blocked(wait),
        )
    }));
    for (place, threads) in [
        (StateFrames::Root, false),
        (StateFrames::Root, true),
        (StateFrames::Leaf, false),
        (StateFrames::Leaf, true),
    ] {
        let lines = folded(&profile, &nanoseconds(Some(place), threads));
        // Here threads stand below their processes, of which there are two.
        let above = if threads { 2 } else { 0 };
        let at = |stack: &[String]| match place {
            StateFrames::Root => stack[above].clone(),
            StateFrames::Leaf => stack[stack.len() - 1].clone(),
        };
        for (frame, activity) in &words {
            let of = lines.iter().filter(|(stack, _)| at(stack) == *frame);
            let sum: u64 = of.map(|(_, n)| n).sum();
            let expected = weight_of(&profile, |entry| entry.activity == *activity);
            assert_eq!(sum, expected, "{frame} {place:?} {threads}");
        }
        for (stack, _) in &lines {
            let marks = stack.iter().filter(|f| words.iter().any(|(w, _)| w == *f));
            assert_eq!(marks.count(), 1, "{stack:?}");
            assert_eq!(stack.len(), above + 3, "{stack:?}");
        }
    }
}

#[test]
fn without_being_asked_for_a_state_is_no_frame() {
    for mode in [Mode::Cpu, Mode::Wall, Mode::OffCpu] {
        let profile = made_off_cpu::profile(mode, true);
        for format in [Format::Folded, Format::Flamegraph, Format::Speedscope] {
            let text = made::text(format, &profile, &Options::default());
            for frame in ["[on CPU]", "[blocked", "the GIL]"] {
                assert!(!text.contains(frame), "{mode:?} {text}");
            }
        }
    }
}

#[test]
fn the_gil_is_two_towers_of_those_who_hold_it_and_of_those_who_wait() {
    let profile = made_off_cpu::profile(Mode::Gil, false);
    let held = weight_of(&profile, |entry| entry.gil == Gil::Holds);
    let waited = weight_of(&profile, |entry| entry.gil == Gil::Waits);
    assert!(held > 0 && waited > 0);
    for options in [
        nanoseconds(None, false),
        nanoseconds(None, true),
        nanoseconds(Some(StateFrames::Root), true),
        nanoseconds(Some(StateFrames::Leaf), false),
    ] {
        let lines = folded(&profile, &options);
        let of = |root: &str| -> u64 {
            let lines = lines.iter().filter(|(stack, _)| stack[0] == root);
            lines.map(|(_, n)| n).sum()
        };
        assert_eq!(of("[holds the GIL]"), held);
        assert_eq!(of("[waits for the GIL]"), waited);
        let mut behind: Vec<(&str, u64)> = Vec::new();
        for (stack, n) in lines.iter().filter(|(s, _)| s[0] == "[waits for the GIL]") {
            match behind.last_mut() {
                Some((whom, sum)) if *whom == stack[1] => *sum += n,
                _ => behind.push((&stack[1], *n)),
            }
        }
        let expected = [
            ("[behind MainThread (tid 4242)]", 4 * made::PERIOD),
            ("[behind nobody known]", 7),
            (
                r"[behind worker\x3b the\nsecond (tid 4243)]",
                2 * made::PERIOD,
            ),
        ];
        assert_eq!(behind, expected);
        for (stack, _) in &lines {
            let side = if stack[0] == "[holds the GIL]" { 1 } else { 2 };
            let is_process = stack[side] == "process (pid 4242)";
            assert_eq!(is_process, options.threads, "{stack:?}");
        }
    }
    let svg = made::text(Format::Flamegraph, &profile, &Options::default());
    assert!(svg.contains(": who holds the GIL, and who waits for it behind whom<"));
    assert!(svg.contains("<title>[holds the GIL] ("));
    assert!(svg.contains("<title>[waits for the GIL] ("));
}

#[test]
fn every_entry_of_the_json_says_what_its_thread_did() {
    let profile = made_off_cpu::profile(Mode::Wall, false);
    let text = made::text(Format::Json, &profile, &Options::default());
    let file: Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(file["meta"]["unit"], "nanoseconds");
    assert_eq!(file["meta"]["clock"], "CLOCK_MONOTONIC");
    let entries = file["entries"].as_array().expect("entries");
    assert_eq!(entries.len(), profile.entries().len());
    for (json, entry) in entries.iter().zip(profile.entries()) {
        assert_eq!(json["state"], entry.activity.key());
        let reason = entry.activity.wait().map(|wait| wait.key().into_owned());
        assert_eq!(json["reason"].as_str(), reason.as_deref());
        assert_eq!(json["gil"], entry.gil.key());
        assert_eq!(json["gc"], entry.gc.key());
        assert_eq!(json["handling"], entry.handling.key());
        let behind = entry.behind.map(|thread| u64::from(thread.0));
        assert_eq!(json["behind"].as_u64(), behind);
    }
    let behind = entries.iter().filter(|entry| entry["behind"] == 0);
    assert_eq!(behind.count(), 2, "two of the worker's, behind the first");
    let exception = entries
        .iter()
        .filter(|entry| entry["handling"] == Handling::Exception.key());
    assert_eq!(exception.count(), 1);
}

#[test]
fn every_report_and_file_names_its_unit_and_its_clock() {
    for mode in MODES {
        let profile = made_off_cpu::profile(mode, true);
        let text = |format| made::text(format, &profile, &Options::default());
        assert!(text(Format::Text).contains("nanoseconds of CLOCK_MONOTONIC, shown as seconds"));
        assert!(text(Format::Flamegraph).contains("µs of CLOCK_MONOTONIC"));
        let speedscope = text(Format::Speedscope);
        assert!(speedscope.contains(&format!(" · {}, times of CLOCK_MONOTONIC\"", mode.key())));
        assert!(speedscope.contains(r#""unit":"nanoseconds""#));
        assert_eq!(profile.ledger().clock, "CLOCK_MONOTONIC");
    }
}
