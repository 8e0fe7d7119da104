//! Whose the time was: a table of tasks, by their names.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use super::part::{Part, heat, plain, time, title};
use crate::aggregate::{Whose, count, percent, seconds};
use crate::export::Options;
use crate::export::escape::printable;
use crate::export::states::Kind;
use crate::export::table::{Cell, Paint, Table};
use crate::stack::{FrameKind, StackId};
use crate::words::DurationNs;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Amount {
    weight: u64,
    ticks: u64,
    by_kind: [u64; Kind::ALL.len()],
}

/// Writes the table, if tasks are told apart.
pub(super) fn write(part: &Part<'_>, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let whose = part.profile.meta().whose;
    if whose == Whose::Threads {
        return Ok(());
    }
    let mut amounts: HashMap<Option<Arc<str>>, Amount> = HashMap::new();
    for entry in &part.entries {
        let amount = amounts.entry(task(part, entry.stack)).or_default();
        amount.weight += entry.weight.0;
        amount.ticks += entry.ticks;
        amount.by_kind[Kind::of(entry.activity) as usize] += entry.weight.0;
    }
    let mut amounts: Vec<_> = amounts.into_iter().collect();
    amounts.sort_by(|a, b| (Reverse(a.1), &a.0).cmp(&(Reverse(b.1), &b.0)));
    let shown: &[(Kind, &str)] = match whose {
        Whose::Tasks => &[
            (Kind::OnCpu, "on CPU"),
            (Kind::Runnable, "runnable"),
            (Kind::Blocked, "waiting"),
            (Kind::Unknown, "unknown"),
        ],
        Whose::Threads | Whose::ThreadsByTask => &[],
    };
    let is_shown = |kind: &&(Kind, &str)| {
        let mut all = amounts.iter();
        all.any(|(_, amount)| amount.by_kind[kind.0 as usize] > 0)
    };
    let shown: Vec<_> = shown.iter().filter(is_shown).collect();
    let mut table = Table::default();
    let mut titles = vec![title("time"), title(""), title("samples")];
    titles.extend(shown.iter().map(|(_, words)| title(words)));
    titles.push(title("task"));
    table.row(titles);
    for (task, amount) in amounts.iter().take(options.rows) {
        let share = percent(amount.weight, part.whole);
        let mut cells = vec![
            plain(seconds(DurationNs(amount.weight))),
            Cell(share, heat(amount.weight, part.whole)),
            plain(count(amount.ticks)),
        ];
        let by_kind = shown.iter().map(|(kind, _)| amount.by_kind[*kind as usize]);
        cells.extend(by_kind.map(time));
        cells.push(plain(match task {
            Some(task) => printable(task).into_owned(),
            None => String::from("in no task"),
        }));
        table.row(cells);
    }
    writeln!(out)?;
    table.write(options.width, options.style, out)?;
    let rest = amounts.get(options.rows..).unwrap_or_default();
    if !rest.is_empty() {
        let weight = rest.iter().map(|(_, amount)| amount.weight).sum();
        let text = format!(
            "… and {} more names of tasks with {} ({})",
            count(rest.len() as u64),
            seconds(DurationNs(weight)),
            percent(weight, part.whole)
        );
        writeln!(out, "{}", Paint::Dim.on(&text, options.style))?;
    }
    Ok(())
}

/// The task of which a stack is: the one nearest its leaf, the others wait for it.
fn task(part: &Part<'_>, stack: StackId) -> Option<Arc<str>> {
    let ids = part.profile.stacks().get(stack).unwrap_or_default();
    let frames = part.profile.frames().as_slice();
    let mut frames = ids.iter().filter_map(|id| frames.get(id.0 as usize));
    let task = frames.find(|frame| frame.kind == FrameKind::Task)?;
    let words = task.function.strip_prefix("[task ");
    // A very long name was cut, and its end with it.
    let words = words.map(|words| words.strip_suffix(']').unwrap_or(words));
    Some(words.map_or_else(|| Arc::clone(&task.function), Arc::from))
}
