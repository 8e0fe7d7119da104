//! Threads whose every stretch is known, met by looks at random times.

use super::*;

const PERIOD: u64 = 10_000_000;
const EACH: DurationNs = DurationNs(PERIOD);

/// On a CPU, blocked, runnable, nanoseconds each; the last tells stretches apart.
type Turn = (u64, u64, u64, usize);

/// A thread as the scheduler sees it: what it does, one turn after the other.
struct Life {
    turns: Vec<Turn>,
    /// The account at the beginning of each turn.
    accounts: Vec<Account>,
}

impl Life {
    fn new(turns: Vec<Turn>) -> Self {
        let mut account = Account {
            generation: 1,
            tid: 1,
            ..Account::default()
        };
        let mut accounts = Vec::new();
        for &(on, blocked, runnable, _) in &turns {
            accounts.push(account);
            account.on_cpu_ns += on;
            account.blocked_ns += blocked;
            account.runnable_ns += runnable;
            account.generation += 2;
            account.since += on + blocked + runnable;
        }
        accounts.push(account);
        Self { turns, accounts }
    }

    fn length(&self) -> u64 {
        self.accounts.last().map_or(0, |account| account.since)
    }

    /// The account at a time, and where the thread then is, when it is off the CPU. A mark is an
    /// even generation, that of a turn.
    fn at(&self, time: u64, marked: u64) -> (Account, Option<usize>) {
        let turn = self.accounts.partition_point(|a| a.since <= time) - 1;
        let mut account = self.accounts[turn];
        if marked != 0 && marked < account.generation {
            let (_, blocked, runnable, _) = self.turns[(marked / 2 - 1) as usize];
            account.marked_blocked_ns = blocked;
            account.marked_runnable_ns = runnable;
            account.marked = marked | 1;
        }
        let Some(&(on, blocked, _, place)) = self.turns.get(turn) else {
            return (account, None);
        };
        if time < account.since + on {
            return (account, None);
        }
        account.on_cpu_ns += on;
        account.generation += 1;
        account.since += on;
        account.off_state = u32::from(blocked != 0);
        let woken = account.since + blocked;
        account.woken_ns = if time >= woken { woken } else { 0 };
        (account, Some(place))
    }

    /// Look at it, and sum the weights by place; the last is what no look met.
    fn weights(&self, places: usize, seed: u64) -> Vec<u64> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut weights = vec![0; places + 1];
        let mut absence = Absence::default();
        let mut debts = [Debts::default(), Debts::default()];
        let mut note = |over: &Stretch, place: usize| {
            let Some(due) = over.due else { return };
            debts[0].note(place, due.blocked, over.weight.blocked);
            debts[1].note(place, due.runnable, over.weight.runnable);
        };
        let (mut met, mut marked, mut time) = (None, 0, 0);
        let mut generation = 0;
        let end = self.length();
        while time < end {
            let (account, place) = self.at(time, marked);
            if account.generation != generation {
                generation = account.generation;
                if let Some(over) = absence.settle(&account, None, EACH)
                    && let Some(place) = met.take()
                {
                    weights[place] += over.weight.sum();
                    note(&over, place);
                }
                if let Some(place) = place {
                    let runnable = account.off_state == 0 || account.woken_ns != 0;
                    let how = if runnable {
                        Meeting::Runnable
                    } else {
                        Meeting::Blocked
                    };
                    absence.meet(&account, how);
                    marked = account.generation;
                    met = Some(place);
                }
            }
            time += random.u64(PERIOD / 2..PERIOD * 3 / 2);
        }
        let (account, _) = self.at(end, marked);
        let last = absence.settle(&account, Some(MonotonicNs(end)), EACH);
        if let (Some(over), Some(place)) = (last, met) {
            weights[place] += over.weight.sum();
            note(&over, place);
        }
        let rest = absence.rest();
        for (debts, left) in debts.iter().zip([rest.blocked, rest.runnable]) {
            if debts.is_empty() {
                weights[places] += left;
            }
            debts.pay(left, |place, weight| weights[place] += weight);
        }
        weights
    }

    fn truth(&self, places: usize) -> Vec<u64> {
        let mut truth = vec![0; places];
        for (_, blocked, runnable, place) in &self.turns {
            truth[*place] += blocked + runnable;
        }
        truth
    }
}

const MS: u64 = 1_000_000;

