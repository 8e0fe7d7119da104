//! Threads that are born and end, as they are told, whoever has their id by then.

use super::{Kit, member::Member};
use crate::{
    wire::Times,
    words::{MonotonicNs, Tid},
};

impl Member {
    /// A thread begins to end or (`last`) has ended.
    pub(super) fn exit(
        &mut self,
        kit: &mut Kit,
        tid: Tid,
        times: Times,
        time: MonotonicNs,
        last: bool,
    ) {
        if last && self.people.is_of_former(tid) {
            return;
        }
        // Its samples are older than its end, so they are in the batch already.
        self.identify(kit);
        if last && self.people.is_younger(tid, times.opened(time)) {
            // Its id is another thread's already, which lives on.
            self.swap_former(tid);
            self.people.former_ended(tid, times, time);
            self.gone_off_cpu(kit, tid, times, time);
            self.swap_former(tid);
            return;
        }
        self.people.leave(tid, times, time);
        if last {
            self.gone_off_cpu(kit, tid, times, time);
            self.people.gone(tid, times.on_cpu);
        }
    }

    /// A new thread has this id.
    pub(super) fn make_room(&mut self, tid: Tid, time: MonotonicNs) {
        if self.people.make_room(tid, time) {
            self.off.part_with(tid);
        }
    }

    pub(super) fn swap_former(&mut self, tid: Tid) {
        self.people.swap_former(tid);
        self.off.swap_former(tid);
    }
}
