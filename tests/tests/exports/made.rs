//! Profiles made by hand, with everything in them that a format could stumble over.

use std::time::{Duration, UNIX_EPOCH};

use profiler::aggregate::{
    Ledger, Limits, Place, Profile, ProfileBuilder, ProfileMeta, ThreadIndex, ThreadInfo, Whose,
};
use profiler::export::{self, Format, Options};
use profiler::sample::{Activity, FramesFrom, Gc, Gil, Handling, Mode, Sample};
use profiler::stack::{Frame, FrameId, FrameKind};
use profiler::words::{Cpu, DurationNs, Generation, MonotonicNs, Pid, Tid};

pub(crate) const PERIOD: u64 = 10_101_010;
pub(crate) const START: u64 = 5_000_000_000;

pub(crate) fn meta() -> ProfileMeta {
    ProfileMeta {
        whose: Whose::Threads,
        pid: Pid(4242),
        command: String::from("python3 /srv/app/main.py --name a<b>&\"c\""),
        python: String::from("3.12.1"),
        build: String::from("default"),
        mode: Mode::Cpu,
        engine: String::from("bpf"),
        rate_hz: 99,
        period: DurationNs(PERIOD),
        clock: String::from("cpu-clock"),
        host: String::from("example"),
        started_at: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        start: MonotonicNs(START),
    }
}

/// A builder and the time of its next sample.
pub(crate) struct Making {
    pub(crate) builder: ProfileBuilder,
    time: u64,
}

impl Making {
    pub(crate) fn new(builder: ProfileBuilder) -> Self {
        Self {
            builder,
            time: START,
        }
    }

    pub(crate) fn thread(&mut self, tid: u32, name: &str, python: bool) -> ThreadIndex {
        self.builder.thread(ThreadInfo {
            pid: Pid(4242),
            tid: Tid(tid),
            name: name.to_owned(),
            python,
        })
    }

    /// Leaf first.
    pub(crate) fn ids(&mut self, frames: &[Frame]) -> Vec<FrameId> {
        let ids = frames.iter().cloned();
        ids.map(|frame| self.builder.frame(frame)).collect()
    }

    pub(crate) fn add(&mut self, thread: ThreadIndex, frames: &[Frame], ticks: u32) {
        let python = frames.iter().any(|frame| frame.kind == FrameKind::Python);
        let gc = frames.first().is_some_and(|f| f.kind == FrameKind::Gc);
        self.time += PERIOD * u64::from(ticks);
        let sample = Sample {
            time: MonotonicNs(self.time),
            pid: Pid(4242),
            tid: Tid(0),
            cpu: Some(Cpu(0)),
            ticks,
            weight: DurationNs(PERIOD * u64::from(ticks)),
            activity: Activity::OnCpu,
            gil: if python { Gil::Holds } else { Gil::Unknown },
            gc: if gc { Gc::Collecting } else { Gc::Idle },
            handling: Handling::Unknown,
            generation: Generation(1),
        };
        let from = if python {
            FramesFrom::Kernel
        } else {
            FramesFrom::None
        };
        let ids = self.ids(frames);
        let stack = self.builder.stack(&ids);
        let place = Place {
            thread,
            stack,
            frames_from: from,
            behind: None,
        };
        self.builder.add(place, &sample);
    }

    pub(crate) fn close(self) -> Profile {
        let end = MonotonicNs(self.time + PERIOD);
        let mut ledger = self.builder.ledger(end);
        ledger.ticks = ledger.samples + 3;
        ledger.losses.insert(String::from("ring_full"), 3);
        for thread in &mut ledger.threads {
            thread.scheduler_ns = Some(thread.sampled_ns + 1_000_000);
            thread.pthread_id = Some(0x7f00_0000_0000 + u64::from(thread.tid));
            thread.matched_by = vec![String::from("tls_base")];
        }
        ledger.profiler.cpu_ns = Some(120_000_000);
        self.builder.close(end, ledger)
    }
}

fn py(function: &str, file: &str, first: u32, line: u32) -> Frame {
    Frame::python(function, file, Some(first), Some(line))
}

