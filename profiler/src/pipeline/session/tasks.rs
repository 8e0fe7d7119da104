//! The tasks of a process in `wall` mode: every one that is alive counts once a period, whether its
//! loop's thread runs, waits or sleeps.
//!
//! A task changes only while its loop's thread runs. So all of them are read while that thread is
//! off the CPU, and as long as its generation stays they still are what they were: tasks that wait
//! on cost nothing. What a snapshot found counts once it is known how long it lasted.

mod held;
mod ran;
mod stack;
mod switched;

use std::sync::Arc;

use profiler_common::account::Account;
use rustc_hash::{FxHashMap, FxHashSet};

use self::held::Group;
pub(super) use self::held::Held;
use self::ran::Names;
pub(super) use self::ran::Ran;
use self::stack::{Made, NO_NAME};
use super::{Kit, member::Member, off_cpu::meeting};
use crate::{
    aggregate::{Place, ThreadIndex, ThreadInfo},
    pipeline::{absence::Meeting, people::Stranger},
    sample::{Activity, FramesFrom, Wait},
    source::{Accounts, Slot},
    sys,
    tasks::{LoopKind, RunningLoop, Snapshot, Task, TaskReader, TaskStatus},
    words::{
        DurationNs, Generation, MonotonicNs, Pid, PthreadId, RemoteAddr, TaskAddr, ThreadStateAddr,
        Tid,
    },
};

/// How often tasks are read again whose loop's thread ran meanwhile.
const ATTEMPTS: usize = 3;
/// Reading tasks may take one part in so many of the time.
const PART: u64 = 20;
/// How often it is asked whether other threads have come to run a loop, and how often `_asyncio`'s
/// own table is looked for.
const NEW_LOOPS: DurationNs = DurationNs(100_000_000);
const TABLE: DurationNs = DurationNs(1_000_000_000);
/// How often greenlets are looked for among all objects, and which part of the time that may take.
const EVERYWHERE: DurationNs = DurationNs(1_000_000_000);
const EVERYWHERE_PART: u64 = 50;

/// What a run knows of the tasks of one process.
#[derive(Debug, Default)]
pub(super) struct MemberTasks {
    reader: Option<TaskReader>,
    has_table: bool,
    table_again: MonotonicNs,
    /// No sooner are greenlets looked for among all objects.
    everywhere_again: MonotonicNs,
    held: Option<Held>,
    /// The loops of the last snapshot, and when their threads were still before it was begun.
    rested: FxHashMap<RemoteAddr, (Slot, Generation)>,
    /// No sooner are they read again.
    not_before: MonotonicNs,
    /// The stack of each task as it was read last.
    stacks: FxHashMap<TaskAddr, (Arc<Task>, Made)>,
    /// Who is who, where tasks are met while they run.
    names: Names,
    /// Stands for the thread of tasks whose loop runs in none.
    no_thread: Option<ThreadIndex>,
}

/// All tasks at one moment, and the threads of their loops.
struct Shot {
    snapshot: Arc<Snapshot>,
    /// The threads as they were first met: what they did when the look was due, which an attempt
    /// that waits for them to rest, or not to, would be biased for.
    met: FxHashMap<RemoteAddr, LoopThread>,
    threads: FxHashMap<RemoteAddr, LoopThread>,
    /// Loops whose threads ran meanwhile, or may have.
    restless: FxHashSet<RemoteAddr>,
}

/// The thread in which a loop runs.
#[derive(Clone, Copy, Debug)]
struct LoopThread {
    kind: LoopKind,
    state: ThreadStateAddr,
    slot: Slot,
    account: Account,
}

impl MemberTasks {
    /// What was found last.
    pub(super) fn held(&self) -> Option<Held> {
        self.held.clone()
    }

    /// That is what was found last.
    pub(super) fn hold(&mut self, held: Option<Held>) {
        self.held = held;
    }

    /// Another program from now on, which has none.
    pub(super) fn forget_python(&mut self) {
        self.reader = None;
        self.has_table = false;
        self.table_again = MonotonicNs(0);
        self.everywhere_again = MonotonicNs(0);
        self.stacks.clear();
        self.rested.clear();
        self.names = Names::default();
    }
}

impl Member {
    /// A round is due: all tasks count once.
    pub(super) fn look_at_tasks(&mut self, kit: &mut Kit, accounts: &Accounts, due: MonotonicNs) {
        if self.tasks_are_still(accounts, due) {
            kit.tasks.accounts.unchanged += 1;
            return;
        }
        // What was found last stands for this time too.
        if due < self.tasks.not_before {
            return;
        }
        self.open(kit);
        self.look_everywhere();
        let began = sys::thread_cpu();
        let shot = self.shoot(accounts, due);
        self.settle_tasks(kit, due);
        let Some(shot) = shot else {
            return;
        };
        self.tasks.held = Some(self.hold_tasks(kit, accounts, &shot, due));
        let took = sys::thread_cpu().0.saturating_sub(began.0);
        self.tasks.not_before = MonotonicNs(due.0 + took.saturating_mul(PART - 1));
    }

