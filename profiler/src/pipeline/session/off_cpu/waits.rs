//! What a thread off the CPU waits for, by its account and its descriptors.

use profiler_common::account::{Account, STATE_STOPPED};

use super::{Met, OffCpu};
use crate::{
    pipeline::session::{Kit, member::Member},
    sample::Wait,
    source::{Accounts, Slot},
    target::{FdKind, TaskState, is_in_doubt, wait_of},
    words::{Generation, Tid},
};

/// So many rounds what a thread waits for is asked again where the kernel did not say so.
pub(super) const DOUBTS: u64 = 16;

impl OffCpu {
    /// What a thread was met in, if it has not moved since and the kernel did not say what it is.
    fn in_doubt(&mut self, tid: Tid, generation: Generation) -> Option<&mut Met> {
        let met = self.sleepers.get_mut(&tid)?.met.as_mut()?;
        (met.generation == generation && is_in_doubt(met.wait)).then_some(met)
    }
}

impl Member {
    /// Ask once more what a thread waits for that has not moved since the kernel did not say so.
    /// False where there is nothing to ask.
    pub(super) fn asks_again(
        &mut self,
        kit: &mut Kit,
        accounts: &Accounts,
        slot: Slot,
        account: &Account,
    ) -> bool {
        let tid = Tid(account.tid);
        let generation = Generation(account.generation);
        if self.off.in_doubt(tid, generation).is_none() {
            return false;
        }
        let wait = self.wait(account);
        if accounts.generation(slot) == generation
            && let Some(met) = self.off.in_doubt(tid, generation)
        {
            met.wait = wait;
            if !is_in_doubt(wait) || kit.off.round > met.round + DOUBTS {
                *kit.off.place(slot) = generation;
            }
        }
        true
    }

    pub(in crate::pipeline::session) fn wait(&self, account: &Account) -> Wait {
        let state = if account.off_state & STATE_STOPPED != 0 {
            TaskState::Stopped
        } else {
            TaskState::Sleeping
        };
        let tid = Tid(account.tid);
        let kind = |fd| {
            let process = self.hold.process();
            let kind = process.and_then(|process| process.fd_kind(tid, fd).ok());
            kind.unwrap_or(FdKind::Unknown)
        };
        let is_gil = |futex| {
            let mut gils = self.python.iter().flat_map(|python| &python.gils);
            gils.any(|gil| gil.contains(futex))
        };
        let syscall = self.syscall(account);
        wait_of(syscall, account.off_args, state, is_gil, kind)
    }

    /// The system call in which a thread went off the CPU, asleep or preempted.
    pub(super) fn syscall(&self, account: &Account) -> Option<u32> {
        let syscall = u32::try_from(account.off_syscall).ok();
        match self.hold.process() {
            Some(process) => process.resumed(Tid(account.tid), syscall),
            None => syscall,
        }
    }
}
