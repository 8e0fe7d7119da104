//! The pure rooms on the sample's path and after it, alone: `cargo bench -p profiler`.
//!
//! What they are fed is made here; nothing of it touches the kernel or a target.

use std::hint::black_box;
use std::mem::offset_of;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use profiler::aggregate::{
    Place, Profile, ProfileBuilder, ProfileMeta, ThreadIndex, ThreadInfo, Whose,
};
use profiler::export::{self, Format, Options};
use profiler::pystack::Chain;
use profiler::pystack::lines::LineFormat;
use profiler::sample::{Activity, FramesFrom, Gc, Gil, Handling, Mode, Sample};
use profiler::stack::{Frame, FrameId};
use profiler::wire::{self, Event};
use profiler::words::{Cpu, DurationNs, Generation, MonotonicNs, Pid, Tid};
use profiler_common::record::{KIND_SAMPLE, RecordHead, SampleRecord};
use profiler_common::walk::RawFrame;

const DEPTHS: [u32; 3] = [20, 100, 1000];
const PID: Pid = Pid(4242);

/// A sample as the kernel sends it.
fn record(depth: u32) -> Bytes {
    let frame = size_of::<RawFrame>();
    let mut raw = vec![0_u8; size_of::<SampleRecord>() + frame * depth as usize];
    let length = u32::try_from(raw.len()).unwrap_or(u32::MAX);
    let mut put = |at: usize, value: u32| raw[at..at + 4].copy_from_slice(&value.to_le_bytes());
    put(offset_of!(RecordHead, kind), KIND_SAMPLE);
    put(offset_of!(RecordHead, bytes), length);
    put(offset_of!(SampleRecord, frames), depth);
    put(offset_of!(SampleRecord, depth), depth);
    put(offset_of!(SampleRecord, leaf_frames), depth);
    for index in 0..depth {
        put(
            size_of::<SampleRecord>() + frame * index as usize,
            4096 + 64 * index,
        );
    }
    Bytes::from(raw)
}

fn decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wire");
    for depth in DEPTHS {
        let bytes = record(depth);
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("decode", depth), |bencher| {
            bencher.iter(|| wire::decode(black_box(&bytes)));
        });
        let Ok(Event::Tick(tick)) = wire::decode(&bytes) else {
            panic!("the record is not a sample: {:?}", wire::decode(&bytes));
        };
        group.bench_function(BenchmarkId::new("decode to chain", depth), |bencher| {
            bencher.iter(|| {
                let frames: Vec<RawFrame> = black_box(&tick).frames().collect();
                Chain::from_record(&frames, tick.depth, tick.leaf_frames, tick.walk_end)
            });
        });
    }
    group.finish();
}

/// The last line of a code of 200 lines, two units of bytecode each.
fn lines(criterion: &mut Criterion) {
    const LINES: usize = 200;
    // One line more, two units, columns 0 to 4; then pairs of an address's step and a line's.
    let location: &[u8] = &[0x80 | (11 << 3) | 1, 0, 4];
    let tables: [(&str, LineFormat, &[u8]); 3] = [
        ("to 3.9", LineFormat::Lnotab, &[4, 1]),
        ("3.10", LineFormat::Lengths, &[4, 1]),
        ("from 3.11", LineFormat::Locations, location),
    ];
    let mut group = criterion.benchmark_group("line table");
    for (name, format, entry) in tables {
        let table = entry.repeat(LINES);
        let offset = 4 * LINES as u64 - 2;
        assert!(format.line(&table, 1, offset).is_some(), "{name}");
        group.bench_function(name, |bencher| {
            bencher.iter(|| format.line(black_box(&table), 1, black_box(offset)));
        });
    }
    group.finish();
}

fn meta() -> ProfileMeta {
    ProfileMeta {
        whose: Whose::Threads,
        pid: PID,
        command: String::from("python3 main.py"),
        python: String::from("3.12.1"),
        build: String::from("default"),
        mode: Mode::Cpu,
        engine: String::from("bpf"),
        rate_hz: 99,
        period: DurationNs(10_101_010),
        clock: String::from("cpu-clock"),
        host: String::from("example"),
        started_at: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        start: MonotonicNs(0),
    }
}

/// Stacks that share their roots, as a program's do: each as its frames, leaf first.
fn stacks(count: u32, depth: u32) -> Vec<Vec<Frame>> {
    let frame = |stack: u32, level: u32| {
        let function = match level {
            0..4 => stack,
            4..12 => stack / 16,
            _ => 0,
        };
        let name = format!("function_{level}_{function}");
        Frame::python(
            &*name,
            "/srv/app/module.py",
            Some(level),
            Some(function + level),
        )
    };
    let stack = |stack| (0..depth).map(|level| frame(stack, level)).collect();
    (0..count).map(stack).collect()
}

fn builder() -> (ProfileBuilder, ThreadIndex) {
    let mut builder = ProfileBuilder::new(meta()).with_timeline();
    let thread = builder.thread(ThreadInfo {
        pid: PID,
        tid: Tid(4242),
        name: String::from("MainThread"),
        python: true,
    });
    (builder, thread)
}

fn add(builder: &mut ProfileBuilder, thread: ThreadIndex, ids: &[FrameId], time: u64) {
    let stack = builder.stack(ids);
    let place = Place {
        thread,
        stack,
        frames_from: FramesFrom::Kernel,
        behind: None,
    };
    let sample = Sample {
        time: MonotonicNs(time),
        pid: PID,
        tid: Tid(4242),
        cpu: Some(Cpu(0)),
        ticks: 1,
        weight: DurationNs(10_101_010),
        activity: Activity::OnCpu,
        gil: Gil::Holds,
        gc: Gc::Idle,
        handling: Handling::Unknown,
        generation: Generation(1),
    };
    builder.add(place, &sample);
}

/// A profile of so many stacks.
fn profile(of: &[Vec<Frame>]) -> Profile {
    let (mut builder, thread) = builder();
    for (time, frames) in (1..).zip(of) {
        let ids = frames.iter().map(|frame| builder.frame(frame.clone()));
        let ids: Vec<FrameId> = ids.collect();
        add(&mut builder, thread, &ids, time);
    }
    let end = MonotonicNs(of.len() as u64 + 1);
    let ledger = builder.ledger(end);
    builder.close(end, ledger)
}

fn interning(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("interning");
    let stacks = stacks(1000, 20);
    group.throughput(Throughput::Elements(stacks.len() as u64));
    group.bench_function("1000 new stacks, 20 deep", |bencher| {
        bencher.iter(|| profile(black_box(&stacks)));
    });
    let (mut builder, thread) = builder();
    let known: Vec<Vec<FrameId>> = stacks
        .iter()
        .map(|frames| frames.iter().map(|it| builder.frame(it.clone())).collect())
        .collect();
    group.bench_function("samples of 1000 known stacks", |bencher| {
        // Without the timeline, which would grow with each.
        let mut builder = builder.clone();
        bencher.iter(|| {
            for ids in &known {
                let stack = builder.stack(black_box(ids));
                black_box((stack, thread));
            }
        });
    });
    group.finish();
}

fn exporters(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("export of 2000 stacks, 30 deep");
    group.sample_size(20);
    let profile = profile(&stacks(2000, 30));
    let options = Options::default();
    for format in Format::ALL {
        group.bench_function(format.name(), |bencher| {
            bencher.iter(|| {
                let mut out = Vec::new();
                export::write(format, black_box(&profile), &options, &mut out).map(|()| out)
            });
        });
    }
    group.finish();
}

criterion_group!(rooms, decode, lines, interning, exporters);
criterion_main!(rooms);
