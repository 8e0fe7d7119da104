//! Threads whose every stretch is known, looked at at random times.

use super::*;
use crate::pipeline::absence::Debts;

const PERIOD: u64 = 10_000_000;
const MS: u64 = 1_000_000;

/// What a thread does and for how long; the last tells stretches apart.
type Stretch = (Found, u64, usize);

/// A thread as the scheduler sees it.
struct Life {
    stretches: Vec<Stretch>,
    /// What was counted at the beginning of each, and its time.
    counts: Vec<(Reading, Weights)>,
    /// How long a running thread's time stays uncounted.
    stale: u64,
}

impl Life {
    fn new(stretches: Vec<Stretch>, stale: u64) -> Self {
        let mut counts = Vec::new();
        let mut reading = Reading::default();
        let mut truth = Weights::default();
        for &(found, ns, _) in &stretches {
            counts.push((reading, truth));
            reading.at.0 += ns;
            match found {
                Found::OnCpu => {
                    reading.on_cpu.0 += ns;
                    truth.on_cpu += ns;
                }
                Found::Runnable => {
                    reading.run_delay.0 += ns;
                    truth.runnable += ns;
                }
                Found::Blocked => truth.blocked += ns,
            }
        }
        counts.push((reading, truth));
        Self {
            stretches,
            counts,
            stale,
        }
    }

    fn length(&self) -> u64 {
        self.counts.last().map_or(0, |(reading, _)| reading.at.0)
    }

    fn at(&self, time: u64) -> (Reading, Found, usize) {
        let index = self.counts.partition_point(|(r, _)| r.at.0 <= time) - 1;
        let index = index.min(self.stretches.len() - 1);
        let (found, _, place) = self.stretches[index];
        let (mut reading, _) = self.counts[index];
        if found == Found::OnCpu {
            let ran = time - reading.at.0;
            reading.on_cpu.0 += ran - ran.checked_rem(self.stale).unwrap_or(0);
        }
        reading.at.0 = time;
        (reading, found, place)
    }

    /// The weights by place, those of all kinds together, and what nobody got.
    fn weights(&self, places: usize, seed: u64) -> (Vec<Weights>, Weights) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut sums = vec![Weights::default(); places];
        let mut shares = Shares::new(Reading::default());
        let mut before = None;
        let mut debts = <[Debts<usize>; 3]>::default();
        let mut add = |place: Option<usize>, weights: Weights| {
            let Some(place) = place else {
                assert_eq!(weights, Weights::default(), "to whom?");
                return;
            };
            let sum = &mut sums[place];
            sum.on_cpu += weights.on_cpu;
            sum.runnable += weights.runnable;
            sum.blocked += weights.blocked;
        };
        let mut time = random.u64(PERIOD / 2..PERIOD * 3 / 2);
        while time < self.length() {
            let (reading, found, place) = self.at(time);
            let handed = shares.hand_out(reading, Some(found));
            owe(&mut debts, before, &handed);
            add(before, handed.before);
            add(Some(place), handed.now);
            before = Some(place);
            time += random.u64(PERIOD / 2..PERIOD * 3 / 2);
        }
        let end = self.counts.last().expect("an end").0;
        let handed = shares.hand_out(end, None);
        owe(&mut debts, before, &handed);
        add(before, handed.before);
        let mut rest = shares.rest();
        let Weights {
            on_cpu,
            runnable,
            blocked,
        } = &mut rest;
        for (kind, left) in [on_cpu, runnable, blocked].into_iter().enumerate() {
            debts[kind].pay(*left, |place, ns| {
                let mut weights = Weights::default();
                *part(&mut weights, kind) = ns;
                add(Some(place), weights);
            });
            if !debts[kind].is_empty() {
                *left = 0;
            }
        }
        (sums, rest)
    }
}

fn part(weights: &mut Weights, kind: usize) -> &mut u64 {
    match kind {
        0 => &mut weights.on_cpu,
        1 => &mut weights.runnable,
        _ => &mut weights.blocked,
    }
}

