//! One run in progress: events in, a growing profile out.
//!
//! It waits for nothing and sleeps never; `run` calls it when there is something to do. What is
//! of one process is in `member`; here they come, go and get their events.

mod codes;
mod lives;
mod looks;
mod member;
mod native;
mod off_cpu;
mod pending;
mod plans;
mod so_far;
mod task_books;
mod tasks;

use std::collections::{BTreeMap, BTreeSet};

use profiler_common::account::Account;

use looks::LooksOff;
use member::Member;
use native::NativeBooks;
pub(super) use so_far::SoFar;
use task_books::TaskBooks;

use super::{
    attach::{AttachError, Attached},
    books::{Gone, Received},
    hold::Hold,
    settings::RunSettings,
    urgency::Urgency,
};
use crate::{
    aggregate::{ProcessIndex, ProcessInfo, ProfileBuilder},
    cpython::{CpythonError, Runtime},
    native::{Detail, LiveSymbols},
    pystack::Walker,
    source::{Kernel, KernelError},
    target::Memory,
    wire::Event,
    words::{MonotonicNs, Pid, Tid},
};

/// What `--mode gil` is told of a free-threaded build.
pub(super) fn no_gil_to_show(pid: Pid) -> String {
    format!(
        "process {pid} is a free-threaded build that runs without a GIL, so `--mode gil` has nothing to show of it unless one is switched on meanwhile; `--mode wall` shows what its threads wait for"
    )
}

/// As many processes as cost nothing to look after.
const SMALL: usize = 4;

/// What all processes of a run use together.
#[derive(Debug)]
pub(super) struct Kit {
    pub(super) builder: ProfileBuilder,
    pub(super) settings: RunSettings,
    pub(super) received: Received,
    /// What is known of tasks, where they are asked for.
    pub(super) tasks: TaskBooks,
    symbols: LiveSymbols,
    walker: Walker,
    off: LooksOff,
    native: NativeBooks,
    had_python: bool,
    /// Whether each sample is told as soon as it comes.
    is_urgent: bool,
}

impl Kit {
    /// An interpreter was found in a process; the first one is the profile's.
    fn met_python(&mut self, process: ProcessIndex, runtime: &Runtime) {
        let version = runtime.version().to_string();
        if !self.had_python {
            self.builder.python(&version, runtime.build().key());
        }
        self.had_python = true;
        self.builder.process_python(process, &version);
    }
}

/// Everything that lives as long as a run.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) kit: Kit,
    /// The processes that are there now.
    members: BTreeMap<Pid, Member>,
    /// Those that were.
    gone: Vec<Gone>,
    /// Those that were there before, as children of others.
    found: BTreeSet<Pid>,
    since: MonotonicNs,
    urgency: Urgency,
}

impl Session {
    pub(super) fn new(builder: ProfileBuilder, settings: RunSettings, since: MonotonicNs) -> Self {
        let detail = match settings.native {
            Some(_) => Detail::Lines,
            None => Detail::Symbols,
        };
        Self {
            kit: Kit {
                tasks: TaskBooks::new(ProfileBuilder::new(builder.meta().clone())),
                builder,
                settings,
                received: Received::default(),
                symbols: LiveSymbols::new(detail),
                walker: Walker::default(),
                off: LooksOff::default(),
                native: NativeBooks::default(),
                had_python: false,
                is_urgent: false,
            },
            members: BTreeMap::new(),
            gone: Vec::new(),
            found: BTreeSet::new(),
            since,
            urgency: Urgency::new(since),
        }
    }

    /// Profile a process from now on, with its interpreter if that is known.
    pub(super) fn begin(
        &mut self,
        kernel: &mut Kernel,
        attached: Attached,
        parent: Option<Pid>,
        command: String,
        runtime: Option<Runtime>,
    ) -> Result<(), KernelError> {
        let pid = attached.process.pid();
        let index = self.kit.builder.process(ProcessInfo {
            pid,
            parent,
            command,
            python: String::new(),
        });
        let now = crate::sys::monotonic();
        let mut member = Member::new(index, Hold::on(attached), pid, now, None);
        match runtime {
            Some(runtime) => member.plan_with(&mut self.kit, kernel, runtime)?,
            None => member.plan_without_python(&self.kit, kernel)?,
        }
        self.members.insert(pid, member);
        Ok(())
    }

