//! All measures of a tool in one line, those that depend on the machine as ratios to ours.

use std::fmt::Write as _;

use super::figure;
use crate::bench::compared::{Compared, Comparison, Measure, Ran};
use crate::bench::measure;

/// What a column says of a tool.
struct Column {
    heading: &'static str,
    measure: Measure,
    /// Which of the measure's rows.
    row: fn(&str) -> bool,
    value: Value,
}

enum Value {
    /// The middle of all rows, and the worst of them.
    MiddleAndWorst,
    Worst,
    /// Row by row how many times what ours of the same kind has; the middle of that.
    OfOurs,
    /// Of the first row alone.
    First,
}

const COLUMNS: [Column; 8] = [
    Column {
        heading: "CPU of a sample, warm, of ours",
        measure: Measure::Cpu,
        row: |row| row.ends_with("warm"),
        value: Value::OfOurs,
    },
    Column {
        heading: "with the first second",
        measure: Measure::Cpu,
        row: |row| !row.ends_with("warm"),
        value: Value::OfOurs,
    },
    Column {
        heading: "memory, of ours",
        measure: Measure::Memory,
        row: |_| true,
        value: Value::OfOurs,
    },
    Column {
        heading: "first sample, of ours",
        measure: Measure::First,
        row: |_| true,
        value: Value::OfOurs,
    },
    Column {
        heading: "error, middle · worst, points",
        measure: Measure::Error,
        row: |_| true,
        value: Value::MiddleAndWorst,
    },
    Column {
        heading: "impossible, worst, of 10⁶",
        measure: Measure::Impossible,
        row: |_| true,
        value: Value::Worst,
    },
    Column {
        heading: "slowdown, %",
        measure: Measure::Slowdown,
        row: |_| true,
        value: Value::First,
    },
    Column {
        heading: "highest rate, Hz",
        measure: Measure::Highest,
        row: |_| true,
        value: Value::First,
    },
];

/// The section: a table for each interpreter.
pub(super) fn section(of: &Comparison, page: &mut String) {
    page.push_str(
        "## In short\n\nA line is all workloads of a tool: the middle one of their medians, and the worst; the \
         first columns are ratios, row by row, to our mode of the same kind. The slowdown is that at the rate \
         of all, by the pieces of the work. Each has its own section below.\n\n",
    );
    let mut pythons: Vec<&str> = Vec::new();
    for ran in &of.ran {
        if !pythons.contains(&ran.python.as_str()) {
            pythons.push(&ran.python);
        }
    }
    for python in pythons {
        let _ = write!(page, "CPython {python}:\n\n| |");
        for column in &COLUMNS {
            let _ = write!(page, " {} |", column.heading);
        }
        let _ = write!(page, "\n| --- |{}\n", " ---: |".repeat(COLUMNS.len()));
        let tools = of.ran.iter().filter(|ran| ran.python == python);
        for tool in tools.filter(|ran| ran.missing.is_none()) {
            let _ = write!(page, "| `{}` |", tool.tool);
            for column in &COLUMNS {
                let _ = write!(page, " {} |", cell(of, tool, column).unwrap_or_default());
            }
            page.push('\n');
        }
        page.push('\n');
    }
}

/// A tool's rows of a measure.
fn rows<'a>(of: &'a Comparison, tool: &'a Ran, measure: Measure) -> Vec<&'a Compared> {
    let is_its =
        |it: &&Compared| it.measure == measure && it.tool == tool.tool && it.python == tool.python;
    of.compared.iter().filter(is_its).collect()
}

fn cell(of: &Comparison, tool: &Ran, column: &Column) -> Option<String> {
    let mut rows = rows(of, tool, column.measure);
    rows.retain(|row| (column.row)(&row.workload));
    let medians: Vec<f64> = rows.iter().map(|row| row.median()).collect();
    let worst = medians.iter().copied().reduce(f64::max)?;
    match column.value {
        Value::MiddleAndWorst => {
            let middle = measure::median(&medians);
            Some(format!("{} · {}", figure(middle), figure(worst)))
        }
        Value::Worst => Some(figure(worst)),
        Value::First => Some(figure(*medians.first()?)),
        Value::OfOurs => {
            let ratios: Vec<f64> = rows
                .iter()
                .filter_map(|row| Some(row.median() / ours(of, tool, row)?))
                .collect();
            (!ratios.is_empty()).then(|| figure(measure::median(&ratios)))
        }
    }
}

/// What our mode of the tool's kind has in that row.
fn ours(of: &Comparison, tool: &Ran, row: &Compared) -> Option<f64> {
    let mut kind = of
        .ran
        .iter()
        .filter(|ran| ran.ours && ran.claim == tool.claim && ran.python == tool.python);
    let rows = rows(of, kind.next()?, row.measure);
    let same = rows.iter().find(|it| it.workload == row.workload)?;
    Some(same.median())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tool::Claim;

    #[test]
    fn a_tools_line_has_ratios_to_ours_and_its_worst_row() {
        let ran = |tool: &str, ours| Ran {
            tool: tool.to_owned(),
            python: "3.12".to_owned(),
            claim: Claim::Cpu,
            ours,
            missing: None,
        };
        let mut of = Comparison {
            ran: vec![ran("ours", true), ran("peer", false)],
            ..Comparison::default()
        };
        let rows = [("a", 10.0, 40.0), ("b", 20.0, 20.0), ("c", 1.0, 9.0)];
        for (workload, ours, peer) in rows {
            of.add(Measure::Cpu, workload, "3.12", "ours", ours);
            of.add(Measure::Cpu, workload, "3.12", "peer", peer);
            of.add(Measure::Error, workload, "3.12", "peer", peer);
        }
        // Of a row that ours has not there is no ratio.
        of.add(Measure::Cpu, "d", "3.12", "peer", 1e9);
        let mut page = String::new();
        section(&of, &mut page);
        assert!(page.contains("| `ours` |  | 1.00 |  |  |  |"), "{page}");
        assert!(
            page.contains("| `peer` |  | 4.00 |  |  | 20.0 · 40.0 |"),
            "{page}"
        );
    }
}
