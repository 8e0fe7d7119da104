//! The profile and the ledger as JSON.

use profiler::aggregate::Ledger;
use profiler::export::{self, Format, Options};
use serde_json::Value;

use super::made;

#[test]
fn the_file_holds_what_the_profile_holds() {
    let profile = made::rich();
    let text = made::text(Format::Json, &profile, &Options::default());
    let file: Value = serde_json::from_str(&text).expect("it is JSON");
    let sum = |key: &str| -> u64 {
        let entries = file["entries"].as_array().expect("entries");
        entries.iter().filter_map(|entry| entry[key].as_u64()).sum()
    };
    assert_eq!(sum("ticks"), profile.ticks());
    assert_eq!(sum("weight_ns"), profile.weight().0);
    let n_frames = file["frames"].as_array().expect("frames").len();
    for stack in file["stacks"].as_array().expect("stacks") {
        for frame in stack.as_array().expect("a stack") {
            assert!(
                frame
                    .as_u64()
                    .is_some_and(|frame| (frame as usize) < n_frames)
            );
        }
    }
    assert_eq!(file["threads"][1]["name"], "worker; the\nsecond");
    assert_eq!(
        file["meta"]["started_at_unix_ns"],
        1_700_000_000_000_000_000_u64
    );
    let ledger: Ledger = serde_json::from_value(file["ledger"].clone()).expect("a ledger");
    assert_eq!(&ledger, profile.ledger());
}

#[test]
fn a_profile_without_samples_is_a_file_without_entries() {
    for profile in [made::empty(), made::bare()] {
        let text = made::text(Format::Json, &profile, &Options::default());
        let file: Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(file["entries"], Value::Array(Vec::new()));
    }
}

#[test]
fn the_ledgers_keys_are_the_documented_ones_in_their_order() {
    let mut ledger = made::rich().ledger().clone();
    ledger.threads.truncate(1);
    let mut text = Vec::new();
    export::json::write_ledger(&ledger, &mut text).expect("a vector takes everything");
    let text = String::from_utf8(text).expect("text is UTF-8");
    let expected = concat!(
        r#"{"schema":1,"pid":4242,"python":"3.12.1","build":"default","engine":"bpf","#,
        r#""why_not_bpf":null,"mode":"cpu","#,
        r#""clock":"CLOCK_MONOTONIC","#,
        r#""rate_hz":99,"period_ns":10101010,"duration_s":0.43434343,"rounds":null,"#,
        r#""ticks":45,"late_ticks":0,"max_rate_hz":null,"looks":0,"samples":42,"#,
        r#""losses":{"ring_full":3},"#,
        r#""frames_from":{"kernel":34,"user":0,"cached":0,"estimated":0,"none":8},"#,
        r#""moved":0,"contradictions":0,"#,
        r#""gil":{"holds":34,"waits":0,"neither":0,"no_gil":0,"unknown":8},"gc":2,"#,
        r#""handling":{"exception":0,"nothing":0,"unknown":42},"blocked":{},"#,
        r#""processes":[{"pid":4242,"parent":null,"command":"","python":"","ticks":42,"samples":42,"#,
        r#""sampled_ns":424242420,"scheduler_ns":null,"started_s":0.0,"ended_s":null,"#,
        r#""ended_by":null,"seen":"read"}],"not_followed":0,"#,
        r#""threads":[{"pid":4242,"tid":4242,"name":"MainThread","pthread_id":139637976731794,"python":true,"#,
        r#""matched_by":["tls_base"],"samples":23,"sampled_ns":232323230,"scheduler_ns":233323230,"#,
        r#""sampled_runnable_ns":0,"sampled_blocked_ns":0,"#,
        r#""runnable_ns":null,"blocked_ns":null,"wall_ns":null}],"#,
        r#""unsampled":{"processes":0,"threads":0,"on_cpu_ns":0},"events_lost":0,"#,
        r#""profiler":{"cpu_ns":120000000,"bpf_ns":null,"bpf_runs":null,"bpf_counted_ns":null,"rss_bytes":null,"#,
        r#""tick_ns":null,"first_sample_ns":null}}"#,
    );
    assert_eq!(text.trim_end(), expected);
}