/// What the look before is owed.
fn owe(debts: &mut [Debts<usize>; 3], before: Option<usize>, handed: &Handed) {
    let (mut due, mut got) = (handed.stood_for, handed.got);
    for (kind, debts) in debts.iter_mut().enumerate() {
        if let Some(place) = before {
            debts.note(place, *part(&mut due, kind), *part(&mut got, kind));
        }
    }
}

fn sum(weights: &[Weights]) -> Weights {
    weights.iter().fold(Weights::default(), |sum, one| Weights {
        on_cpu: sum.on_cpu + one.on_cpu,
        runnable: sum.runnable + one.runnable,
        blocked: sum.blocked + one.blocked,
    })
}

/// The weights over many runs are the truth within so many hundredths of the whole.
fn check(what: &str, stretches: &[Stretch], places: usize, hundredths: f64) {
    for stale in [0, 4 * MS] {
        let life = Life::new(stretches.to_vec(), stale);
        let mut truth = vec![0.0; places];
        for (_, ns, place) in stretches {
            truth[*place] += *ns as f64;
        }
        let mut found = vec![0.0; places];
        const RUNS: u64 = 40;
        for seed in 0..RUNS {
            let (weights, rest) = life.weights(places, seed);
            let all = sum(&[sum(&weights), rest]);
            let (_, counted) = life.counts[life.counts.len() - 1];
            // Time that is counted late may be taken for another kind by so much.
            let late = |a: u64, b: u64| a.abs_diff(b) <= 3 * PERIOD;
            assert!(late(all.on_cpu, counted.on_cpu), "{what}: {all:?}");
            assert!(late(all.runnable, counted.runnable), "{what}: {all:?}");
            assert!(late(all.blocked, counted.blocked), "{what}: {all:?}");
            for (found, weights) in found.iter_mut().zip(&weights) {
                let Weights {
                    on_cpu,
                    runnable,
                    blocked,
                } = *weights;
                *found += (on_cpu + runnable + blocked) as f64 / RUNS as f64;
            }
        }
        let whole = life.length() as f64;
        for (place, (found, truth)) in found.iter().zip(&truth).enumerate() {
            let off = 100.0 * (found - truth).abs() / whole;
            assert!(
                off <= hundredths,
                "{what}, stale by {stale}: place {place} has {found:.0} of {truth:.0}"
            );
        }
    }
}

fn repeated(times: usize, stretches: &[Stretch]) -> Vec<Stretch> {
    std::iter::repeat_n(stretches, times)
        .flatten()
        .copied()
        .collect()
}

#[test]
fn what_lasts_has_its_own_length() {
    use Found::{Blocked, OnCpu};
    let origin = [
        (Blocked, 3000 * MS, 0),
        (OnCpu, 900 * MS, 1),
        (Blocked, 40 * MS, 0),
    ];
    check("a sleep and then work", &origin, 2, 0.2);
    let turns = repeated(20, &[(OnCpu, 130 * MS, 0), (Blocked, 70 * MS, 1)]);
    check("long turns", &turns, 2, 0.3);
}

#[test]
fn what_is_short_is_not_lost_among_what_is_long() {
    use Found::{Blocked, OnCpu, Runnable};
    let turns = repeated(3000, &[(OnCpu, MS, 0), (Blocked, MS, 1)]);
    check("a millisecond each", &turns, 2, 0.5);
    let seldom = repeated(6000, &[(OnCpu, MS / 10, 0), (Blocked, MS * 9 / 10, 1)]);
    check("a tenth of a millisecond", &seldom, 2, 0.5);
    let mut mixed = Vec::new();
    for _ in 0..40 {
        mixed.push((OnCpu, 30 * MS, 0));
        mixed.push((Blocked, 5 * MS, 3));
        mixed.extend(repeated(30, &[(OnCpu, MS, 1), (Blocked, 9 * MS, 2)]));
    }
    check("a long burst and many short ones", &mixed, 4, 1.0);
    let contended = repeated(
        800,
        &[
            (OnCpu, 4 * MS, 0),
            (Runnable, 4 * MS, 0),
            (Blocked, 2 * MS, 1),
        ],
    );
    check("a CPU that is shared", &contended, 2, 0.6);
}

