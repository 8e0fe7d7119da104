//! The profiler is killed at random moments: the target goes on, and nothing stays on it.

use anyhow::{Context, Result, ensure};
use tests::profiler::Running;
use tests::target::Target;

use super::report::{Bound, Report};
use super::{Setting, measure};

pub(super) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let kills = setting.pick(10, 50);
    let python = setting.python()?;
    let mut watched = Target::start(python, "count_work.py", &["20"])?;
    let mut alone = Target::start(python, "count_work.py", &["20"])?;
    let (mut differ, mut held) = (0, 0);
    let mut moments = Moments(0x9E37_79B9_7F4A_7C15);
    for _ in 0..kills {
        watched.tell("3000")?;
        let profiler = Running::on(watched.pid(), &["-r", "999"])?;
        measure::wait(moments.next());
        profiler.kill()?;
        let digest = watched.expect("work").context("after a kill")?["digest"].clone();
        alone.tell("3000")?;
        differ += u32::from(alone.expect("work")?["digest"] != digest);
        held += u32::from(is_held(&watched)?);
    }
    let bound = Bound::Exactly(0.0);
    report.plain("SIGKILL", "kills", f64::from(kills), "");
    report.bounded(
        "SIGKILL",
        "times the output was changed",
        f64::from(differ),
        "",
        bound,
    );
    report.bounded(
        "SIGKILL",
        "times something stayed on the target",
        f64::from(held),
        "",
        bound,
    );
    Ok(())
}

/// Traced or stopped, by `/proc`; or a uprobe's page among its mappings.
fn is_held(target: &Target) -> Result<bool> {
    let read = |name: &str| {
        std::fs::read_to_string(format!("/proc/{}/{name}", target.pid()))
            .context("the target is gone")
    };
    let status = read("status")?;
    ensure!(status.contains("TracerPid:"), "the status is `{status}`");
    let traced = !status.contains("TracerPid:\t0\n");
    let stopped = ["State:\tT", "State:\tt"]
        .iter()
        .any(|state| status.contains(state));
    Ok(traced || stopped || read("maps")?.contains("[uprobes]"))
}

/// Moments between nothing and 0.6 seconds: the start, the attaching and the ticking. The same
/// ones in every run, so that a run can be had again.
struct Moments(u64);

impl Moments {
    fn next(&mut self) -> f64 {
        // xorshift64, by Marsaglia: enough to spread fifty moments.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        0.6 * (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}
