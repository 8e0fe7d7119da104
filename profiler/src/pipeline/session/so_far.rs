//! The profile of a run that goes on: all is closed as at the end, on copies, and what was is put
//! back.

use profiler_common::account::Account;

use super::{
    Kit, Session, looks::LooksOff, member::Member, off_cpu::OffCpu, task_books::TaskBooks,
    tasks::Held,
};
use crate::{
    aggregate::{NativeAccounts, ProfileBuilder},
    pipeline::{
        books::{Gone, Received},
        people::People,
    },
    words::{MonotonicNs, Pid},
};

/// What a run has come to.
#[derive(Debug)]
pub(in crate::pipeline) struct SoFar {
    pub(in crate::pipeline) builder: ProfileBuilder,
    pub(in crate::pipeline) tasks: TaskBooks,
    pub(in crate::pipeline) received: Received,
    /// Looks at threads off the CPU, and how many of them found nothing that stayed.
    pub(in crate::pipeline) looks: (u64, u64),
    pub(in crate::pipeline) gone: Vec<Gone>,
    /// How far native frames went; none when they were not asked for.
    pub(in crate::pipeline) native: Option<NativeAccounts>,
}

/// What the end of a run would change.
struct Before {
    builder: ProfileBuilder,
    tasks: TaskBooks,
    off: LooksOff,
    members: Vec<(Pid, Kept)>,
}

/// What the end of a run changes in a process.
#[derive(Debug)]
struct Kept {
    people: People,
    off: OffCpu,
    held: Option<Held>,
}

impl Member {
    /// What the end of a run would change in it.
    fn keep(&self) -> Kept {
        Kept {
            people: self.people.clone(),
            off: self.off.clone(),
            held: self.tasks.held(),
        }
    }

    /// As if that had not been.
    fn put_back(&mut self, kept: Kept) {
        self.people = kept.people;
        self.off = kept.off;
        self.tasks.hold(kept.held);
    }
}

impl Session {
    /// What the run would have come to if it were over now.
    pub(in crate::pipeline) fn so_far(&mut self, accounts: &[Account], now: MonotonicNs) -> SoFar {
        self.end_batch();
        let before = self.keep();
        self.end_off_cpu(accounts, now);
        for member in self.members.values_mut() {
            member.settle_tasks(&mut self.kit, now);
        }
        self.end_batch();
        self.meet_the_unsampled(accounts);
        let mut gone = self.gone.clone();
        gone.extend(self.members.values().map(|member| member.account(None)));
        let looks = self.looks();
        let native = self.kit.native();
        let Kit {
            builder,
            tasks,
            received,
            ..
        } = &mut self.kit;
        let so_far = SoFar {
            builder: std::mem::replace(builder, before.builder),
            tasks: std::mem::replace(tasks, before.tasks),
            received: *received,
            looks,
            gone,
            native,
        };
        self.kit.off = before.off;
        for (pid, kept) in before.members {
            if let Some(member) = self.members.get_mut(&pid) {
                member.put_back(kept);
            }
        }
        so_far
    }

    fn keep(&self) -> Before {
        let members = self.members.iter();
        Before {
            builder: self.kit.builder.clone(),
            tasks: self.kit.tasks.clone(),
            off: self.kit.off.clone(),
            members: members.map(|(pid, member)| (*pid, member.keep())).collect(),
        }
    }

    /// The run is over since `stopped`: what it came to.
    pub(in crate::pipeline) fn close(mut self, stopped: MonotonicNs) -> SoFar {
        let looks = self.looks();
        for pid in self.pids() {
            let member = self.members.get_mut(&pid);
            let ended = member.is_some_and(|member| member.ends());
            self.bury(pid, ended.then_some(stopped));
        }
        let native = self.kit.native();
        let Kit {
            builder,
            tasks,
            received,
            ..
        } = self.kit;
        SoFar {
            builder,
            tasks,
            received,
            looks,
            gone: self.gone,
            native,
        }
    }
}