#[test]
fn a_thread_that_waits_for_a_cpu_all_the_time_is_not_blocked() {
    let mut shares = Shares::new(Reading::default());
    let at = |at: u64, on_cpu: u64, run_delay: u64| Reading {
        at: MonotonicNs(at),
        on_cpu: DurationNs(on_cpu),
        run_delay: DurationNs(run_delay),
    };
    let handed = shares.hand_out(at(10, 10, 0), Some(Found::OnCpu));
    assert_eq!(handed.now.on_cpu, 10);
    // It left its CPU after 2 and waits; nothing is counted until it has one again.
    let handed = shares.hand_out(at(20, 12, 0), Some(Found::Runnable));
    assert_eq!((handed.now.on_cpu, handed.now.runnable), (2, 0));
    let handed = shares.hand_out(at(30, 12, 0), Some(Found::Runnable));
    assert_eq!(
        handed.now,
        Weights {
            runnable: 10,
            ..Weights::default()
        }
    );
    let handed = shares.hand_out(at(40, 15, 25), Some(Found::OnCpu));
    assert_eq!(handed.now.on_cpu, 3);
    assert_eq!(handed.before.runnable, 15);
    let handed = shares.hand_out(at(50, 20, 25), Some(Found::Blocked));
    assert_eq!(handed.before.on_cpu, 5);
    assert_eq!(handed.now.blocked, 5);
    assert_eq!(shares.rest(), Weights::default());
    let (totals, lived) = shares.totals();
    assert_eq!(
        totals,
        Weights {
            on_cpu: 20,
            runnable: 25,
            blocked: 5
        }
    );
    assert_eq!(lived, DurationNs(50));
}

/// Regression: in `cpu` mode a thread that waits for a CPU and has not run is not read, and what it
/// ran next went to the first stack of the profile, whosesoever that was.
#[test]
fn a_look_that_read_no_stack_gets_nothing_of_what_follows() {
    let at = |at: u64, on_cpu: u64| Reading {
        at: MonotonicNs(at),
        on_cpu: DurationNs(on_cpu),
        run_delay: DurationNs(0),
    };
    let mut shares = Shares::new(Reading::default());
    let _ = shares.hand_out(at(10, 0), Some(Found::Runnable));
    shares.found_nothing();
    let handed = shares.hand_out(at(20, 3), Some(Found::Blocked));
    assert_eq!(handed.before, Weights::default());
    assert_eq!(handed.stood_for, Weights::default());
    assert_eq!(shares.rest().on_cpu, 3);
}

#[test]
fn what_passed_unseen_before_a_wait_for_a_cpu_is_no_such_wait() {
    const LONG: u64 = 11_000 * MS;
    let at = |at: u64, on_cpu: u64, run_delay: u64| Reading {
        at: MonotonicNs(at),
        on_cpu: DurationNs(on_cpu),
        run_delay: DurationNs(run_delay),
    };
    let mut shares = Shares::new(Reading::default());
    let mut all = Vec::new();
    let mut look = |reading: Reading, found: Option<Found>| {
        let handed = shares.hand_out(reading, found);
        all.extend([handed.before, handed.now]);
    };
    look(at(MS, 0, 0), Some(Found::Runnable));
    // Nobody looked for long; it ran a little, slept, and was woken a moment ago.
    look(at(LONG, 2 * MS, MS), Some(Found::Runnable));
    look(at(LONG + 2 * MS, 3 * MS, 2 * MS), None);
    let all = sum(&[sum(&all), shares.rest()]);
    assert_eq!((all.on_cpu, all.runnable), (3 * MS, 2 * MS));
    assert_eq!(all.blocked, LONG - 3 * MS);
}

