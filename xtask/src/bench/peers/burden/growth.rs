//! What a sample costs beside sleeping threads, and at other rates; how that grows with busy threads
//! and with depth, the workloads of the same names tell.

use anyhow::{Result, ensure};
use tests::target::Target;

use crate::bench::compared::Measure;
use crate::bench::peers::{RATE, Stand, in_turn};
use crate::bench::report::Report;
use crate::bench::tool::Tool;
use crate::bench::{Setting, measure};

pub(super) fn run(setting: &Setting, stand: &Stand<'_>, report: &mut Report) {
    let mut programs = Vec::new();
    let sleepers: &[&str] = setting.pick(&["20"], &["1", "20", "200", "1000"]);
    for count in sleepers {
        programs.push((format!("{count} asleep"), "sleepers.py", *count, RATE));
    }
    let rates: &[u32] = setting.pick(&[10_000], &[100, 1000, 10_000]);
    for rate in rates {
        programs.push((format!("{rate} Hz"), "spin.py", "20", *rate));
    }
    for (workload, script, argument, rate) in &programs {
        in_turn(&stand.tools, setting.pick(1, 3), |tool, _| {
            match cost(setting, stand, tool, script, argument, *rate) {
                Ok([cpu_ms, rss_mb]) => {
                    let mut add = |measure, value| {
                        report.compared(measure, workload, stand.python, &tool.name(), value);
                    };
                    add(Measure::Cpu, cpu_ms);
                    add(Measure::Memory, rss_mb);
                }
                Err(error) => report.beaten(tool, stand.python, workload, &error),
            }
        });
    }
}

/// The CPU milliseconds of 1,000 samples once it is attached, and its memory in megabytes.
fn cost(
    setting: &Setting,
    stand: &Stand<'_>,
    tool: Tool,
    script: &str,
    argument: &str,
    rate: u32,
) -> Result<[f64; 2]> {
    let mut target = Target::start(stand.python, script, &[argument])?;
    let watching = tool.start(stand.python, target.pid(), rate)?;
    let before = watching.cost()?;
    target.tell("go")?;
    target.expect("running")?;
    measure::wait(setting.pick(0.5, 2.0));
    let after = watching.cost()?;
    target.tell("stop")?;
    target.expect("done")?;
    let samples = watching.stop()?.samples as f64;
    ensure!(samples > 0.0, "it has no samples");
    let spent = after.cpu_s - before.cpu_s;
    Ok([1e6 * spent / samples, after.rss_bytes / 1e6])
}
