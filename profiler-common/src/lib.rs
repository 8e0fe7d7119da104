//! The contract between the kernel programs and user space.
//!
//! What crosses the border is here and nowhere else: the records of the ring, the values of
//! the maps, the reasons a tick can be lost, and the one walk of the Python frame chain that
//! runs on both sides. Everything is `repr(C)`, padded by hand and asserted by size; there is
//! no `bool`, no `usize` and no pointer in it.
//!
//! Not here: anything that reads memory, files or clocks. The walk takes a reader.
#![no_std]
#![cfg_attr(
    feature = "user",
    expect(
        unsafe_code,
        reason = "`Pod` is an unsafe promise, made at the bottom of each file"
    )
)]

pub mod account;
pub mod block;
pub mod first;
pub mod loss;
pub mod offsets;
pub mod plan;
pub mod record;
pub mod walk;

/// Bumped by every change of a record, a map value or a counter's place. The object and the
/// program are built together, so a difference means that a stale object was embedded.
pub const CONTRACT_VERSION: u32 = 13;

/// The promise that a type may be copied to and from the kernel byte by byte.
#[cfg(feature = "user")]
macro_rules! pod {
    ($($type:ty),+ $(,)?) => {
        $(
            // SAFETY: `repr(C)`, made of integers and arrays of integers alone, with no padding
            // that is not a named field (the size assertion beside the type holds that).
            unsafe impl aya::Pod for $type {}
        )+
    };
}
#[cfg(feature = "user")]
pub(crate) use pod;