#[test]
fn a_sleeper_that_was_woken_long_ago_gives_back_what_was_no_sleep() {
    let at = |at: u64, on_cpu: u64, run_delay: u64| Reading {
        at: MonotonicNs(at),
        on_cpu: DurationNs(on_cpu),
        run_delay: DurationNs(run_delay),
    };
    let mut shares = Shares::new(Reading::default());
    let mut slept = 0;
    for look in 1..=10 {
        slept += shares
            .hand_out(at(10 * look, 0, 0), Some(Found::Blocked))
            .now
            .blocked;
    }
    assert_eq!(slept, 100);
    // It was woken at 40 and got a CPU at 105.
    let handed = shares.hand_out(at(110, 5, 65), Some(Found::OnCpu));
    assert_eq!((handed.before.blocked, handed.now.on_cpu), (0, 5));
    slept -= shares.take_back(slept);
    assert_eq!(slept, 40);
    assert_eq!(shares.take_back(slept), 0);
    assert_eq!(shares.rest().blocked, 0);
}

#[test]
fn numbers_that_make_no_sense_do_no_harm() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut shares = Shares::new(Reading::default());
    for _ in 0..10_000 {
        let wild = |random: &mut fastrand::Rng| random.u64(..) >> random.u32(0..64);
        let reading = Reading {
            at: MonotonicNs(wild(&mut random)),
            on_cpu: DurationNs(wild(&mut random)),
            run_delay: DurationNs(wild(&mut random)),
        };
        let found = [
            None,
            Some(Found::OnCpu),
            Some(Found::Runnable),
            Some(Found::Blocked),
        ];
        let _ = shares.hand_out(reading, found[random.usize(0..4)]);
        let _ = shares.totals();
    }
    let _ = shares.rest();
}

/// Regression: time that no look had met went to the next one that found its kind, whatever the
/// thread did by then, and a thread's seldom and short turns lost a third of theirs.
#[test]
fn what_no_look_met_is_paid_to_those_that_it_is_owed_to() {
    use Found::{Blocked, OnCpu};
    const TENTH: u64 = MS / 10;
    let burst = |first: Stretch, turns: &[Stretch], times| {
        let mut all = vec![first];
        all.extend(repeated(times, turns));
        all
    };
    let tiny = [(OnCpu, TENTH, 1), (Blocked, 99 * TENTH, 2)];
    let cases = [
        (
            "tiny turns and long bursts",
            repeated(100, &burst((OnCpu, 30 * MS, 0), &tiny, 100)),
            0.08,
        ),
        (
            "tiny turns and others of almost a period",
            repeated(200, &burst((OnCpu, 8 * MS, 0), &tiny, 5)),
            0.08,
        ),
        (
            "short turns and long ones",
            repeated(
                300,
                &[
                    repeated(2, &[(OnCpu, 2 * MS, 1), (Blocked, 8 * MS, 2)]),
                    repeated(2, &[(OnCpu, 6 * MS, 0), (Blocked, 4 * MS, 2)]),
                ]
                .concat(),
            ),
            0.06,
        ),
        (
            "tiny turns, and later others",
            [
                repeated(500, &tiny),
                repeated(200, &[(OnCpu, 3 * MS, 0), (Blocked, 7 * MS, 2)]),
            ]
            .concat(),
            0.2,
        ),
        (
            "waits of nine milliseconds and of a tenth of one",
            repeated(
                3000,
                &[
                    (OnCpu, MS, 2),
                    (Blocked, 9 * MS, 0),
                    (OnCpu, MS, 2),
                    (Blocked, TENTH, 1),
                ],
            ),
            0.06,
        ),
    ];
    for (what, stretches, leeway) in cases {
        let life = Life::new(stretches, 0);
        let (mut truth, mut found) = ([0.0; 3], [0.0; 3]);
        for (_, ns, place) in &life.stretches {
            truth[*place] += *ns as f64;
        }
        const RUNS: u64 = 40;
        for seed in 0..RUNS {
            let (weights, _) = life.weights(3, seed);
            for (found, all) in found.iter_mut().zip(weights) {
                *found += (all.on_cpu + all.runnable + all.blocked) as f64 / RUNS as f64;
            }
        }
        for (place, (found, truth)) in found.iter().zip(&truth).enumerate() {
            let share = found / truth;
            assert!(
                (share - 1.0).abs() < leeway,
                "{what}: place {place} has {share:.2} of its own"
            );
        }
    }
}
