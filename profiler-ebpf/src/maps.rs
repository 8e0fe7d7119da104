//! What the programs share with user space and with each other.

use aya_ebpf::{
    Global,
    macros::map,
    maps::{Array, HashMap, PerCpuArray, RingBuf, Stack},
};
use profiler_common::{
    CONTRACT_VERSION,
    account::{Account, MAX_ACCOUNTS, Used},
    loss::Counters,
    offsets::{KernelOffsets, NO_FIELD, Settings},
    plan::{MAX_PLANS, Plan, StateKey},
    record::{LifeRecord, MAX_KERNEL_FRAMES, MAX_STACK_BYTES, SampleRecord, StackRecord},
    walk::{Block, Chain, MAX_FRAMES, MAX_GENERATORS, RawFrame, RawGenerator},
};

/// Where the running kernel keeps its fields; user space fills it in before the load.
#[unsafe(no_mangle)]
pub static OFFSETS: Global<KernelOffsets> = Global::new(KernelOffsets {
    task_pid: NO_FIELD,
    task_tgid: NO_FIELD,
    task_state: NO_FIELD,
    task_fsbase: NO_FIELD,
    task_on_cpu: NO_FIELD,
    task_exit_code: NO_FIELD,
    task_comm: NO_FIELD,
    task_thread_pid: NO_FIELD,
    task_signal: NO_FIELD,
    signal_tgid: NO_FIELD,
    signal_live: NO_FIELD,
    signal_nr_threads: NO_FIELD,
    pid_level: NO_FIELD,
    pid_numbers: NO_FIELD,
    upid_nr: NO_FIELD,
    upid_ns: NO_FIELD,
    namespace_inum: NO_FIELD,
    task_flags: NO_FIELD,
    regs_sp: NO_FIELD,
    regs_ip: NO_FIELD,
    regs_bp: NO_FIELD,
    regs_orig_ax: NO_FIELD,
    regs_di: NO_FIELD,
    regs_si: NO_FIELD,
    switch_passes_state: 0,
    task_stack: NO_FIELD,
    stack_regs: NO_FIELD,
    _pad: 0,
});

/// Period and wake-up; user space fills it in before the load.
#[unsafe(no_mangle)]
pub static SETTINGS: Global<Settings> = Global::new(Settings {
    contract: CONTRACT_VERSION,
    wake_bytes: 0,
    period_ns: 0,
    flags: 0,
    pid_namespace: 0,
    stack_bytes: 0,
    stacks_until: 0,
});

/// The targets: tgid → plan. A process that is not here costs one lookup.
#[map]
pub static PLANS: HashMap<u32, Plan> = HashMap::with_max_entries(MAX_PLANS, 0);

/// (tgid, TLS base) → thread state, where thread-local storage does not tell.
#[map]
pub static STATES: HashMap<StateKey, u64> = HashMap::with_max_entries(16384, 0);

/// `BPF_F_MMAPABLE` of `include/uapi/linux/bpf.h`: user space maps it into its memory.
const MMAPABLE: u32 = 1 << 10;

/// Address of a thread's `task_struct` → the place of its account.
#[map]
pub static SLOTS: HashMap<u64, u32> = HashMap::with_max_entries(MAX_ACCOUNTS, 0);

/// What the scheduler did with each thread.
#[map]
pub static ACCOUNTS: Array<Account> = Array::with_max_entries(MAX_ACCOUNTS, MMAPABLE);

/// How many places of `ACCOUNTS` may have been used: those before this number.
#[map]
pub static USED: Array<Used> = Array::with_max_entries(1, MMAPABLE);

/// Places of `ACCOUNTS` that nobody has, alone or by strides (`FREE_STRIDE`); user space puts all
/// of them in before the programs run.
#[map]
pub static FREE: Stack<u32> = Stack::with_max_entries(MAX_ACCOUNTS, 0);

/// The profiler's own pid namespace, once a thread in it was met; not used in the initial one.
#[map]
pub static NAMESPACE: Array<Namespace> = Array::with_max_entries(1, 0);

/// Records on their way to user space.
#[map]
pub static RING: RingBuf = RingBuf::with_byte_size(1 << 20, 0);

/// Not 0 while user space wants each sample at once: what it runs may be gone soon.
#[map]
pub static URGENT: Array<u32> = Array::with_max_entries(1, 0);

/// Ticks, samples, losses.
#[map]
pub static COUNTERS: PerCpuArray<Counters> = PerCpuArray::with_max_entries(1, 0);

/// The CPU's place in the sequence of periods.
#[map]
pub static BEATS: PerCpuArray<Beat> = PerCpuArray::with_max_entries(1, 0);

/// Room to put a record together (entry 0, for the tick) and to read a thread state (entry 1, for
/// the switch, which a tick may interrupt); a tick is never interrupted by another on its CPU.
#[map]
pub static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(2, 0);

/// Room to put a native stack together, for the tick.
#[map]
pub static STACKS: PerCpuArray<NativeStack> = PerCpuArray::with_max_entries(1, 0);

