//! A native stack as the kernel sends it ahead of the sample it belongs to.

use profiler_common::record::{MAX_KERNEL_FRAMES, MAX_STACK_BYTES, StackRecord};

use super::{Bytes, WireError, u32_at, u64_at};
use crate::words::{Cpu, MonotonicNs, Pid, RemoteAddr, Tid};

/// The registers of a thread at a tick, and what its stack had there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeStack {
    /// When: the time of the tick it belongs to.
    pub time: MonotonicNs,
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// The CPU.
    pub cpu: Cpu,
    /// User instruction pointer.
    pub ip: RemoteAddr,
    /// User stack pointer: the address of [`NativeStack::stack`].
    pub sp: RemoteAddr,
    /// User frame pointer; any number where the code keeps none.
    pub bp: RemoteAddr,
    kernel_bytes: usize,
    /// The kernel's frames, then the user stack.
    body: Bytes,
}

impl NativeStack {
    /// The kernel's own frames, leaf first.
    pub fn kernel(&self) -> impl Iterator<Item = RemoteAddr> {
        let bytes = self.body.get(..self.kernel_bytes).unwrap_or_default();
        let words = bytes.chunks_exact(8);
        words.map(|word| RemoteAddr(u64_at(word, 0)))
    }

    /// The user stack from the stack pointer on.
    #[must_use]
    pub fn stack(&self) -> &[u8] {
        self.body.get(self.kernel_bytes..).unwrap_or_default()
    }
}

pub(super) fn decode(
    bytes: &Bytes,
    time: MonotonicNs,
    pid: Pid,
    tid: Tid,
) -> Result<NativeStack, WireError> {
    const HEAD: usize = size_of::<StackRecord>();
    let has = bytes.len();
    if has < HEAD {
        return Err(WireError::TooShort(has));
    }
    let kernel = u32_at(bytes, at!(StackRecord, kernel_frames));
    if kernel as usize > MAX_KERNEL_FRAMES {
        return Err(WireError::TooManyFrames(kernel));
    }
    let stack = u32_at(bytes, at!(StackRecord, stack_bytes));
    let expected = HEAD + kernel as usize * 8 + (stack as usize).min(MAX_STACK_BYTES + 1);
    if expected != has {
        return Err(WireError::LengthMismatch {
            says: expected as u32,
            has,
        });
    }
    Ok(NativeStack {
        time,
        pid,
        tid,
        cpu: Cpu(u32_at(bytes, at!(StackRecord, cpu))),
        ip: RemoteAddr(u64_at(bytes, at!(StackRecord, user_ip))),
        sp: RemoteAddr(u64_at(bytes, at!(StackRecord, user_sp))),
        bp: RemoteAddr(u64_at(bytes, at!(StackRecord, user_bp))),
        kernel_bytes: kernel as usize * 8,
        body: bytes.slice(HEAD..),
    })
}
