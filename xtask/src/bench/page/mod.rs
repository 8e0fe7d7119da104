//! `docs/benchmarks.md` and its plots, made of a comparison alone: what the page claims is in the
//! figures, and so is where a peer is better.

mod growth;
mod measures;
mod plot;
mod reasons;
mod short;
mod verdict;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::compared::{Compared, Comparison, Measure, Ran};
use super::measure;
use super::peers::NOBODY;
use super::tool::Claim;

/// Writes the page and its plots into a folder.
pub(super) fn write(of: &Comparison, folder: &Path) -> Result<()> {
    ensure!(
        !of.compared.is_empty(),
        "nothing was compared: the page is of the bench `peers`"
    );
    for (name, svg) in plot::all(of)? {
        let path = folder.join(name);
        std::fs::write(&path, svg).with_context(|| format!("`{}`", path.display()))?;
    }
    let path = folder.join("benchmarks.md");
    std::fs::write(&path, text(of)).with_context(|| format!("`{}`", path.display()))
}

fn text(of: &Comparison) -> String {
    let mut page = String::new();
    head(of, &mut page);
    short::section(of, &mut page);
    for (measure, meaning) in measures::ALL {
        section(of, measure, meaning, &mut page);
    }
    if !of.failures.is_empty() {
        page.push_str(
            "## What failed\n\nA tool that could not do a run, as it said; its cell is empty.\n\n",
        );
        for failure in &of.failures {
            let _ = writeln!(page, "- {}", one_line(failure));
        }
        page.push('\n');
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

/// Under which conditions, and who took part.
fn head(of: &Comparison, page: &mut String) {
    let with = &of.conditions;
    let _ = write!(
        page,
        "<!-- Written by `cargo xtask bench --only peers --page`: do not edit. -->\n\n\
         # Beside other profilers\n\n\
         Every tool on the same programs, each of which says itself what is true. Made on {} by\n\n\
         ```\n{}\n```\n\n\
         on {} CPUs ({}), {:.0} GB of memory, Linux {}; profiler {}, {}. The tools were asked for {} \
         samples a second where nothing else is said, and took turns on each program; the cells are \
         medians of the rounds, in brackets how far those lie apart (the middle half of four or more). The \
         best of those that claim the same is bold. A difference within half of the rounds' own, or below \
         the measure's grain, counts as neither's.\n\n",
        with.date,
        with.command,
        with.cpus,
        with.processor,
        with.memory_gb,
        with.kernel,
        with.version,
        with.parties.join(", "),
        of.rate_hz,
    );
    if with.quick {
        page.push_str(
            "**This was a quick run** (`--quick`): short, one round of most cells, to see that it works. \
             Chance is large in it.\n\n",
        );
    }
    let _ = write!(
        page,
        "As it began, {:.1} other tasks wanted a CPU on the average of a minute. Figures of different \
         machines are not comparable; ratios within one run are.\n\n## Who took part\n\n\
         | tool | CPython | its samples add up to | |\n| --- | --- | --- | --- |\n",
        with.load,
    );
    for ran in &of.ran {
        let claim = match ran.claim {
            Claim::Cpu => "time on a CPU",
            Claim::Wall => "all time",
        };
        let missing = ran.missing.as_deref();
        let word = missing.map_or("measured".to_owned(), |reason| {
            format!("missing: {}", one_line(reason))
        });
        let _ = writeln!(
            page,
            "| `{}` | {} | {claim} | {word} |",
            ran.tool, ran.python
        );
    }
    page.push('\n');
    let _ = write!(
        page,
        "A tool is held against the truth of what its samples add up to, and our mode of that kind \
         against the peers of it. `py-spy`, and `profiling.sampling` with `--blocking`, stop the program \
         for each sample.\n\n![errors](benchmarks-errors.svg)\n\n"
    );
}

fn section(of: &Comparison, measure: Measure, meaning: &str, page: &mut String) {
    let rows: Vec<&Compared> = of
        .compared
        .iter()
        .filter(|it| it.measure == measure)
        .collect();
    if rows.is_empty() {
        return;
    }
    let name = measure.name();
    let title = name[..1].to_uppercase() + &name[1..];
    let _ = write!(page, "## {title}, {}\n\n", measure.unit());
    let _ = write!(page, "{meaning} {}\n\n", verdict::sentence(of, measure));
    for python in pythons(&rows) {
        let _ = write!(page, "CPython {python}:\n\n");
        table(of, measure, &python, &rows, page);
    }
    for line in verdict::lost(of, measure) {
        let _ = writeln!(page, "- {line}");
    }
    if !page.ends_with("\n\n") {
        page.push('\n');
    }
    for reason in reasons::of(of, measure) {
        let _ = write!(page, "Why: {reason}\n\n");
    }
    if measure == Measure::Slowdown {
        page.push_str("![slowdown](benchmarks-slowdown.svg)\n\n");
    }
    // Behind the two measures of which it is made.
    if measure == Measure::Memory {
        growth::section(of, page);
    }
    if let Some(most) = of
        .conditions
        .most_hz
        .filter(|_| measure == Measure::Highest)
    {
        let _ = write!(
            page,
            "The kernel holds clocks of our kind to `kernel.perf_event_max_sample_rate`, {most} a second here; \
             where that is below the rate, ticks come late, their samples stand for the periods \
             between, and times stay right.\n\n"
        );
    }
}

/// Rows are workloads, columns are tools; the best of each kind is bold.
fn table(of: &Comparison, measure: Measure, python: &str, rows: &[&Compared], page: &mut String) {
    let rows: Vec<&&Compared> = rows.iter().filter(|it| it.python == python).collect();
    let ran: Vec<&Ran> = of
        .ran
        .iter()
        .filter(|ran| ran.python == python && ran.missing.is_none())
        .collect();
    let mut tools: Vec<&str> = ran.iter().map(|ran| ran.tool.as_str()).collect();
    if rows.iter().any(|row| row.tool == NOBODY) {
        tools.insert(0, NOBODY);
    }
    page.push_str("| |");
    for tool in &tools {
        let _ = write!(
            page,
            " {} |",
            tool.replace("profiling.sampling", "sampling")
        );
    }
    let _ = write!(page, "\n| --- |{}\n", " ---: |".repeat(tools.len()));
    let mut workloads: Vec<&str> = Vec::new();
    for row in &rows {
        if !workloads.contains(&row.workload.as_str()) {
            workloads.push(&row.workload);
        }
    }
    for workload in workloads {
        let _ = write!(page, "| {workload} |");
        let of_row: Vec<&&Compared> = rows
            .iter()
            .filter(|it| it.workload == workload)
            .copied()
            .collect();
        for tool in &tools {
            let Some(cell) = of_row.iter().find(|it| it.tool == *tool) else {
                page.push_str(" |");
                continue;
            };
            let claim = ran.iter().find(|ran| ran.tool == *tool).map(|it| it.claim);
            let off = |it: &Compared| measure.badness(it.median());
            let rivals: Vec<f64> = of_row
                .iter()
                .filter(|it| {
                    let other = ran.iter().find(|ran| ran.tool == it.tool);
                    other.is_some_and(|other| Some(other.claim) == claim)
                })
                .map(|it| off(it))
                .collect();
            // Where all are the same there is no best one.
            let is_best = rivals.iter().all(|other| off(cell) <= *other);
            let mark = match is_best && rivals.iter().any(|other| off(cell) < *other) {
                true => "**",
                false => "",
            };
            let apart = apart(cell).map_or(String::new(), |it| format!(" ({})", figure(it)));
            let _ = write!(page, " {mark}{}{mark}{apart} |", figure(cell.median()));
        }
        page.push('\n');
    }
    page.push('\n');
}

/// How far the rounds lie apart; none of a single one.
fn apart(cell: &Compared) -> Option<f64> {
    match cell.values.as_slice() {
        [] | [_] => None,
        values @ ([_, _] | [_, _, _]) => {
            let fold = |of: fn(f64, f64) -> f64| values.iter().copied().reduce(of);
            let (most, least) = fold(f64::max).zip(fold(f64::min))?;
            Some(most - least)
        }
        values => Some(measure::spread(values)),
    }
}

/// As many digits as a reader wants.
fn figure(value: f64) -> String {
    match value.abs() {
        size if size < 0.005 => "0".to_owned(),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn pythons(rows: &[&Compared]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for row in rows {
        if !found.contains(&row.python) {
            found.push(row.python.clone());
        }
    }
    found
}

/// What a tool said, as it fits into a line of a table.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line: String = words.join(" ").chars().take(300).collect();
    line.replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(peer: f64) -> Comparison {
        let ran = |tool: &str, ours, missing: Option<&str>| Ran {
            tool: tool.to_owned(),
            python: "3.12".to_owned(),
            claim: Claim::Cpu,
            ours,
            missing: missing.map(str::to_owned),
        };
        let mut of = Comparison {
            ran: vec![
                ran("ours", true, None),
                ran("peer", false, None),
                ran("absent", false, Some("no | such\nfile")),
            ],
            ..Comparison::default()
        };
        for value in [10.0, 12.0, 14.0] {
            of.add(Measure::Cpu, "20 deep", "3.12", "ours", value);
        }
        of.add(Measure::Cpu, "20 deep", "3.12", "peer", peer);
        of
    }

    #[test]
    fn a_peer_that_is_better_is_named() {
        let page = text(&comparison(6.0));
        assert!(
            page.contains("| 20 deep | 12.0 (4.00) | **6.00** |"),
            "{page}"
        );
        assert!(
            page.contains("- `peer` on 3.12, in 1 of 1 rows: 20 deep (6.00 against 12.0)"),
            "{page}"
        );
        let page = text(&comparison(24.0));
        assert!(page.contains("| **12.0** (4.00) | 24.0 |"), "{page}");
        assert!(page.contains("No peer was better"), "{page}");
        assert!(page.contains("`peer` 2.0"), "{page}");
        // Within half of what our rounds lie apart.
        let page = text(&comparison(11.0));
        assert!(page.contains("in 0 ours was, in 1 neither"), "{page}");
    }

    #[test]
    fn a_reason_is_given_only_where_a_peer_is_better() {
        let page = |measure, row: &str, peer: f64| {
            let mut of = comparison(1000.0);
            of.add(measure, row, "3.12", "ours", 30.0);
            of.add(measure, row, "3.12", "peer", peer);
            text(&of)
        };
        assert!(page(Measure::Memory, "20 deep", 10.0).contains("Why: more than half"));
        assert!(!page(Measure::Memory, "20 deep", 40.0).contains("Why:"));
        // One that is not of this row.
        assert!(page(Measure::Got, "20 deep", 100.0).contains("Why: not known"));
    }

    #[test]
    fn what_nobody_cannot_tell_apart_is_neithers() {
        let page = |nobody: [f64; 2]| {
            let mut of = comparison(1000.0);
            let rows = [
                ("ours", 8.0),
                ("peer", 1.0),
                (NOBODY, nobody[0]),
                (NOBODY, nobody[1]),
            ];
            for (tool, value) in rows {
                of.add(Measure::Slowdown, "1000 Hz", "3.12", tool, value);
            }
            text(&of)
        };
        assert!(page([-1.0, 1.0]).contains("`peer` on 3.12, in 1 of 1 rows: 1000 Hz"));
        assert!(
            page([-5.0, 5.0]).contains("No peer was better in any of 1 comparisons; in 0 ours")
        );
    }

    #[test]
    fn of_rates_the_highest_is_the_best() {
        let mut of = comparison(1.0);
        of.add(Measure::Highest, "20 deep", "3.12", "ours", 40_000.0);
        of.add(Measure::Highest, "20 deep", "3.12", "peer", 1000.0);
        let page = text(&of);
        assert!(page.contains("| 20 deep | **40000** | 1000 |"), "{page}");
    }

    #[test]
    fn a_missing_peer_is_named_with_its_reason() {
        let page = text(&comparison(1.0));
        let row = "| `absent` | 3.12 | time on a CPU | missing: no \\| such file |";
        assert!(page.contains(row), "{page}");
    }
}
