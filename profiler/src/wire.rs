//! From the ring's bytes to events. Malformed input is a typed error, never a panic.
//!
//! Pure: it knows the records of `profiler-common` and nothing of where they come from.

use std::fmt;

use bytes::Bytes;
use profiler_common::{
    record::{
        FLAG_EXCEPTION_HANDLED, FLAG_EXCEPTION_KNOWN, FLAG_GC_KNOWN, FLAG_GC_RUNNING,
        FLAG_GIL_HELD, FLAG_GIL_KNOWN, FLAG_GIL_WANTED, FLAG_IN_KERNEL, FLAG_STATE_FROM_MAP,
        FLAG_STATE_FROM_TLS, KIND_EXEC, KIND_EXIT, KIND_FORK, KIND_GONE, KIND_SAMPLE, KIND_STACK,
        LIFE_LAST, LIFE_REPLACED, LifeRecord, RecordHead, SampleRecord,
    },
    walk::{MAX_FRAMES, MAX_GENERATORS, RawFrame, RawGenerator},
};

use crate::words::{
    Cpu, DurationNs, FrameAddr, Generation, MonotonicNs, Pid, PthreadId, RemoteAddr,
    ThreadStateAddr, Tid,
};

/// Where each field lies; the structures are `repr(C)`, so the compiler says.
macro_rules! at {
    ($record:ty, $field:ident) => {
        std::mem::offset_of!($record, $field)
    };
}

mod stack;

pub use stack::NativeStack;

/// What the kernel told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A tick on a thread of a target.
    Tick(Tick),
    /// The native stack of the tick that comes next of its CPU.
    Stack(NativeStack),
    /// A thread, or a child process that is followed, appeared.
    Fork {
        /// When.
        time: MonotonicNs,
        /// The process that forked.
        parent: Pid,
        /// The process of the new thread; equal to `parent` for a thread.
        pid: Pid,
        /// The new thread.
        tid: Tid,
    },
    /// A process replaced its program.
    Exec {
        /// When.
        time: MonotonicNs,
        /// The process.
        pid: Pid,
        /// The id until now of its one thread, which has the process's own from now on.
        old: Tid,
        /// What the kernel calls it from now on.
        name: String,
    },
    /// A thread ends, or (`last`) has left its CPU for the last time.
    Exit {
        /// When.
        time: MonotonicNs,
        /// Its process.
        pid: Pid,
        /// The thread.
        tid: Tid,
        /// Its times since its process became a target, up to then.
        times: Times,
        /// Whether it will not run any more.
        last: bool,
        /// Set when it is the last thread of its process: what the process ended with.
        process: Option<ExitStatus>,
        /// Whether another process has the id of this one by now.
        replaced: bool,
    },
}

/// What a process ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// It called `exit` with this.
    Code(u8),
    /// This signal killed it.
    Signal(u8),
}

impl ExitStatus {
    /// From what `wait` gives.
    const fn of_wait(status: u32) -> Self {
        match status & 0x7f {
            0 => Self::Code((status >> 8 & 0xff) as u8),
            signal => Self::Signal(signal as u8),
        }
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// What the scheduler counted for a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// On a CPU.
    pub on_cpu: DurationNs,
    /// Off the CPU though it could run.
    pub runnable: DurationNs,
    /// Blocked.
    pub blocked: DurationNs,
}

impl Times {
    /// When the account was opened that says this at that time.
    #[must_use]
    pub const fn opened(self, time: MonotonicNs) -> MonotonicNs {
        let counted = self.on_cpu.0.saturating_add(self.runnable.0);
        MonotonicNs(
            time.0
                .saturating_sub(counted.saturating_add(self.blocked.0)),
        )
    }
}

impl Event {
    /// When it happened.
    #[must_use]
    pub const fn time(&self) -> MonotonicNs {
        match self {
            Self::Tick(tick) => tick.time,
            Self::Stack(stack) => stack.time,
            Self::Fork { time, .. } | Self::Exec { time, .. } | Self::Exit { time, .. } => *time,
        }
    }
}

/// How the kernel found the thread state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateFrom {
    /// From thread-local storage, read at the tick.
    Tls,
    /// From the map that user space fills.
    Map,
    /// It was the runtime's current one.
    Holder,
}

/// One tick. The flags are those of `profiler_common::record`, behind questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tick {
    /// When.
    pub time: MonotonicNs,
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// The CPU.
    pub cpu: Cpu,
    /// Periods it stands for.
    pub periods: u32,
    /// User instruction pointer.
    pub ip: RemoteAddr,
    /// User stack pointer.
    pub sp: RemoteAddr,
    /// The TLS base, which is the pthread id.
    pub tls_base: PthreadId,
    /// The Python thread state and how it was found.
    pub thread_state: Option<(ThreadStateAddr, StateFrom)>,
    /// The scheduler generation.
    pub generation: Generation,
    /// The thread's time on a CPU since its process became a target; none without an account.
    pub on_cpu: Option<DurationNs>,
    /// The system call it was in.
    pub syscall: Option<u32>,
    /// That call's first two arguments.
    pub syscall_args: [u64; 2],
    /// A `walk::END_` constant.
    pub walk_end: u32,
    /// Frames the chain had.
    pub depth: u32,
    /// How many of `frames` are the leaf end.
    pub leaf_frames: u32,
    /// The last frame that the walk followed, the chain's root if it came to that; none when
    /// nobody asked.
    pub root: Option<FrameAddr>,
    /// An address in the C frame of the evaluator that runs the first run of frames; none when
    /// nobody asked or nothing tells.
    pub entry: Option<RemoteAddr>,
    /// Generators of the chain for which there was no room.
    pub generators_missing: u32,
    flags: u32,
    frame_count: u32,
    /// The frames, then the generators.
    body: Bytes,
}

