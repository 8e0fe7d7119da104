//! Logs of the ring, made by hand, from bytes to events in order: rung 1.
//!
//! Who the threads of such a log are is held beside the code (`pipeline/people`), for that takes
//! a process to ask.

use bytes::Bytes;
use profiler::assembler::Assembler;
use profiler::wire::{self, Event, ExitStatus, Times, WireError};
use profiler::words::{DurationNs, MonotonicNs, Pid, Tid};
use profiler_common::record::{
    KIND_EXEC, KIND_EXIT, KIND_FORK, KIND_GONE, KIND_SAMPLE, KIND_STACK, LIFE_LAST, LIFE_REPLACED,
    LifeRecord, RecordHead, SampleRecord, StackRecord,
};
use profiler_common::walk::RawFrame;
use proptest::prelude::*;

const PID: u32 = 100;
/// Longer than the assembler waits for the young.
const SETTLED: u64 = 10_000_000;

/// A record under way: its fixed part as words of 32 bits, in the order of the contract.
fn record(kind: u32, time: u64, tid: u32, rest: &[u32]) -> Bytes {
    let bytes = size_of::<RecordHead>() + 4 * rest.len();
    let time = [time as u32, (time >> 32) as u32];
    let head = [kind, bytes as u32, time[0], time[1], PID, tid];
    let words = head.iter().chain(rest);
    words.flat_map(|word| word.to_le_bytes()).collect()
}

fn life(kind: u32, time: u64, tid: u32, on_cpu: u32) -> Bytes {
    life_with(kind, time, tid, on_cpu, [0; 3])
}

/// The same with its flags, the id before and the status.
fn life_with(kind: u32, time: u64, tid: u32, on_cpu: u32, [flags, old, code]: [u32; 3]) -> Bytes {
    let name = u32::from_le_bytes(*b"sh\0x");
    let rest = [
        PID, flags, on_cpu, 0, 56, 0, 78, 0, old, code, name, 0, 0, 0,
    ];
    let record = record(kind, time, tid, &rest);
    assert_eq!(record.len(), size_of::<LifeRecord>());
    record
}

fn tick(time: u64, tid: u32, frames: u32) -> Bytes {
    let fixed = (size_of::<SampleRecord>() - size_of::<RecordHead>()) / 4;
    let mut rest = vec![0; fixed];
    rest[1] = 1;
    let count = std::mem::offset_of!(SampleRecord, frames) - size_of::<RecordHead>();
    rest[count / 4] = frames;
    rest.extend((0..frames).flat_map(|frame| [0x1000 + frame, 0, frame, 0]));
    record(KIND_SAMPLE, time, tid, &rest)
}

/// A native stack: frames of the kernel, and words of the user's.
fn stack(time: u64, tid: u32, kernel: u32, words: u32) -> Bytes {
    let fixed = (size_of::<StackRecord>() - size_of::<RecordHead>()) / 4;
    let mut rest = vec![0; fixed];
    let at = |field| (field - size_of::<RecordHead>()) / 4;
    rest[at(std::mem::offset_of!(StackRecord, kernel_frames))] = kernel;
    rest[at(std::mem::offset_of!(StackRecord, stack_bytes))] = words * 8;
    rest.extend((0..kernel + words).flat_map(|word| [word, 0]));
    record(KIND_STACK, time, tid, &rest)
}

/// Plays records, a batch after the other, each with the time at which it is looked at; what
/// comes out, with the batch in which it does.
fn play(batches: &[(u64, Vec<Bytes>)]) -> (Vec<(usize, Event)>, Vec<WireError>) {
    let mut assembler = Assembler::default();
    let (mut events, mut errors) = (Vec::new(), Vec::new());
    for (number, (now, records)) in batches.iter().enumerate() {
        for record in records {
            match wire::decode(record) {
                Ok(event) => assembler.push(event),
                Err(error) => errors.push(error),
            }
        }
        let settled = assembler.settled(MonotonicNs(*now));
        events.extend(settled.map(|event| (number, event)));
    }
    (events, errors)
}

/// An event in a few letters.
fn short(event: &Event) -> String {
    match event {
        Event::Tick(tick) => format!("tick {} {}", tick.tid, tick.frame_count()),
        Event::Stack(stack) => {
            format!(
                "stack {} {} of {}",
                stack.tid,
                stack.kernel().count(),
                stack.stack().len()
            )
        }
        Event::Fork { tid, .. } => format!("fork {tid}"),
        Event::Exec { pid, .. } => format!("exec {pid}"),
        Event::Exit { tid, last, .. } => format!("{} {tid}", if *last { "gone" } else { "exit" }),
    }
}

fn check(batches: &[(u64, Vec<Bytes>)], expected: &[&str]) {
    let (events, errors) = play(batches);
    let told: Vec<String> = events.iter().map(|(_, event)| short(event)).collect();
    assert_eq!(told, expected);
    assert_eq!(errors, []);
}

#[test]
fn a_native_stack_comes_before_its_tick_also_when_other_cpus_are_between() {
    let log = vec![
        stack(200, 101, 2, 3),
        tick(100, 102, 1),
        tick(200, 101, 1),
        stack(300, 102, 0, 0),
        tick(300, 102, 0),
    ];
    let expected = [
        "tick 102 1",
        "stack 101 2 of 24",
        "tick 101 1",
        "stack 102 0 of 0",
        "tick 102 0",
    ];
    check(&[(SETTLED, log)], &expected);
}