    /// Whether no loop's thread has run since the last snapshot.
    fn tasks_are_still(&mut self, accounts: &Accounts, now: MonotonicNs) -> bool {
        let Some(held) = &mut self.tasks.held else {
            return false;
        };
        if !held.is_still(accounts) {
            return false;
        }
        if now < held.loops_again {
            return true;
        }
        held.loops_again = MonotonicNs(now.0 + NEW_LOOPS.0);
        let switches = switches_of(accounts, self.pid);
        std::mem::replace(&mut held.switches, switches) == switches
    }

    /// Makes the reader, and again once the target's own table is there.
    fn ready_reader(&mut self, now: MonotonicNs) {
        let Some(python) = &self.python else { return };
        let (runtime, tasks) = (&python.runtime, &mut self.tasks);
        if tasks.reader.is_some() && (tasks.has_table || now < tasks.table_again) {
            return;
        }
        let table = self.hold.asyncio_table(runtime);
        // Before 3.14 there is none to wait for.
        tasks.has_table = table.is_some() || !runtime.version().is_at_least(14);
        tasks.table_again = MonotonicNs(now.0 + TABLE.0);
        if table.is_some() || tasks.reader.is_none() {
            tasks.reader = Some(TaskReader::new(runtime, table.as_ref()));
        }
    }

    /// Looks for greenlets among all objects, if that is due.
    fn look_everywhere(&mut self) {
        let began = sys::monotonic();
        if began < self.tasks.everywhere_again {
            return;
        }
        self.ready_reader(began);
        let (Some(python), tasks) = (&self.python, &mut self.tasks) else {
            return;
        };
        let Some(reader) = &mut tasks.reader else {
            return;
        };
        // What cannot be read now can be the next time.
        let _ = reader.look_everywhere(&python.runtime, self.hold.memory());
        let now = sys::monotonic();
        let took = now.0.saturating_sub(began.0);
        let pause = took.saturating_mul(EVERYWHERE_PART).max(EVERYWHERE.0);
        tasks.everywhere_again = MonotonicNs(now.0.saturating_add(pause));
    }

    /// Reads all tasks, again where their loop's thread ran meanwhile.
    fn shoot(&mut self, accounts: &Accounts, now: MonotonicNs) -> Option<Shot> {
        self.ready_reader(now);
        let python = self.python.as_ref()?;
        let (memory, runtime) = (self.hold.memory(), &python.runtime);
        let reader = self.tasks.reader.as_mut()?;
        let mut shot: Option<Shot> = None;
        for _ in 0..ATTEMPTS {
            let before = reader.loops(runtime, memory).ok()?;
            let threads = threads_of(accounts, self.pid, &before);
            let rested = &self.tasks.rested;
            let has_rested = |running: &RunningLoop| {
                let still = rested.get(&running.event_loop);
                still.is_some_and(|(slot, still)| {
                    let thread = threads.get(&running.event_loop);
                    thread.is_some_and(|it| it.slot == *slot)
                        && accounts.generation(*slot) == *still
                })
            };
            let snapshot = reader.snapshot_since(runtime, memory, &has_rested);
            let snapshot = snapshot.ok()?;
            let involved = before.iter().chain(&snapshot.loops);
            let restless: FxHashSet<RemoteAddr> = involved
                .map(|running| running.event_loop)
                .filter(|event_loop| {
                    let thread = threads.get(event_loop);
                    !thread.is_some_and(|thread| thread.was_still(accounts))
                })
                .collect();
            let is_on_cpu = |event_loop| threads.get(event_loop).is_some_and(LoopThread::is_on_cpu);
            self.tasks.rested = threads
                .iter()
                .filter(|(event_loop, _)| !restless.contains(event_loop))
                .map(|(event_loop, thread)| {
                    let still = Generation(thread.account.generation);
                    (*event_loop, (thread.slot, still))
                })
                .collect();
            // What runs now will go on running, as a rule.
            let hopeless = restless.iter().all(is_on_cpu);
            shot = Some(Shot {
                snapshot,
                met: shot.map_or_else(|| threads.clone(), |first| first.met),
                threads,
                restless,
            });
            if hopeless {
                break;
            }
        }
        shot
    }

