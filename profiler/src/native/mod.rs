//! Native frames: from registers and a piece of stack to addresses, and from addresses to names.
//!
//! The only room that imports framehop, gimli and blazesym. Unwinding is done here, in user space,
//! from what the kernel copied at the tick or from a thread that stands still; naming is done
//! later, from the files that unwinding met. An address without a name, and a chain that ends
//! before its root, are results with their reason, never errors. Not here: which frames are
//! Python's and where they belong between (see [`crate::stack`]).

mod alive;
mod end;
mod evaluator;
mod frame;
mod image;
mod modules;
mod names;
mod perf_map;
mod perf_maps;
mod prologue;
mod registers;
mod standing;
mod unwind;

pub use end::{Found, UnwindEnd};
pub use frame::NativeFrame;
pub use image::{Image, Images};
pub use modules::{Mapped, Place, Target};
pub use names::{Detail, LiveSymbols, Symbols};
pub use registers::{Registers, StackCopy};
pub use standing::{MAX_STANDING_STACK, Standing, Standstill};
pub use unwind::{MAX_FRAMES, NativeIp, Unwinder};
