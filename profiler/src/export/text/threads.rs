//! Whose the time was: a table of threads, off the CPU with what each of them did.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;

use super::part::{Part, heat, plain, time, title};
use crate::aggregate::{Profile, ThreadIndex, count, percent, seconds};
use crate::export::Options;
use crate::export::escape::printable;
use crate::export::states::Kind;
use crate::export::table::{Cell, Paint, Table};
use crate::export::view::thread_name;
use crate::words::DurationNs;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Amount {
    weight: u64,
    ticks: u64,
    by_kind: [u64; Kind::ALL.len()],
}

/// Writes the table, with a column for each of the `kinds` of time that there are; `what` says
/// more of the threads in its title.
pub(super) fn write(
    part: &Part<'_>,
    kinds: bool,
    what: &str,
    options: &Options,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let mut amounts: HashMap<ThreadIndex, Amount> = HashMap::new();
    for entry in &part.entries {
        let amount = amounts.entry(entry.thread).or_default();
        amount.weight += entry.weight.0;
        amount.ticks += entry.ticks;
        amount.by_kind[Kind::of(entry.activity) as usize] += entry.weight.0;
    }
    let mut amounts: Vec<_> = amounts.into_iter().collect();
    amounts.sort_by_key(|(thread, amount)| (Reverse(*amount), *thread));
    let shown = Kind::ALL.into_iter().filter(|kind| {
        let has = |amount: &Amount| amount.by_kind[*kind as usize] > 0;
        kinds && amounts.iter().any(|(_, amount)| has(amount))
    });
    let shown: Vec<Kind> = shown.collect();

    let mut table = Table::default();
    let mut titles = vec![title("time"), title(""), title("samples")];
    titles.extend(shown.iter().map(|kind| title(kind.words())));
    titles.push(title(&format!("thread{what}")));
    table.row(titles);
    for (thread, amount) in amounts.iter().take(options.rows) {
        let mut cells = vec![
            plain(seconds(DurationNs(amount.weight))),
            Cell(
                percent(amount.weight, part.whole),
                heat(amount.weight, part.whole),
            ),
            plain(count(amount.ticks)),
        ];
        cells.extend(
            shown
                .iter()
                .map(|kind| time(amount.by_kind[*kind as usize])),
        );
        cells.push(plain(name(part.profile, *thread)));
        table.row(cells);
    }
    writeln!(out)?;
    table.write(options.width, options.style, out)?;

    let rest = amounts.len().saturating_sub(options.rows);
    let idle = part.profile.threads().len().saturating_sub(amounts.len());
    let noun = |n: usize| if n == 1 { "thread" } else { "threads" };
    let mut more = Vec::new();
    if rest > 0 {
        let n = count(rest as u64);
        more.push(format!("{n} more {} with samples", noun(rest)));
    }
    // A part of the samples does not tell who has none.
    if idle > 0 && part.entries.len() == part.profile.entries().len() {
        let n = count(idle as u64);
        more.push(format!("{n} {} without samples", noun(idle)));
    }
    if !more.is_empty() {
        let text = format!("… and {}", more.join(", and "));
        writeln!(out, "{}", Paint::Dim.on(&text, options.style))?;
    }
    Ok(())
}

fn name(profile: &Profile, thread: ThreadIndex) -> String {
    let Some(info) = profile.threads().get(thread.0 as usize) else {
        return String::from("unknown thread");
    };
    let mut name = printable(&thread_name(info)).into_owned();
    if info.pid != profile.meta().pid {
        name += &format!(" of process {}", info.pid);
    }
    if !info.python {
        name += ", no Python";
    }
    name
}
