//! Every image, read as it is: by the target's own account, and by the text that was read of it
//! before.

use std::collections::BTreeSet;
use std::{env, fs};

use profiler::pystack::PyFrame;

use super::account::Account;
use super::images;
use super::reading::{ACCOUNT, facts_of};

#[test]
fn every_supported_version_has_an_image() {
    let minors: BTreeSet<u8> = images::all()
        .iter()
        .filter(|recorded| !recorded.found.free_threaded)
        .map(|recorded| recorded.found.version.minor)
        .collect();
    let supported =
        profiler::cpython::layout::OLDEST_MINOR..=profiler::cpython::layout::NEWEST_MINOR;
    assert_eq!(minors, supported.collect());
}

#[test]
fn an_image_tells_where_its_runtime_was_found() {
    for recorded in images::all() {
        let told = facts_of(&recorded.found);
        let kept = &recorded.image.meta.facts;
        assert!(told.iter().all(|(key, fact)| kept.get(key) == Some(fact)));
    }
}

#[test]
fn every_frame_of_every_image_is_what_the_target_said() {
    for recorded in images::all() {
        let account = &recorded.image.meta.facts[ACCOUNT];
        let reading = recorded.read(&recorded.image.memory).expect("it is whole");
        let agreed = Account::parse(account).and_then(|account| account.agrees_with(&reading));
        assert_eq!(agreed, Ok(()), "{}", recorded.name);
    }
}

/// By their names, those of `known_stacks.py` that are generators and coroutines.
#[test]
fn the_generators_of_every_image_are_noted_and_nothing_else() {
    const GENERATORS: [&str; 4] = ["generator", "delegating", "coroutine", "awaiting"];
    for recorded in images::all() {
        let reading = recorded.read(&recorded.image.memory).expect("it is whole");
        let mut total = 0;
        for thread in reading.threads.iter().filter(|it| it.chain.missing == 0) {
            let named = thread.frames.iter().enumerate().filter(|(_, frame)| {
                matches!(frame, PyFrame::Known { code, .. } if GENERATORS.contains(&&*code.name))
            });
            let named: Vec<usize> = named.map(|(index, _)| index).collect();
            let noted = &thread.chain.generators;
            let noted: Vec<usize> = noted.iter().map(|noted| noted.frame).collect();
            assert_eq!(noted, named, "{}, {:?}", recorded.name, thread.name);
            assert!(thread.chain.root.is_some(), "{}", recorded.name);
            total += noted.len();
        }
        assert_eq!(total, 20, "{}", recorded.name);
    }
}

/// Also what the target does not say: which rungs of the ladder, whose files, how the walks end.
#[test]
fn every_image_reads_as_it_did() {
    let mut changed = Vec::new();
    for recorded in images::all() {
        let path = images::folder().join(format!("{}.txt", recorded.name));
        let reading = recorded.read(&recorded.image.memory).expect("it is whole");
        let text = format!("{}\n\n{reading}", recorded.image.meta.recipe);
        if env::var_os("BLESS").is_some() {
            fs::write(&path, &text).expect("the text can be written");
        }
        if fs::read_to_string(&path).unwrap_or_default() != text {
            changed.push(path.display().to_string());
        }
    }
    assert!(
        changed.is_empty(),
        "these are not what is read now; if they should be, run with BLESS=1: {changed:#?}"
    );
}

#[test]
fn every_thread_of_every_image_is_named_by_the_rungs_that_apply() {
    for recorded in images::all() {
        let reading = recorded.read(&recorded.image.memory).expect("it is whole");
        for thread in &reading.threads {
            let (tid, rungs) = thread.thread.clone().expect("it is named");
            let mut expected = vec!["control_block", "stack_scan"];
            if tid.0 == recorded.image.meta.pid.0 {
                expected[1] = "main_thread";
            }
            if recorded.found.version.is_at_least(11) {
                expected.insert(0, "native_thread_id");
            }
            assert_eq!(rungs, expected, "{}, thread {tid}", recorded.name);
        }
    }
}
