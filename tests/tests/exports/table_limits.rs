//! A profile has limits, and what does not fit is counted under a name that says so.

use profiler::aggregate::{Limits, Profile};
use profiler::export::{Format, Options};

use super::made;
use super::made_off_cpu;

fn check(limits: Limits, mark: &str) -> Profile {
    let all = made::rich();
    let profile = made::fill(made::narrow(limits));
    assert_eq!(profile.ticks(), all.ticks());
    assert_eq!(profile.weight(), all.weight());
    assert_eq!(profile.ledger().samples, all.ledger().samples);
    let options = Options {
        threads: true,
        ..Options::default()
    };
    let folded = made::text(Format::Folded, &profile, &options);
    assert!(folded.contains(mark), "{folded}");
    let report = made::text(Format::Text, &profile, &options);
    assert!(report.contains(mark), "{report}");
    for format in Format::ALL {
        assert!(!made::bytes(format, &profile, &options).is_empty());
    }
    profile
}

#[test]
fn frames_stacks_and_threads_beyond_the_limit_are_counted_by_name() {
    let all = Limits::default();
    for frames in 0..8 {
        check(Limits { frames, ..all }, "[frames beyond the limit]");
    }
    for n in 0..8 {
        check(Limits { stacks: n, ..all }, "[stacks beyond the limit]");
        check(
            Limits {
                stack_frames: n,
                ..all
            },
            "[stacks beyond the limit]",
        );
        check(Limits { entries: n, ..all }, "[stacks beyond the limit]");
    }
    for threads in 0..3 {
        check(Limits { threads, ..all }, "[threads beyond the limit]");
    }
}

#[test]
fn memory_is_bounded_by_the_limits() {
    let limits = Limits {
        frames: 3,
        stacks: 2,
        stack_frames: 8,
        processes: 1,
        threads: 1,
        entries: 2,
        timeline: 4,
    };
    let profile = check(limits, "beyond the limit]");
    assert!(profile.frames().len() <= 3 + 2);
    assert!(profile.stacks().len() <= 2 + 1);
    assert!(profile.threads().len() <= 1 + 1);
    assert!(
        profile.entries().len() <= 2 + 6,
        "one for each thread and state"
    );
    let beyond = profile.beyond();
    assert!(beyond.frames > 0 && beyond.stack_ticks > 0 && beyond.threads > 0);
}

#[test]
fn ever_other_waits_stay_within_the_limit_and_their_ticks_are_kept() {
    let entries = 5;
    let limits = Limits {
        entries,
        ..Limits::default()
    };
    let profile = made_off_cpu::crowd(limits);
    assert_eq!(profile.ledger().samples, 200);
    // Beyond it: one that is blocked, one that waits.
    assert_eq!(profile.entries().len(), entries + 2);
    assert_eq!(profile.ticks(), 200);
    assert!(profile.ledger().blocked.len() <= entries + 2);
}
