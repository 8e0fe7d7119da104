//! Accounts and looks at them, without a kernel.

use std::{fs::File, mem::offset_of, os::unix::fs::FileExt as _};

use profiler_common::account::MAX_ACCOUNTS;
use syscalls::Sysno;

use super::*;
use crate::{
    aggregate::{ProcessInfo, ProfileBuilder},
    pipeline::{
        hold::Hold,
        session::Session,
        settings::{RunSettings, Walk},
    },
    sample::Mode,
    words::Pid,
};

/// No process has it.
const PID: Pid = Pid(i32::MAX as u32);
const SLOT: Slot = Slot(3);
const ASLEEP: Generation = Generation(8);

/// The kernel's accounts as a file that is written like them.
struct Kernel {
    file: File,
    accounts: Accounts,
}

impl Kernel {
    fn new() -> Self {
        let file = tempfile::tempfile().expect("a file");
        let bytes = size_of::<Account>() * MAX_ACCOUNTS as usize;
        file.set_len(bytes as u64).expect("room");
        let accounts = Accounts::map(&file, &file).expect("a mapping");
        Self { file, accounts }
    }

    fn moves_to(&self, generation: Generation) {
        let place = SLOT.0 as usize * size_of::<Account>() + offset_of!(Account, generation);
        let word = generation.0.to_ne_bytes();
        self.file.write_all_at(&word, place as u64).expect("a word");
    }

    /// A look at the thread; what it gives has moved meanwhile.
    fn visit(
        &self,
        session: &mut Session,
        member: &mut Member,
        account: Account,
    ) -> Option<Account> {
        let due = MonotonicNs(account.since + 1_000);
        member.visit(&mut session.kit, &self.accounts, SLOT, account, due)
    }
}

/// A process that nothing can be read of, in a session of its own.
fn member() -> (Session, Member) {
    let settings = RunSettings {
        mode: Mode::Wall,
        rate_hz: 100,
        jitter: true,
        duration: None,
        walk: Walk::Auto,
        max_frames: 64,
        follow: false,
        tasks: None,
        native: None,
        timeline: false,
        began: MonotonicNs(0),
    };
    let meta = settings.meta(PID, String::new(), String::new(), MonotonicNs(0));
    let mut builder = ProfileBuilder::new(meta);
    let index = builder.process(ProcessInfo {
        pid: PID,
        parent: None,
        command: String::new(),
        python: String::new(),
    });
    let session = Session::new(builder, settings, MonotonicNs(0));
    let member = Member::new(index, Hold::later(PID), PID, MonotonicNs(0), None);
    (session, member)
}

/// A thread that sleeps in a call.
fn asleep_in(call: Sysno) -> Account {
    Account {
        generation: ASLEEP.0,
        tid: PID.0,
        tgid: PID.0,
        since: 1_000,
        off_state: 1,
        off_syscall: call as i32,
        ..Account::default()
    }
}

/// What a look says stands for the time since the thread went off: it must not have run meanwhile.
#[test]
fn what_moved_while_it_was_looked_at_is_no_look() {
    let account = asleep_in(Sysno::nanosleep);
    for (meanwhile, counts) in [(0, true), (1, false), (2, false)] {
        let (mut session, mut member) = member();
        let kernel = Kernel::new();
        kernel.moves_to(Generation(ASLEEP.0 + meanwhile));
        let moved = kernel.visit(&mut session, &mut member, account);
        assert_eq!(moved, (!counts).then_some(account), "{meanwhile}");
        let met = member.off.sleepers[&Tid(account.tid)].met;
        assert_eq!(met.map(|met| met.wait), counts.then_some(Wait::Sleep));
        let is_dealt_with = *session.kit.off.place(SLOT) == ASLEEP;
        assert_eq!(is_dealt_with, counts, "{meanwhile}");
    }
}

/// Regression: whoever was met while the kernel did not say what its wait went on with after a stop
/// was in `restart_syscall` until it woke up.
#[test]
fn what_a_wait_goes_on_with_is_asked_again_for_a_while() {
    let account = asleep_in(Sysno::restart_syscall);
    let (mut session, mut member) = member();
    let kernel = Kernel::new();
    kernel.moves_to(ASLEEP);
    let mut visits = 0;
    while *session.kit.off.place(SLOT) != ASLEEP && visits < 1_000 {
        session.kit.off.round += 1;
        visits += 1;
        let moved = kernel.visit(&mut session, &mut member, account);
        assert_eq!(moved, None);
    }
    // The first look, and as many more until there are too many.
    assert_eq!(visits, 1 + waits::DOUBTS + 1);
    assert_eq!(session.kit.off.looks(), 0, "one stretch, and it lasts");
}

/// Regression: a thread's time off the CPU counted twice when its account was read before its
/// end was told.
#[test]
fn an_account_that_outlives_its_thread_counts_once() {
    let account = Account {
        tid: 7,
        since: 1_000,
        on_cpu_ns: 100,
        blocked_ns: 50,
        ..Account::default()
    };
    let mut off = OffCpu::default();
    assert!(!off.is_over(&account));
    off.note_over(Tid(7), MonotonicNs(850));
    assert!(off.is_over(&account));
    // It went on and off a CPU once more before it ended.
    assert!(off.is_over(&Account {
        since: 1_300,
        on_cpu_ns: 300,
        blocked_ns: 150,
        ..account
    }));
    // The next one with this id.
    assert!(!off.is_over(&Account {
        since: 2_000,
        ..account
    }));
}

/// Regression: threads that are woken thousands of times a second were never met waiting for a
/// CPU, since looks are late by more than such a wait lasts.
#[test]
fn what_began_after_a_look_was_due_is_met_as_it_is_now() {
    const DUE: u64 = 1_000;
    // The state it went off with, since when it is off, when it was woken.
    let cases = [
        (1, 900, 0, Meeting::Blocked),
        (1, 900, 950, Meeting::Runnable),
        (1, 900, 1_050, Meeting::Blocked),
        (1, 1_010, 0, Meeting::Blocked),
        (1, 1_010, 1_050, Meeting::Runnable),
        (0, 900, 0, Meeting::Runnable),
        (0, 1_010, 0, Meeting::Preempted),
    ];
    for (off_state, since, woken_ns, expected) in cases {
        let account = Account {
            off_state,
            since,
            woken_ns,
            ..Account::default()
        };
        assert_eq!(meeting(&account, MonotonicNs(DUE)), expected, "{account:?}");
    }
}
