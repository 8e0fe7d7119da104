//! Why threads did not run: time by state and by what was waited for, by whom the GIL was
//! waited for, and what else samples know of the time.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;
use std::io;

use super::part::{Part, heat, plain, title};
use crate::aggregate::{Entry, ThreadIndex, count, percent, seconds};
use crate::export::Options;
use crate::export::escape::printable;
use crate::export::states::{behind_words, state_words};
use crate::export::table::{Cell, Paint, Table};
use crate::export::view::thread_name;
use crate::sample::{Gc, Handling};
use crate::words::DurationNs;

/// Writes the table of states and reasons.
pub(super) fn reasons(
    part: &Part<'_>,
    options: &Options,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let words = |state: &_| state_words(*state).into_owned();
    by(part, "why", |entry| entry.activity, words, options, out)
}

/// Writes the table of those who wait for the GIL and of those behind whom they do.
pub(super) fn waiters(
    part: &Part<'_>,
    options: &Options,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let key = |entry: &Entry| (entry.thread, entry.behind);
    let words = |(thread, behind): &(ThreadIndex, Option<ThreadIndex>)| {
        let info = part.profile.threads().get(thread.0 as usize);
        let name = info.map_or_else(|| String::from("unknown thread"), thread_name);
        format!("{name} {}", behind_words(part.profile, *behind))
    };
    let title = "thread that waits for the GIL, and behind whom";
    by(part, title, key, words, options, out)
}

/// A table of the time by whatever `key` makes of an entry.
fn by<K: Copy + Eq + Ord + Hash>(
    part: &Part<'_>,
    what: &str,
    key: impl Fn(&Entry) -> K,
    words: impl Fn(&K) -> String,
    options: &Options,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let mut amounts: HashMap<K, (u64, u64)> = HashMap::new();
    for entry in &part.entries {
        let amount = amounts.entry(key(entry)).or_default();
        amount.0 += entry.weight.0;
        amount.1 += entry.ticks;
    }
    let mut amounts: Vec<_> = amounts.into_iter().collect();
    amounts.sort_by_key(|(key, amount)| (Reverse(*amount), *key));

    let mut table = Table::default();
    table.row(vec![
        title("time"),
        title(""),
        title("samples"),
        title(what),
    ]);
    for (key, (weight, ticks)) in amounts.iter().take(options.rows) {
        table.row(vec![
            plain(seconds(DurationNs(*weight))),
            Cell(percent(*weight, part.whole), heat(*weight, part.whole)),
            plain(count(*ticks)),
            plain(printable(&words(key))),
        ]);
    }
    writeln!(out)?;
    table.write(options.width, options.style, out)?;
    let rest = amounts.get(options.rows..).unwrap_or_default();
    if !rest.is_empty() {
        let weight = rest.iter().map(|(_, (weight, _))| *weight).sum();
        let text = format!(
            "… and {} more with {} ({})",
            count(rest.len() as u64),
            seconds(DurationNs(weight)),
            percent(weight, part.whole),
        );
        writeln!(out, "{}", Paint::Dim.on(&text, options.style))?;
    }
    Ok(())
}

/// Writes how much of the part's time went to the collector and to exceptions, where there is
/// something to say.
pub(super) fn notes(part: &Part<'_>, out: &mut dyn io::Write) -> io::Result<()> {
    let all = part.weight();
    let share = |ns: u64| format!("{} ({})", seconds(DurationNs(ns)), percent(ns, all));
    let mut lines = Vec::new();
    let collecting = part.weight_if(|entry| entry.gc == Gc::Collecting);
    if collecting > 0 {
        lines.push(format!("{} in the garbage collector", share(collecting)));
    }
    let unknown = part.weight_if(|entry| entry.handling == Handling::Unknown);
    if unknown < all {
        let handling = part.weight_if(|entry| entry.handling == Handling::Exception);
        let mut line = format!("{} while an exception was handled", share(handling));
        if unknown > 0 {
            line += &format!("; not known for {}", share(unknown));
        }
        lines.push(line);
    }
    if !lines.is_empty() {
        writeln!(out, "\n{}", lines.join("\n"))?;
    }
    Ok(())
}
