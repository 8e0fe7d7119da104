//! Own threads, of which one knows whether they run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd;

use super::*;
use crate::words::Pid;

fn ourselves() -> Process {
    Process::open(Pid(std::process::id())).expect("ourselves")
}

fn own_tid() -> Tid {
    Tid(unistd::gettid().as_raw().cast_unsigned())
}

fn an_allowed_cpu() -> CpuSet {
    let allowed = sched_getaffinity(unistd::Pid::from_raw(0)).expect("ours");
    let first = (0..CpuSet::count()).find(|&cpu| allowed.is_set(cpu) == Ok(true));
    let mut alone = CpuSet::new();
    alone.set(first.expect("a CPU")).expect("it exists");
    alone
}

/// A thread that counts without end.
fn counter(cpu: CpuSet, done: &Arc<AtomicBool>) -> (Tid, Arc<AtomicU64>, JoinHandle<()>) {
    let count = Arc::new(AtomicU64::new(0));
    let (here, ready) = mpsc::channel();
    let (counting, done) = (Arc::clone(&count), Arc::clone(done));
    let thread = std::thread::spawn(move || {
        sched_setaffinity(unistd::Pid::from_raw(0), &cpu).expect("an allowed CPU");
        let _ = here.send(own_tid());
        while !done.load(Ordering::Relaxed) {
            counting.fetch_add(1, Ordering::SeqCst);
        }
    });
    (ready.recv().expect("it runs"), count, thread)
}

/// Several share a CPU, so that most of them wait for it.
#[test]
fn a_thread_that_waits_for_a_cpu_makes_no_step() {
    const PROOFS: usize = 100;
    let me = ourselves();
    let done = Arc::new(AtomicBool::new(false));
    let cpu = an_allowed_cpu();
    let counters: Vec<_> = (0..3).map(|_| counter(cpu, &done)).collect();
    let mut proofs = 0;
    'all: while proofs < PROOFS {
        for (tid, count, _) in &counters {
            let off = match me.presence(*tid).expect("our own thread") {
                Presence::Off(off) => off,
                Presence::OnCpu => continue,
                Presence::CannotTell if proofs > 0 => continue,
                Presence::CannotTell => break 'all,
            };
            let first = count.load(Ordering::SeqCst);
            for _ in 0..500 {
                std::hint::spin_loop();
            }
            let second = count.load(Ordering::SeqCst);
            if *off.mark.place() == InKernel::Running && off.mark.still_holds() {
                assert_eq!(first, second, "it counted while it waited for a CPU");
                proofs += 1;
            }
        }
    }
    done.store(true, Ordering::Relaxed);
    for (_, _, thread) in counters {
        assert!(thread.join().is_ok());
    }
}

#[test]
fn who_asks_is_on_a_cpu() {
    let me = ourselves();
    for _ in 0..1000 {
        let presence = me.presence(own_tid()).expect("this thread");
        assert!(!matches!(presence, Presence::Off(_)), "{presence:?}");
    }
}

#[test]
fn a_blocked_thread_has_left_its_cpu() {
    let me = ourselves();
    let (stay, stop) = mpsc::channel::<()>();
    let (here, ready) = mpsc::channel();
    let sleeper = std::thread::spawn(move || here.send(own_tid()).is_ok() && stop.recv().is_ok());
    let tid = ready.recv().expect("it runs");
    let off = loop {
        match me.presence(tid).expect("our own thread") {
            Presence::Off(off) if matches!(off.mark.place(), InKernel::Blocked { .. }) => {
                break off;
            }
            _ => std::thread::yield_now(),
        }
    };
    assert!(off.mark.still_holds());
    assert_eq!(off.state, TaskState::Sleeping);
    if let Some(left) = off.left
        && let Some(now) = sys::task_clock(left.cpu)
    {
        assert!(now.clock >= left.clock, "{left:?} {now:?}");
    }
    drop(stay);
    assert!(sleeper.join().is_ok());
}