    /// What a snapshot found, as it will count.
    fn hold_tasks(
        &mut self,
        kit: &mut Kit,
        accounts: &Accounts,
        shot: &Shot,
        due: MonotonicNs,
    ) -> Held {
        let Shot {
            snapshot,
            met,
            threads,
            restless,
        } = shot;
        kit.tasks.read(snapshot);
        let mut held = Held::new(due, kit.off.round);
        held.loops_again = MonotonicNs(due.0 + NEW_LOOPS.0);
        held.switches = switches_of(accounts, self.pid);
        for (event_loop, thread) in threads {
            // A restless one is read anew at the next look.
            let seen = if restless.contains(event_loop) {
                Generation(u64::MAX)
            } else {
                Generation(thread.account.generation)
            };
            held.watch.push((thread.slot, seen));
        }
        let stacks = self.stacks_of_tasks(kit, shot);
        let mut indices: FxHashMap<RemoteAddr, ThreadIndex> = FxHashMap::default();
        for (task, made) in snapshot.tasks.iter().zip(stacks) {
            let on = threads.get(&task.event_loop);
            let thread = *indices
                .entry(task.event_loop)
                .or_insert_with(|| self.thread_of(kit, on));
            let frames_from = if restless.contains(&task.event_loop) {
                FramesFrom::Estimated
            } else {
                FramesFrom::User
            };
            let first = met.get(&task.event_loop).or(on);
            let activity = if made.is_named {
                let status = status_of(task, made.runs, frames_from);
                self.activity_of(status, first, due)
            } else {
                held.note_unread(NO_NAME);
                Activity::Unknown
            };
            held.add(
                Group {
                    place: Place {
                        thread,
                        stack: made.stack,
                        frames_from,
                        behind: None,
                    },
                    activity,
                },
                1,
            );
        }
        let unread = snapshot.unreadable.iter().map(|(_, why)| (why.kind(), 1));
        let left_out = Some(("there are too many", snapshot.left_out));
        let left_out = left_out.filter(|(_, n)| *n > 0);
        for (reason, count) in unread.chain(left_out) {
            let thread = self.thread_of(kit, None);
            held.unread(kit, thread, reason, count);
        }
        kit.tasks.take_people(&kit.builder);
        held
    }

    /// The thread of a loop, or what stands for it.
    fn thread_of(&mut self, kit: &mut Kit, thread: Option<&LoopThread>) -> ThreadIndex {
        let Some(LoopThread { state, account, .. }) = thread else {
            return *self.tasks.no_thread.get_or_insert_with(|| {
                kit.builder.thread(ThreadInfo {
                    pid: self.pid,
                    tid: Tid(0),
                    name: String::from("[no thread]"),
                    python: true,
                })
            });
        };
        let stranger = Stranger::of_account(account, Some(*state));
        self.people.index(&self.hold, &mut kit.builder, stranger)
    }

    fn activity_of(
        &self,
        status: TaskStatus,
        thread: Option<&LoopThread>,
        due: MonotonicNs,
    ) -> Activity {
        match (status, thread) {
            (TaskStatus::Waiting, _) => Activity::Blocked(Wait::Await),
            (TaskStatus::Runnable, _) => Activity::Runnable,
            (TaskStatus::Unknown, _) | (TaskStatus::Running, None) => Activity::Unknown,
            (TaskStatus::Running, Some(thread)) if thread.is_on_cpu() => {
                // It may have got its CPU only since the look was due.
                if thread.account.since > due.0 {
                    Activity::Runnable
                } else {
                    Activity::OnCpu
                }
            }
            (TaskStatus::Running, Some(LoopThread { account, .. })) => {
                match meeting(account, due) {
                    // It had its CPU until we came.
                    Meeting::Preempted => Activity::OnCpu,
                    Meeting::Runnable => Activity::Runnable,
                    Meeting::Blocked => Activity::Blocked(self.wait(account)),
                }
            }
        }
    }

    /// What was found last lasted until now.
    pub(super) fn settle_tasks(&mut self, kit: &mut Kit, now: MonotonicNs) {
        if let Some(held) = self.tasks.held.take() {
            held.count(kit, self.pid, now);
        }
    }
}

/// How far a task has come; `runs` says that its coroutine is on its thread's stack.
fn status_of(task: &Task, runs: bool, read: FramesFrom) -> TaskStatus {
    match task.status {
        _ if runs => TaskStatus::Running,
        // One after the other they were on the thread's stack while all were read; that stack was
        // walked once.
        TaskStatus::Running if read == FramesFrom::Estimated => TaskStatus::Runnable,
        status => status,
    }
}

impl LoopThread {
    const fn is_on_cpu(&self) -> bool {
        self.account.generation & 1 != 0
    }

    /// Whether it has been off the CPU since its account was read.
    fn was_still(&self, accounts: &Accounts) -> bool {
        !self.is_on_cpu() && accounts.generation(self.slot) == Generation(self.account.generation)
    }
}

fn threads_of(
    accounts: &Accounts,
    pid: Pid,
    loops: &[RunningLoop],
) -> FxHashMap<RemoteAddr, LoopThread> {
    let mut threads = FxHashMap::default();
    if loops.is_empty() {
        return threads;
    }
    for slot in accounts.slots() {
        let Some(account) = accounts.read(slot).filter(|it| it.tgid == pid.0) else {
            continue;
        };
        let own = |running: &&RunningLoop| running.pthread_id == PthreadId(account.tls_base);
        for running in loops.iter().filter(own) {
            let thread = LoopThread {
                kind: running.kind,
                state: running.state,
                slot,
                account,
            };
            threads.insert(running.event_loop, thread);
        }
    }
    threads
}

/// How often the threads of a process went on and off their CPUs, all together.
fn switches_of(accounts: &Accounts, pid: Pid) -> u64 {
    let own = accounts.slots().filter_map(|slot| accounts.read(slot));
    let own = own.filter(|account| account.tgid == pid.0);
    own.fold(0, |sum, account| sum.wrapping_add(account.generation))
}