    /// A child of a process of the run that was there before.
    pub(super) fn find(&mut self, kernel: &mut Kernel, pid: Pid, parent: Pid) {
        self.found.insert(pid);
        let attached = match Attached::open(pid) {
            Ok(attached) => attached,
            Err(error) => return log::debug!("not followed: {error}"),
        };
        let command = attached.process.command_line().unwrap_or_default();
        let runtime = attached.discover().ok();
        let command = command.join(" ");
        if let Err(error) = self.begin(kernel, attached, Some(parent), command, runtime) {
            log::warn!("process {pid} is not followed: {error}");
            self.kit.received.not_followed += 1;
        }
    }

    /// Whether a process is one of the run's, or was tried.
    pub(super) fn knows(&self, pid: Pid) -> bool {
        self.members.contains_key(&pid) || self.found.contains(&pid)
    }

    /// The processes that are there now.
    pub(super) fn pids(&self) -> Vec<Pid> {
        self.members.keys().copied().collect()
    }

    /// Take one event.
    pub(super) fn event(&mut self, event: Event) {
        match event {
            Event::Tick(tick) => {
                self.adopt(tick.pid, tick.time);
                match self.members.get_mut(&tick.pid) {
                    Some(member) => member.tick(&mut self.kit, &tick),
                    None => self.kit.received.unknown_process += u64::from(tick.periods),
                }
            }
            Event::Stack(stack) => self.kit.native.arrivals.bring(stack),
            Event::Fork {
                parent,
                pid,
                tid,
                time,
            } if pid == parent => {
                if let Some(member) = self.members.get_mut(&pid) {
                    member.make_room(tid, time);
                }
            }
            Event::Fork {
                parent, pid, time, ..
            } => self.born(parent, pid, time),
            Event::Exec {
                pid,
                old,
                name,
                time,
            } => {
                self.end_batch_of(pid);
                if let Some(member) = self.members.get_mut(&pid) {
                    member.exec(&mut self.kit, old, &name, time);
                }
            }
            // Who has its id now has another end.
            Event::Exit { replaced: true, .. } => {}
            Event::Exit {
                time,
                pid,
                tid,
                times,
                last,
                process,
                ..
            } => {
                let Some(member) = self.members.get_mut(&pid) else {
                    return;
                };
                member.exit(&mut self.kit, tid, times, time, last);
                if let Some(status) = process {
                    member.ends_with(status, time);
                    if last {
                        self.bury(pid, Some(time));
                    }
                }
            }
        }
    }

    /// A child that is followed.
    fn born(&mut self, parent: Pid, pid: Pid, time: MonotonicNs) {
        if self.members.get(&pid).is_some_and(|it| it.since > time) {
            // It was found before its birth was told.
            return;
        }
        // Whoever had this id is over, though nobody has said so.
        self.bury(pid, Some(time));
        let living = self.members.len();
        let Some(from) = self.members.get_mut(&parent) else {
            return self.adopt(pid, time);
        };
        let before = self.kit.builder.process_info(from.index);
        let command = before.map_or_else(String::new, |info| info.command.clone());
        let index = self.kit.builder.process(ProcessInfo {
            pid,
            parent: Some(parent),
            command,
            python: String::new(),
        });
        let mut child = from.child(index, pid, time, living);
        if let Some(python) = &child.python {
            self.kit.met_python(index, &python.runtime);
        }
        child.people.make_room(Tid(pid.0), time);
        self.members.insert(pid, child);
    }

    /// The kernel follows a process whose birth we have missed.
    fn adopt(&mut self, pid: Pid, time: MonotonicNs) {
        if !self.kit.settings.follow || self.members.contains_key(&pid) {
            return;
        }
        let index = self.kit.builder.process(ProcessInfo {
            pid,
            parent: None,
            command: String::new(),
            python: String::new(),
        });
        let member = Member::new(index, Hold::later(pid), pid, time, None);
        self.members.insert(pid, member);
    }

    /// A process is over: the books keep what they need.
    fn bury(&mut self, pid: Pid, ended: Option<MonotonicNs>) {
        self.end_batch_of(pid);
        let Some(mut member) = self.members.remove(&pid) else {
            return;
        };
        member.settle_tasks(&mut self.kit, ended.unwrap_or_else(crate::sys::monotonic));
        self.kit.symbols.forget(pid);
        if ended.is_some() {
            self.kit.builder.process_ended(pid);
        }
        let gone = member.account(ended);
        match self.gone.last_mut() {
            // Those beyond the profile's limit share a place.
            Some(last) if last.index == gone.index => last.absorb(gone),
            _ => self.gone.push(gone),
        }
    }

