//! The records of the ring. Each begins with a [`RecordHead`]; numbers are little-endian, as
//! the machine writes them.

use crate::walk::{MAX_FRAMES, MAX_GENERATORS};

/// A tick that landed on a thread of a target: [`SampleRecord`], then its frames, then its
/// generators.
pub const KIND_SAMPLE: u32 = 1;
/// A process or thread appeared: [`LifeRecord`].
pub const KIND_FORK: u32 = 2;
/// A process replaced its program: [`LifeRecord`].
pub const KIND_EXEC: u32 = 3;
/// A thread begins to end: [`LifeRecord`].
pub const KIND_EXIT: u32 = 4;
/// A thread left its CPU for the last time: [`LifeRecord`], with its final account.
pub const KIND_GONE: u32 = 5;

/// The native stack of the thread that a tick landed on, sent before the tick's own sample and with
/// the same time: [`StackRecord`], then the kernel's frames, then a piece of the user stack.
pub const KIND_STACK: u32 = 6;

/// How every record begins.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordHead {
    /// One of the `KIND_` constants.
    pub kind: u32,
    /// Bytes of the whole record, this head included.
    pub bytes: u32,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// Process id in the profiler's pid namespace.
    pub tgid: u32,
    /// Thread id in the profiler's pid namespace.
    pub tid: u32,
}

const _: () = assert!(size_of::<RecordHead>() == 24);

/// The tick landed in the kernel.
pub const FLAG_IN_KERNEL: u32 = 1 << 0;
/// The GIL's state was read; without it [`FLAG_GIL_HELD`] and [`FLAG_GIL_WANTED`] mean nothing.
pub const FLAG_GIL_KNOWN: u32 = 1 << 1;
/// This thread held the GIL.
pub const FLAG_GIL_HELD: u32 = 1 << 2;
/// This thread was recorded as asking for the GIL (3.15 and later).
pub const FLAG_GIL_WANTED: u32 = 1 << 3;
/// Whether a collection runs was read.
pub const FLAG_GC_KNOWN: u32 = 1 << 4;
/// A collection was running in this thread's interpreter.
pub const FLAG_GC_RUNNING: u32 = 1 << 5;
/// The thread state came from thread-local storage, read at the tick.
pub const FLAG_STATE_FROM_TLS: u32 = 1 << 6;
/// The thread state came from the map that user space fills.
pub const FLAG_STATE_FROM_MAP: u32 = 1 << 7;
/// The thread state is the runtime's current one (3.8–3.11).
pub const FLAG_STATE_FROM_HOLDER: u32 = 1 << 8;

/// Whether an exception is being handled was read.
pub const FLAG_EXCEPTION_KNOWN: u32 = 1 << 9;
/// The thread was in an `except` or `finally` block.
pub const FLAG_EXCEPTION_HANDLED: u32 = 1 << 10;

/// The fixed part of a sample; `frames` entries of [`crate::walk::RawFrame`] follow, and
/// `generators` entries of [`crate::walk::RawGenerator`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleRecord {
    /// Kind, size, time, who.
    pub head: RecordHead,
    /// The CPU.
    pub cpu: u32,
    /// Periods since this CPU's last tick: 1, more when the timer came late.
    pub periods: u32,
    /// User instruction pointer.
    pub user_ip: u64,
    /// User stack pointer.
    pub user_sp: u64,
    /// TLS base: the pthread id under glibc and musl.
    pub tls_base: u64,
    /// Address of the Python thread state, 0 when none was found.
    pub thread_state: u64,
    /// The thread's scheduler generation.
    pub generation: u64,
    /// The thread's nanoseconds on a CPU since its process became a target, up to this tick; 0
    /// when it has no account.
    pub on_cpu_ns: u64,
    /// The `FLAG_` bits.
    pub flags: u32,
    /// System call number while in one, else negative.
    pub syscall: i32,
    /// A `walk::END_` constant: how the walk of the frame chain ended.
    pub walk_end: u32,
    /// Frames that follow.
    pub frames: u32,
    /// Frames the chain had, those between the kept ends included.
    pub depth: u32,
    /// How many of the frames that follow are the leaf end; the others are the root end.
    pub leaf_frames: u32,
    /// The system call's first two arguments while in one.
    pub syscall_args: [u64; 2],
    /// Address of the last frame that the walk followed; 0 when nobody asked.
    pub root_frame: u64,
    /// An address in the C frame of the evaluator that runs the first run of frames; 0 when nobody
    /// asked or nothing tells.
    pub entry: u64,
    /// Generators that follow the frames, those nearest the leaf.
    pub generators: u32,
    /// Generators of the chain for which there was no room.
    pub generators_missing: u32,
}

