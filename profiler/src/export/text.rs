//! The report for people: where the time went, which threads it went to, and the accounts.
//!
//! Every name of the target is made harmless for a terminal first.

use std::collections::HashMap;
use std::io;

use crate::aggregate::{Profile, ThreadIndex, count, percent, seconds};
use crate::export::escape::printable;
use crate::export::paths::ShortPaths;
use crate::export::table::{Cell, Paint, Table, fitted};
use crate::export::view::{Seen, View, thread_name};
use crate::export::{Granularity, Options};
use crate::sample::Mode;
use crate::stack::{Frame, FrameKind};
use crate::words::DurationNs;

/// Eighths of a block, none to all.
const BLOCKS: [&str; 9] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"];
/// Characters of a full bar.
const BAR: u64 = 10;
/// Columns below which the bars make room for names.
const WIDE_ENOUGH_FOR_BARS: usize = 80;

/// Writes the report on `profile`, with its ledger.
///
/// # Errors
/// Those of `out`.
pub fn write(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    head(profile, options, out)?;
    if profile.ticks() == 0 {
        let why = match profile.meta().mode {
            Mode::Cpu => "no samples: nothing of the target ran on a CPU while it was watched",
            _ => "no samples",
        };
        writeln!(out, "\n{why}")?;
    } else {
        places(profile, options, out)?;
        threads(profile, options, out)?;
    }
    accounts(profile, options, out)
}

fn head(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let meta = profile.meta();
    let command = fitted(&printable(&meta.command), options.width.max(16));
    if !command.trim().is_empty() {
        writeln!(out, "{}", Paint::Bold.on(&command, options.style))?;
    }
    let mut parts = vec![format!("pid {}", meta.pid)];
    if !meta.python.is_empty() {
        let build = match meta.build.as_str() {
            "default" | "" => String::new(),
            build => format!(" {build}"),
        };
        parts.push(format!("CPython {}{build}", meta.python));
    }
    let time = if meta.mode == Mode::Cpu {
        "CPU"
    } else {
        "time"
    };
    parts.push(format!("{} at {} Hz", meta.mode.key(), meta.rate_hz));
    parts.push(format!("{} watched", seconds(profile.duration())));
    parts.push(format!(
        "{} samples for {} of {time}",
        count(profile.ticks()),
        seconds(profile.weight())
    ));
    let line = printable(&parts.join(" · ")).into_owned();
    writeln!(out, "{}", Paint::Dim.on(&line, options.style))
}

/// What one frame has: on its own, and with all that it called.
#[derive(Clone, Copy, Default)]
struct Share {
    own: u64,
    total: u64,
}

fn places(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let view = View::new(profile, options.granularity);
    let paths = ShortPaths::of_frames(view.frames());
    let mut shares: Vec<(usize, Share)> = shares(&view).into_iter().enumerate().collect();
    shares.retain(|(_, share)| share.total > 0);
    shares.sort_by_key(|(frame, share)| {
        let key = (share.own, share.total);
        (std::cmp::Reverse(key), *frame)
    });

    let whole = profile.weight().0;
    let noun = match options.granularity {
        Granularity::Function => "function",
        Granularity::Line => "line",
    };
    let bars = options.width >= WIDE_ENOUGH_FOR_BARS;
    let mut table = Table::default();
    let title = |text: &str| Cell(text.to_owned(), Paint::Bold);
    let mut titles = vec![title("self"), title("")];
    titles.extend(bars.then(|| title("")));
    titles.extend([title("total"), title(""), title(noun)]);
    table.row(titles);
    for (frame, share) in shares.iter().take(options.rows) {
        let heat = heat(share.own, whole);
        let mut cells = match share.own {
            0 => vec![Cell(String::new(), heat), Cell(String::new(), heat)],
            own => vec![
                Cell(seconds(DurationNs(own)), Paint::Plain),
                Cell(percent(own, whole), heat),
            ],
        };
        cells.extend(bars.then(|| Cell(bar(share.own, whole), heat)));
        cells.extend([
            Cell(seconds(DurationNs(share.total)), Paint::Plain),
            Cell(percent(share.total, whole), Paint::Plain),
            Cell(label(&view.frames()[*frame], &paths), Paint::Plain),
        ]);
        table.row(cells);
    }
    writeln!(out)?;
    table.write(options.width, options.style, out)?;
    let rest = shares.get(options.rows..).unwrap_or_default();
    if !rest.is_empty() {
        let own = rest.iter().map(|(_, share)| share.own).sum();
        let text = format!(
            "… and {} more {noun}s with {} ({}) of their own",
            count(rest.len() as u64),
            seconds(DurationNs(own)),
            percent(own, whole),
        );
        writeln!(out, "{}", Paint::Dim.on(&text, options.style))?;
    }
    Ok(())
}