impl Tick {
    /// Whether the tick landed in the kernel.
    #[must_use]
    pub const fn in_kernel(&self) -> bool {
        self.flags & FLAG_IN_KERNEL != 0
    }

    /// Whether the thread held the GIL; `None` when it could not be told.
    #[must_use]
    pub const fn holds_gil(&self) -> Option<bool> {
        if self.flags & FLAG_GIL_KNOWN == 0 {
            None
        } else {
            Some(self.flags & FLAG_GIL_HELD != 0)
        }
    }

    /// Whether the thread was recorded as asking for the GIL.
    #[must_use]
    pub const fn wants_gil(&self) -> bool {
        self.flags & FLAG_GIL_WANTED != 0
    }

    /// Whether a collection was running; `None` when it could not be told.
    #[must_use]
    pub const fn collecting(&self) -> Option<bool> {
        if self.flags & FLAG_GC_KNOWN == 0 {
            None
        } else {
            Some(self.flags & FLAG_GC_RUNNING != 0)
        }
    }

    /// Whether the thread was handling an exception; `None` when it could not be told.
    #[must_use]
    pub const fn handles_exception(&self) -> Option<bool> {
        if self.flags & FLAG_EXCEPTION_KNOWN == 0 {
            None
        } else {
            Some(self.flags & FLAG_EXCEPTION_HANDLED != 0)
        }
    }

    /// How many frames came along.
    #[must_use]
    pub const fn frame_count(&self) -> usize {
        self.frame_count as usize
    }

    /// The frames as bytes, which tell one chain from another.
    #[must_use]
    pub fn frame_bytes(&self) -> &[u8] {
        self.halves().0
    }

    fn halves(&self) -> (&[u8], &[u8]) {
        let frames = self.frame_count() * size_of::<RawFrame>();
        self.body
            .split_at_checked(frames)
            .unwrap_or((&self.body, &[]))
    }

    /// The frames as they came: the leaf end, then the ring of the root end.
    pub fn frames(&self) -> impl Iterator<Item = RawFrame> {
        self.frame_bytes()
            .chunks_exact(size_of::<RawFrame>())
            .map(|bytes| RawFrame {
                code: u64_at(bytes, 0),
                instr: u64_at(bytes, 8),
            })
    }

    /// Which frames are a generator's or coroutine's, leaf first; none when nobody asked.
    pub fn generators(&self) -> impl Iterator<Item = RawGenerator> {
        self.halves()
            .1
            .chunks_exact(size_of::<RawGenerator>())
            .map(|bytes| RawGenerator {
                generator: u64_at(bytes, at!(RawGenerator, generator)),
                frame: u32_at(bytes, at!(RawGenerator, frame)),
                _pad: 0,
            })
    }
}

/// Why bytes are no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Shorter than its kind of record; how many bytes there were.
    TooShort(usize),
    /// The record says it has another length than it has.
    LengthMismatch {
        /// What it says.
        says: u32,
        /// What it has.
        has: usize,
    },
    /// No such kind.
    UnknownKind(u32),
    /// More frames than a record may have.
    TooManyFrames(u32),
    /// More generators than a record may have.
    TooManyGenerators(u32),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort(bytes) => write!(f, "record of {bytes} bytes is too short"),
            Self::LengthMismatch { says, has } => {
                write!(f, "record says {says} bytes and has {has}")
            }
            Self::UnknownKind(kind) => write!(f, "record of unknown kind {kind}"),
            Self::TooManyFrames(frames) => write!(f, "record with {frames} frames"),
            Self::TooManyGenerators(number) => write!(f, "record with {number} generators"),
        }
    }
}