#[test]
fn a_thread_is_born_runs_and_ends_in_this_order_whatever_the_rings() {
    let mut log = vec![
        life(KIND_GONE, 500, 101, 9),
        tick(300, 101, 2),
        life(KIND_FORK, 100, 101, 0),
        tick(200, 101, 1),
        life(KIND_EXIT, 400, 101, 8),
    ];
    let expected = [
        "fork 101",
        "tick 101 1",
        "tick 101 2",
        "exit 101",
        "gone 101",
    ];
    for _ in 0..log.len() {
        log.rotate_left(1);
        check(&[(SETTLED, log.clone())], &expected);
    }
}

#[test]
fn an_id_that_comes_again_is_born_after_its_last_owner_is_gone() {
    let first = vec![tick(200, 101, 1), life(KIND_EXIT, 300, 101, 5)];
    let second = vec![
        tick(600, 101, 3),
        life(KIND_GONE, 350, 101, 6),
        life(KIND_FORK, 500, 101, 0),
    ];
    check(
        &[(SETTLED, first), (2 * SETTLED, second)],
        &[
            "tick 101 1",
            "exit 101",
            "gone 101",
            "fork 101",
            "tick 101 3",
        ],
    );
}

#[test]
fn the_young_wait_for_those_that_overtook_them() {
    let now = 5 * SETTLED;
    let early = vec![tick(now - 10, 101, 1), tick(now - SETTLED, 102, 1)];
    let late = vec![tick(now - 20, 103, 1)];
    let (events, _) = play(&[(now, early), (now + SETTLED, late)]);
    let told: Vec<(usize, String)> = events.iter().map(|(n, e)| (*n, short(e))).collect();
    let expected = [(0, "tick 102 1"), (1, "tick 103 1"), (1, "tick 101 1")];
    assert_eq!(told, expected.map(|(n, text)| (n, text.to_owned())));
}

#[test]
fn events_of_one_instant_keep_the_rings_order() {
    let log = vec![
        life(KIND_FORK, 7, 101, 0),
        life(KIND_EXEC, 7, 100, 0),
        life(KIND_EXIT, 7, 101, 0),
    ];
    check(&[(SETTLED, log)], &["fork 101", "exec 100", "exit 101"]);
}

#[test]
fn what_a_life_record_says_is_kept() {
    let check = |kind, [flags, code]: [u32; 2], process, replaced| {
        let record = life_with(kind, 7, 101, 1234, [flags, 0, code]);
        let (events, _) = play(&[(SETTLED, vec![record])]);
        let expected = Event::Exit {
            time: MonotonicNs(7),
            pid: Pid(PID),
            tid: Tid(101),
            times: Times {
                on_cpu: DurationNs(1234),
                runnable: DurationNs(56),
                blocked: DurationNs(78),
            },
            last: kind == KIND_GONE,
            process,
            replaced,
        };
        assert_eq!(events, [(0, expected)]);
    };
    check(KIND_EXIT, [0, 0], None, false);
    check(
        KIND_EXIT,
        [LIFE_LAST, 3 << 8],
        Some(ExitStatus::Code(3)),
        false,
    );
    // The bit above the signal says that there is a core file.
    check(
        KIND_GONE,
        [LIFE_LAST, 0x8b],
        Some(ExitStatus::Signal(11)),
        false,
    );
    check(KIND_GONE, [LIFE_REPLACED, 0], None, true);
    let (events, _) = play(&[(SETTLED, vec![life_with(KIND_EXEC, 7, PID, 0, [0, 103, 0])])]);
    let expected = Event::Exec {
        time: MonotonicNs(7),
        pid: Pid(PID),
        old: Tid(103),
        name: "sh".to_owned(),
    };
    assert_eq!(events, [(0, expected)]);
}

#[test]
fn a_record_that_is_none_takes_no_other_with_it() {
    let log = vec![
        tick(1, 101, 2),
        Bytes::from_static(b"short"),
        record(9, 2, 101, &[0; 14]),
        tick(3, 101, 2).slice(..100),
        tick(4, 101, 0),
    ];
    let (events, errors) = play(&[(SETTLED, log)]);
    assert_eq!(events.len(), 2);
    let says = size_of::<SampleRecord>() + 2 * size_of::<RawFrame>();
    assert_eq!(
        errors,
        [
            WireError::TooShort(5),
            WireError::UnknownKind(9),
            WireError::LengthMismatch {
                says: says as u32,
                has: 100
            }
        ]
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// However late each record comes, within the horizon all come out once and in order.
    #[test]
    fn nothing_is_lost_or_out_of_order(late in proptest::collection::vec(0_u64..1_000_000, 1..60)) {
        let mut arrivals: Vec<(u64, u32)> = (0..late.len() as u32)
            .map(|number| (u64::from(number) * 300_000 + late[number as usize], number))
            .collect();
        arrivals.sort_unstable();
        let batches: Vec<(u64, Vec<Bytes>)> = arrivals
            .chunks(3)
            .map(|batch| {
                let now = SETTLED + batch.last().map_or(0, |(arrival, _)| *arrival);
                let begun = |number: u32| SETTLED + u64::from(number) * 300_000;
                let records = batch.iter().map(|(_, number)| tick(begun(*number), *number, 0));
                (now, records.collect())
            })
            .chain([(u64::MAX, Vec::new())])
            .collect();
        let (events, errors) = play(&batches);
        let told: Vec<u64> = events.iter().map(|(_, event)| event.time().0).collect();
        prop_assert_eq!(errors, vec![]);
        prop_assert_eq!(told.len(), late.len());
        prop_assert!(told.is_sorted());
    }
}
