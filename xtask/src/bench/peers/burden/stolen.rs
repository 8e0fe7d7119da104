//! The gaps that a native loop sees in its own time.

use anyhow::Result;
use tests::target::Target;

use super::{NOBODY, sides};
use crate::bench::Setting;
use crate::bench::compared::Measure;
use crate::bench::cost::BpfStats;
use crate::bench::peers::{RATE, Stand, in_turn, number};
use crate::bench::report::Report;
use crate::bench::tool::Tool;

/// Microseconds of each second, with nobody watching and with each tool.
pub(super) fn run(setting: &Setting, stand: &Stand<'_>, report: &mut Report) -> Result<()> {
    let _stats = BpfStats::switch(false)?;
    let mut target = Target::start_gap_meter(stand.python)?;
    let seconds = setting.pick("0.5", "2");
    let mut gaps = |side: Option<Tool>| -> Result<f64> {
        let watching = match side {
            Some(tool) => Some(tool.start(stand.python, target.pid(), RATE)?),
            None => None,
        };
        target.tell(seconds)?;
        let gaps = target.expect("gaps")?;
        if let Some(watching) = watching {
            watching.stop()?;
        }
        let gone = number(&gaps, "short_ns")? + number(&gaps, "long_ns")?;
        Ok(gone / 1e3 / (number(&gaps, "wall_ns")? / 1e9))
    };
    let sides = &sides(stand)[1..];
    let mut failed = None;
    in_turn(sides, setting.pick(3, 7), |side, _| {
        let name = side.map_or(NOBODY.to_owned(), Tool::name);
        match gaps(side) {
            Ok(us) => report.compared(Measure::Stolen, "native loop", stand.python, &name, us),
            Err(error) => failed = Some(error.context(name)),
        }
    });
    failed.map_or(Ok(()), Err)
}
