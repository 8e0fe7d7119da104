//! Where the time went: a table of functions, or of lines.

use std::cmp::Reverse;
use std::io;

use super::part::{Part, heat, plain, time, title};
use crate::aggregate::{count, percent, seconds};
use crate::export::escape::printable;
use crate::export::paths::ShortPaths;
use crate::export::table::{Cell, Paint, Table};
use crate::export::view::{Seen, View};
use crate::export::{Granularity, Options};
use crate::stack::{Frame, FrameKind};
use crate::words::DurationNs;

/// Eighths of a block, none to all.
const BLOCKS: [&str; 9] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"];
/// Characters of a full bar.
const BAR: u64 = 10;
/// Columns below which the bars make room for names.
const WIDE_ENOUGH_FOR_BARS: usize = 80;

/// What one frame has: on its own, and with all that it called.
#[derive(Clone, Copy, Default)]
struct Share {
    own: u64,
    total: u64,
}

/// Writes the table; `what` says more of the functions in its title.
pub(super) fn write(
    part: &Part<'_>,
    what: &str,
    options: &Options,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let view = View::new(part.profile, options);
    let paths = ShortPaths::of_frames(view.frames());
    let mut shares: Vec<(usize, Share)> = shares(&view, part).into_iter().enumerate().collect();
    shares.retain(|(_, share)| share.total > 0);
    shares.sort_by_key(|(frame, share)| (Reverse((share.own, share.total)), *frame));

    let whole = part.whole;
    let noun = match options.granularity {
        Granularity::Function => "function",
        Granularity::Line => "line",
    };
    let bars = options.width >= WIDE_ENOUGH_FOR_BARS;
    let mut table = Table::default();
    let mut titles = vec![title("self"), title("")];
    titles.extend(bars.then(|| title("")));
    titles.extend([title("total"), title(""), title(&format!("{noun}{what}"))]);
    table.row(titles);
    for (frame, share) in shares.iter().take(options.rows) {
        let heat = heat(share.own, whole);
        let own = match share.own {
            0 => String::new(),
            own => percent(own, whole),
        };
        let mut cells = vec![time(share.own), Cell(own, heat)];
        cells.extend(bars.then(|| Cell(bar(share.own, whole), heat)));
        cells.extend([
            time(share.total),
            plain(percent(share.total, whole)),
            plain(label(&view.frames()[*frame], &paths)),
        ]);
        table.row(cells);
    }
    writeln!(out)?;
    table.write(options.width, options.style, out)?;
    let rest = shares.get(options.rows..).unwrap_or_default();
    if !rest.is_empty() {
        let own = rest.iter().map(|(_, share)| share.own).sum();
        let text = format!(
            "… and {} more {noun}{} with {} ({}) of their own",
            count(rest.len() as u64),
            if rest.len() == 1 { "" } else { "s" },
            seconds(DurationNs(own)),
            percent(own, whole),
        );
        writeln!(out, "{}", Paint::Dim.on(&text, options.style))?;
    }
    Ok(())
}

/// By frame of the view; a frame that is in a stack several times counts once in its total.
fn shares(view: &View<'_>, part: &Part<'_>) -> Vec<Share> {
    let mut shares = vec![Share::default(); view.frames().len()];
    let mut stack: Vec<Seen> = Vec::new();
    for entry in &part.entries {
        view.leaf_first(entry.stack, &mut stack);
        if let Some(leaf) = stack.first() {
            shares[*leaf as usize].own += entry.weight.0;
        }
        stack.sort_unstable();
        stack.dedup();
        for frame in &stack {
            shares[*frame as usize].total += entry.weight.0;
        }
    }
    shares
}

fn label(frame: &Frame, paths: &ShortPaths) -> String {
    let label = printable(&paths.label(frame)).into_owned();
    match frame.kind {
        // Where a system call stands for all of the kernel, the frame says so itself.
        FrameKind::Kernel if !label.starts_with("[kernel]") => label + " [kernel]",
        _ => label,
    }
}

fn bar(part: u64, whole: u64) -> String {
    let eighths = part as f64 / whole.max(1) as f64 * (BAR * 8) as f64;
    let eighths = (eighths.round() as u64).min(BAR * 8);
    let full = BLOCKS[8].repeat((eighths / 8) as usize);
    let bar = full + BLOCKS[(eighths % 8) as usize];
    let blanks = (BAR as usize).saturating_sub(bar.chars().count());
    bar + &" ".repeat(blanks)
}