/// By frame of the view; a frame that is in a stack several times counts once in its total.
fn shares(view: &View<'_>) -> Vec<Share> {
    let mut shares = vec![Share::default(); view.frames().len()];
    let mut stack: Vec<Seen> = Vec::new();
    for entry in view.profile.entries() {
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
        FrameKind::Kernel => label + " [kernel]",
        _ => label,
    }
}

fn heat(part: u64, whole: u64) -> Paint {
    let share = part as f64 / whole.max(1) as f64;
    if share >= 0.2 {
        Paint::Hot
    } else if share >= 0.05 {
        Paint::Warm
    } else {
        Paint::Plain
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

fn threads(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let mut amounts: HashMap<ThreadIndex, (u64, u64)> = HashMap::new();
    for entry in profile.entries() {
        let amount = amounts.entry(entry.thread).or_default();
        amount.0 += entry.weight.0;
        amount.1 += entry.ticks;
    }
    let mut amounts: Vec<_> = amounts.into_iter().collect();
    amounts.sort_by_key(|(thread, amount)| (std::cmp::Reverse(*amount), *thread));

    let whole = profile.weight().0;
    let pid = profile.meta().pid;
    let mut table = Table::default();
    let title = |text: &str| Cell(text.to_owned(), Paint::Bold);
    table.row(vec![
        title("time"),
        title(""),
        title("samples"),
        title("thread"),
    ]);
    for (thread, (weight, ticks)) in amounts.iter().take(options.rows) {
        let Some(info) = profile.threads().get(thread.0 as usize) else {
            continue;
        };
        let mut name = printable(&thread_name(info)).into_owned();
        if info.pid != pid {
            name += &format!(" of process {}", info.pid);
        }
        if !info.python {
            name += ", no Python";
        }
        table.row(vec![
            Cell(seconds(DurationNs(*weight)), Paint::Plain),
            Cell(percent(*weight, whole), heat(*weight, whole)),
            Cell(count(*ticks), Paint::Plain),
            Cell(name, Paint::Plain),
        ]);
    }
    writeln!(out)?;
    table.write(options.width, options.style, out)?;

    let rest = amounts.len().saturating_sub(options.rows);
    let idle = profile.threads().len().saturating_sub(amounts.len());
    let noun = |n: usize| if n == 1 { "thread" } else { "threads" };
    let mut more = Vec::new();
    if rest > 0 {
        let n = count(rest as u64);
        more.push(format!("{n} more {} with samples", noun(rest)));
    }
    if idle > 0 {
        let n = count(idle as u64);
        more.push(format!("{n} {} without samples", noun(idle)));
    }
    if !more.is_empty() {
        let text = format!("… and {}", more.join(", and "));
        writeln!(out, "{}", Paint::Dim.on(&text, options.style))?;
    }
    Ok(())
}

fn accounts(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let ledger = profile.ledger();
    writeln!(out, "\n{}", printable(&ledger.sentence()))?;
    let beyond = profile.beyond();
    let mut lines: Vec<(bool, String)> = Vec::new();
    for (n, what) in [
        (
            beyond.stack_ticks,
            "ticks are in `[stacks beyond the limit]`",
        ),
        (beyond.frames, "frames are `[frames beyond the limit]`"),
        (beyond.threads, "threads share `[threads beyond the limit]`"),
    ] {
        if n > 0 {
            lines.push((
                true,
                format!("{} {what}: the profile is too varied", count(n)),
            ));
        }
    }
    let remarks = ledger.remarks().into_iter();
    lines.extend(remarks.map(|remark| (remark.warning, remark.text)));
    for (warning, text) in lines {
        let text = printable(&text).into_owned();
        let (text, paint) = if warning {
            (format!("! {text}"), Paint::Warning)
        } else {
            (text, Paint::Dim)
        };
        writeln!(out, "{}", paint.on(&text, options.style))?;
    }
    Ok(())
}
