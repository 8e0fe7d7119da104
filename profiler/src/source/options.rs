//! What the kernel programs are told before they are loaded.

use profiler_common::offsets::{LOOK_AT_KERNEL, LOOK_AT_STACKS, LOOK_OFF_CPU};

use super::capabilities::PidNamespace;
use crate::words::DurationNs;

/// Ticks a second when nothing else is said.
pub const USUAL_RATE: u32 = 99;
/// Most ticks a second; the kernel's software clock does not go under 10 µs a period.
pub const MAX_RATE: u32 = 50_000;

/// How to load and tick.
#[derive(Clone, Copy, Debug)]
pub struct KernelOptions {
    /// Time between two ticks of one CPU.
    pub period: DurationNs,
    /// Bytes of the ring; rounded up to a power of two.
    pub ring_bytes: u32,
    /// Wake user space when this many bytes wait; 0 at every record.
    pub wake_bytes: u32,
    /// Keep accounts that tell what a thread off the CPU waits for, of all threads.
    pub looks_off_cpu: bool,
    /// Send the native stack of each tick.
    pub stacks: Option<StackOptions>,
    /// The pid namespace by whose numbers everything goes; none is the initial one.
    pub pid_namespace: Option<PidNamespace>,
}

impl KernelOptions {
    pub(super) const fn flags(&self) -> u32 {
        let mut flags = 0;
        if self.looks_off_cpu {
            flags |= LOOK_OFF_CPU;
        }
        if let Some(stacks) = self.stacks {
            flags |= LOOK_AT_STACKS;
            if stacks.kernel {
                flags |= LOOK_AT_KERNEL;
            }
        }
        flags
    }
}

/// Which native stacks are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackOptions {
    /// Bytes of the user stack, from the stack pointer on.
    pub bytes: u32,
    /// Also the kernel's own frames.
    pub kernel: bool,
}