    /// The end of a batch of one process. For a child that was over before it could be opened, its
    /// parent says whether the codes are what they are taken for; and it learns those that nobody
    /// had.
    fn end_batch_of(&mut self, pid: Pid) {
        let Some(mut member) = self.members.remove(&pid) else {
            return;
        };
        let parent = member.kin.and_then(|kin| {
            let parent = self.members.get_mut(&kin.pid)?;
            parent.hold.check();
            (parent.is_parent_of(kin) && parent.hold.is_alive()).then_some(parent)
        });
        let judge = parent.as_ref().filter(|_| member.was_missed());
        let judge: Option<&dyn Memory> = judge.map(|parent| parent.hold.memory());
        member.end_batch(&mut self.kit, judge);
        let unknown = member.take_unknown();
        if let Some(parent) = parent {
            parent.learn_codes(&unknown);
        }
        self.members.insert(pid, member);
    }

    /// The batch is over for everybody.
    pub(super) fn end_batch(&mut self) {
        let busy = self.members.values().filter(|member| member.has_batch());
        let busy: Vec<Pid> = busy.map(|member| member.pid).collect();
        for pid in busy {
            self.end_batch_of(pid);
        }
    }

    /// What is due between two batches: interpreters that are looked for, plans that are not right
    /// any more, thread states that the kernel does not find.
    pub(super) fn look_around(&mut self, kernel: &mut Kernel) -> Result<(), KernelError> {
        let now = crate::sys::monotonic();
        for member in self.members.values_mut() {
            member.correct_plan(&self.kit, kernel)?;
            if member.python.is_none() && member.search.is_due(now) {
                member.open(&mut self.kit);
                match member.hold.discover() {
                    Some(Ok(runtime)) => member.plan_with(&mut self.kit, kernel, runtime)?,
                    failed => {
                        note(failed.and_then(Result::err));
                        member.search.failed(crate::sys::monotonic());
                    }
                }
            }
            member.fill_states(kernel)?;
        }
        Ok(())
    }

    /// Whether each sample is to be told at once, because programs run what was not known a moment
    /// ago: that may be gone as soon as it has come.
    pub(super) fn is_urgent(&mut self, now: MonotonicNs) -> bool {
        let members = self.members.values();
        let news = members.map(Member::news).sum();
        self.kit.is_urgent = self.urgency.is_urgent(news, now);
        self.kit.is_urgent
    }

    /// Whether some program is young, so that much is still to be learned of it.
    pub(super) fn has_young(&self) -> bool {
        let now = crate::sys::monotonic();
        let mut members = self.members.values();
        members.any(|member| member.search.is_young(now))
    }

    /// Now and then, and at the end: names of threads that had none yet.
    pub(super) fn ask_again(&mut self) {
        for member in self.members.values_mut() {
            member.ask_again(&mut self.kit);
        }
    }

    /// Now and then: bury those whose end was not told.
    pub(super) fn miss_the_ended(&mut self, kernel: &mut Kernel) -> Result<(), KernelError> {
        let now = crate::sys::monotonic();
        let mut over = Vec::new();
        for member in self.members.values_mut() {
            if member.is_over(&mut self.kit, now) {
                over.push(member.pid);
            }
        }
        for pid in over {
            self.bury(pid, Some(now));
            kernel.remove_plan_of(pid, now)?;
        }
        Ok(())
    }

    /// Whether nobody is left.
    pub(super) fn is_deserted(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether so few are left that it costs nothing to look after each of them.
    pub(super) fn is_small(&self) -> bool {
        self.members.len() <= SMALL
    }

    /// Ticks that arrived so far, for the progress line.
    pub(super) fn ticks(&self) -> u64 {
        self.kit.received.ticks
    }

    /// When the run began.
    pub(super) fn since(&self) -> MonotonicNs {
        self.since
    }

    /// Whether an interpreter was ever found.
    pub(super) fn was_python(&self) -> bool {
        self.kit.had_python
    }

    /// Looks at threads off the CPU so far, and how many of them found nothing that stayed.
    pub(super) fn looks(&self) -> (u64, u64) {
        (self.kit.off.looks(), self.kit.off.moved())
    }

    /// Threads that the scheduler switched and no tick ever found have a line in the ledger too.
    pub(super) fn meet_the_unsampled(&mut self, accounts: &[Account]) {
        for member in self.members.values_mut() {
            member.meet_the_unsampled(&mut self.kit, accounts);
        }
    }
}

/// Why a program is not profiled as Python, where that is not simply that it is none.
fn note(error: Option<AttachError>) {
    if let Some(AttachError::Python { error, .. }) = error
        && !error.is_worth_a_retry()
        && !matches!(error, CpythonError::NotFound(_))
    {
        log::debug!("not profiled as Python: {error}");
    }
}
