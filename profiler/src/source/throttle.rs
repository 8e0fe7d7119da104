//! How often the kernel lets a clock tick: `kernel.perf_event_max_sample_rate`.
//!
//! It counts a clock's ticks from one beat of the machine (`CONFIG_HZ` a second) to the next. The
//! tick that comes up to the setting's share of a beat stops the clock until that beat is over
//! (`__perf_event_account_interrupt` in `kernel/events/core.c`), and nobody is told. An
//! administrator can lower the setting, and the kernel does so by itself where hardware's ticks
//! took long. This says what follows from it; it changes nothing.

use std::fs;

use crate::sys;

const SETTING: &str = "/proc/sys/kernel/perf_event_max_sample_rate";
/// The kernel's own value, which is enough for every rate that can be asked for.
const USUAL: u32 = 100_000;

/// The setting, and how often its count begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// `kernel.perf_event_max_sample_rate`.
    pub max_rate_hz: u32,
    /// Beats a second.
    pub beat_hz: u32,
}

impl Throttle {
    /// As it is now; none where the kernel does not show it.
    #[must_use]
    pub fn now() -> Option<Self> {
        let max_rate_hz = fs::read_to_string(SETTING).ok()?.trim().parse().ok()?;
        Some(Self {
            max_rate_hz,
            beat_hz: sys::beats_a_second()?,
        })
    }

    /// The highest rate of which no tick comes late; 0 when there is none.
    #[must_use]
    pub fn room_hz(self) -> u32 {
        // The last tick of a beat's share is the one that stops the clock.
        let spared = self
            .max_rate_hz
            .div_ceil(self.beat_hz.max(1))
            .saturating_sub(1);
        let spared = u64::from(spared) * u64::from(self.beat_hz);
        // Jitter draws rates up to an eighth higher than was asked for.
        u32::try_from(spared * 8 / 9).unwrap_or(u32::MAX)
    }

    /// Whether it leaves `rate_hz` ticks a second alone.
    #[must_use]
    pub fn spares(self, rate_hz: u32) -> bool {
        rate_hz <= self.room_hz()
    }

    /// What is wrong with it for `rate_hz` ticks a second, and what to type.
    #[must_use]
    pub fn refusal(self, rate_hz: u32) -> String {
        let Self { max_rate_hz, .. } = self;
        let lower = match self.room_hz() {
            0 => String::new(),
            room => format!(", or give `--rate {room}`"),
        };
        format!(
            "kernel.perf_event_max_sample_rate is {max_rate_hz}, too low for {rate_hz} ticks a \
             second: the kernel holds ticks back, and one that comes late stands for those before \
             it; type {}{lower}",
            what_to_type()
        )
    }
}

/// The line that gives the setting its usual value.
#[must_use]
pub fn what_to_type() -> String {
    format!("`sudo sysctl kernel.perf_event_max_sample_rate={USUAL}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counted on a kernel of 250 beats: asked for 999 ticks a second, each CPU had 504 of them with
    /// the setting at 500, 235 at 250 and 255 at 100; asked for 99, some 65 at 250 and 100.
    #[test]
    fn a_rate_is_spared_if_no_beat_has_its_share_of_ticks() {
        let cases = [
            (100_000, 250, 88_666, true, true),
            (2_000, 250, 1_555, true, true),
            (1_000, 250, 666, true, false),
            (500, 250, 222, true, false),
            (251, 250, 222, true, false),
            (250, 250, 0, false, false),
            (100, 250, 0, false, false),
            (1, 1_000, 0, false, false),
            (2_000, 1_000, 888, true, false),
            (u32::MAX, 100, 3_817_748_622, true, true),
            // Not what a kernel shows.
            (500, 0, 0, false, false),
        ];
        for (max_rate_hz, beat_hz, room, spares_99, spares_999) in cases {
            let throttle = Throttle {
                max_rate_hz,
                beat_hz,
            };
            assert_eq!(throttle.room_hz(), room, "{throttle:?}");
            assert_eq!(throttle.spares(99), spares_99, "{throttle:?}");
            assert_eq!(throttle.spares(999), spares_999, "{throttle:?}");
        }
    }

    #[test]
    fn the_usual_setting_spares_every_rate() {
        for beat_hz in [100, 250, 300, 1_000] {
            let throttle = Throttle {
                max_rate_hz: USUAL,
                beat_hz,
            };
            assert!(throttle.spares(50_000), "{beat_hz}");
        }
    }

    #[test]
    fn a_refusal_says_what_to_type() {
        let says = |max_rate_hz| {
            let beat_hz = 250;
            Throttle {
                max_rate_hz,
                beat_hz,
            }
            .refusal(999)
        };
        let sysctl = "type `sudo sysctl kernel.perf_event_max_sample_rate=100000`";
        assert!(says(500).ends_with(&format!("{sysctl}, or give `--rate 222`")));
        // No rate is low enough.
        assert!(says(100).ends_with(sysctl));
    }
}
