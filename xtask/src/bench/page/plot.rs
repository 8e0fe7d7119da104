//! The page's plots, as SVG: errors, the slowdown, the cost against what it may grow with.

use anyhow::{Result, anyhow};
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::growth;
use crate::bench::compared::{Comparison, Measure};
use crate::bench::peers::NOBODY;

const SIZE: (u32, u32) = (860, 380);
/// Pixels of it for the lines' names.
const LEGEND: u32 = 290;

/// Colours that people tell apart (Okabe and Ito's, and some more), in the order of the tools.
const COLOURS: [RGBColor; 10] = [
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(0, 114, 178),
    RGBColor(86, 180, 233),
    RGBColor(0, 60, 110),
    RGBColor(0, 158, 115),
    RGBColor(120, 200, 120),
    RGBColor(204, 121, 167),
    RGBColor(140, 60, 140),
    RGBColor(90, 90, 90),
];
const GREY: RGBColor = RGBColor(190, 190, 190);

/// A tool's colour, the same in every plot.
fn colour(of: &Comparison, label: &str) -> RGBColor {
    let mut tools: Vec<&str> = Vec::new();
    for ran in &of.ran {
        if !tools.contains(&ran.tool.as_str()) {
            tools.push(&ran.tool);
        }
    }
    let name = label.split(" (").next().unwrap_or(label);
    let place = tools.iter().position(|tool| *tool == name);
    place.map_or(GREY, |place| COLOURS[place % COLOURS.len()])
}

/// A tool's name and its points.
type Series = (String, Vec<(f64, f64)>);

/// Workloads and their values.
type Values<'a> = Vec<(&'a str, f64)>;

/// The files' names and contents.
pub(super) fn all(of: &Comparison) -> Result<Vec<(String, String)>> {
    let mut all = vec![
        ("benchmarks-errors.svg".to_owned(), errors(of)?),
        ("benchmarks-slowdown.svg".to_owned(), slowdown(of)?),
    ];
    for (family, plot, words) in growth::FAMILIES {
        let svg = cost(of, family, words)?;
        all.push((format!("benchmarks-{plot}.svg"), svg));
    }
    Ok(all)
}

