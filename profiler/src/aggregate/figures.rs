//! Figures as people read them: `1,234`, `12.34 s`, `99.9 %`.

use crate::words::DurationNs;

/// A whole number with its thousands apart.
#[must_use]
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// How many there are of something: `1 tick`, `2,345 ticks`.
pub(super) fn counted(n: u64, one: &str, several: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { several })
}

/// A stretch of time in seconds, to the hundredth, or finer below a second.
#[must_use]
pub fn seconds(time: DurationNs) -> String {
    let ns = time.0;
    if ns != 0 && ns < 10_000_000 {
        return format!("{:.2} ms", ns as f64 / 1e6);
    }
    let hundredths = (u128::from(ns) + 5_000_000) / 10_000_000;
    let whole = u64::try_from(hundredths / 100).unwrap_or(u64::MAX);
    format!("{}.{:02} s", count(whole), hundredths % 100)
}

/// How much of `whole` the `part` is; of nothing, it is nothing.
#[must_use]
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return String::from("0.0 %");
    }
    format!("{:.1} %", part as f64 / whole as f64 * 100.0)
}

/// All of them together, or as much as fits.
pub(super) fn sum(all: impl IntoIterator<Item = u64>) -> u64 {
    all.into_iter().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        let all = [0, 7, 999, 1000, 1234567, u64::MAX].map(count);
        let expected = [
            "0",
            "7",
            "999",
            "1,000",
            "1,234,567",
            "18,446,744,073,709,551,615",
        ];
        assert_eq!(all, expected);
        let ticks = [0, 1, 1000].map(|n| counted(n, "tick", "ticks"));
        assert_eq!(ticks, ["0 ticks", "1 tick", "1,000 ticks"]);

        let all = [
            0,
            1_500,
            9_999_999,
            10_000_000,
            1_234_567_890,
            3_725_104_000_000,
        ]
        .map(|ns| seconds(DurationNs(ns)));
        let expected = [
            "0.00 s",
            "0.00 ms",
            "10.00 ms",
            "0.01 s",
            "1.23 s",
            "3,725.10 s",
        ];
        assert_eq!(all, expected);

        let all = [(0, 0), (1, 3), (999, 1000), (3, 2)].map(|(a, b)| percent(a, b));
        assert_eq!(all, ["0.0 %", "33.3 %", "99.9 %", "150.0 %"]);
    }
}
