//! Where the accounts are: opened, found and given back.
//!
//! The scheduler runs one switch of a thread at a time, so an account has one writer, but user
//! space reads it whenever it likes. Every write is volatile, so that the compiler keeps the order
//! on which the reader relies (see `profiler_common::account`); x86-64 keeps it too.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use profiler_common::account::{Account, MAX_ACCOUNTS};

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
    // SAFETY: the value is copied at once; it changes only when the thread is gone.
    let slot = unsafe { SLOTS.get(&task.address()) }.copied()?;
    ACCOUNTS.get_ptr_mut(slot).map(Place)
}

/// The same where the thread's ids are known. An account that another thread left behind, whose
/// last switch was not seen, is closed.
#[inline(always)]
pub fn find_of(task: Task, tgid: u32, tid: u32) -> Option<Place> {
    let place = find(task)?;
    let known = get!(place, tid);
    // While an `exec` makes a thread its process's first, it has either id, and so has the first.
    if get!(place, tgid) == tgid && (known == tid || tid == tgid || known == tgid) {
        return Some(place);
    }
    close(task);
    None
}

/// Open an account. When somebody else did meanwhile, theirs counts.
#[inline(always)]
pub fn open(task: Task, opening: Opening, fill: impl FnOnce(Place)) -> Option<Place> {
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
    set!(place, marked, 0);
    fill(place);
    if off_state.is_some() {
        set!(place, generation, generation + 1);
    }
    // Only now can others find it; until it has a thread's id, user space passes it over.
    if SLOTS.insert(&task.address(), &slot, NO_EXIST).is_err() {
        give_back(slot, place);
        return find(task);
    }
    set!(place, tid, tid);
    Some(place)
}

/// The thread is gone.
#[inline(always)]
pub fn close(task: Task) {
    // SAFETY: as in `find`.
    let Some(slot) = unsafe { SLOTS.get(&task.address()) }.copied() else {
        return;
    };
    let _ = SLOTS.remove(&task.address());
    if let Some(place) = ACCOUNTS.get_ptr_mut(slot).map(Place) {
        give_back(slot, place);
    }
}

/// A place that nobody has: one that was given back, else one never used.
#[inline(always)]
fn free() -> Option<(u32, Place)> {
    let slot = match FREE.pop() {
        Ok(Some(slot)) => slot,
        _ => {
            let used = USED.get_ptr_mut(0)?;
            // SAFETY: the map's value lives as long as the programs, and is only counted up.
            unsafe {
                let places = &raw mut (*used).places;
                if places.read_volatile() >= u64::from(MAX_ACCOUNTS) {
                    return None;
                }
                // Relaxed, LLVM takes the instruction that gives nothing back.
                atomic_xadd::<u64, u64, { AtomicOrdering::SeqCst }>(places, 1) as u32
            }
        }
    };
    // Past the end, by two that raced for the last place, there is no entry.
    ACCOUNTS
        .get_ptr_mut(slot)
        .map(|account| (slot, Place(account)))
}

#[inline(always)]
fn give_back(slot: u32, place: Place) {
    set!(place, tid, 0);
    // Even, and not what it was: whoever reads this place at the moment notices.
    set!(place, generation, (get!(place, generation) | 1) + 1);
    let _ = FREE.push(slot, 0);
}
