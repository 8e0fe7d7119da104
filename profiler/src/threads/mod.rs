//! Which thread is this? The kernel's threads and Python's thread states, joined by a ladder of
//! evidence, strongest rung first:
//!
//! 1. the TLS base the kernel saw is the state's pthread id;
//! 2. the state carries the kernel's thread id (CPython 3.11+), as its pid namespace has it;
//! 3. the C library's control block, which lies *at* the pthread id, carries it;
//! 4. the control block lies on the stack that the stack pointer is in;
//! 5. the first thread of the process stands on its first stack, and one id is on no other;
//! 6. one thread and one id are left over, and have been while nothing else changed.
//!
//! Every rung that applies is asked; the strongest one decides, those that agree are kept as
//! `matched_by`, and those that do not are counted as contradictions. A thread without a state
//! is normal: it is a native thread.
//!
//! Not here: where the facts come from. They are values, and the target's memory a [`Memory`].
//!
//! [`Memory`]: crate::target::Memory

mod control_block;
mod facts;
mod ladder;
mod last_standing;
mod notes;
mod registry;
mod rung;
mod stack_scan;
#[cfg(test)]
mod tests;

pub use control_block::TidOffset;
pub use facts::{Look, ScanWhom, StateFacts, ThreadFacts};
pub use registry::{Match, Registry};
pub use rung::{Contradiction, Rung};
