//! A profile made by hand of threads that do everything a thread can do, in any mode.

use profiler::aggregate::{
    Entry, Limits, Place, Profile, ProfileBuilder, ProfileMeta, ThreadIndex,
};
use profiler::sample::{Activity, FramesFrom, Gc, Gil, Handling, Mode, Sample, Wait};
use profiler::stack::Frame;
use profiler::words::{DurationNs, Generation, MonotonicNs, Pid, Tid};

use super::made::{self, Making, PERIOD, START};

pub(crate) const MODES: [Mode; 4] = [Mode::Cpu, Mode::Wall, Mode::Gil, Mode::OffCpu];

/// Each reason there is, and a system call that has a name, one that has none.
pub(crate) const WAITS: [Wait; 13] = [
    Wait::Lock,
    Wait::Gil,
    Wait::File,
    Wait::Socket,
    Wait::Pipe,
    Wait::Sleep,
    Wait::Poll,
    Wait::Child,
    Wait::PageFault,
    Wait::Stopped,
    Wait::Syscall(34),
    Wait::Syscall(100_000),
    Wait::Unknown,
];

/// One sample's state.
#[derive(Clone, Copy)]
struct State {
    activity: Activity,
    gil: Gil,
    gc: Gc,
    handling: Handling,
    behind: Option<ThreadIndex>,
}

const RUNS: State = State {
    activity: Activity::OnCpu,
    gil: Gil::Holds,
    gc: Gc::Idle,
    handling: Handling::Nothing,
    behind: None,
};

const fn blocked(wait: Wait) -> State {
    State {
        activity: Activity::Blocked(wait),
        gil: Gil::Neither,
        ..RUNS
    }
}

const fn waits(behind: Option<ThreadIndex>) -> State {
    State {
        activity: Activity::Blocked(Wait::Gil),
        gil: Gil::Waits,
        behind,
        ..RUNS
    }
}

/// Samples come one after another; their time is not that of their ticks.
fn put(
    making: &mut Making,
    time: &mut u64,
    who: ThreadIndex,
    frame: &Frame,
    of: (u32, u64, State),
) {
    let (ticks, weight, state) = of;
    *time += weight;
    let sample = Sample {
        time: MonotonicNs(*time),
        pid: Pid(4242),
        tid: Tid(0),
        cpu: None,
        ticks,
        weight: DurationNs(weight),
        activity: state.activity,
        gil: state.gil,
        gc: state.gc,
        handling: state.handling,
        generation: Generation(1),
    };
    let module = Frame::python("<module>", "/srv/app/main.py", Some(1), Some(40));
    let ids = making.ids(&[frame.clone(), module]);
    let place = Place {
        thread: who,
        stack: making.builder.stack(&ids),
        frames_from: match state.activity {
            Activity::OnCpu => FramesFrom::Kernel,
            _ => FramesFrom::Cached,
        },
        behind: state.behind,
    };
    making.builder.add(place, &sample);
}