#[test]
fn weights_sum_to_the_account_and_favour_nobody() {
    let long_and_short: Vec<_> = (0..200)
        .flat_map(|_| {
            let burst = std::iter::repeat_n((MS / 10, MS / 10, 0, 1), 500);
            std::iter::once((MS / 10, 100 * MS, 0, 0)).chain(burst)
        })
        .collect();
    let about_a_period: Vec<_> = (0..5000)
        .flat_map(|_| [(MS, 12 * MS, 0, 0), (MS, 2 * MS, 0, 1), (MS, 2 * MS, 0, 1)])
        .collect();
    let runnable_too: Vec<_> = (0..5000)
        .flat_map(|_| [(MS, 3 * MS, MS, 0), (MS, 0, 4 * MS, 1)])
        .collect();
    let short_only: Vec<_> = (0..20_000).map(|n| (MS, MS, 0, n % 2)).collect();
    let cases = [
        ("long and short", long_and_short),
        ("about a period", about_a_period),
        ("runnable too", runnable_too),
        ("short only", short_only),
    ];
    for (name, turns) in cases {
        let life = Life::new(turns);
        let truth = life.truth(2);
        let weights = life.weights(2, 7);
        let sum: u64 = weights.iter().sum();
        assert_eq!(sum, truth.iter().sum::<u64>(), "{name}");
        for place in 0..2 {
            let share = weights[place] as f64 / truth[place] as f64;
            assert!(
                (0.95..1.05).contains(&share),
                "{name}: place {place} has {share}"
            );
        }
    }
}

/// Regression: of many waits a few that were very short, once they were met, got all the time of
/// those that no look had met.
#[test]
fn few_short_stretches_do_not_stand_for_longer_ones() {
    let mixed: Vec<_> = (0..10_000)
        .flat_map(|_| [(MS, 9 * MS, 0, 0), (MS, MS / 10, 0, 1)])
        .collect();
    let life = Life::new(mixed);
    let truth = life.truth(2);
    for seed in 0..5 {
        let weights = life.weights(2, seed);
        assert_eq!(weights.iter().sum::<u64>(), truth.iter().sum::<u64>());
        let share = |place: usize| weights[place] as f64 / truth[place] as f64;
        assert!(
            (0.99..1.01).contains(&share(0)),
            "long ones have {}",
            share(0)
        );
        // A hundred of them are met.
        assert!(
            (0.6..1.4).contains(&share(1)),
            "short ones have {}",
            share(1)
        );
    }
}

#[test]
fn one_long_stretch_is_exact() {
    let life = Life::new(vec![
        (5 * MS, 3_000 * MS, 2 * MS, 0),
        (200 * MS, 0, MS / 20, 1),
    ]);
    let weights = life.weights(2, 3);
    assert_eq!(weights[0], 3_002 * MS);
    assert_eq!(weights[1] + weights[2], MS / 20);
}

#[test]
fn a_stretch_told_before_it_was_counted_is_handed_out_once() {
    let mut absence = Absence::default();
    let met = Account {
        generation: 4,
        off_state: 1,
        ..Account::default()
    };
    absence.meet(&met, Meeting::Blocked);
    // The thread is on a CPU again, many times over, and its sums lag behind.
    let told = Account {
        generation: 9,
        marked: 5,
        marked_blocked_ns: 50 * MS,
        ..met
    };
    let over = absence.settle(&told, None, EACH).expect("it was met");
    assert_eq!(over.weight.blocked, 50 * MS);
    // Off the CPU, its account is whole.
    let counted = Account {
        blocked_ns: 50 * MS,
        generation: 10,
        ..told
    };
    assert_eq!(absence.settle(&counted, None, EACH), None);
    absence.meet(&counted, Meeting::Blocked);
    let later = Account {
        blocked_ns: 51 * MS,
        generation: 12,
        ..counted
    };
    let over = absence.settle(&later, None, EACH).expect("it was met");
    assert_eq!(over.weight.blocked, MS);
    assert_eq!(absence.rest(), Away::default());
}

#[test]
fn what_a_look_interrupts_gets_no_more_than_that_took() {
    let mut absence = Absence::default();
    let running = Account {
        generation: 5,
        runnable_ns: 40 * MS,
        ..Account::default()
    };
    assert_eq!(absence.settle(&running, None, EACH), None);
    let preempted = Account {
        generation: 6,
        ..running
    };
    absence.meet(&preempted, Meeting::Preempted);
    let running = Account {
        generation: 7,
        runnable_ns: 40 * MS + MS / 20,
        ..running
    };
    let over = absence.settle(&running, None, EACH).expect("it was met");
    assert_eq!(over.weight.runnable, MS / 20);
    assert_eq!(absence.rest().runnable, 40 * MS);
}

/// A third of what a thread waited for its CPU was never met, and all of it went to a kind that was
/// owed a microsecond.
#[test]
fn one_that_is_owed_little_does_not_get_all_that_nobody_met() {
    let mut debts = Debts::default();
    debts.note("owed little", 1000 * MS, 999 * MS);
    debts.note("owed nothing", 1000 * MS, 1000 * MS);
    let cases = [
        (0, [0, 0]),
        (MS / 2, [MS / 2, 0]),
        (MS, [MS, 0]),
        (201 * MS, [101 * MS, 100 * MS]),
    ];
    for (left, expected) in cases {
        let mut paid = [0, 0];
        debts.pay(left, |kind, weight| {
            paid[usize::from(kind != "owed little")] += weight;
        });
        assert_eq!(paid, expected, "of {left}");
    }
}
