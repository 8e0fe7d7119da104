//! pprof's `profile.proto`, compressed: samples and nanoseconds, labelled by thread and by what
//! the thread was doing.
//!
//! Each sample has the labels `thread`, `tid`, `pid`, `state`, `gil`, `gc`, `handling` and
//! `frames_from`; a blocked one `reason`, one that waits for the GIL `gil_behind`, the name of
//! the thread that had it. The second column of values is named for the mode; in the mode `gil`
//! there are `gil_held` and `gil_waited`.
//!
//! The messages are written out here with the field numbers of pprof's published
//! `profile.proto`, fields that the profiler has no use for left out.

use std::collections::HashMap;
use std::io;
use std::time::UNIX_EPOCH;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use crate::aggregate::{CLOCK, Entry, Profile, ThreadIndex, UNIT};
use crate::export::Options;
use crate::export::view::View;
use crate::sample::{Gil, Mode};
use crate::stack::Frame;

/// What a value counts, as two indices of the string table.
#[derive(Clone, Copy, PartialEq, Message)]
#[expect(missing_docs, reason = "the fields are those of profile.proto")]
pub struct ValueType {
    #[prost(int64, tag = "1")]
    pub r#type: i64,
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// The values of one stack under one set of labels; locations are leaf first.
#[derive(Clone, PartialEq, Message)]
#[expect(missing_docs, reason = "the fields are those of profile.proto")]
pub struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Label>,
}

/// A label: a key and a string or a number.
#[derive(Clone, PartialEq, Message)]
#[expect(missing_docs, reason = "the fields are those of profile.proto")]
pub struct Label {
    #[prost(int64, tag = "1")]
    pub key: i64,
    #[prost(int64, tag = "2")]
    pub str: i64,
    #[prost(int64, tag = "3")]
    pub num: i64,
}

/// What a mapping's addresses belong to; here only that nothing is left to symbolise.
#[derive(Clone, PartialEq, Message)]
#[expect(missing_docs, reason = "the fields are those of profile.proto")]
pub struct Mapping {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(int64, tag = "5")]
    pub filename: i64,
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
}

/// A frame.
#[derive(Clone, PartialEq, Message)]
#[expect(missing_docs, reason = "the fields are those of profile.proto")]
pub struct Location {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

/// A line of a function.
#[derive(Clone, PartialEq, Message)]
#[expect(missing_docs, reason = "the fields are those of profile.proto")]
pub struct Line {
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// A function.
#[derive(Clone, PartialEq, Message)]
#[expect(missing_docs, reason = "the fields are those of profile.proto")]
pub struct Function {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(int64, tag = "2")]
    pub name: i64,
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    #[prost(int64, tag = "4")]
    pub filename: i64,
    #[prost(int64, tag = "5")]
    pub start_line: i64,
}

/// The whole file.
#[derive(Clone, PartialEq, Message)]
#[expect(missing_docs, reason = "the fields are those of profile.proto")]
pub struct ProfileProto {
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

/// Writes `profile` as a gzipped `profile.proto`; an empty profile has no samples.
///
/// # Errors
/// Those of `out`.
pub fn write(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let bytes = message(profile, options).encode_to_vec();
    let mut gzip = GzEncoder::new(out, Compression::default());
    io::Write::write_all(&mut gzip, &bytes)?;
    gzip.finish().map(|_| ())
}

/// The string table, of which the first string is the empty one.
struct Strings {
    table: Vec<String>,
    numbers: HashMap<String, i64>,
}

impl Strings {
    fn new() -> Self {
        let mut strings = Self {
            table: Vec::new(),
            numbers: HashMap::new(),
        };
        strings.of("");
        strings
    }

    fn of(&mut self, text: &str) -> i64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.table.len() as i64;
        self.table.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }
}

/// The columns of time. Holding the GIL and waiting for it are two: their sum means nothing.
#[derive(Clone, Copy)]
struct Columns(&'static [&'static str]);

impl Columns {
    /// pprof knows CPU time by the word `cpu`.
    const fn of(mode: Mode) -> Self {
        Self(match mode {
            Mode::Cpu => &["cpu"],
            Mode::Wall => &["wall"],
            Mode::OffCpu => &["offcpu"],
            Mode::Gil => &["gil_held", "gil_waited"],
        })
    }

