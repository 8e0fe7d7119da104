//! The figures: printed as they come, each beside its bound, and kept for JSON.

use serde::Serialize;
use tests::pythons::Python;

use super::compared::{Comparison, Measure, Ran};
use super::tool::Tool;

/// The most, or the least, that a figure may be.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Bound {
    /// Not more than this.
    AtMost(f64),
    /// Exactly this.
    Exactly(f64),
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::Exactly(wanted) => value == wanted,
        }
    }
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
struct Figure {
    bench: String,
    case: String,
    figure: String,
    value: f64,
    unit: &'static str,
    bound: Option<Bound>,
}

/// All figures.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    figures: Vec<Figure>,
    failures: Vec<String>,
    /// The tools beside each other, if they were compared.
    pub(super) comparison: Comparison,
    #[serde(skip)]
    bench: String,
}

impl Report {
    /// Begins a bench.
    pub(super) fn begin(&mut self, name: &str) {
        name.clone_into(&mut self.bench);
        println!("\n{name}");
    }

    /// A figure with a bound.
    pub(super) fn bounded(
        &mut self,
        case: &str,
        figure: &str,
        value: f64,
        unit: &'static str,
        bound: Bound,
    ) {
        self.add(case, figure, value, unit, Some(bound));
    }

    /// A figure for comparison.
    pub(super) fn plain(&mut self, case: &str, figure: &str, value: f64, unit: &'static str) {
        self.add(case, figure, value, unit, None);
    }

    /// A case, or a bench, that could not be measured.
    pub(super) fn failed(&mut self, error: &anyhow::Error) {
        println!("  could not be measured: {error:#}");
        self.failures.push(format!("{}: {error:#}", self.bench));
    }

    /// A round of one measure of one tool.
    pub(super) fn compared(
        &mut self,
        measure: Measure,
        workload: &str,
        python: &Python,
        tool: &str,
        value: f64,
    ) {
        let case = format!("{} {workload}", python.series());
        let figure = format!("{tool}: {}", measure.name());
        let value_and_unit = format!("{:>12} {:<8}", number(value), measure.unit());
        println!("  {case:<28} {figure:<62} {value_and_unit}");
        self.comparison
            .add(measure, workload, &python.series(), tool, value);
    }

    /// A tool that was tried on an interpreter.
    pub(super) fn ran(&mut self, ran: Ran) {
        if let Some(reason) = &ran.missing {
            let line = format!("{} on {}: missing: {reason}", ran.tool, ran.python);
            println!("  {line}");
            if ran.ours {
                self.failures.push(format!("{}: {line}", self.bench));
            }
        }
        self.comparison.ran.push(ran);
    }

    /// A tool that failed on a program on which others are measured.
    pub(super) fn beaten(
        &mut self,
        tool: Tool,
        python: &Python,
        workload: &str,
        error: &anyhow::Error,
    ) {
        let line = format!(
            "{} on {}, {workload}: {error:#}",
            tool.name(),
            python.series()
        );
        println!("  failed: {line}");
        if tool.is_ours() {
            self.failures.push(format!("{}: {line}", self.bench));
        }
        self.comparison.failures.push(line);
    }

    /// A program that no tool can be tried on here.
    pub(super) fn left_out(&mut self, python: &Python, workload: &str, reason: &str) {
        let line = format!(
            "all tools on {}, {workload}: missing: {reason}",
            python.series()
        );
        println!("  {line}");
        self.comparison.failures.push(line);
    }

    /// One figure, unless there is none: a spread of too few values.
    fn add(
        &mut self,
        case: &str,
        figure: &str,
        value: f64,
        unit: &'static str,
        bound: Option<Bound>,
    ) {
        if value.is_nan() && bound.is_none() {
            return;
        }
        let verdict = match bound {
            None => String::new(),
            Some(bound) => {
                let sign = if bound.holds(value) { "ok  " } else { "MISS" };
                match bound {
                    Bound::AtMost(most) => format!("{sign} at most {}", number(most)),
                    Bound::Exactly(wanted) => format!("{sign} exactly {}", number(wanted)),
                }
            }
        };
        let value_and_unit = format!("{:>12} {unit:<8}", number(value));
        println!("  {case:<28} {figure:<42} {value_and_unit} {verdict}");
        self.figures.push(Figure {
            bench: self.bench.clone(),
            case: case.to_owned(),
            figure: figure.to_owned(),
            value,
            unit,
            bound,
        });
    }

    /// Says how many bounds hold; gives how much could not be measured.
    pub(super) fn summary(&self) -> usize {
        let bounded: Vec<_> = self
            .figures
            .iter()
            .filter_map(|figure| {
                figure
                    .bound
                    .map(|bound| (figure, bound.holds(figure.value)))
            })
            .collect();
        let missed = bounded.iter().filter(|(_, holds)| !holds).count();
        println!(
            "\n{} of {} bounds hold; {} could not be measured",
            bounded.len() - missed,
            bounded.len(),
            self.failures.len()
        );
        for (figure, _) in bounded.iter().filter(|(_, holds)| !holds) {
            println!(
                "  missed: {} {}: {}",
                figure.bench, figure.case, figure.figure
            );
        }
        for failure in &self.failures {
            println!("  could not be measured: {failure}");
        }
        self.failures.len()
    }
}

/// As many digits as say something.
fn number(value: f64) -> String {
    match value.abs() {
        size if size != 0.0 && size < 10.0 => format!("{value:.4}"),
        size if size < 1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
