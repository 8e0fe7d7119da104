//! How a sample's cost grows: the figures of two measures once more, in the order of one number.

use std::fmt::Write as _;

use super::{figure, pythons};
use crate::bench::compared::{Compared, Comparison, Measure};

/// With what it can grow: the word behind the number in a workload's name, and what that means.
pub(super) const FAMILIES: [(&str, &str, &str); 4] = [
    ("threads", "threads", "threads that want to run, in turn"),
    ("asleep", "asleep", "threads asleep beside a busy one"),
    ("deep", "depth", "depth of the stack"),
    ("Hz", "rates", "samples a second"),
];

/// The number of a workload of that family, such as 20 of `20 threads`.
pub(super) fn number(workload: &str, family: &str) -> Option<u32> {
    let (number, rest) = workload.split_once(' ')?;
    let plain = |word: &str| word.trim_end_matches('s').to_owned();
    (plain(rest) == plain(family)).then(|| number.parse().ok())?
}

/// The section; nothing where nothing of it was measured.
pub(super) fn section(of: &Comparison, page: &mut String) {
    let rows: Vec<&Compared> = of
        .compared
        .iter()
        .filter(|it| matches!(it.measure, Measure::Cpu | Measure::Memory))
        .collect();
    let mut begun = false;
    for (family, plot, words) in FAMILIES {
        let rows: Vec<&Compared> = rows
            .iter()
            .filter(|it| number(&it.workload, family).is_some())
            .copied()
            .collect();
        if rows.is_empty() {
            continue;
        }
        if !begun {
            begun = true;
            page.push_str(
                "## How the cost grows\n\nCPU milliseconds for 1,000 samples, and behind them megabytes of \
                 memory: figures of the two measures before, in the order of what grows. The last column is \
                 how many times the first CPU figure the last one is: 1 does not grow.\n\n",
            );
        }
        for python in pythons(&rows) {
            let _ = write!(page, "By {words}, CPython {python}:\n\n");
            let rows: Vec<&Compared> = rows
                .iter()
                .filter(|it| it.python == python)
                .copied()
                .collect();
            table(&rows, family, page);
        }
        let _ = write!(page, "![{plot}](benchmarks-{plot}.svg)\n\n");
    }
}

/// Rows are tools, columns are numbers.
fn table(rows: &[&Compared], family: &str, page: &mut String) {
    let mut numbers: Vec<u32> = rows
        .iter()
        .filter_map(|it| number(&it.workload, family))
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut tools: Vec<&str> = Vec::new();
    for row in rows {
        if !tools.contains(&row.tool.as_str()) {
            tools.push(&row.tool);
        }
    }
    page.push_str("| |");
    for number in &numbers {
        let _ = write!(page, " {number} |");
    }
    let _ = write!(
        page,
        " last : first |\n| --- |{}\n",
        " ---: |".repeat(numbers.len() + 1)
    );
    for tool in tools {
        let value = |measure, wanted: u32| {
            let mut cells = rows.iter();
            let cell = cells.find(|it| {
                let is_there = number(&it.workload, family) == Some(wanted);
                it.tool == tool && it.measure == measure && is_there
            });
            cell.map(|cell| cell.median())
        };
        let _ = write!(page, "| `{tool}` |");
        for number in &numbers {
            let cells = [Measure::Cpu, Measure::Memory].map(|measure| value(measure, *number));
            let cells: Vec<String> = cells.into_iter().flatten().map(figure).collect();
            let _ = write!(page, " {} |", cells.join(" · "));
        }
        let mut cpu = numbers.iter().filter_map(|it| value(Measure::Cpu, *it));
        let ratio = match (cpu.next(), cpu.next_back()) {
            (Some(first), Some(last)) if first > 0.0 => figure(last / first),
            _ => String::new(),
        };
        let _ = writeln!(page, " {ratio} |");
    }
    page.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_of_the_family_whose_word_stands_behind_its_number() {
        assert_eq!(number("1 thread", "threads"), Some(1));
        assert_eq!(number("20 deep", "deep"), Some(20));
        assert_eq!(number("20 deep, warm", "deep"), None);
        assert_eq!(number("two spinners on one CPU", "deep"), None);
    }

    #[test]
    fn figures_stand_in_the_order_of_what_grows() {
        let mut of = Comparison::default();
        for (workload, cpu) in [("100 deep", 6.0), ("1 deep", 2.0)] {
            of.add(Measure::Cpu, workload, "3.12", "ours", cpu);
            of.add(Measure::Memory, workload, "3.12", "ours", 30.0);
        }
        let mut page = String::new();
        section(&of, &mut page);
        assert!(page.contains("| | 1 | 100 | last : first |"), "{page}");
        let row = "| `ours` | 2.00 · 30.0 | 6.00 · 30.0 | 3.00 |";
        assert!(page.contains(row), "{page}");
    }
}
