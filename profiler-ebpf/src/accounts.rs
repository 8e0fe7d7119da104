//! Where the accounts are: opened, found and given back.
//!
//! The scheduler runs one switch of a thread at a time, so an account has one writer, but user
//! space reads it whenever it likes. Every write is volatile, so that the compiler keeps the order
//! on which the reader relies (see `profiler_common::account`); x86-64 keeps it too.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use profiler_common::account::{Account, FREE_STRIDE, MAX_ACCOUNTS, PLACES_OF_STRIDE};

use crate::{
    maps::{self, ACCOUNTS, FREE, SLOTS, USED},
    task::Task,
};

/// `BPF_NOEXIST` of `include/uapi/linux/bpf.h`.
const NO_EXIST: u64 = 1;

/// One thread's account, in place.
#[derive(Clone, Copy)]
pub struct Place(*mut Account);

/// Read a field of a place.
macro_rules! get {
    ($place:expr, $field:ident) => {{
        let account = $place.account();
        // SAFETY: the place is an entry of the map, which lives as long as the programs.
        unsafe { (&raw const (*account).$field).read_volatile() }
    }};
}

/// Write a field of a place.
macro_rules! set {
    ($place:expr, $field:ident, $value:expr) => {{
        let value = $value;
        let account = $place.account();
        // SAFETY: as in `get`; this thread's switch is the only writer.
        unsafe { (&raw mut (*account).$field).write_volatile(value) }
    }};
}

pub(crate) use {get, set};

impl Place {
    /// The account itself.
    #[inline(always)]
    pub fn account(self) -> *mut Account {
        self.0
    }

    /// Whether the thread is on a CPU, as far as was seen.
    #[inline(always)]
    pub fn is_on_cpu(self) -> bool {
        get!(self, generation) & 1 != 0
    }
}

/// How an account begins.
#[derive(Clone, Copy)]
pub struct Opening {
    pub tgid: u32,
    pub tid: u32,
    pub since: u64,
    /// None when the thread is on a CPU, else the task state it is off with.
    pub off_state: Option<u32>,
}

/// The account of a thread that has one.
#[inline(always)]
pub fn find(task: Task) -> Option<Place> {
    of_slot(slot(task)?)
}

/// The number of the account of a thread that has one.
#[inline(always)]
fn slot(task: Task) -> Option<u32> {
    // SAFETY: the value is copied at once; it changes only when the thread is gone.
    unsafe { SLOTS.get(&task.address()) }.copied()
}

/// The same where the thread's ids are known. An account that another thread left behind, whose
/// last switch was not seen, is closed.
#[inline(always)]
pub fn slot_of(task: Task, tgid: u32, tid: u32) -> Option<u32> {
    let slot = slot(task)?;
    let place = of_slot(slot)?;
    let known = get!(place, tid);
    // While an `exec` makes a thread its process's first, it has either id, and so has the first.
    if get!(place, tgid) == tgid && (known == tid || tid == tgid || known == tgid) {
        return Some(slot);
    }
    close(task);
    None
}

/// The account with this number, whoever has it.
#[inline(always)]
pub fn of_slot(slot: u32) -> Option<Place> {
    ACCOUNTS.get_ptr_mut(slot).map(Place)
}

/// The account with this number, if it is this thread's.
#[inline(always)]
pub fn at(slot: u32, tid: u32) -> Option<Place> {
    let place = of_slot(slot)?;
    if get!(place, tid) == tid {
        Some(place)
    } else {
        None
    }
}

/// Open an account, and give its number. When somebody else did meanwhile, theirs counts.
#[inline(always)]
pub fn open(task: Task, opening: Opening, fill: impl FnOnce(Place)) -> Option<u32> {
    let Opening {
        tgid,
        tid,
        since,
        off_state,
    } = opening;
    let Some((slot, place)) = free() else {
        if let Some(counters) = maps::counters() {
            counters.accounts_full += 1;
        }
        return None;
    };
    let generation = get!(place, generation) | 1;
    set!(place, generation, generation);
    set!(place, tgid, tgid);
    set!(place, since, since);
    set!(place, woken_ns, 0);
    set!(place, on_cpu_ns, 0);
    set!(place, runnable_ns, 0);
    set!(place, blocked_ns, 0);
    set!(place, thread_state, 0);
    set!(place, tls_base, 0);
    set!(place, off_state, off_state.unwrap_or(0));
    set!(place, off_syscall, -1);
    set!(place, off_args, [0; 2]);
    set!(place, off_ip, 0);
    set!(place, off_sp, 0);
    set!(place, off_bp, 0);
    set!(place, marked, 0);
    fill(place);
    if off_state.is_some() {
        set!(place, generation, generation + 1);
    }
    // Only now can others find it; until it has a thread's id, user space passes it over.
    if SLOTS.insert(&task.address(), &slot, NO_EXIST).is_err() {
        give_back(slot, place);
        return self::slot(task);
    }
    set!(place, tid, tid);
    Some(slot)
}

/// The thread is gone.
#[inline(always)]
pub fn close(task: Task) {
    let Some(slot) = slot(task) else {
        return;
    };
    let _ = SLOTS.remove(&task.address());
    if let Some(place) = of_slot(slot) {
        give_back(slot, place);
    }
}

/// A place that nobody has: the one given back last, else the first never used.
#[inline(always)]
fn free() -> Option<(u32, Place)> {
    let slot = take_place();
    of_slot(slot).map(|place| (slot, place))
}

/// The number of a free place, or one past the end. Visible from outside, so that the verifier
/// looks at it once (see `pychain::walk_stride`).
///
/// A counter that gives each number once would need an addition that returns what was there, which
/// kernels have since 5.12. Taking from the map is as good: whoever takes a whole stride from it
/// has it alone, and puts back what is too much.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn take_place() -> u32 {
    let Ok(Some(taken)) = FREE.pop() else {
        return MAX_ACCOUNTS;
    };
    if taken & FREE_STRIDE == 0 {
        return taken;
    }
    let first = taken & !FREE_STRIDE;
    let Some(used) = USED.get_ptr_mut(0) else {
        return MAX_ACCOUNTS;
    };
    // SAFETY: the map's value lives as long as the programs, and is only counted up. Relaxed, and
    // with its result unused, it is the addition that old kernels have.
    unsafe {
        let places = &raw mut (*used).places;
        atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(places, PLACES_OF_STRIDE.into());
    }
    let mut place = PLACES_OF_STRIDE - 1;
    while place > 0 {
        let _ = FREE.push(first + place, 0);
        place -= 1;
    }
    first
}

#[inline(always)]
fn give_back(slot: u32, place: Place) {
    set!(place, tid, 0);
    // Even, and not what it was: whoever reads this place at the moment notices.
    set!(place, generation, (get!(place, generation) | 1) + 1);
    let _ = FREE.push(slot, 0);
}