/// Threads in all states, at all sides of the GIL, in collections and exceptions, as `mode` sees
/// them; one is of another process.
pub(crate) fn profile(mode: Mode, timeline: bool) -> Profile {
    let meta = ProfileMeta {
        mode,
        ..made::meta()
    };
    let mut builder = ProfileBuilder::new(meta);
    if timeline {
        builder = builder.with_timeline();
    }
    let mut making = Making::new(builder);
    let main = making.thread(4242, "MainThread", true);
    let worker = making.thread(4243, "worker; the\nsecond", true);
    let info = profiler::aggregate::ThreadInfo {
        pid: Pid(5000),
        tid: Tid(5001),
        name: String::from("child"),
        python: false,
    };
    let child = making.builder.thread(info);
    let compute = Frame::python("compute", "/srv/app/main.py", Some(3), Some(5));
    let wait = Frame::python("wait", "/srv/app/main.py", Some(9), Some(9));
    let handle = Frame::python("handle", "/srv/app/main.py", Some(20), Some(22));

    let mut time = START;
    let mut add = |who, frame: &Frame, of| put(&mut making, &mut time, who, frame, of);
    add(main, &compute, (9, 9 * PERIOD + 77, RUNS));
    for (n, reason) in (1..).zip(WAITS) {
        let ns = u64::from(n) * 3_000_001;
        add(worker, &wait, (n, ns, blocked(reason)));
    }
    let runnable = State {
        activity: Activity::Runnable,
        handling: Handling::Exception,
        ..RUNS
    };
    add(worker, &handle, (1, 4_500_000, runnable));
    let collects = State {
        gc: Gc::Collecting,
        ..RUNS
    };
    add(main, &compute, (2, 2 * PERIOD, collects));
    let reads_with_it = State {
        gil: Gil::Holds,
        ..blocked(Wait::File)
    };
    add(main, &wait, (1, 1_234_567, reads_with_it));
    add(worker, &compute, (4, 4 * PERIOD, waits(Some(main))));
    add(main, &wait, (2, 2 * PERIOD, waits(Some(worker))));
    add(worker, &compute, (1, 7, waits(None)));
    // A tick may stand for no time at all.
    add(worker, &handle, (1, 0, waits(Some(main))));
    let unknown = State {
        activity: Activity::Unknown,
        gil: Gil::Unknown,
        gc: Gc::Unknown,
        handling: Handling::Unknown,
        behind: None,
    };
    add(child, &wait, (3, 3 * PERIOD, unknown));
    add(
        child,
        &compute,
        (
            1,
            5_000_000,
            State {
                gil: Gil::Neither,
                ..RUNS
            },
        ),
    );

    let end = MonotonicNs(time + PERIOD);
    let mut ledger = making.builder.ledger(end);
    // Ticks find threads on a CPU, looks those that are off it.
    ledger.ticks = 20;
    ledger.looks = ledger.samples - ledger.ticks;
    ledger.moved = 2;
    for thread in &mut ledger.threads {
        thread.scheduler_ns = Some(thread.sampled_ns);
        thread.runnable_ns = Some(thread.sampled_runnable_ns);
        thread.blocked_ns = Some(thread.sampled_blocked_ns);
        thread.wall_ns =
            Some(thread.sampled_ns + thread.sampled_runnable_ns + thread.sampled_blocked_ns);
    }
    ledger.profiler.cpu_ns = Some(120_000_000);
    making.builder.close(end, ledger)
}

/// A profile within `limits` of a thread that waits in ever other system calls, and for the GIL
/// behind ever other threads.
pub(crate) fn crowd(limits: Limits) -> Profile {
    let meta = ProfileMeta {
        mode: Mode::Wall,
        ..made::meta()
    };
    let mut making = Making::new(ProfileBuilder::new(meta).with_limits(limits));
    let main = making.thread(4242, "MainThread", true);
    let others = (0..100).map(|n| making.thread(5000 + n, "other", true));
    let others: Vec<ThreadIndex> = others.collect();
    let wait = Frame::python("wait", "/srv/app/main.py", Some(9), Some(9));
    let mut time = START;
    for (n, other) in (0..).zip(others) {
        let calls = blocked(Wait::Syscall(1_000 + n));
        put(&mut making, &mut time, main, &wait, (1, PERIOD, calls));
        let waits = waits(Some(other));
        put(&mut making, &mut time, main, &wait, (1, PERIOD, waits));
    }
    let ledger = making.builder.ledger(MonotonicNs(time));
    making.builder.close(MonotonicNs(time), ledger)
}

/// The weights of those entries for which it holds.
pub(crate) fn weight_of(profile: &Profile, holds: impl Fn(&Entry) -> bool) -> u64 {
    let entries = profile.entries().iter().filter(|entry| holds(entry));
    entries.map(|entry| entry.weight.0).sum()
}