/// The values of a measure by tool: of each tool on the first interpreter that it ran on.
fn by_tool(of: &Comparison, measure: Measure) -> Vec<(String, Values<'_>)> {
    let mut found: Vec<(String, String, Values<'_>)> = Vec::new();
    for it in of.compared.iter().filter(|it| it.measure == measure) {
        let value = (it.workload.as_str(), it.median());
        match found.iter_mut().find(|(tool, ..)| *tool == it.tool) {
            Some((_, python, values)) if *python == it.python => values.push(value),
            Some(_) => {}
            None => found.push((it.tool.clone(), it.python.clone(), vec![value])),
        }
    }
    let named = |(tool, python, values): (String, String, _)| {
        // The usual interpreter needs no mention.
        let first = of.ran.first().is_some_and(|ran| ran.python == python);
        let label = if first || tool == NOBODY {
            tool
        } else {
            format!("{tool} ({python})")
        };
        (label, values)
    };
    found.into_iter().map(named).collect()
}

/// A dot for each workload, by tool; the scale is logarithmic and begins at a tenth of a point.
fn errors(of: &Comparison) -> Result<String> {
    let tools = by_tool(of, Measure::Error);
    let dots: Vec<Series> = tools
        .into_iter()
        .map(|(tool, values)| {
            let errors = values.into_iter().map(|(_, error)| (error.max(0.1), 0.0));
            (tool, errors.collect())
        })
        .collect();
    let names: Vec<String> = dots.iter().map(|(tool, _)| tool.clone()).collect();
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(
                "error of the shares, a dot for each workload",
                ("sans-serif", 16),
            )
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(270)
            .margin_right(30)
            .build_cartesian_2d((0.1..100.0).log_scale(), rows(names.len()))
            .map_err(failed)?;
        mesh(
            &mut chart,
            &names,
            "percentage points; at the left edge: 0.1 or less",
        )?;
        for (row, (tool, points)) in dots.iter().enumerate() {
            let colour = colour(of, tool).mix(0.6);
            let place = place(row, names.len());
            let dots = points
                .iter()
                .map(|(error, _)| Circle::new((*error, place), 4, colour.filled()));
            chart.draw_series(dots).map_err(failed)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

/// Bars by tool, of the first row: the highest rate.
fn slowdown(of: &Comparison) -> Result<String> {
    let bars: Vec<(String, f64)> = by_tool(of, Measure::Slowdown)
        .into_iter()
        .filter_map(|(tool, values)| Some((tool, values.first()?.1)))
        .collect();
    let names: Vec<String> = bars.iter().map(|(tool, _)| tool.clone()).collect();
    let values = || bars.iter().map(|(_, value)| *value);
    let (low, high) = (values().fold(0.0, f64::min), values().fold(1.0, f64::max));
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let title = format!(
            "slowdown of counted work at {} Hz, by its pieces",
            of.rate_hz
        );
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", 16))
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(270)
            .build_cartesian_2d(low * 1.1..high * 1.1, rows(names.len()))
            .map_err(failed)?;
        mesh(&mut chart, &names, "% more time than with nobody watching")?;
        let bars = bars.iter().enumerate().map(|(row, (tool, value))| {
            let place = place(row, names.len());
            let (from, to) = (place - 0.3, place + 0.3);
            let colour = colour(of, tool);
            Rectangle::new([(0.0, from), (*value, to)], colour.filled())
        });
        chart.draw_series(bars).map_err(failed)?;
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

/// Lines of the cost of samples over the number with which the names of a family's workloads begin.
fn cost(of: &Comparison, family: &str, axis: &str) -> Result<String> {
    let lines: Vec<Series> = by_tool(of, Measure::Cpu)
        .into_iter()
        .map(|(tool, values)| {
            let point = |(workload, ms): (&str, f64)| {
                let number = growth::number(workload, family)?;
                Some((number.into(), ms.max(0.01)))
            };
            let mut points: Vec<(f64, f64)> = values.into_iter().filter_map(point).collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            (tool, points)
        })
        .filter(|(_, points)| !points.is_empty())
        .collect();
    let points = || lines.iter().flat_map(|(_, points)| points);
    let most = points().map(|it| it.0).fold(2.0, f64::max);
    let (low, high) = points().fold((1.0_f64, 10.0_f64), |(low, high), it| {
        (low.min(it.1), high.max(it.1))
    });
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let (left, right) = root.split_horizontally(SIZE.0 - LEGEND);
        let mut chart = ChartBuilder::on(&left)
            .caption("CPU for 1,000 samples", ("sans-serif", 16))
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d(
                (1.0..most * 1.1).log_scale(),
                (low / 1.5..high * 2.0).log_scale(),
            )
            .map_err(failed)?;
        chart
            .configure_mesh()
            .x_desc(axis)
            .y_desc("ms")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| format!("{y:.0}"))
            .label_style(("sans-serif", 13))
            .light_line_style(WHITE)
            .draw()
            .map_err(failed)?;
        for (row, (tool, points)) in (0..).zip(&lines) {
            let style =
                colour(of, tool).stroke_width(if tool.starts_with("profiler ") { 3 } else { 1 });
            let line = LineSeries::new(points.iter().copied(), style).point_size(3);
            chart.draw_series(line).map_err(failed)?;
            let y = 50 + 22 * row;
            let mark = PathElement::new([(0, y), (20, y)], style);
            right.draw(&mark).map_err(failed)?;
            let name = Text::new(tool.clone(), (26, y - 7), ("sans-serif", 13));
            right.draw(&name).map_err(failed)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

/// A place for each of so many rows: its middle is a whole number.
fn rows(count: usize) -> std::ops::Range<f64> {
    -0.5..count as f64 - 0.5
}

/// The place of a row, the first on top.
fn place(row: usize, count: usize) -> f64 {
    (count - 1 - row) as f64
}

/// The rows' names on the left, and what the values are.
fn mesh<X>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, RangedCoordf64>>,
    names: &[String],
    axis: &str,
) -> Result<()>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let name = |at: &f64| {
        let row = names.len() as f64 - 1.0 - at;
        let whole = row >= 0.0 && (row - row.round()).abs() < 0.01;
        let name = names.get(row.round() as usize).filter(|_| whole);
        name.cloned().unwrap_or_default()
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .light_line_style(WHITE)
        .y_labels(2 * names.len())
        .y_label_formatter(&name)
        .x_desc(axis)
        .label_style(("sans-serif", 13))
        .draw()
        .map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("a plot could not be drawn: {error}")
}
