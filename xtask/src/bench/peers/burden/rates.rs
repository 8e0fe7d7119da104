//! The highest rate at which a tool gets the samples that are due.

use anyhow::{Result, ensure};
use tests::target::{Account, Target};

use super::took;
use crate::bench::compared::Measure;
use crate::bench::peers::{Stand, in_turn};
use crate::bench::report::Report;
use crate::bench::tool::{Claim, Tool};
use crate::bench::{Setting, measure};

const RATES: &[u32] = &[100, 1000, 2000, 5000, 10_000, 20_000, 40_000];
const FEW: &[u32] = &[1000, 10_000, 40_000];

/// Of the samples that are due so many must be there, but for what chance takes at the ends of the
/// stretches in which the thread runs.
const ENOUGH: f64 = 0.99;
/// And of what a thread had on a CPU so many can be.
const MOST: f64 = 1.02;

pub(super) fn run(setting: &Setting, stand: &Stand<'_>, report: &mut Report) {
    let depths: &[(&str, usize)] = setting.pick(&[("20", 1)], &[("20", 3), ("1", 1), ("100", 1)]);
    for (depth, rounds) in depths {
        let workload = format!("{depth} deep");
        in_turn(&stand.tools, *rounds, |tool, _| {
            let outcome = highest(setting, stand, tool, depth);
            took(stand, tool, Measure::Highest, &workload, outcome, report);
        });
    }
}

/// Climbs until it fails at two rates in a row, each of them twice: the machine may have been busy
/// once. Zero where it keeps none.
fn highest(setting: &Setting, stand: &Stand<'_>, tool: Tool, depth: &str) -> Result<f64> {
    let (mut best, mut failed) = (0, 0);
    for rate in setting.pick(FEW, RATES) {
        let keeps = || keeps(setting, stand, tool, depth, *rate);
        match keeps().and_then(|kept| if kept { Ok(true) } else { keeps() }) {
            Ok(true) => (best, failed) = (*rate, 0),
            Ok(false) => failed += 1,
            // Not a rate for it, as it says.
            Err(_) if best > 0 => break,
            Err(error) => return Err(error),
        }
        if failed == 2 {
            break;
        }
    }
    Ok(best.into())
}

/// Whether it got enough of one busy thread's samples, and says of none that it is lost.
fn keeps(setting: &Setting, stand: &Stand<'_>, tool: Tool, depth: &str, rate: u32) -> Result<bool> {
    let mut target = Target::start(stand.python, "spin.py", &[depth])?;
    let tool = match tool {
        Tool::Ours(mode) => Tool::OursEven(mode),
        peer => peer,
    };
    let watching = tool.start(stand.python, target.pid(), rate)?;
    target.tell("go")?;
    target.expect("running")?;
    measure::wait(setting.pick(0.5, 2.0));
    target.tell("stop")?;
    let done = target.expect("done")?;
    let taken = watching.stop()?;
    let accounts: Vec<Account> = serde_json::from_value(done["threads"].clone())?;
    ensure!(accounts.len() == 1, "the target told nothing: {done}");
    let got = taken.by_number().with("leaf") as f64;
    let due = |seconds: f64| seconds * f64::from(rate);
    let (cpu, wall) = (due(accounts[0].cpu_s), due(accounts[0].wall_s));
    // A peer that has more than there was on the CPU counts waiting for one too: all of that is due.
    let due = match tool.claim() {
        Claim::Cpu if tool.is_ours() || got <= MOST * cpu => cpu,
        _ => wall,
    };
    Ok(taken.lost == 0 && got + due.sqrt() / 2.0 >= ENOUGH * due)
}
