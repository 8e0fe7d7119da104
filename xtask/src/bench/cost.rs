//! What the profiler costs: its kernel programs, its process, its memory, its start.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tests::profiler::Running;
use tests::target::Target;

use super::report::{Bound, Report};
use super::{Setting, measure, meter};

const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// The kernel's own clock on its programs, on or off while this lives. It costs each run of them
/// some of its own.
#[derive(Debug)]
pub(super) struct BpfStats {
    before: String,
}

impl BpfStats {
    pub(super) fn switch(on: bool) -> Result<Self> {
        let before = std::fs::read_to_string(STATS).with_context(|| format!("`{STATS}`"))?;
        let now = if on { "1" } else { "0" };
        std::fs::write(STATS, now).with_context(|| format!("`{STATS}`"))?;
        Ok(Self { before })
    }

    /// Whether it runs: else what it says is too little.
    pub(super) fn is_on() -> bool {
        std::fs::read_to_string(STATS).is_ok_and(|it| it.trim() == "1")
    }
}

impl Drop for BpfStats {
    fn drop(&mut self) {
        // A bench's end must not fail over it; the setting costs the kernel little.
        let _ = std::fs::write(Path::new(STATS), self.before.trim());
    }
}

/// Bounds at a depth: kernel and user microseconds a sample.
const DEPTHS: &[(&str, Option<f64>, Option<f64>)] = &[
    ("1", None, None),
    ("20", Some(5.0), Some(15.0)),
    ("100", None, Some(40.0)),
    ("300", None, None),
    ("1000", None, None),
];

pub(super) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    for (depth, kernel, user) in DEPTHS {
        let case = format!("depth {depth}");
        match each(setting, &[], "spin.py", depth) {
            Ok(each) => {
                let mut add = |name, value, bound: &Option<f64>| match bound {
                    Some(most) => report.bounded(&case, name, value, "µs", Bound::AtMost(*most)),
                    None => report.plain(&case, name, value, "µs"),
                };
                add("tick program, a sample", each.kernel_us, kernel);
                add("profiler's process, a sample", each.user_us, user);
                let rss = each.rss_bytes as f64 / 1e6;
                report.bounded(&case, "resident memory", rss, "MB", Bound::AtMost(40.0));
            }
            Err(error) => report.failed(&error.context(case)),
        }
    }
    sleepers(setting, report)?;
    first_sample(setting, &[], "spin.py", 300.0, report)
}

/// The cost of one sample, caches warm.
pub(super) struct Each {
    pub(super) kernel_us: f64,
    pub(super) user_us: f64,
    pub(super) rss_bytes: u64,
}

/// Of the process what it spends once it has been at it for a second: neither the start nor the first
/// reading of names is in it, nor the writing of files.
pub(super) fn each(
    setting: &Setting,
    arguments: &[&str],
    script: &str,
    argument: &str,
) -> Result<Each> {
    let mut target = Target::start(setting.python()?, script, &[argument])?;
    target.tell("go")?;
    target.expect("running")?;
    let (mut kernel, mut user, mut rss_bytes) = (Vec::new(), Vec::new(), 0);
    for _ in 0..setting.pick(1, 5) {
        let mut profiler = Running::on(target.pid(), &[&["-r", "999"], arguments].concat())?;
        profiler.attached()?;
        let begun = Instant::now();
        measure::wait(1.0);
        let (before, from) = (meter::process_s(profiler.pid())?, Instant::now());
        measure::wait(setting.pick(2.0, 5.0));
        let spent = meter::process_s(profiler.pid())? - before;
        let (window, whole) = (from.elapsed(), begun.elapsed());
        let ledger = profiler.stop()?.ledger()?;
        ensure!(ledger.samples > 0, "no samples: {ledger:?}");
        let samples = ledger.samples as f64;
        let tick_ns = ledger.profiler.tick_ns;
        kernel.push(tick_ns.context("the ledger has no cost")? as f64 / 1e3 / samples);
        // The target never rests: there are as many in each second.
        let meanwhile = samples * window.as_secs_f64() / whole.as_secs_f64();
        user.push(1e6 * spent / meanwhile);
        rss_bytes = rss_bytes.max(ledger.profiler.rss_bytes.unwrap_or(u64::MAX));
    }
    Ok(Each {
        kernel_us: measure::median(&kernel),
        user_us: measure::median(&user),
        rss_bytes,
    })
}

fn sleepers(setting: &Setting, report: &mut Report) -> Result<()> {
    let alone = each(setting, &[], "sleepers.py", "0").context("no sleepers")?;
    let among = each(setting, &[], "sleepers.py", "1000").context("1000 sleepers")?;
    let case = "1000 sleepers beside one";
    let bound = Bound::AtMost(1.2);
    let kernel = among.kernel_us / alone.kernel_us;
    report.bounded(case, "kernel programs, against none", kernel, "×", bound);
    let user = among.user_us / alone.user_us;
    report.bounded(case, "profiler's process, against none", user, "×", bound);
    Ok(())
}

/// From the start of the process to its first sample, as it says itself: the kernel's time of that
/// sample.
pub(super) fn first_sample(
    setting: &Setting,
    arguments: &[&str],
    script: &str,
    most_ms: f64,
    report: &mut Report,
) -> Result<()> {
    let mut target = Target::start(setting.python()?, script, &["20"])?;
    target.tell("go")?;
    target.expect("running")?;
    let mut times = Vec::new();
    for _ in 0..setting.pick(3, 15) {
        let usual = ["-r", "999", "-d", "0.3"];
        let finished = Running::on(target.pid(), &[&usual, arguments].concat())?.finish()?;
        let first = finished.success()?.ledger()?.profiler.first_sample_ns;
        times.push(first.context("the ledger has no first sample")? as f64 / 1e6);
    }
    let bound = Bound::AtMost(most_ms);
    report.bounded(
        "start",
        "to the first sample",
        measure::median(&times),
        "ms",
        bound,
    );
    report.plain("start", "spread of that", measure::spread(&times), "ms");
    Ok(())
}
