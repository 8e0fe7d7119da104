//! The rounds over all threads of all processes: whom to look at, and whom again.
//!
//! How one of them is looked at is in `off_cpu`.

use profiler_common::account::Account;

use super::Session;
use crate::{
    source::{Accounts, Slot},
    words::{Generation, MonotonicNs, Pid},
};

/// How often a thread that moved is looked at again, each time after all others.
const PASSES: usize = 10;

/// What the rounds over all threads have in common.
#[derive(Clone, Debug, Default)]
pub(super) struct LooksOff {
    /// By slot: the generation that was dealt with.
    places: Vec<Generation>,
    /// Rounds so far.
    pub(super) round: u64,
    pub(super) looks: u64,
    pub(super) moved: u64,
}

impl LooksOff {
    pub(super) const fn looks(&self) -> u64 {
        self.looks
    }

    pub(super) const fn moved(&self) -> u64 {
        self.moved
    }

    /// More is known now than when threads were looked at: all are to be again.
    pub(super) fn forget(&mut self) {
        self.places.clear();
    }

    /// What was dealt with of a place last.
    pub(super) fn place(&mut self, slot: Slot) -> &mut Generation {
        let place = slot.0 as usize;
        if place >= self.places.len() {
            self.places.resize(place + 1, Generation(u64::MAX));
        }
        &mut self.places[place]
    }
}

impl Session {
    /// One round: every thread that is off the CPU counts once.
    pub(in crate::pipeline) fn look_off_cpu(&mut self, accounts: &Accounts, due: MonotonicNs) {
        self.kit.off.round += 1;
        let mut again = Vec::new();
        for slot in accounts.slots() {
            if *self.kit.off.place(slot) != accounts.generation(slot) {
                again.extend(
                    self.visit(accounts, slot, due)
                        .map(|account| (slot, account)),
                );
            }
        }
        for _ in 1..PASSES {
            if again.is_empty() {
                break;
            }
            again.retain(|(slot, _)| match accounts.read(*slot) {
                // On a CPU at the moment: later, perhaps.
                Some(account) if account.generation & 1 != 0 => true,
                _ => self.visit(accounts, *slot, due).is_some(),
            });
        }
        for (_, account) in again {
            if let Some(member) = self.members.get_mut(&Pid(account.tgid)) {
                member.gave_up(&mut self.kit, &account, due);
            }
        }
        self.end_batch();
        if self.kit.settings.tasks.is_some() {
            for member in self.members.values_mut() {
                member.look_at_tasks(&mut self.kit, accounts, due);
            }
        }
    }

    /// The run is over: what still lasts counts up to now.
    pub(in crate::pipeline) fn end_off_cpu(&mut self, accounts: &[Account], now: MonotonicNs) {
        if !self.kit.settings.mode.looks_off_cpu() {
            return;
        }
        for account in accounts {
            if let Some(member) = self.members.get_mut(&Pid(account.tgid)) {
                member.end_off_cpu(&mut self.kit, account, now);
            }
        }
    }

    /// Deal with what has become of a place since the last round. What is returned moved while it
    /// was looked at.
    fn visit(&mut self, accounts: &Accounts, slot: Slot, due: MonotonicNs) -> Option<Account> {
        let generation = accounts.generation(slot);
        let account = accounts.read(slot);
        let Some((account, member)) =
            account.and_then(|it| Some((it, self.members.get_mut(&Pid(it.tgid))?)))
        else {
            *self.kit.off.place(slot) = generation;
            return None;
        };
        member.visit(&mut self.kit, accounts, slot, account, due)
    }
}
