//! The accounts of native frames: how far they could be shown, and why not further.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Ledger, count, percent};

/// What a run knows of its native stacks, in ticks, and looks at threads off the CPU
/// that had run since the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NativeAccounts {
    /// With all native frames, each between the Python frames where it belongs.
    pub full: u64,
    /// The same, but some frames were found by the frame pointer alone.
    pub frame_pointers: u64,
    /// With native frames at the leaf's end, as far as their places are proven; towards the root
    /// it is Python alone.
    pub leaf_end: u64,
    /// With those alone that the innermost Python frame called.
    pub top_only: u64,
    /// Without native frames.
    pub python_only: u64,
    /// Of the last three, how many there are for each reason.
    pub reasons: BTreeMap<String, u64>,
}

impl NativeAccounts {
    /// All samples.
    #[must_use]
    pub const fn samples(&self) -> u64 {
        self.full + self.frame_pointers + self.leaf_end + self.top_only + self.python_only
    }
}

impl Ledger {
    /// What a reader of the profile should know of its native frames.
    pub(super) fn of_native(&self) -> Option<String> {
        let native = self.native.as_ref()?;
        let all = native.samples();
        if all == 0 {
            return None;
        }
        let whole = native.full + native.frame_pointers;
        let mut said = format!(
            "all native frames in {} of the stacks that were unwound",
            percent(whole, all)
        );
        let rest = [
            (native.leaf_end, "those towards the leaf"),
            (native.top_only, "those above the innermost Python frame"),
            (native.python_only, "none"),
        ];
        for (samples, what) in rest.into_iter().filter(|(samples, _)| *samples > 0) {
            said += &format!(", in {} {what}", percent(samples, all));
        }
        let mut reasons: Vec<_> = native.reasons.iter().collect();
        reasons.sort_by_key(|(_, samples)| std::cmp::Reverse(**samples));
        if !reasons.is_empty() {
            let reasons: Vec<String> = reasons
                .iter()
                .map(|(reason, samples)| {
                    format!("{} {}", reason.replace('_', " "), count(**samples))
                })
                .collect();
            said += &format!(" ({})", reasons.join(", "));
        }
        Some(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_how_far_native_frames_go_and_why_no_further() {
        let mut ledger = Ledger {
            native: Some(NativeAccounts::default()),
            ..Ledger::default()
        };
        assert_eq!(ledger.of_native(), None);
        ledger.native = Some(NativeAccounts {
            full: 90,
            frame_pointers: 5,
            leaf_end: 2,
            top_only: 1,
            python_only: 2,
            reasons: [
                ("not_sent".to_owned(), 2),
                ("stack_copy_ended".to_owned(), 3),
            ]
            .into(),
        });
        assert_eq!(
            ledger.of_native().unwrap_or_default(),
            "all native frames in 95.0 % of the stacks that were unwound, in 2.0 % those towards \
             the leaf, in 1.0 % those above the innermost Python frame, in 2.0 % none (stack copy \
             ended 3, not sent 2)"
        );
    }
}
