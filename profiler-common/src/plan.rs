//! What the kernel needs to know about one target, filled in by user space from the layout of
//! the very interpreter it found there (map `PLANS`, tgid → plan).

/// The field does not exist in this version.
pub const NO_FIELD: u32 = u32::MAX;

/// Note no generators.
pub const GENERATORS_NONE: u32 = 0;
/// A frame whose owner is `generator_owner` lies inside its generator, `generator` bytes from its
/// beginning (3.11+).
pub const GENERATORS_AROUND: u32 = 1;
/// A frame's word at `generator` is the address of its generator, 0 for none (to 3.10).
pub const GENERATORS_POINTED: u32 = 2;

/// How to walk the frame chain. Offsets in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkPlan {
    /// In the thread state: `frame` (to 3.10), `cframe` (3.11, 3.12) or `current_frame` (3.13+).
    pub first_frame: u32,
    /// In `_PyCFrame`: `current_frame`, for the two versions that have the hop; else [`NO_FIELD`].
    pub cframe_current: u32,
    /// In `_PyCFrame`: `previous`, for the same versions.
    pub cframe_previous: u32,
    /// In a frame: the byte `is_entry` (3.11), else [`NO_FIELD`].
    pub frame_entry: u32,
    /// Bytes of a frame that hold every field below; at most [`crate::walk::BLOCK_BYTES`].
    pub frame_bytes: u32,
    /// In a frame: the code object (`f_code`, `f_executable`).
    pub frame_code: u32,
    /// In a frame: the caller (`f_back`, `previous`).
    pub frame_previous: u32,
    /// In a frame: where it is (`f_lasti`, `prev_instr`, `instr_ptr`).
    pub frame_instr: u32,
    /// 4 for an index (`f_lasti`), 8 for an address.
    pub instr_bytes: u32,
    /// In a frame: the owner byte, or [`NO_FIELD`] before 3.11.
    pub frame_owner: u32,
    /// The smallest owner value that marks an entry shim, which is skipped; [`NO_FIELD`] if none.
    pub shim_owner: u32,
    /// Keep at most this many frames, half of them at either end.
    pub max_frames: u32,
    /// Bits of the code pointer to keep: 3.14+ tags the low two.
    pub code_mask: u64,
    /// One of the `GENERATORS_` constants: how to tell whose frame a generator's is.
    pub generators: u32,
    /// Where they meet: in the generator or in the frame, as `generators` says.
    pub generator: u32,
    /// The owner of a frame that lies in a generator, for [`GENERATORS_AROUND`].
    pub generator_owner: u32,
    /// 1: mark the frames that called into C ([`crate::walk::INTO_C`]). Where every frame is a C
    /// frame of its own (to 3.10), it says nothing and is 0.
    pub into_c: u32,
}

const _: () = assert!(size_of::<WalkPlan>() == 72);

/// Most hops there can be from the TLS base to the thread state.
pub const MAX_HOPS: usize = 3;

/// How to find this thread's state, and check it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatePlan {
    /// From the TLS base: add `hops[0]`, read a pointer, add `hops[1]`, read, …
    pub hops: [i64; MAX_HOPS],
    /// How many hops there are; 0 when the state cannot be had from thread-local storage.
    pub n_hops: u32,
    /// Bytes of the thread state that hold every field used here; at most a block.
    pub state_bytes: u32,
    /// In the thread state: `thread_id`.
    pub thread_id: u32,
    /// In the thread state: `interp`.
    pub interp: u32,
    /// Address of the runtime's current thread state (3.8–3.11), else 0.
    pub holder_addr: u64,
}

const _: () = assert!(size_of::<StatePlan>() == 48);

/// The GIL's state cannot be told at the tick.
pub const GIL_UNKNOWN: u32 = 0;
/// Held by this thread when the word at `holder_addr` is its thread state (3.8–3.11).
pub const GIL_BY_HOLDER: u32 = 1;
/// Held when `word & mask` is not 0, the word being in the thread state (3.12+).
pub const GIL_BY_WORD: u32 = 2;

/// How to tell the state of the GIL and of the collector.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlagPlan {
    /// One of the `GIL_` constants.
    pub gil: u32,
    /// In the thread state: the 32-bit word for [`GIL_BY_WORD`].
    pub gil_word: u32,
    /// Its bits.
    pub gil_mask: u32,
    /// In the thread state: the 32-bit word that is not 0 while the thread asks for the GIL.
    pub gil_wanted: u32,
    /// In the interpreter: the collector's `collecting`; [`NO_FIELD`] when it is elsewhere.
    pub gc_in_interp: u32,
    /// In the interpreter: the thread state that has stopped all others, which alone is known to
    /// collect then (free-threaded builds); [`NO_FIELD`] where the GIL tells who collects.
    pub world_stopper: u32,
    /// Address of `collecting` where it lies in the runtime (3.8), else 0.
    pub gc_addr: u64,
    /// In the thread state: the pointer to the newest entry of the exceptions being handled;
    /// [`NO_FIELD`] when that cannot be told.
    pub exc_info: u32,
    /// In an entry: the exception.
    pub exc_value: u32,
    /// In an entry: the pointer to the one before.
    pub exc_previous: u32,
    /// Padding, zero.
    pub _pad: u32,
    /// Address of `None`, which stands for no exception where it is not 0.
    pub none_addr: u64,
}

const _: () = assert!(size_of::<FlagPlan>() == 56);

/// Read no frames in the kernel: user space walks.
pub const PLAN_NO_WALK: u32 = 1 << 0;
/// There is no interpreter here (yet): ticks are still samples, with no frames.
pub const PLAN_NO_PYTHON: u32 = 1 << 1;
/// Children become targets at their birth, with this plan: a fork keeps all addresses.
pub const PLAN_FOLLOW: u32 = 1 << 2;
/// A walk notes whose generators it meets, and the root frame: what tells tasks and greenlets.
pub const PLAN_GENERATORS: u32 = 1 << 3;
/// A walk marks the frames that called into C, so that native frames find their place.
pub const PLAN_INTO_C: u32 = 1 << 4;

/// Most processes that are targets at one time.
pub const MAX_PLANS: u32 = 1024;

/// Everything about one target.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// `CLOCK_MONOTONIC` at which the process became a target: threads that were on a CPU by
    /// then are accounted from here.
    pub since_ns: u64,
    /// Written by the kernel for a child: the address of its `signal_struct`, by which it is told
    /// from another process that gets its id. 0 when it was not told.
    pub owner: u64,
    /// The `PLAN_` bits.
    pub flags: u32,
    /// Padding, zero.
    pub _pad: u32,
    /// The frame chain.
    pub walk: WalkPlan,
    /// The thread state.
    pub state: StatePlan,
    /// GIL and collector.
    pub flag: FlagPlan,
}

const _: () = assert!(size_of::<Plan>() == 200);

/// Key of the map `STATES`: whose TLS base it is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateKey {
    /// The process, as the profiler's pid namespace numbers it.
    pub tgid: u32,
    /// Padding, zero.
    pub _pad: u32,
    /// The TLS base.
    pub tls_base: u64,
}

const _: () = assert!(size_of::<StateKey>() == 16);

#[cfg(feature = "user")]
crate::pod!(WalkPlan, StatePlan, FlagPlan, Plan, StateKey);
