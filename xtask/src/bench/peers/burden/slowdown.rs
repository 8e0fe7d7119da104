//! How much longer counted work takes while a tool watches.

use anyhow::{Context, Result};
use tests::target::Target;

use super::{NOBODY, sides};
use crate::bench::compared::Measure;
use crate::bench::cost::BpfStats;
use crate::bench::peers::{Stand, number};
use crate::bench::report::Report;
use crate::bench::slowdown::calibrated;
use crate::bench::tool::Tool;
use crate::bench::{Setting, measure};

/// By the wall clock, by the thread's own, and by what its pieces took beyond their neighbours.
pub(super) fn run(
    setting: &Setting,
    stand: &Stand<'_>,
    rate: u32,
    report: &mut Report,
) -> Result<()> {
    // Its clock on our programs would be ours to pay.
    let _stats = BpfStats::switch(false)?;
    let mut target = Target::start(stand.python, "count_work.py", &["20"])?;
    let units = calibrated(&mut target, setting.pick(0.4, 1.0))?;
    let sides = sides(stand);
    let (mut cpu, mut beyond) = (Vec::new(), Vec::new());
    let wall = measure::ratios(&sides, setting.pick(4, 9), |side| {
        let watching = match side {
            Some(tool) => Some(tool.start(stand.python, target.pid(), rate)?),
            None => None,
        };
        target.tell(&units)?;
        let took = target.expect("work")?;
        if let Some(watching) = watching {
            watching.stop()?;
        }
        cpu.push(number(&took, "cpu_s")?);
        beyond.push(1.0 + number(&took, "lost_wall")?);
        number(&took, "wall_s")
    })?;
    let rounds = wall[0].len();
    // The same runs by another clock, brought back into the order of the sides.
    let by = |values: Vec<f64>| {
        let mut again = values.into_iter();
        measure::ratios(&sides, rounds, |_| again.next().context("a run is missing"))
    };
    for (clock, ratios) in [("pieces", by(beyond)?), ("wall", wall), ("CPU", by(cpu)?)] {
        let workload = format!("{rate} Hz, {clock}");
        for (side, ratios) in sides.iter().zip(&ratios).skip(1) {
            let name = side.map_or(NOBODY.to_owned(), Tool::name);
            for ratio in ratios {
                let percent = 100.0 * (ratio - 1.0);
                report.compared(Measure::Slowdown, &workload, stand.python, &name, percent);
            }
        }
    }
    Ok(())
}