const _: () = assert!(size_of::<SampleRecord>() == 144);

/// The largest record there can be.
pub const MAX_RECORD_BYTES: usize = size_of::<SampleRecord>() + (MAX_FRAMES + MAX_GENERATORS) * 16;

/// Most frames of the kernel's own stack that are sent.
pub const MAX_KERNEL_FRAMES: usize = 64;
/// Most bytes of the user stack that are sent.
pub const MAX_STACK_BYTES: usize = 16384;

/// What it takes to unwind a native stack in user space: `kernel_frames` addresses follow, leaf
/// first, and `stack_bytes` bytes from the user stack pointer on. Fewer bytes than were asked for
/// are there when a page was not resident, or the stack is no longer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackRecord {
    /// Kind, size, time, who.
    pub head: RecordHead,
    /// User instruction pointer.
    pub user_ip: u64,
    /// User stack pointer.
    pub user_sp: u64,
    /// User frame pointer, which need not be one.
    pub user_bp: u64,
    /// The CPU.
    pub cpu: u32,
    /// Frames of the kernel that follow.
    pub kernel_frames: u32,
    /// Bytes of the user stack that follow.
    pub stack_bytes: u32,
    /// Padding, zero.
    pub _pad: u32,
}

const _: () = assert!(size_of::<StackRecord>() == 64);

/// The largest stack record there can be.
pub const MAX_STACK_RECORD_BYTES: usize =
    size_of::<StackRecord>() + MAX_KERNEL_FRAMES * 8 + MAX_STACK_BYTES;

/// It was the last thread of its process that begins to end or, for [`KIND_GONE`], has ended: the
/// process is over.
pub const LIFE_LAST: u32 = 1 << 0;
/// The new thread is the first of a child process, which is a target from now on.
pub const LIFE_FOLLOWED: u32 = 1 << 1;
/// The id of the process that ended is another one's by now.
pub const LIFE_REPLACED: u32 = 1 << 2;

/// A fork, an exec or an exit.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LifeRecord {
    /// Kind, size, time, who: for a fork the new thread.
    pub head: RecordHead,
    /// For a fork, the process that forked; else the process itself.
    pub parent_tgid: u32,
    /// The `LIFE_` bits.
    pub flags: u32,
    /// For an end, the thread's nanoseconds on a CPU since its process became a target.
    pub on_cpu_ns: u64,
    /// Likewise its nanoseconds off the CPU though it could run.
    pub runnable_ns: u64,
    /// Likewise its nanoseconds blocked.
    pub blocked_ns: u64,
    /// For an exec, the id that the thread had until now: it becomes its process's first.
    pub old_tid: u32,
    /// For an end, what it ended with, as `wait` gives it.
    pub exit_code: u32,
    /// For an exec, what the kernel calls the thread from now on; zeroes at its end.
    pub name: [u8; NAME_BYTES],
}

/// Bytes of a name of the kernel's (`TASK_COMM_LEN` of `include/linux/sched.h`).
pub const NAME_BYTES: usize = 16;

const _: () = assert!(size_of::<LifeRecord>() == 80);

#[cfg(feature = "user")]
crate::pod!(RecordHead, SampleRecord, StackRecord, LifeRecord);
