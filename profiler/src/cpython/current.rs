//! Which of its states a thread runs now, when it has several: one for each interpreter it has
//! entered.
//!
//! From 3.12 on the thread's own storage names the state that was last made current in it. Before,
//! it names its first one for good, and only the runtime's own word for who holds the GIL tells;
//! of a thread without the GIL it is then not known, and its first one has to do. Not here: which
//! kernel thread it is (see [`crate::threads`]).

use profiler_common::plan::Plan;
use rustc_hash::FxHashMap;

use super::plan;
use super::runtime::{Runtime, ThreadState};
use crate::target::Memory;
use crate::words::{PthreadId, RemoteAddr, ThreadStateAddr};

/// The version from which on a thread's storage follows it from interpreter to interpreter.
const STORAGE_FOLLOWS: u8 = 12;

/// Puts the current state of each thread behind its other ones.
pub(super) fn last(runtime: &Runtime, memory: &dyn Memory, states: &mut [ThreadState]) {
    let mut places: FxHashMap<PthreadId, Places> = FxHashMap::default();
    for (index, state) in states.iter().enumerate() {
        let place = places.entry(state.pthread_id).or_default();
        place.several |= place.last.is_some();
        place.last = Some(index);
    }
    places.retain(|_, place| place.several);
    if places.is_empty() {
        return;
    }
    let hops = plan::hops(runtime, memory);
    let holder = runtime.current_holder(memory).ok().flatten();
    for (thread, place) in &mut places {
        place.wanted = if runtime.version().is_at_least(STORAGE_FOLLOWS) {
            by_storage(memory, *thread, &hops)
        } else {
            holder
        };
    }
    for index in 0..states.len() {
        let state = &states[index];
        if let Some(place) = places.get(&state.pthread_id)
            && place.wanted == Some(state.addr)
            && let Some(last) = place.last
        {
            states.swap(index, last);
            places.remove(&states[last].pthread_id);
        }
    }
}

/// The state that a thread runs, by its own storage and the way there that its plan has; none where
/// that does not follow it from interpreter to interpreter.
pub fn current_state(
    runtime: &Runtime,
    plan: &Plan,
    memory: &dyn Memory,
    thread: PthreadId,
) -> Option<ThreadStateAddr> {
    let hops = plan.state.hops.get(..plan.state.n_hops as usize)?;
    let follows = runtime.version().is_at_least(STORAGE_FOLLOWS) && thread.0 != 0;
    let found = follows.then(|| by_storage(memory, thread, hops)).flatten();
    found.filter(|state| state.0 != 0)
}

/// Where a thread's states are, and which of them it runs.
#[derive(Default)]
struct Places {
    last: Option<usize>,
    several: bool,
    wanted: Option<ThreadStateAddr>,
}

/// Along the same way as the kernel program.
fn by_storage(memory: &dyn Memory, thread: PthreadId, hops: &[i64]) -> Option<ThreadStateAddr> {
    if hops.is_empty() {
        return None;
    }
    let mut at = RemoteAddr::from(thread);
    for hop in hops {
        at = memory
            .pointer(RemoteAddr(at.0.wrapping_add_signed(*hop)))
            .ok()?;
    }
    Some(ThreadStateAddr(at.0))
}
