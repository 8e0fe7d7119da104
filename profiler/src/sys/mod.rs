//! The only `unsafe` of the house, and the clocks that everything else is handed as values.
//!
//! A system call that nix wraps safely is called where it is needed, not from here.

mod clock;
mod perf;
mod pidfd;
mod shared;
mod task_clock;

pub use clock::{
    OwnCost, beats_a_second, cpu_of, monotonic, open_many_files, own_cost, since_boot, thread_cpu,
};
pub use perf::PerfClock;
pub use pidfd::{end_of, pidfd_open};
pub use shared::SharedArray;
pub use task_clock::{TaskClockReading, exec_start, task_clock};