/// When this CPU ticked first, how many periods that was ago at its last tick, when it switched
/// last, and between whom.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Beat {
    pub first_ns: u64,
    pub last: u64,
    pub switched_ns: u64,
    /// Whom the last switch put on this CPU: its next one takes off the same.
    pub on: Switched,
    /// Whom a switch took off this CPU last: as a rule it comes back to it.
    pub off: Switched,
}

/// A thread that was switched, and its account.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Switched {
    /// The address of the thread's task; 0 when it was nobody of a target.
    pub task: u64,
    /// The id that its account goes by.
    pub tid: u32,
    pub slot: u32,
}

/// The address of a `pid_namespace`, 0 while it is not known, and how deep it is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Namespace {
    pub address: u64,
    pub level: u64,
}

/// A sample with room for all its frames and generators, and what a walk needs: a block to read
/// the target into, and where the generators are noted until it is known where the frames end.
#[repr(C)]
pub struct Scratch {
    pub record: SampleRecord,
    pub frames: [RawFrame; MAX_FRAMES],
    pub behind_frames: [RawGenerator; MAX_GENERATORS],
    pub block: Block,
    pub chain: Chain,
    pub generators: [RawGenerator; MAX_GENERATORS],
}

/// Bytes of a page: what is read of a user stack is read by pages, since one may be missing.
pub const PAGE: usize = 4096;

/// Numbers of the kernel's frames, of bytes of the stack before a read, and of bytes of a read, all
/// have no more than these bits.
pub const KERNEL_MASK: usize = MAX_KERNEL_FRAMES * 2 - 1;
pub const STACK_MASK: usize = MAX_STACK_BYTES - 1;
pub const PAGES_MASK: usize = PAGE * 2 - 1;
const _: () = assert!((KERNEL_MASK + 1).is_power_of_two() && MAX_STACK_BYTES.is_power_of_two());

/// A stack record with room for all that may follow it by these masks.
#[repr(C)]
pub struct NativeStack {
    pub record: StackRecord,
    pub body: [u8; KERNEL_MASK * 8 + STACK_MASK + PAGES_MASK + 10],
}

/// This CPU's counters.
#[inline(always)]
pub fn counters() -> Option<&'static mut Counters> {
    // SAFETY: the map's value lives as long as the program, and belongs to this CPU alone; a
    // tracepoint that interrupts can at worst make a count of its own be lost to a race of two
    // additions on one CPU, which cannot happen for ticks, the only ones that must balance.
    COUNTERS
        .get_ptr_mut(0)
        .map(|counters| unsafe { &mut *counters })
}

/// Whether to wake user space for the record about to be written: only when enough waits.
#[inline(always)]
fn wake_flags() -> u64 {
    const AVAILABLE_DATA: u64 = 0;
    const NO_WAKEUP: u64 = 1;
    const FORCE_WAKEUP: u64 = 2;
    if RING.query(AVAILABLE_DATA) >= u64::from(SETTINGS.load().wake_bytes) {
        FORCE_WAKEUP
    } else {
        NO_WAKEUP
    }
}

/// The same for a sample, which may be urgent.
#[inline(always)]
fn wake_flags_of_sample() -> u64 {
    const FORCE_WAKEUP: u64 = 2;
    if URGENT.get(0).is_some_and(|urgent| *urgent != 0) {
        FORCE_WAKEUP
    } else {
        wake_flags()
    }
}

/// Send `bytes` of a sample.
#[inline(always)]
pub fn send_sample(scratch: *mut Scratch, bytes: u64) -> bool {
    // SAFETY: `bytes` is at most the size of record, frames and generators (the caller bounds it),
    // which are contiguous in `Scratch`; the helper copies and keeps nothing.
    let sent = unsafe {
        aya_ebpf::helpers::bpf_ringbuf_output(
            core::ptr::from_ref(&RING).cast_mut().cast(),
            scratch.cast(),
            bytes,
            wake_flags_of_sample(),
        )
    };
    sent == 0
}

/// Send `bytes` of a native stack, unless too much waits already.
#[inline(always)]
pub fn send_stack(stack: *mut NativeStack, bytes: u64) {
    const AVAILABLE_DATA: u64 = 0;
    if RING.query(AVAILABLE_DATA) >= u64::from(SETTINGS.load().stacks_until) {
        return;
    }
    // SAFETY: `bytes` is at most the size of record and body (the caller bounds it), which are
    // contiguous; the helper copies and keeps nothing.
    unsafe {
        aya_ebpf::helpers::bpf_ringbuf_output(
            core::ptr::from_ref(&RING).cast_mut().cast(),
            stack.cast(),
            bytes,
            wake_flags(),
        );
    }
}

/// Send a life record and wake user space: identities should not wait.
#[inline(always)]
pub fn send_life(record: &LifeRecord) {
    const FORCE_WAKEUP: u64 = 2;
    if RING.output::<LifeRecord>(record, FORCE_WAKEUP).is_err()
        && let Some(counters) = counters()
    {
        counters.events_lost += 1;
    }
}