    /// The ticks, and the weight in its column.
    fn values(self, entry: &Entry) -> Vec<i64> {
        let mut values = vec![0; self.0.len() + 1];
        values[0] = signed(entry.ticks);
        let column = if self.0.len() > 1 && entry.gil == Gil::Waits {
            2
        } else {
            1
        };
        values[column] = signed(entry.weight.0);
        values
    }
}

fn message(profile: &Profile, options: &Options) -> ProfileProto {
    let view = View::new(profile, options);
    let meta = profile.meta();
    let mut strings = Strings::new();
    let columns = Columns::of(meta.mode);
    let weights = columns.0.iter().map(|name| ValueType {
        r#type: strings.of(name),
        unit: strings.of(UNIT),
    });
    let weights: Vec<ValueType> = weights.collect();
    let samples = ValueType {
        r#type: strings.of("samples"),
        unit: strings.of("count"),
    };
    let weight = weights[0];
    let program = meta.command.split(' ').next().unwrap_or_default();
    let mut message = ProfileProto {
        sample_type: std::iter::once(samples).chain(weights).collect(),
        mapping: vec![Mapping {
            id: 1,
            filename: strings.of(program),
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
        }],
        time_nanos: meta
            .started_at
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(0)),
        duration_nanos: signed(profile.duration().0),
        period_type: Some(weight),
        period: signed(meta.period.0),
        default_sample_type: weight.r#type,
        comment: vec![
            strings.of(&meta.command),
            strings.of(&profile.ledger().sentence()),
            strings.of(&format!("times are {UNIT} of {CLOCK}")),
        ],
        ..ProfileProto::default()
    };
    add_frames(view.frames(), &mut message, &mut strings);
    add_samples(&view, columns, &mut message, &mut strings);
    message.string_table = strings.table;
    message
}

/// A location for every frame, numbered from one, and a function for every distinct one.
fn add_frames(frames: &[Frame], message: &mut ProfileProto, strings: &mut Strings) {
    let mut functions: HashMap<Frame, u64> = HashMap::new();
    for (frame, id) in frames.iter().zip(1..) {
        let next = message.function.len() as u64 + 1;
        let function_id = *functions.entry(frame.without_line()).or_insert(next);
        if function_id == next {
            let file = match (&*frame.file, &frame.module) {
                ("", Some(module)) => module,
                (file, _) => file,
            };
            let name = strings.of(&frame.function);
            message.function.push(Function {
                id: function_id,
                name,
                system_name: name,
                filename: strings.of(file),
                start_line: frame.first_line.map_or(0, i64::from),
            });
        }
        message.location.push(Location {
            id,
            mapping_id: 1,
            line: vec![Line {
                function_id,
                line: frame.line.map_or(0, i64::from),
            }],
        });
    }
}

fn add_samples(
    view: &View<'_>,
    columns: Columns,
    message: &mut ProfileProto,
    strings: &mut Strings,
) {
    let text = |strings: &mut Strings, key: &str, value: &str| Label {
        key: strings.of(key),
        str: strings.of(value),
        num: 0,
    };
    let number = |strings: &mut Strings, key: &str, value: u32| Label {
        key: strings.of(key),
        str: 0,
        num: i64::from(value),
    };
    let mut stack = Vec::new();
    for entry in view.profile.entries() {
        view.leaf_first(entry.stack, &mut stack);
        let mut label = Vec::with_capacity(10);
        let thread = |index: ThreadIndex| view.profile.threads().get(index.0 as usize);
        if let Some(thread) = thread(entry.thread) {
            label.push(text(strings, "thread", &thread.name));
            label.push(number(strings, "tid", thread.tid.0));
            label.push(number(strings, "pid", thread.pid.0));
        }
        label.push(text(strings, "state", entry.activity.key()));
        if let Some(wait) = entry.activity.wait() {
            label.push(text(strings, "reason", &wait.key()));
        }
        label.push(text(strings, "gil", entry.gil.key()));
        if entry.gil == Gil::Waits {
            let behind = entry.behind.and_then(thread);
            let name = behind.map_or("unknown", |info| &info.name);
            label.push(text(strings, "gil_behind", name));
        }
        label.push(text(strings, "gc", entry.gc.key()));
        label.push(text(strings, "handling", entry.handling.key()));
        label.push(text(strings, "frames_from", entry.frames_from.key()));
        message.sample.push(Sample {
            location_id: stack.iter().map(|frame| u64::from(*frame) + 1).collect(),
            value: columns.values(entry),
            label,
        });
    }
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
