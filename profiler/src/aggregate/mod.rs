//! From samples to a profile: a bounded builder, and the [`Profile`] that it closes into and
//! that never changes again; beside it the accounts of the run.
//!
//! Nothing here formats a file or reads a clock: times come with the samples and the caller.

mod accounts;
mod builder;
mod figures;
mod ledger;
mod lives;
mod meta;
mod native;
mod profile;
mod split;
mod tasks;

pub use accounts::Remark;
pub use builder::{Limits, Place, ProfileBuilder};
pub use figures::{count, percent, seconds};
use figures::{counted, sum};
pub use ledger::{
    FramesFromCounts, GilCounts, HandlingCounts, Ledger, ProcessAccount, ProfilerCost,
    ThreadAccount, Unsampled,
};
pub use meta::{
    CLOCK, ProcessIndex, ProcessInfo, ProfileMeta, ThreadIndex, ThreadInfo, UNIT, Whose,
};
pub use native::NativeAccounts;
pub use profile::{Beyond, Entry, Moment, Profile, Timeline};
pub use tasks::TaskAccounts;
