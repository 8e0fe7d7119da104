//! How many instructions each step of a sample's path takes, counted by valgrind: they repeat where
//! times do not. `cargo xtask instructions` runs it and holds the counts to `counts.txt`.
//!
//! What is read is recorded (`tests/images`), so neither a target nor the kernel is touched.

#![expect(
    missing_docs,
    unused_qualifications,
    reason = "what gungraun's macros make"
)]

#[path = "../../tests/recorded/reading.rs"]
#[expect(dead_code, reason = "an image's facts are read, nothing is recorded")]
mod reading;
mod unwinding;

use std::hint::black_box;
use std::mem::offset_of;
use std::path::Path;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use gungraun::{library_benchmark, library_benchmark_group, main};
use profiler::aggregate::{Place, ProfileBuilder, ProfileMeta, ThreadIndex, ThreadInfo, Whose};
use profiler::cpython::{self, Runtime, Wishes};
use profiler::native::UnwindEnd;
use profiler::pipeline::stacks::Stacks;
use profiler::pystack::lines::LineFormat;
use profiler::pystack::{Chain, PyFrame, Resolver, Walker, lines};
use profiler::sample::{Activity, FramesFrom, Gc, Gil, Handling, Mode, Sample};
use profiler::stack::StackId;
use profiler::target::{Image, RecordedMemory};
use profiler::wire::{self, Event, Tick, WireError};
use profiler::words::{Cpu, DurationNs, Generation, MonotonicNs, Pid, ThreadStateAddr, Tid};
use profiler_common::plan::Plan;
use profiler_common::record::{KIND_SAMPLE, RecordHead, SampleRecord};
use profiler_common::walk::RawFrame;
use unwinding::Thread;

/// A recorded process, and its thread with the most frames.
struct Recorded {
    memory: RecordedMemory,
    runtime: Runtime,
    plan: Plan,
    state: ThreadStateAddr,
    walker: Walker,
}

impl Recorded {
    fn load(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("images");
        let file = std::fs::read(folder.join(name)).expect("the image");
        let image = Image::from_bytes(&file).expect("it is an image");
        let found = reading::found(&image.meta.facts).expect("its facts tell the find");
        let memory = image.memory;
        let runtime = Runtime::attach(found, &memory).expect("it has an interpreter");
        let wishes = Wishes {
            since: MonotonicNs(0),
            flags: 0,
            max_frames: reading::MAX_FRAMES,
        };
        let plan = cpython::plan(&runtime, &memory, wishes).expect("a plan");
        let states = runtime.thread_states(&memory).expect("its threads");
        let mut walker = Walker::default();
        let mut depth = |state| walker.chain(&memory, &plan, state).frames.len();
        let deepest = states.iter().max_by_key(|state| depth(state.addr));
        let state = deepest.expect("a thread").addr;
        Self {
            memory,
            runtime,
            plan,
            state,
            walker,
        }
    }

    fn chain(&mut self) -> Chain {
        self.walker.chain(&self.memory, &self.plan, self.state)
    }
}

/// A sample as the kernel sends it.
fn record(frames: &[RawFrame]) -> Bytes {
    let each = size_of::<RawFrame>();
    let mut raw = vec![0_u8; size_of::<SampleRecord>() + size_of_val(frames)];
    let length = u32::try_from(raw.len()).expect("a length");
    let count = u32::try_from(frames.len()).expect("a count");
    let mut put = |at: usize, bytes: &[u8]| raw[at..at + bytes.len()].copy_from_slice(bytes);
    put(offset_of!(RecordHead, kind), &KIND_SAMPLE.to_le_bytes());
    put(offset_of!(RecordHead, bytes), &length.to_le_bytes());
    for field in [
        offset_of!(SampleRecord, frames),
        offset_of!(SampleRecord, depth),
        offset_of!(SampleRecord, leaf_frames),
    ] {
        put(field, &count.to_le_bytes());
    }
    for (index, frame) in frames.iter().enumerate() {
        let at = size_of::<SampleRecord>() + each * index;
        put(at + offset_of!(RawFrame, code), &frame.code.to_le_bytes());
        put(at + offset_of!(RawFrame, instr), &frame.instr.to_le_bytes());
    }
    Bytes::from(raw)
}

fn made_up(depth: u64) -> Bytes {
    let frame = |index| RawFrame {
        code: 4096 + 64 * index,
        instr: 8 * index,
    };
    record(&(0..depth).map(frame).collect::<Vec<_>>())
}

fn tick(record: &Bytes) -> Tick {
    let Ok(Event::Tick(tick)) = wire::decode(record) else {
        panic!("the record is not a sample");
    };
    tick
}

#[library_benchmark]
#[bench::of_20(made_up(20))]
#[bench::of_100(made_up(100))]
fn decode(record: Bytes) -> Result<Event, WireError> {
    wire::decode(black_box(&record))
}

#[library_benchmark]
#[bench::of_20(tick(&made_up(20)))]
#[bench::of_100(tick(&made_up(100)))]
fn decode_frames(tick: Tick) -> Chain {
    let frames: Vec<RawFrame> = black_box(&tick).frames().collect();
    Chain::from_record(&frames, tick.depth, tick.leaf_frames, tick.walk_end)
}

#[library_benchmark]
#[bench::of_3_8(Recorded::load("python-3.8.18.img"))]
#[bench::of_3_12(Recorded::load("python-3.12.1.img"))]
#[bench::of_3_15(Recorded::load("python-3.15.2.img"))]
fn walk(mut recorded: Recorded) -> (Chain, Recorded) {
    (black_box(&mut recorded).chain(), recorded)
}

