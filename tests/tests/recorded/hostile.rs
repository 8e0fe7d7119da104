//! Every image with lies in it: pointers that lead in circles and to nowhere, sizes without
//! measure, holes. Nothing may panic, hang or grow without bound, and a frame is right or says
//! why it is not. The lies are the same each time.
//!
//! A reading takes milliseconds and an image has a hundred thousand words, so a share of them is
//! tried; `PROFILER_TEST_THOROUGH` multiplies it.

use std::collections::BTreeMap;

use profiler::pystack::PyFrame;
use profiler::target::Memory;
use profiler::words::RemoteAddr;
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::fields::{self, Field};
use super::images;
use super::lying::{Beyond, Lying};
use super::reading::{MAX_FRAMES, Reading, show};
use super::victim::{EVILS, Victim, evil, scrambled};

/// How many of each kind of lie are told to an image.
fn share(of: usize) -> usize {
    let thorough = std::env::var("PROFILER_TEST_THOROUGH");
    let times = thorough.ok().and_then(|times| times.parse().ok());
    of * times.unwrap_or(1)
}

/// Runs a check on every image, on all CPUs.
fn on_every_image(check: impl Fn(&Victim) + Sync) {
    std::thread::scope(|scope| {
        for recorded in images::all() {
            let check = &check;
            scope.spawn(move || check(&Victim::new(recorded)));
        }
    });
}

#[test]
fn a_word_that_lies_harms_nobody() {
    on_every_image(|victim| {
        let pointers = victim.words.len() / 2;
        for case in 0..share(40) {
            // Two of three lies are about pointers.
            let index = if case % 3 == 2 { pointers + case } else { case };
            let (addr, word) = victim.word(index);
            let (other, _) = victim.word(scrambled(case as u64) as usize);
            let lie = evil(case, addr, word, other);
            let memory = Lying::new(&victim.recorded.image.memory).with_word(addr, lie);
            victim.survives(&memory, &format!("{word:#x} at {addr:#x} is {lie:#x}"));
        }
    });
}

#[test]
fn every_field_that_means_something_may_lie() {
    on_every_image(|victim| {
        let fields = fields::of(&victim.truth, &victim.recorded.image.memory);
        for (number, field) in fields.iter().enumerate() {
            let Field { what, addr } = field;
            let other = fields[scrambled(number as u64) as usize % fields.len()].addr;
            let memory = &victim.recorded.image.memory;
            let word = memory.u64(RemoteAddr(*addr)).unwrap_or(0);
            for turn in 0..share(1).min(EVILS) {
                let lie = evil(number + 5 * turn, *addr, word, other);
                let memory = Lying::new(memory).with_word(*addr, lie);
                victim.survives(&memory, &format!("{what} at {addr:#x} is {lie:#x}"));
            }
        }
    });
}

/// Tables of names that are said to be as long as can be believed, each entry a thread with such
/// a table of its own.
#[test]
fn tables_within_tables_are_given_up() {
    on_every_image(|victim| {
        let truth = &victim.recorded.image.memory;
        let (sizes, entry) = fields::tables_of_names(&victim.truth.runtime, truth);
        let mut memory = Lying::new(truth).with_beyond(Beyond::Turns(entry));
        for addr in sizes {
            memory = memory.with_word(addr, 1 << 16);
        }
        victim.survives(&memory, "tables of 65536 entries");
    });
}

#[test]
fn sizes_without_measure_over_endless_memory_are_not_believed() {
    let beyonds = [
        Beyond::Zeroes,
        Beyond::Selves,
        Beyond::Turns([0x7FFF_0000_0000; 2]),
        Beyond::Noise,
    ];
    on_every_image(|victim| {
        for (number, beyond) in beyonds.into_iter().enumerate() {
            for case in 0..share(4) {
                let (addr, word) = victim.word(case * beyonds.len() + number);
                let lie = evil(case, addr, word, addr + 64);
                let memory = Lying::new(&victim.recorded.image.memory)
                    .with_word(addr, lie)
                    .with_beyond(beyond);
                let what = format!("{word:#x} at {addr:#x} is {lie:#x}, beyond {beyond:?}");
                victim.survives(&memory, &what);
            }
        }
    });
}

/// A hole is no lie: what is read around it must be what is there.
#[test]
fn what_is_read_around_a_hole_is_right() {
    on_every_image(|victim| {
        let mut pages: Vec<u64> = victim.words.iter().map(|addr| addr & !0xFFF).collect();
        pages.sort_unstable();
        pages.dedup();
        pages.sort_by_key(|&page| scrambled(page));
        for page in pages.into_iter().take(share(15)) {
            let memory = Lying::new(&victim.recorded.image.memory).with_hole(page..page + 4096);
            let lie = format!("a hole at {page:#x}");
            if let Some(reading) = victim.survives(&memory, &lie) {
                is_part_of_the_truth(&victim.truth, &reading, &lie);
            }
        }
    });
}

fn is_part_of_the_truth(truth: &Reading, reading: &Reading, lie: &str) {
    assert_eq!(reading.contradictions, 0, "{lie}");
    let by_state: BTreeMap<_, _> = truth.threads.iter().map(|it| (it.state.addr, it)).collect();
    for thread in &reading.threads {
        let truth = by_state[&thread.state.addr];
        assert_eq!(thread.state.pthread_id, truth.state.pthread_id, "{lie}");
        if thread.name.is_some() {
            assert_eq!(thread.name, truth.name, "{lie}");
        }
        if let (Some((tid, _)), Some((true_tid, _))) = (&thread.thread, &truth.thread) {
            assert_eq!(tid, true_tid, "{lie}");
        }
        assert!(
            thread.by_hops.is_none() || thread.by_hops == truth.by_hops,
            "{lie}"
        );
        let whole: Vec<String> = truth.frames.iter().map(show).collect();
        let mut broken = false;
        for (at, frame) in thread.frames.iter().enumerate() {
            assert!(!broken, "{lie}: a frame after the break");
            match frame {
                PyFrame::Unreadable { .. } => {}
                PyFrame::Broken { .. } => broken = true,
                // What is cut depends on where the walk ended, and so does what comes after.
                PyFrame::Cut { .. } => {}
                _ if at < whole.len().min(MAX_FRAMES as usize / 2) => {
                    assert_eq!(show(frame), whole[at], "{lie}");
                }
                _ => assert!(whole.contains(&show(frame)), "{lie}"),
            }
        }
        let complete = thread.frames.len() == whole.len();
        assert!(complete || broken, "{lie}: frames are missing in silence");
    }
}

#[test]
fn many_lies_at_once_harm_nobody() {
    on_every_image(|victim| {
        let config = Config {
            cases: share(15) as u32,
            failure_persistence: None,
            ..Config::default()
        };
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let lies = vec((any::<u32>(), any::<u32>(), any::<u8>()), 1..12);
        let beyond = 0..4_u8;
        TestRunner::new_with_rng(config, rng)
            .run(&(lies, beyond), |(lies, beyond)| {
                let mut memory = Lying::new(&victim.recorded.image.memory);
                for (at, other, which) in &lies {
                    let (addr, word) = victim.word(*at as usize);
                    let (other, _) = victim.word(*other as usize);
                    memory = memory.with_word(addr, evil((*which).into(), addr, word, other));
                }
                // Mostly nothing, since then the walks go on longest.
                if beyond == 3 {
                    memory = memory.with_beyond(Beyond::Noise);
                }
                victim.survives(&memory, &format!("{lies:?}"));
                Ok(())
            })
            .expect("no lie harms");
    });
}
