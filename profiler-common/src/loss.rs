//! Why a tick became no sample: one catalogue for both sides.
//!
//! Ids index the kernel's counters and are never reused. `ticks = samples + Σ losses` holds
//! because every return of the tick program, and every place in user space that gives up a
//! sample, counts under exactly one of these.

/// One reason: its number, the key in the ledger and the sentence for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The number, an index of the kernel's counters.
    pub id: u32,
    /// The key in the ledger.
    pub name: &'static str,
    /// What happened, and what helps where something does.
    pub sentence: &'static str,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $id:literal, $key:literal, $sentence:literal;)+) => {
        $(
            $(#[$doc])*
            pub const $name: u32 = $id;
        )+
        /// Every reason, in the order of their ids.
        pub const REASONS: &[Reason] = &[
            $(Reason { id: $id, name: $key, sentence: $sentence },)+
        ];
    };
}

reasons! {
    /// The ring had no room.
    RING_FULL = 0, "ring_full", "the ring was full: raise --ring-bytes or lower --rate";
    /// No per-CPU scratch memory; does not happen on a working kernel.
    NO_SCRATCH = 1, "no_scratch", "the kernel program had no scratch memory";
    /// User space could not decode the record.
    MALFORMED = 2, "malformed", "a record of the ring could not be decoded";
    /// The record belongs to a process the profiler no longer knows.
    UNKNOWN_PROCESS = 3, "unknown_process", "the sample's process was already forgotten";
    /// The record was still in the ring when the run ended and could not be drained in time.
    UNDRAINED = 4, "undrained", "the sample was still in the ring when the run was broken off";
    /// The counters say it was written, but it never came out of the ring.
    UNACCOUNTED = 5, "unaccounted", "the kernel counted a sample that never arrived";
}

/// How many counters of losses there are.
pub const N_REASONS: usize = REASONS.len();

/// The kernel's counters, one set per CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Ticks that found a thread of a target on this CPU, late periods included.
    pub ticks: u64,
    /// Samples written to the ring, in ticks (a late sample stands for several).
    pub samples: u64,
    /// Ticks that found anything else: other processes, idle.
    pub elsewhere: u64,
    /// Ticks lost, by reason id.
    pub losses: [u64; N_REASONS],
    /// Events of the life programs that found no room in the ring.
    pub events_lost: u64,
    /// Switches seen of threads of a target.
    pub switches: u64,
    /// Threads for which the account map had no room.
    pub accounts_full: u64,
    /// Children that could not be followed: there was no room for another target.
    pub plans_full: u64,
    /// Threads found on a CPU without a switch that put them there: some kernels have threads
    /// whose switches are not traced. Their accounts go on from the last switch of that CPU.
    pub switches_unseen: u64,
}

const _: () = assert!(size_of::<Counters>() == 8 * (8 + N_REASONS));
const _: () = {
    let mut i = 0;
    while i < N_REASONS {
        assert!(REASONS[i].id as usize == i);
        i += 1;
    }
};

#[cfg(feature = "user")]
crate::pod!(Counters);
