//! speedscope's file format: one "sampled" profile a thread, in nanoseconds.
//!
//! Where the profile has a timeline its samples are in the order of time, the stretches in
//! which a thread was not sampled left empty, so that threads stand side by side as they ran.
//! Otherwise each distinct stack comes once. The shape is that of speedscope's published
//! `file-format-schema.json`.

use std::collections::HashMap;
use std::io;

use serde::Serialize;

use crate::aggregate::{Profile, ThreadIndex, Timeline, count};
use crate::export::Options;
use crate::export::view::{Seen, View, thread_name};
use crate::stack::{FrameKind, StackId};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    shared: Shared<'a>,
    profiles: Vec<Sampled>,
    name: String,
    active_profile_index: usize,
    exporter: &'static str,
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: Vec<SharedFrame<'a>>,
}

#[derive(Serialize)]
struct SharedFrame<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Vec<Vec<Seen>>,
    weights: Vec<u64>,
}

impl Sampled {
    fn new(name: String) -> Self {
        Self {
            r#type: "sampled",
            name,
            unit: "nanoseconds",
            start_value: 0,
            end_value: 0,
            samples: Vec::new(),
            weights: Vec::new(),
        }
    }

    fn push(&mut self, stack: &[Seen], weight: u64) {
        self.end_value = self.end_value.saturating_add(weight);
        match (self.samples.last(), self.weights.last_mut()) {
            (Some(last), Some(sum)) if last == stack => *sum = sum.saturating_add(weight),
            _ => {
                self.samples.push(stack.to_vec());
                self.weights.push(weight);
            }
        }
    }
}

/// Writes `profile` as speedscope's JSON; an empty profile has one thread without samples.
///
/// # Errors
/// Those of `out`.
pub fn write(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let view = View::new(profile, options.granularity);
    let mut name = profile.meta().command.clone();
    let threads = match profile.timeline() {
        Timeline::Kept(_) => in_time(&view),
        Timeline::NotKept => summed(&view),
        Timeline::TooLong { limit } => {
            let limit = count(*limit as u64);
            name += &format!(" (summed up: more than {limit} samples)");
            summed(&view)
        }
    };
    let busiest = (0..threads.len()).max_by_key(|i| {
        let thread = &threads[*i];
        let busy = thread.samples.iter().zip(&thread.weights);
        let busy = busy.filter(|(stack, _)| !stack.is_empty()).map(|(_, w)| *w);
        (busy.sum::<u64>(), usize::MAX - i)
    });
    let profiles = if threads.is_empty() {
        vec![Sampled::new(String::from("no samples"))]
    } else {
        threads
    };
    let file = File {
        schema: SCHEMA,
        shared: Shared {
            frames: shared_frames(&view),
        },
        profiles,
        name,
        active_profile_index: busiest.unwrap_or(0),
        exporter: concat!("profiler ", env!("CARGO_PKG_VERSION")),
    };
    serde_json::to_writer(&mut *out, &file)?;
    writeln!(out)
}

fn shared_frames<'v>(view: &'v View<'_>) -> Vec<SharedFrame<'v>> {
    view.frames()
        .iter()
        .map(|frame| SharedFrame {
            name: &frame.function,
            file: match (&*frame.file, &frame.module) {
                ("", module) => module.as_deref(),
                (file, _) => Some(file),
            },
            line: frame.line.filter(|_| frame.kind == FrameKind::Python),
        })
        .collect()
}

/// By thread, in the order of first appearance.
struct Threads<'v, 'a> {
    view: &'v View<'a>,
    profiles: Vec<Sampled>,
    by_index: HashMap<ThreadIndex, usize>,
    stack: Vec<Seen>,
}

impl<'v, 'a> Threads<'v, 'a> {
    fn new(view: &'v View<'a>) -> Self {
        Self {
            view,
            profiles: Vec::new(),
            by_index: HashMap::new(),
            stack: Vec::new(),
        }
    }

    /// `idle` nanoseconds without a sample, then `weight` in `stack`.
    fn push(&mut self, thread: ThreadIndex, stack: StackId, idle: u64, weight: u64) {
        let at = self.at(thread);
        let profile = &mut self.profiles[at];
        if idle > 0 {
            profile.push(&[], idle);
        }
        self.view.root_first(thread, stack, false, &mut self.stack);
        profile.push(&self.stack, weight);
    }

    fn at(&mut self, thread: ThreadIndex) -> usize {
        *self.by_index.entry(thread).or_insert_with(|| {
            let info = self.view.profile.threads().get(thread.0 as usize);
            let name = info.map_or_else(|| String::from("unknown thread"), thread_name);
            self.profiles.push(Sampled::new(name));
            self.profiles.len() - 1
        })
    }
}

fn summed(view: &View<'_>) -> Vec<Sampled> {
    let mut threads = Threads::new(view);
    for entry in view.profile.entries() {
        threads.push(entry.thread, entry.stack, 0, entry.weight.0);
    }
    threads.profiles
}

fn in_time(view: &View<'_>) -> Vec<Sampled> {
    let mut threads = Threads::new(view);
    let Timeline::Kept(moments) = view.profile.timeline() else {
        return threads.profiles;
    };
    let meta = view.profile.meta();
    for moment in moments {
        let at = threads.at(moment.thread);
        let covered = meta.start.0.saturating_add(threads.profiles[at].end_value);
        let begin = moment.time.0.saturating_sub(moment.weight.0);
        let gap = begin.saturating_sub(covered);
        // Ticks come a little early or late; only what is longer was time without a sample.
        let idle = if gap > meta.period.0 / 2 { gap } else { 0 };
        threads.push(moment.thread, moment.stack, idle, moment.weight.0);
    }
    threads.profiles
}
