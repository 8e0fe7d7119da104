//! Measuring on a noisy machine: sides in turn, medians, ratios within a round.

use anyhow::{Context, Result};

/// The middle of some values; the mean of the middle two where they are even in number.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The distance between the quarters: how far apart the middle half of the values lies.
pub(super) fn spread(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0..4 => f64::NAN,
        n => sorted[n - 1 - n / 4] - sorted[n / 4],
    }
}

/// Where the median of all that could have been measured lies, with a certainty of 95 %: between the
/// values of two ranks, whatever they are distributed like. None for too few values.
pub(super) fn interval(values: &[f64]) -> Option<[f64; 2]> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    // How many lie below the median is binomial: 1.96 of its standard deviations, of half a root.
    let below = (count / 2.0 - 0.98 * count.sqrt()).floor();
    if below < 1.0 {
        return None;
    }
    let rank = below as usize - 1;
    Some([sorted[rank], sorted[sorted.len() - 1 - rank]])
}

/// Measures every side once a round, the order turned each round, so that what drifts meets all
/// sides alike. Gives each side's values relative to the first side's of the same round.
pub(super) fn ratios<S>(
    sides: &[S],
    rounds: usize,
    mut measure: impl FnMut(&S) -> Result<f64>,
) -> Result<Vec<Vec<f64>>> {
    let mut ratios = vec![Vec::new(); sides.len()];
    for round in 0..rounds {
        let mut values = vec![0.0; sides.len()];
        for step in 0..sides.len() {
            let turn = if round % 2 == 0 {
                step
            } else {
                sides.len() - 1 - step
            };
            values[turn] = measure(&sides[turn])?;
        }
        let first = *values.first().context("there are no sides")?;
        for (ratios, value) in ratios.iter_mut().zip(&values) {
            ratios.push(value / first);
        }
    }
    Ok(ratios)
}

/// Lets a measured while go by: its length is the measurement's, nothing is awaited by it.
pub(super) fn wait(seconds: f64) {
    std::thread::sleep(std::time::Duration::from_secs_f64(seconds));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_spread_leaves_the_outer_quarters_out() {
        assert_eq!(spread(&[0.0, 1.0, 2.0, 100.0]), 1.0);
        assert!(spread(&[1.0]).is_nan());
    }

    #[test]
    fn the_interval_of_the_median_is_between_two_ranks() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(interval(&values), Some([40.0, 61.0]));
        assert_eq!(interval(&values[..5]), None);
    }

    #[test]
    fn drift_meets_all_sides_alike() {
        // Time goes on by one a step: the order is a b, b a, a b, b a.
        let mut time = 99.0;
        let found = ratios(&["a", "b"], 4, |_| {
            time += 1.0;
            Ok(time)
        })
        .unwrap();
        assert_eq!(found[0], [1.0; 4]);
        let mean = found[1].iter().sum::<f64>() / 4.0;
        assert!((mean - 1.0).abs() < 0.001, "{mean}");
    }
}
