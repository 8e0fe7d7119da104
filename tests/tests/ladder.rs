//! The ladder on real interpreters: own children, and once in a namespace of their own.
//!
//! Every Python on the machine runs `targets/threads.py`, which says which kernel thread has
//! which pthread id. Each rung that applies must say the same, for 1, 3 and 50 threads.
//! Rung 1, the TLS base, comes from the kernel programs and is tested with them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use profiler::target::{Asleep, InKernel, LiveMemory, Memory, Process, TaskFacts};
use profiler::threads::{Look, Registry, Rung, ScanWhom, StateFacts, ThreadFacts, TidOffset};
use profiler::words::{InnerTid, Pid, PthreadId, ThreadStateAddr, Tid};
use serde::Deserialize;
use tests::pythons::{self, Python};
use tests::rung::{
    self,
    Rung::{Kernel, Live},
};

const PATIENCE: Duration = Duration::from_secs(60);

/// What `threads.py` says of itself.
#[derive(Deserialize)]
struct Truth {
    python: Vec<(u32, u64)>,
    native: usize,
}

/// A child with many threads, all of them blocked.
struct Threads {
    child: Child,
    process: Process,
    truth: Truth,
}

impl Threads {
    fn start(command: &[String], python: usize, native: usize) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("targets/threads.py");
        let source = std::fs::read_to_string(script).expect("the target program");
        // Not by its path: the interpreter may live in a root of its own.
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .args(["-c", &source, &python.to_string(), &native.to_string()])
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the interpreter runs");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("a pipe");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("its line");
        let truth: Truth = serde_json::from_str(&line).expect("what it says of itself");
        let process = Process::open(innermost(Pid(child.id()))).expect("our own child");
        let threads = Self {
            child,
            process,
            truth,
        };
        threads.wait_until_all_block();
        threads
    }

    /// The line is printed a moment before the last threads block.
    fn wait_until_all_block(&self) {
        let wanted = self.truth.python.len() + self.truth.native;
        let started = Instant::now();
        loop {
            let tids = self.process.tids().expect("it lives");
            let blocks = |&tid: &Tid| {
                let place = self.process.in_kernel(tid).expect("our own child");
                matches!(place, InKernel::Blocked { .. })
            };
            if tids.len() == wanted && tids.iter().all(blocks) {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "threads that never block");
            std::thread::yield_now();
        }
    }

    fn tasks(&self) -> Vec<TaskFacts> {
        self.process.all_tasks().expect("it lives")
    }

    /// The states as the interpreter would list them, newest first.
    fn states(&self, with_native_ids: bool) -> Vec<StateFacts> {
        let numbered = (1..).zip(&self.truth.python);
        let mut states: Vec<StateFacts> = numbered
            .map(|(number, &(native, ident))| StateFacts {
                state: ThreadStateAddr(number),
                pthread_id: PthreadId(ident),
                native_id: with_native_ids.then_some(InnerTid(native)),
            })
            .collect();
        states.reverse();
        states
    }

    fn look(&self, registry: &mut Registry, memory: &impl Memory, with_native_ids: bool) {
        let tasks = self.tasks();
        let threads: Vec<ThreadFacts> = tasks
            .iter()
            .map(|task| {
                let place = self.process.in_kernel(task.tid).expect("our own child");
                ThreadFacts::new(task, place.stack_pointer())
            })
            .collect();
        let look = Look {
            pid: self.process.pid(),
            start_stack: tasks.first().and_then(|task| task.start_stack),
            maps: &self.process.maps().expect("our own child"),
            threads: &threads,
            states: &self.states(with_native_ids),
            scan: ScanWhom::Everyone,
        };
        registry.look(&look, memory);
    }

    /// Every rung that applies names the thread that the target says it is.
    fn check(&self, with_native_ids: bool) {
        let memory = LiveMemory::new(&self.process);
        let mut registry = Registry::new();
        self.look(&mut registry, &memory, with_native_ids);
        let inner: BTreeMap<Tid, Option<InnerTid>> = self
            .tasks()
            .iter()
            .map(|task| (task.tid, task.inner))
            .collect();
        let mut found: Vec<(u32, u64)> = Vec::new();
        for thread in registry.matches() {
            let native = inner[&thread.tid].expect("an id inside");
            found.push((native.0, thread.pthread_id.0));
            let mut expected = vec![Rung::ControlBlock];
            if with_native_ids {
                expected.insert(0, Rung::NativeThreadId);
            }
            expected.push(if thread.tid.0 == self.process.pid().0 {
                Rung::MainThread
            } else {
                Rung::StackScan
            });
            assert_eq!(thread.matched_by, expected, "thread {}", thread.tid);
        }
        found.sort_unstable();
        let mut truth = self.truth.python.clone();
        truth.sort_unstable();
        assert_eq!(found, truth);
        assert_eq!(registry.contradictions(), 0);
        assert_eq!(registry.native_threads().count(), self.truth.native);
        assert_eq!(registry.tid_offset(), Some(TidOffset(0x2d0)));
    }

    /// Every thread sleeps, and can be proven to.
    fn check_sleep(&self) {
        for tid in self.process.tids().expect("it lives") {
            match self.process.mark(tid).expect("our own child") {
                Asleep::Yes(mark) => assert!(mark.still_holds()),
                Asleep::CannotTell => rung::leave_out("this kernel keeps no schedstat"),
                Asleep::No => panic!("thread {tid} runs"),
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // The target ends with its input, also when it is not our child but our child's.
        self.child.stdin.take();
        if !self.process.ends_within(PATIENCE) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// The process at the end of a line of only children: what a wrapper has started.
fn innermost(pid: Pid) -> Pid {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    match children.unwrap_or_default().trim().parse() {
        Ok(child) => innermost(Pid(child)),
        Err(_) => pid,
    }
}

fn words(command: &str) -> Vec<String> {
    command.split_whitespace().map(str::to_owned).collect()
}

fn check(python: &Python, wrapper: &str, threads: usize, native: usize) {
    let command = [words(wrapper), python.command.clone()].concat();
    eprintln!(
        "{} with {threads} threads and {native} native",
        command.join(" ")
    );
    let target = Threads::start(&command, threads, native);
    target.check(python.minor() >= (3, 11));
    target.check_sleep();
}

fn on_every_python(rung: rung::Rung, wrapper: &str, threads: usize, native: usize) {
    if !rung::reached(rung) {
        return;
    }
    for python in pythons::required() {
        check(python, wrapper, threads, native);
    }
}

#[test]
fn with_one_thread_all_rungs_name_it() {
    on_every_python(Live, "", 1, 0);
}

#[test]
fn with_three_threads_and_native_ones_all_rungs_name_the_same() {
    on_every_python(Live, "", 3, 4);
}

#[test]
fn with_fifty_threads_all_rungs_name_the_same() {
    on_every_python(Live, "", 50, 0);
}

/// A namespace takes root, which is rung 3's.
#[test]
fn in_a_pid_namespace_all_rungs_name_the_same() {
    on_every_python(Kernel, "unshare --pid --fork", 3, 1);
}
