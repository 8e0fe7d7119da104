//! What a thread off the CPU waits for, by its account and its descriptors.

use profiler_common::account::{Account, STATE_STOPPED};

use crate::{
    pipeline::session::member::Member,
    sample::Wait,
    target::{FdKind, TaskState, wait_of},
    words::{RemoteAddr, Tid},
};

impl Member {
    pub(in crate::pipeline::session) fn wait(
        &self,
        account: &Account,
        is_gil: impl Fn(RemoteAddr) -> bool,
    ) -> Wait {
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
