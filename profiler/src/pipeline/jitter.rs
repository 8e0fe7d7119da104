//! Ticks that no program can keep step with: their rate is drawn anew every while.

use std::{ops::Range, time::Duration};

use crate::words::DurationNs;

/// How often the ticks' rate is drawn.
pub(super) const WHILE: Duration = Duration::from_millis(200);

/// How many times, at least and at most, the ticks of a while pass over a program in step with their
/// mean: what is left of a pass is what a share errs by.
const PASSES: Range<f64> = 2.0..4.0;

/// The most by which the rate is from its mean: what runs for a part of a while has so many ticks
/// too many or too few.
const MOST: f64 = 0.12;

/// The periods of ticks, one for each while.
#[derive(Debug)]
pub(super) struct Jitter {
    mean: DurationNs,
    apart: f64,
    /// Whether the next while is the slower one of a pair.
    is_slow: bool,
}

impl Jitter {
    pub(super) fn new(mean: DurationNs) -> Self {
        let mut jitter = Self {
            mean,
            apart: 0.0,
            is_slow: fastrand::bool(),
        };
        jitter.draw();
        jitter
    }

    /// Of how many periods at the mean a while is the inverse.
    fn once(&self) -> f64 {
        self.mean.0 as f64 / WHILE.as_nanos() as f64
    }

    fn draw(&mut self) {
        let once = self.once();
        let least = (PASSES.start * once).min(MOST / 2.0);
        let most = (PASSES.end * once).min(MOST);
        self.apart = least + fastrand::f64() * (most - least);
    }

    /// The period for the next while, on all CPUs: what runs beside each other has its ticks at the
    /// same rate. A while that is faster and one that is as much slower make a pair, which has as
    /// many ticks as at a fixed beat. To change the period costs half of one each time, which is
    /// made up for.
    pub(super) fn next(&mut self) -> DurationNs {
        let factor = if self.is_slow {
            1.0 - self.apart
        } else {
            1.0 + self.apart
        };
        if self.is_slow {
            self.draw();
        }
        self.is_slow = !self.is_slow;
        let made_up = (1.0 - self.once() / 2.0).max(0.5);
        DurationNs((self.mean.0 as f64 * made_up / factor) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a program's period, what it spends in one of two functions.
    const SHARE: f64 = 0.74;
    const RUNS: u32 = 200;

    /// The share that the ticks of a run tell, and how many ticks it has.
    fn told(mean: DurationNs, program: f64, whiles: u64) -> (f64, u32) {
        let (mut hits, mut ticks) = (0, 0);
        let mut begin = fastrand::f64() * program;
        let mut jitter = Jitter::new(mean);
        for _ in 0..whiles {
            let period = jitter.next().0 as f64;
            // The loop comes to it a little later each time.
            let end = begin + WHILE.as_nanos() as f64 + fastrand::f64() * 1e7;
            let mut tick = begin + period;
            while tick < end {
                ticks += 1;
                hits += u32::from(tick % program < SHARE * program);
                tick += period;
            }
            begin = end;
        }
        (f64::from(hits) / f64::from(ticks), ticks)
    }

    /// Rates in Hz, how many whiles a run lasts, and by how much a share may err (the root of the
    /// mean square).
    const CASES: [(u64, u64, f64); 3] = [(1000, 8, 0.05), (100, 25, 0.05), (99, 150, 0.02)];

    /// Sweeps of one or two passes a while erred by seven points where the program was 0.3 % out
    /// of step, whatever the rate.
    #[test]
    fn a_program_nearly_in_step_is_told_right_too() {
        fastrand::seed(1);
        for (hz, whiles, most) in CASES {
            let mean = DurationNs(1_000_000_000 / hz);
            for ratio in [
                1.0, 1.003, 0.997, 1.05, 1.13, 1.25, 0.9, 0.87, 2.0, 0.5, 3.0,
            ] {
                let program = mean.0 as f64 * ratio;
                let squares = (0..RUNS).map(|_| (told(mean, program, whiles).0 - SHARE).powi(2));
                let error = (squares.sum::<f64>() / f64::from(RUNS)).sqrt();
                assert!(error < most, "{hz} Hz, {ratio}: {error:.4}");
            }
        }
    }

    #[test]
    fn the_rate_is_the_mean_all_the_same() {
        fastrand::seed(1);
        for (hz, whiles, _) in CASES {
            let mean = DurationNs(1_000_000_000 / hz);
            let ticks = (0..RUNS)
                .map(|_| u64::from(told(mean, 1e6, whiles).1))
                .sum::<u64>();
            // A while of the model lasts 205 ms on the average.
            let due = (hz * whiles * u64::from(RUNS)) as f64 * 0.205;
            let rate = ticks as f64 / due;
            assert!((rate - 1.0).abs() < 0.03, "{hz} Hz: {rate:.3}");
        }
    }
}
