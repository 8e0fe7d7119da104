//! A flame graph as an SVG that a browser can search and zoom; inferno draws it.
//!
//! Boxes too narrow to be seen are left out before drawing, so a profile of any size makes a
//! file that a browser can open. Paths are short and long labels are cut: it is for people.
//! In the mode `gil` it is two towers, of the threads that hold it and of those that wait.

use std::io;

use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{self, TextTruncateDirection};

use crate::aggregate::{CLOCK, Profile, count, seconds};
use crate::export::escape::{foldable, printable, shortened};
use crate::export::fold::Fold;
use crate::export::folded::join;
use crate::export::palette::colour;
use crate::export::paths::ShortPaths;
use crate::export::view::View;
use crate::export::{Options, Unit};
use crate::sample::Mode;

/// Characters of a label.
const LABEL: usize = 160;
/// Characters of the title.
const TITLE: usize = 100;
/// The narrowest box drawn, in percent of the whole.
const NARROWEST: f64 = 0.01;

/// Writes `profile` as an SVG; an empty profile is a picture that says so.
///
/// # Errors
/// Those of `out`.
pub fn write(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let view = View::new(profile, options);
    let paths = ShortPaths::of_frames(view.frames());
    let fold = Fold::new(&view, options.threads, Unit::Nanoseconds, |frame| {
        foldable(&shortened(paths.label(frame).trim(), LABEL)).into_owned()
    });
    if fold.stacks.is_empty() {
        return write_empty(profile, out);
    }
    let mut colours = PaletteMap::default();
    for (label, frame) in fold.labels.iter().zip(&fold.frames) {
        colours.insert(label, colour(frame));
    }
    colours.insert("", GROUND);

    let mut settings = flamegraph::Options::default();
    settings.title = title(profile);
    settings.subtitle = Some(subtitle(profile));
    settings.palette_map = Some(&mut colours);
    settings.bgcolors = Some(BackgroundColor::Flat(PAPER));
    settings.font_type = String::from("monospace");
    settings.font_width = 0.6;
    settings.frame_height = 17;
    settings.min_width = NARROWEST;
    settings.text_truncate_direction = TextTruncateDirection::Right;
    settings.name_type = String::from("Frame:");
    settings.count_name = String::from("µs");
    settings.factor = 1e-3;
    settings.deterministic = true;
    // inferno's own sort compares whole lines, by which a frame and a longer name that begins
    // with it may take turns, and one box becomes two. This mode keeps our order, reversed.
    settings.flame_chart = true;
    let lines = visible_lines(&fold);
    let lines = lines.iter().rev().map(String::as_str);
    flamegraph::from_lines(&mut settings, lines, out)
}

const GROUND: Color = Color {
    r: 216,
    g: 220,
    b: 226,
};
const PAPER: Color = Color {
    r: 253,
    g: 253,
    b: 252,
};

fn title(profile: &Profile) -> String {
    let what = match profile.meta().mode {
        Mode::Gil => ": who holds the GIL, and who waits for it behind whom",
        Mode::Cpu | Mode::Wall | Mode::OffCpu => "",
    };
    let command = printable(&profile.meta().command).into_owned();
    let room = TITLE - what.chars().count();
    let title = match shortened(command.trim(), room).into_owned() {
        title if title.is_empty() => format!("process {}", profile.meta().pid),
        title => title,
    };
    title + what
}

fn subtitle(profile: &Profile) -> String {
    let meta = profile.meta();
    let mut parts = vec![format!("pid {}", meta.pid)];
    if !meta.python.is_empty() {
        parts.push(format!("CPython {}", meta.python));
    }
    parts.push(format!("{} at {} Hz", meta.mode.key(), meta.rate_hz));
    parts.push(format!("{} watched", seconds(profile.duration())));
    parts.push(format!(
        "{} samples for {}",
        count(profile.ticks()),
        seconds(profile.weight())
    ));
    parts.push(format!("µs of {CLOCK}"));
    printable(&parts.join(" · ")).into_owned()
}

/// Folded lines for every box wide enough to be seen; what is narrower counts as its caller's.
fn visible_lines(fold: &Fold) -> Vec<String> {
    let mut until = Vec::with_capacity(fold.stacks.len() + 1);
    let mut sum: u64 = 0;
    until.push(0);
    for (_, weight) in &fold.stacks {
        sum = sum.saturating_add(*weight);
        until.push(sum);
    }
    let least = sum as f64 * NARROWEST / 100.0;

    let mut lines = Vec::new();
    let mut line = String::new();
    // Each range of stacks agrees in its first `depth` frames. Its lines come before those of
    // the ranges within it, which wait in reverse so that they are taken in order.
    let mut ranges = vec![(0, fold.stacks.len(), 0)];
    while let Some((from, to, depth)) = ranges.pop() {
        let mut own: u64 = 0;
        let first_inner = ranges.len();
        let mut at = from;
        while at < to {
            let frame = fold.stacks[at].0.get(depth);
            let same = |stack: &(Vec<u32>, u64)| stack.0.get(depth) == frame;
            let end = at + fold.stacks[at..to].iter().take_while(|s| same(s)).count();
            let weight = until[end] - until[at];
            if frame.is_some() && (depth == 0 || weight as f64 >= least) {
                ranges.push((at, end, depth + 1));
            } else {
                own += weight;
            }
            at = end;
        }
        ranges[first_inner..].reverse();
        if own > 0 {
            join(&fold.labels, &fold.stacks[from].0[..depth], own, &mut line);
            lines.push(line.clone());
        }
    }
    lines
}

fn write_empty(profile: &Profile, out: &mut dyn io::Write) -> io::Result<()> {
    let text = |text: String| {
        text.replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
    };
    writeln!(
        out,
        r##"<?xml version="1.0" standalone="no"?>
<svg version="1.1" width="1200" height="120" viewBox="0 0 1200 120" xmlns="http://www.w3.org/2000/svg">
<rect width="100%" height="100%" fill="#fdfdfc"/>
<g font-family="monospace" font-size="12" text-anchor="middle">
<text x="600" y="28" font-size="17">{}</text>
<text x="600" y="52">{}</text>
<text x="600" y="88">no samples</text>
</g>
</svg>"##,
        text(title(profile)),
        text(subtitle(profile)),
    )
}
