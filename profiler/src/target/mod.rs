//! The side door: a process and its memory, live or recorded.
//!
//! Everything here is facts of the kernel's: which processes, threads and mappings there are,
//! what bytes an address holds. What the bytes mean is for the rooms behind.

mod error;
mod image_file;
mod image_meta;
mod kin;
mod live;
mod maps;
pub mod memory;
mod presence;
mod process;
mod recorded;
mod recorder;
mod scheduler;
mod tasks;
mod waits;
mod watch;

pub use error::TargetError;
pub use image_file::ImageError;
pub use kin::descendants;
pub use live::{LiveMemory, Way, may_call_vm_readv};
pub use maps::{Backing, Mapping, Maps, Perms};
pub use memory::{Memory, Piece, ReadError, ReadErrorKind};
pub use presence::{LeftCpu, OffCpu, Presence};
pub use process::{Identity, Namespaces, Process};
pub use recorded::{Image, ImageMeta, RecordedMemory};
pub use recorder::Recorder;
pub use scheduler::{Asleep, SchedulerAccount, SchedulerMark};
pub use tasks::{InKernel, TaskFacts, TaskState};
pub use waits::{FdKind, is_in_doubt, wait_of};
pub use watch::{Counts, Standing, Watched};
