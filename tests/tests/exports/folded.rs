//! Folded lines: what readers of the format assume, and that nothing is lost in them.

use profiler::aggregate::Profile;
use profiler::export::{Format, Granularity, Options, Unit};

use super::made;

fn lines(profile: &Profile, options: &Options) -> Vec<(Vec<String>, u64)> {
    let text = made::text(Format::Folded, profile, options);
    let lines = text.lines().map(|line| {
        let (stack, weight) = line.rsplit_once(' ').expect("a blank before the weight");
        let stack = stack.split(';').map(str::to_owned).collect();
        (stack, weight.parse().expect("a whole number"))
    });
    lines.collect()
}

fn every_option() -> Vec<Options> {
    let mut all = Vec::new();
    for granularity in Granularity::ALL {
        for threads in [false, true] {
            for unit in [Unit::Samples, Unit::Nanoseconds] {
                all.push(Options {
                    granularity,
                    threads,
                    unit,
                    ..Options::default()
                });
            }
        }
    }
    all
}

#[test]
fn the_weights_sum_to_the_samples_whatever_the_options() {
    let profile = made::rich();
    for options in every_option() {
        let sum: u64 = lines(&profile, &options).iter().map(|(_, n)| n).sum();
        let expected = match options.unit {
            Unit::Samples => profile.ticks(),
            Unit::Nanoseconds => profile.weight().0,
        };
        assert_eq!(sum, expected, "{options:?}");
        assert_eq!(profile.ticks(), profile.ledger().samples);
    }
}

#[test]
fn every_stack_comes_once_and_in_order() {
    for options in every_option() {
        let lines = lines(&made::rich(), &options);
        let mut stacks: Vec<_> = lines.iter().map(|(stack, _)| stack).collect();
        let n_lines = stacks.len();
        stacks.sort();
        stacks.dedup();
        assert_eq!(stacks.len(), n_lines, "{options:?}");
    }
}

#[test]
fn recursion_is_kept_frame_by_frame_and_lines_merge_by_function() {
    let options = Options::default();
    let lines = lines(&made::rich(), &options);
    let fib = "fib (/srv/app/fib.py:1)".to_owned();
    let deepest = lines.iter().filter(|(stack, _)| {
        stack.iter().filter(|frame| **frame == fib).count() == 3 && stack.len() == 5
    });
    let weights: Vec<u64> = deepest.map(|(_, n)| *n).collect();
    assert_eq!(
        weights,
        [7, 4],
        "one called from App.run, one around the cut"
    );
}

#[test]
fn names_that_mean_something_to_the_format_are_escaped() {
    let text = made::text(Format::Folded, &made::rich(), &Options::default());
    assert!(text.contains(r"a\x3bb\\c\n\x1b[31m<&>\u{202e} (/srv/app/ж\x3b.py) 2"));
    assert!(text.contains("\\x23 not a comment (x.py:1) 1\n"));
    assert!(text.contains("[no Python frames] 8\n"));
    assert!(text.contains(";[… 1000 frames cut];"));
}

#[test]
fn a_thread_stands_above_its_stacks_when_asked() {
    let options = Options {
        threads: true,
        ..Options::default()
    };
    let lines = lines(&made::rich(), &options);
    let mut roots: Vec<(&str, u64)> = Vec::new();
    for (stack, weight) in &lines {
        match roots.last_mut() {
            Some((root, sum)) if *root == stack[0] => *sum += weight,
            _ => roots.push((&stack[0], *weight)),
        }
    }
    let expected = [
        ("MainThread (tid 4242)", 23),
        (r"größe 変数 (tid 4250)", 8),
        (r"worker\x3b the\nsecond (tid 4243)", 11),
    ];
    assert_eq!(roots, expected);
}

#[test]
fn no_samples_are_no_lines() {
    for profile in [made::empty(), made::bare()] {
        assert_eq!(lines(&profile, &Options::default()), []);
    }
}
