//! The side door: a process and its memory, live or recorded.

pub mod memory;

pub use memory::{Memory, Piece, ReadError, ReadErrorKind};
