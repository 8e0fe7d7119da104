//! The corridor: joins the rooms for one run, and shuts them down in order.
//!
//! Each file is one joint: a process and its interpreter ([`attach`], `hold`, `search`), the threads
//! that were seen (`people`), from raw frames to stacks (`stacks`), one tick to one sample
//! (`sampler`), all of it in one state (`session`), the accounts at the end (`books`, `conclude`), and
//! the loop that drives them ([`run()`]).
//! [`look()`] is the short way, for one look without the kernel's half. Nothing here decides
//! what a thing means.

mod absence;
pub mod attach;
mod books;
mod conclude;
mod hold;
mod jitter;
mod look;
mod natives;
mod people;
mod proc;
mod rounds;
mod run;
mod sampler;
mod search;
mod session;
mod settings;
// Public for the benches that count its instructions.
pub mod stacks;
mod urgency;

pub use attach::{AttachError, Attached};
pub use look::{Seen, SeenTask, SeenTasks, View, look};
pub use proc::run_proc;
pub use run::{End, Outcome, Outside, Progress, RunError, run};
pub use settings::{RunSettings, Target, Tasks, Walk};
