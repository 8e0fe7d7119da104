//! The mappings as they were read last: a table grows with the threads, so it is not read for each.

use super::Witness;
use crate::{
    sys,
    target::Maps,
    words::{DurationNs, MonotonicNs, RemoteAddr, StartTime},
};

/// How much later than it says a thread may have started.
const START_STEP: DurationNs = DurationNs(10_000_000);

/// Mappings, and when they were read. A thread's stack is there before the thread and as long as it,
/// so they tell of the stacks of all that had begun by then.
#[derive(Clone, Debug, Default)]
pub(super) struct Mappings {
    maps: Maps,
    /// A moment before.
    read: MonotonicNs,
}

impl Mappings {
    /// As they are now; none when the process is gone.
    pub(super) fn read(process: &impl Witness) -> Option<Self> {
        let read = sys::monotonic();
        let maps = process.maps()?;
        Some(Self { maps, read })
    }

    /// Whether they tell of the stack at `sp` of a thread that was there at that time.
    pub(super) fn have(&self, sp: RemoteAddr, at: MonotonicNs, started: StartTime) -> bool {
        let begun = MonotonicNs(sys::since_boot(started).0.saturating_add(START_STEP.0));
        (at <= self.read || begun <= self.read) && self.maps.at(sp).is_some()
    }

    /// The mappings.
    pub(super) fn maps(&self) -> &Maps {
        &self.maps
    }
}