/// A line table of 200 lines, two units of bytecode each, and the place of the last.
fn table(format: LineFormat) -> (LineFormat, Vec<u8>, u64) {
    // One line more, two units, columns 0 to 4; or pairs of an address's step and a line's.
    let entry: &[u8] = match format {
        LineFormat::Locations => &[0x80 | (11 << 3) | 1, 0, 4],
        LineFormat::Lnotab | LineFormat::Lengths => &[4, 1],
    };
    (format, entry.repeat(200), 4 * 200 - 2)
}

#[library_benchmark]
#[bench::to_3_9(table(LineFormat::Lnotab))]
#[bench::of_3_10(table(LineFormat::Lengths))]
#[bench::from_3_11(table(LineFormat::Locations))]
fn line((format, table, offset): (LineFormat, Vec<u8>, u64)) -> Option<lines::Place> {
    format.line(black_box(&table), 1, black_box(offset))
}

/// A resolver that has met all codes of a chain.
fn resolved(name: &str) -> (Recorded, Chain, Resolver) {
    let mut recorded = Recorded::load(name);
    let chain = recorded.chain();
    let mut resolver = Resolver::new(&recorded.runtime);
    let frames = resolver.frames(&recorded.memory, &chain);
    let is_known = |frame: &PyFrame| matches!(frame, PyFrame::Known { .. } | PyFrame::Cut { .. });
    assert!(frames.iter().all(is_known), "{frames:?}");
    (recorded, chain, resolver)
}

#[library_benchmark]
#[bench::of_3_12(resolved("python-3.12.1.img"))]
#[bench::of_3_15(resolved("python-3.15.2.img"))]
fn name_frames_again(
    (recorded, chain, mut resolver): (Recorded, Chain, Resolver),
) -> (Vec<PyFrame>, Recorded, Chain, Resolver) {
    let frames = resolver.frames(&recorded.memory, black_box(&chain));
    (frames, recorded, chain, resolver)
}

/// All that a sample passes through, and its stack has come before.
struct Warm {
    recorded: Recorded,
    record: Bytes,
    stacks: Stacks,
    builder: ProfileBuilder,
    thread: ThreadIndex,
}

impl Warm {
    fn new(name: &str) -> Self {
        let mut recorded = Recorded::load(name);
        let chain = recorded.chain();
        let mut builder = ProfileBuilder::new(ProfileMeta {
            whose: Whose::Threads,
            pid: Pid(1),
            command: String::from("python3 main.py"),
            python: String::from("3.12.1"),
            build: String::from("default"),
            mode: Mode::Cpu,
            engine: String::from("bpf"),
            rate_hz: 99,
            period: DurationNs(10_101_010),
            clock: String::from("cpu-clock"),
            host: String::from("example"),
            started_at: UNIX_EPOCH,
            start: MonotonicNs(0),
        });
        let thread = builder.thread(ThreadInfo {
            pid: Pid(1),
            tid: Tid(1),
            name: String::from("MainThread"),
            python: true,
        });
        let mut warm = Self {
            record: record(&chain.frames),
            stacks: Stacks::new(&recorded.runtime),
            recorded,
            builder,
            thread,
        };
        for _ in 0..2 {
            warm.sample();
        }
        warm
    }

    /// From a record to the profile.
    fn sample(&mut self) -> StackId {
        let tick = tick(&self.record);
        let memory = &self.recorded.memory;
        let id = self.stacks.of_tick(memory, &mut self.builder, &tick, false);
        let stack = self.stacks.stack(id);
        let place = Place {
            thread: self.thread,
            stack,
            frames_from: FramesFrom::Kernel,
            behind: None,
        };
        let sample = Sample {
            time: tick.time,
            pid: tick.pid,
            tid: tick.tid,
            cpu: Some(Cpu(0)),
            ticks: 1,
            weight: DurationNs(10_101_010),
            activity: Activity::OnCpu,
            gil: Gil::Holds,
            gc: Gc::Idle,
            handling: Handling::Unknown,
            generation: Generation(1),
        };
        self.builder.add(place, &sample);
        stack
    }

    fn end_batch(&mut self) -> usize {
        let changed = self.stacks.compare(&self.recorded.memory);
        self.stacks.settle(&changed);
        changed.len()
    }
}

#[library_benchmark]
#[bench::of_3_12(Warm::new("python-3.12.1.img"))]
#[bench::of_3_15(Warm::new("python-3.15.2.img"))]
fn warm_sample(mut warm: Warm) -> (StackId, Warm) {
    (black_box(&mut warm).sample(), warm)
}

#[library_benchmark]
#[bench::of_3_12(Warm::new("python-3.12.1.img"))]
fn end_of_a_batch(mut warm: Warm) -> (usize, Warm) {
    (black_box(&mut warm).end_batch(), warm)
}

#[library_benchmark]
#[bench::of_20(Thread::new(20))]
#[bench::of_100(Thread::new(100))]
fn unwind_again(mut thread: Thread) -> (UnwindEnd, Thread) {
    (black_box(&mut thread).unwind(), thread)
}

library_benchmark_group!(
    name = path,
    benchmarks = [
        decode,
        decode_frames,
        walk,
        line,
        name_frames_again,
        warm_sample,
        end_of_a_batch,
        unwind_again
    ]
);
main!(library_benchmark_groups = path);
