//! One frame type for everything that can be on a stack, and the tables that turn frames and
//! stacks into small numbers.
//!
//! Frames arrive here already named; nothing in this room reads a target or a file. What is
//! known of a sample beside its frames stays in [`crate::sample`].

mod frame;
mod frames;
pub mod interleave;
mod stacks;

pub use frame::{Frame, FrameKind};
pub use frames::{FrameId, Frames};
pub use stacks::{StackId, Stacks};
