//! Whose the time was, by process, where there are several.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;

use super::part::{Part, heat, plain, title};
use crate::aggregate::{ProcessIndex, ProcessInfo, count, percent, seconds};
use crate::export::Options;
use crate::export::escape::printable;
use crate::export::table::{Cell, Paint, Table};
use crate::words::DurationNs;

/// Writes the table, if there is more than one process in `part`; `what` says more of them in its
/// title.
pub(super) fn write(
    part: &Part<'_>,
    what: &str,
    options: &Options,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let profile = part.profile;
    if profile.processes().len() < 2 {
        return Ok(());
    }
    let mut amounts: HashMap<ProcessIndex, (u64, u64)> = HashMap::new();
    for entry in &part.entries {
        let amount = amounts.entry(profile.process_of(entry.thread));
        let amount = amount.or_default();
        amount.0 += entry.weight.0;
        amount.1 += entry.ticks;
    }
    let mut amounts: Vec<_> = amounts.into_iter().collect();
    amounts.sort_by_key(|(process, amount)| (Reverse(*amount), *process));
    let mut table = Table::default();
    let titles = ["time", "", "samples", "process"].map(title);
    let [time, share, samples, process] = titles;
    let process = Cell(process.0 + what, process.1);
    table.row(vec![time, share, samples, process]);
    for (process, (weight, ticks)) in amounts.iter().take(options.rows) {
        let info = profile.processes().get(process.0 as usize);
        table.row(vec![
            plain(seconds(DurationNs(*weight))),
            Cell(percent(*weight, part.whole), heat(*weight, part.whole)),
            plain(count(*ticks)),
            plain(info.map_or_else(|| String::from("unknown"), words)),
        ]);
    }
    writeln!(out)?;
    table.write(options.width, options.style, out)?;
    let rest = amounts.len().saturating_sub(options.rows);
    let without = profile.processes().len().saturating_sub(amounts.len());
    let mut more = Vec::new();
    if rest > 0 {
        more.push(format!("{} more with samples", count(rest as u64)));
    }
    if without > 0 && part.entries.len() == profile.entries().len() {
        more.push(format!("{} without samples", count(without as u64)));
    }
    if !more.is_empty() {
        let text = format!("… and {}", more.join(", and "));
        writeln!(out, "{}", Paint::Dim.on(&text, options.style))?;
    }
    Ok(())
}

fn words(info: &ProcessInfo) -> String {
    let command = printable(&info.command);
    let python = match info.python.as_str() {
        "" => ", no Python",
        _ => "",
    };
    match (info.pid.0, command.trim()) {
        (0, command) => command.to_owned(),
        (pid, "") => format!("{pid}{python}"),
        (pid, command) => format!("{pid} {command}{python}"),
    }
}
