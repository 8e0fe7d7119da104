//! Ticks that no program can keep step with: their rate is drawn anew every while.

use std::{ops::Range, time::Duration};

use crate::words::DurationNs;

/// How often the ticks' rate is drawn.
pub(super) const WHILE: Duration = Duration::from_millis(200);

/// How far the rate is from its mean, at least and at most.
const APART: Range<f64> = 0.05..0.2;

/// A period of ticks drawn at random for the next while, the `turn`th.
///
/// Its rate differs from the mean by so much that the ticks of that while pass over a program in
/// step with the mean many times (at 100 Hz still one to four times: what is left of a pass is what
/// a share errs by), now faster and now slower, so that two whiles together have as many ticks as
/// at a fixed beat. To change it costs half a period each time, which is made up for.
pub(super) fn drawn(period: DurationNs, turn: u64) -> DurationNs {
    let mean = period.0 as f64;
    let once = mean / WHILE.as_nanos() as f64;
    let apart = APART.start + fastrand::f64() * (APART.end - APART.start);
    let factor = if turn.is_multiple_of(2) {
        1.0 + apart
    } else {
        1.0 - apart
    };
    let made_up = (1.0 - once / 2.0).max(0.5);
    DurationNs((mean * made_up / factor) as u64)
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
        for turn in 0..whiles {
            let period = drawn(mean, turn).0 as f64;
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
    const CASES: [(u64, u64, f64); 3] = [(1000, 8, 0.03), (100, 25, 0.045), (99, 150, 0.02)];

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