/// Several threads, recursion, names that mean something elsewhere, a deep stack that was cut,
/// a collection, frames that could not be read, a thread without Python, one without samples.
pub(crate) fn rich() -> Profile {
    fill(ProfileBuilder::new(meta()))
}

/// The same with its timeline.
pub(crate) fn timed() -> Profile {
    fill(ProfileBuilder::new(meta()).with_timeline())
}

pub(crate) fn fill(builder: ProfileBuilder) -> Profile {
    let mut making = Making::new(builder);
    let main = making.thread(4242, "MainThread", true);
    let worker = making.thread(4243, "worker; the\nsecond", true);
    let tensor = making.thread(4250, "größe 変数", false);
    making.thread(4251, "idle", true);

    let module = py("<module>", "/srv/app/main.py", 1, 40);
    let run = |line| py("App.run", "/srv/app/main.py", 10, line);
    let fib = |line| py("fib", "/srv/app/fib.py", 1, line);
    let loads = py("loads", "/usr/lib/python3.12/json/__init__.py", 299, 346);
    let scan = py(
        "JSONDecoder.raw_decode",
        "/usr/lib/python3.12/json/decoder.py",
        343,
        353,
    );
    let dot = py("dot", "/usr/lib/python3/dist-packages/numpy/core.py", 5, 9);
    let native = Frame::native("deflate_slow", Some("/usr/lib/libz.so.1".into()));
    let kernel = Frame::kernel("copy_user_generic");

    making.add(main, &[fib(2), fib(3), fib(3), run(12), module.clone()], 7);
    making.add(main, &[fib(3), fib(3), run(12), module.clone()], 3);
    making.add(main, &[run(13), module.clone()], 1);
    making.add(main, &[scan, loads, run(14), module.clone()], 6);
    making.add(
        worker,
        &[native.clone(), dot.clone(), run(15), module.clone()],
        5,
    );
    making.add(worker, &[kernel, native, dot, run(15), module.clone()], 2);
    making.add(main, &[Frame::gc(), fib(2), run(12), module.clone()], 2);
    let odd = Frame::python("a;b\\c\n\x1b[31m<&>\u{202e}", "/srv/app/ж;.py", None, None);
    making.add(worker, &[odd, module.clone()], 2);
    let unreadable = Frame::unreadable("its code object is not mapped");
    making.add(worker, &[unreadable, module.clone()], 1);
    making.add(main, &[fib(2), fib(3), Frame::cut(1000), fib(3), module], 4);
    making.add(tensor, &[], 8);
    making.add(worker, &[py("# not a comment", "x.py", 1, 1)], 1);
    making.close()
}

/// A profile of a process that did nothing.
pub(crate) fn empty() -> Profile {
    let mut making = Making::new(ProfileBuilder::new(meta()).with_timeline());
    making.thread(4242, "MainThread", true);
    let end = MonotonicNs(START + 1_000_000_000);
    let ledger = making.builder.ledger(end);
    making.builder.close(end, ledger)
}

/// A profile without samples of a thread that ran.
pub(crate) fn unmet() -> Profile {
    let mut making = Making::new(ProfileBuilder::new(meta()));
    making.thread(4242, "MainThread", true);
    let end = MonotonicNs(START + 1_000_000_000);
    let mut ledger = making.builder.ledger(end);
    ledger.threads[0].scheduler_ns = Some(500_000_000);
    making.builder.close(end, ledger)
}

/// A profile without anything at all, not even a thread or a name.
pub(crate) fn bare() -> Profile {
    let meta = ProfileMeta {
        command: String::new(),
        python: String::new(),
        ..meta()
    };
    ProfileBuilder::new(meta).close(MonotonicNs(0), Ledger::default())
}

/// A builder with room for very little.
pub(crate) fn narrow(limits: Limits) -> ProfileBuilder {
    ProfileBuilder::new(meta())
        .with_limits(limits)
        .with_timeline()
}

pub(crate) fn bytes(format: Format, profile: &Profile, options: &Options) -> Vec<u8> {
    let mut out = Vec::new();
    export::write(format, profile, options, &mut out).expect("a vector takes everything");
    out
}

pub(crate) fn text(format: Format, profile: &Profile, options: &Options) -> String {
    String::from_utf8(bytes(format, profile, options)).expect("text is UTF-8")
}
