//! speedscope's file format: one "sampled" profile a thread, in nanoseconds.
//!
//! Where the profile has a timeline its samples are in the order of time, the stretches in
//! which a thread was not sampled left empty, so that threads stand side by side as they ran.
//! Otherwise each distinct stack comes once. The shape is that of speedscope's published
//! `file-format-schema.json`.
//!
//! In the modes `wall` and `offcpu` a thread has a profile for its time on a CPU, one for the
//! time in which it was runnable and one in which it was blocked; with `--state-frames` it is
//! one profile again, and a frame says which. In the mode `gil` frames always do.

use std::collections::HashMap;
use std::io;

use serde::Serialize;

use crate::aggregate::{CLOCK, Moment, Profile, ThreadIndex, Timeline, count};
use crate::export::Options;
use crate::export::states::{Kind, Spot};
use crate::export::view::{Seen, View, thread_name};
use crate::sample::Mode;
use crate::stack::FrameKind;

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
    let view = View::new(profile, options);
    let mut name = name(profile);
    let threads = match profile.timeline() {
        Timeline::Kept(moments) => in_time(&view, moments, options),
        Timeline::NotKept => summed(&view, options),
        Timeline::TooLong { limit } => {
            let limit = count(*limit as u64);
            name += &format!(" (summed up: more than {limit} samples)");
            summed(&view, options)
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

/// The command, and what the weights are.
fn name(profile: &Profile) -> String {
    let meta = profile.meta();
    let mode = meta.mode.key();
    let command = match meta.command.trim() {
        "" => format!("process {}", meta.pid),
        command => command.to_owned(),
    };
    format!("{command} · {mode}, times of {CLOCK}")
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
///
/// speedscope knows no labels, so time on and off a CPU is kept apart by profiles: each one's
/// weights are then of one kind. Where frames tell them apart, a thread has one.
struct Threads<'v, 'a> {
    view: &'v View<'a>,
    by_kind: bool,
    profiles: Vec<Sampled>,
    places: HashMap<(ThreadIndex, Option<Kind>), usize>,
    ranks: HashMap<ThreadIndex, usize>,
    stack: Vec<Seen>,
}

impl<'v, 'a> Threads<'v, 'a> {
    fn new(view: &'v View<'a>, options: &Options) -> Self {
        let by_kind = match view.profile.meta().mode {
            Mode::Cpu | Mode::Gil => false,
            Mode::Wall | Mode::OffCpu => options.state_frames.is_none(),
        };
        Self {
            view,
            by_kind,
            profiles: Vec::new(),
            places: HashMap::new(),
            ranks: HashMap::new(),
            stack: Vec::new(),
        }
    }

    /// `idle` nanoseconds without a sample, then `weight` at `spot`.
    fn push(&mut self, spot: Spot, idle: u64, weight: u64) {
        let at = self.at(spot);
        let profile = &mut self.profiles[at];
        if idle > 0 {
            profile.push(&[], idle);
        }
        self.view.root_first(spot, false, &mut self.stack);
        profile.push(&self.stack, weight);
    }

    fn at(&mut self, spot: Spot) -> usize {
        let kind = self.by_kind.then(|| Kind::of(spot.activity));
        let rank = self.ranks.len();
        self.ranks.entry(spot.thread).or_insert(rank);
        *self.places.entry((spot.thread, kind)).or_insert_with(|| {
            let info = self.view.profile.threads().get(spot.thread.0 as usize);
            let thread = info.map_or_else(|| String::from("unknown thread"), thread_name);
            let name = match kind {
                None => thread,
                Some(kind) => format!("{thread}: {}", kind.words()),
            };
            self.profiles.push(Sampled::new(name));
            self.profiles.len() - 1
        })
    }

    /// All of them, those of one thread together.
    fn into_profiles(self) -> Vec<Sampled> {
        let mut order: Vec<_> = self.places.into_iter().collect();
        order.sort_by_key(|((thread, kind), _)| (self.ranks.get(thread), *kind));
        let mut profiles: Vec<_> = self.profiles.into_iter().map(Some).collect();
        let ordered = order.into_iter();
        ordered.filter_map(|(_, at)| profiles[at].take()).collect()
    }
}

fn summed(view: &View<'_>, options: &Options) -> Vec<Sampled> {
    let mut threads = Threads::new(view, options);
    for entry in view.profile.entries() {
        threads.push(Spot::from(entry), 0, entry.weight.0);
    }
    threads.into_profiles()
}

fn in_time(view: &View<'_>, moments: &[Moment], options: &Options) -> Vec<Sampled> {
    let mut threads = Threads::new(view, options);
    let meta = view.profile.meta();
    for moment in moments {
        let spot = Spot::from(moment);
        let at = threads.at(spot);
        let covered = meta.start.0.saturating_add(threads.profiles[at].end_value);
        let begin = moment.time.0.saturating_sub(moment.weight.0);
        let gap = begin.saturating_sub(covered);
        // Ticks come a little early or late; only what is longer was time without a sample.
        let idle = if gap > meta.period.0 / 2 { gap } else { 0 };
        threads.push(spot, idle, moment.weight.0);
    }
    threads.into_profiles()
}
