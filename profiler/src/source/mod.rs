//! The front door: the kernel programs, loaded, attached and read.
//!
//! The only room that imports aya. It hands on the ring's bytes as they are; what they mean is
//! `wire`'s. It knows no Python.

pub mod accounts;
pub mod btf;
pub mod capabilities;
mod error;
pub mod hindrances;
pub mod kernel;
pub mod log;
mod meter;
pub mod offsets;
pub mod options;
pub mod ring;
pub mod throttle;

pub use accounts::{Accounts, Slot};
pub use error::KernelError;
pub use kernel::Kernel;
pub use meter::ProgramCost;
pub use options::{KernelOptions, StackOptions};
pub use throttle::Throttle;