impl std::error::Error for WireError {}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .and_then(|word| word.try_into().ok())
        .map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..at + 8)
        .and_then(|word| word.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

/// Decode one record.
///
/// # Errors
/// [`WireError`]: the caller counts the record as lost.
pub fn decode(bytes: &Bytes) -> Result<Event, WireError> {
    let has = bytes.len();
    if has < size_of::<RecordHead>() {
        return Err(WireError::TooShort(has));
    }
    let says = u32_at(bytes, at!(RecordHead, bytes));
    if says as usize != has {
        return Err(WireError::LengthMismatch { says, has });
    }
    let time = MonotonicNs(u64_at(bytes, at!(RecordHead, time_ns)));
    let pid = Pid(u32_at(bytes, at!(RecordHead, tgid)));
    let tid = Tid(u32_at(bytes, at!(RecordHead, tid)));
    let kind = u32_at(bytes, at!(RecordHead, kind));
    if matches!(kind, KIND_FORK | KIND_EXEC | KIND_EXIT | KIND_GONE)
        && has < size_of::<LifeRecord>()
    {
        return Err(WireError::TooShort(has));
    }
    match kind {
        KIND_SAMPLE => tick(bytes, time, pid, tid).map(Event::Tick),
        KIND_STACK => stack::decode(bytes, time, pid, tid).map(Event::Stack),
        KIND_FORK => {
            let parent = Pid(u32_at(bytes, at!(LifeRecord, parent_tgid)));
            Ok(Event::Fork {
                time,
                parent,
                pid,
                tid,
            })
        }
        KIND_EXEC => {
            let old = Tid(u32_at(bytes, at!(LifeRecord, old_tid)));
            let name = bytes.get(at!(LifeRecord, name)..has).unwrap_or_default();
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            let name = String::from_utf8_lossy(name).into_owned();
            Ok(Event::Exec {
                time,
                pid,
                old,
                name,
            })
        }
        KIND_EXIT | KIND_GONE => {
            let times = Times {
                on_cpu: DurationNs(u64_at(bytes, at!(LifeRecord, on_cpu_ns))),
                runnable: DurationNs(u64_at(bytes, at!(LifeRecord, runnable_ns))),
                blocked: DurationNs(u64_at(bytes, at!(LifeRecord, blocked_ns))),
            };
            let flags = u32_at(bytes, at!(LifeRecord, flags));
            let status = u32_at(bytes, at!(LifeRecord, exit_code));
            Ok(Event::Exit {
                time,
                pid,
                tid,
                times,
                last: kind == KIND_GONE,
                process: (flags & LIFE_LAST != 0).then(|| ExitStatus::of_wait(status)),
                replaced: flags & LIFE_REPLACED != 0,
            })
        }
        other => Err(WireError::UnknownKind(other)),
    }
}

fn tick(bytes: &Bytes, time: MonotonicNs, pid: Pid, tid: Tid) -> Result<Tick, WireError> {
    const HEAD: usize = size_of::<SampleRecord>();
    let has = bytes.len();
    if has < HEAD {
        return Err(WireError::TooShort(has));
    }
    let frames = u32_at(bytes, at!(SampleRecord, frames));
    if frames as usize > MAX_FRAMES {
        return Err(WireError::TooManyFrames(frames));
    }
    let generators = u32_at(bytes, at!(SampleRecord, generators));
    if generators as usize > MAX_GENERATORS {
        return Err(WireError::TooManyGenerators(generators));
    }
    let expected = HEAD
        + frames as usize * size_of::<RawFrame>()
        + generators as usize * size_of::<RawGenerator>();
    if expected != has {
        return Err(WireError::LengthMismatch {
            says: expected as u32,
            has,
        });
    }
    let flags = u32_at(bytes, at!(SampleRecord, flags));
    let from = match flags {
        _ if flags & FLAG_STATE_FROM_TLS != 0 => StateFrom::Tls,
        _ if flags & FLAG_STATE_FROM_MAP != 0 => StateFrom::Map,
        _ => StateFrom::Holder,
    };
    let state = u64_at(bytes, at!(SampleRecord, thread_state));
    let syscall = u32_at(bytes, at!(SampleRecord, syscall)).cast_signed();
    Ok(Tick {
        time,
        pid,
        tid,
        cpu: Cpu(u32_at(bytes, at!(SampleRecord, cpu))),
        periods: u32_at(bytes, at!(SampleRecord, periods)),
        ip: RemoteAddr(u64_at(bytes, at!(SampleRecord, user_ip))),
        sp: RemoteAddr(u64_at(bytes, at!(SampleRecord, user_sp))),
        tls_base: PthreadId(u64_at(bytes, at!(SampleRecord, tls_base))),
        thread_state: (state != 0).then_some((ThreadStateAddr(state), from)),
        generation: Generation(u64_at(bytes, at!(SampleRecord, generation))),
        on_cpu: Some(u64_at(bytes, at!(SampleRecord, on_cpu_ns)))
            .filter(|ns| *ns != 0)
            .map(DurationNs),
        syscall: u32::try_from(syscall).ok(),
        syscall_args: [0, 8].map(|arg| u64_at(bytes, at!(SampleRecord, syscall_args) + arg)),
        walk_end: u32_at(bytes, at!(SampleRecord, walk_end)),
        depth: u32_at(bytes, at!(SampleRecord, depth)),
        leaf_frames: u32_at(bytes, at!(SampleRecord, leaf_frames)).min(frames),
        entry: Some(RemoteAddr(u64_at(bytes, at!(SampleRecord, entry))))
            .filter(|entry| entry.0 != 0),
        root: Some(u64_at(bytes, at!(SampleRecord, root_frame)))
            .filter(|addr| *addr != 0)
            .map(FrameAddr),
        generators_missing: u32_at(bytes, at!(SampleRecord, generators_missing)),
        flags,
        frame_count: frames,
        body: bytes.slice(HEAD..),
    })
}

#[cfg(test)]
mod tests;
