//! Either side may die at any moment: the target does not notice, the profile is written.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tests::profiler::Running;
use tests::pythons::{self, Python};
use tests::rung::{self, Rung};
use tests::target::Target;

/// How often the profiler is killed.
const KILLS: u32 = 50;

/// How long the kernel may take to free what nobody holds.
const PATIENCE: Duration = Duration::from_secs(20);

/// The digest that a target comes to after so many rounds, with nobody watching.
fn undisturbed(python: &Python, rounds: u32) -> Result<u64> {
    let mut target = Target::start(python, "count_work.py", &["20"])?;
    let mut digest = 0;
    for _ in 0..rounds {
        target.tell("500")?;
        digest = target.expect("work")?["digest"].as_u64().unwrap_or(0);
    }
    Ok(digest)
}

fn nobody_holds(target: &Target) -> Result<()> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", target.pid()))?;
    ensure!(
        status.lines().any(|line| line == "TracerPid:\t0"),
        "the target is traced: {status}"
    );
    ensure!(
        !status.contains("State:\tT"),
        "the target is stopped: {status}"
    );
    Ok(())
}

/// The kernel programs that this process holds, by the descriptors it has open.
fn programs_of(pid: Pid) -> Result<BTreeSet<u32>> {
    let mut ids = BTreeSet::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        // A descriptor may be closed between the list and the look.
        let Ok(text) = std::fs::read_to_string(entry?.path()) else {
            continue;
        };
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        let programs = fields.filter(|(field, _)| *field == "prog_id");
        ids.extend(programs.filter_map(|(_, id)| id.trim().parse::<u32>().ok()));
    }
    Ok(ids)
}

/// Those of the programs that the kernel still has.
fn still_loaded(ids: &BTreeSet<u32>) -> BTreeSet<u32> {
    // One that goes away between its number and its facts is an error, and gone.
    let loaded = aya::programs::loaded_programs().filter_map(Result::ok);
    let loaded: BTreeSet<u32> = loaded.map(|program| program.id()).collect();
    ids & &loaded
}

/// Stops the profiler where it is, looks at what it holds in the kernel, and kills it; gives how
/// many programs it held. All of them must go.
fn kill_and_see_all_go(profiler: Running) -> Result<usize> {
    let pid = profiler.pid();
    kill(pid, Signal::SIGSTOP)?;
    let stopped = waitpid(pid, Some(WaitPidFlag::WUNTRACED))?;
    ensure!(
        matches!(stopped, WaitStatus::Stopped(..)),
        "the profiler ended by itself: {stopped:?}"
    );
    let held = programs_of(pid)?;
    let seen = still_loaded(&held);
    ensure!(seen == held, "of {held:?} only {seen:?} are seen");
    profiler.kill()?;
    // The kernel frees a program a little after its last holder is gone.
    let start = Instant::now();
    loop {
        let left = still_loaded(&held);
        if left.is_empty() {
            return Ok(held.len());
        }
        ensure!(
            start.elapsed() < PATIENCE,
            "programs {left:?} stayed in the kernel"
        );
        std::thread::yield_now();
    }
}

/// Amounts of work below a bound, the same ones in every run.
struct Amounts(u64);

impl Amounts {
    fn below(&mut self, bound: u64) -> String {
        // xorshift64, by Marsaglia: enough to spread fifty moments.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % bound).to_string()
    }
}

#[test]
fn killing_the_profiler_leaves_the_target_and_the_kernel_undisturbed() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(python) = pythons::any() else {
        return Ok(());
    };
    let expected = undisturbed(python, KILLS)?;
    let mut target = Target::start(python, "count_work.py", &["20"])?;
    // A second target is the clock: the profiler is killed when its work is done.
    let mut clock = Target::start(python, "count_work.py", &["1"])?;
    let mut amounts = Amounts(0x9E37_79B9_7F4A_7C15);
    let (mut digest, mut with_programs) = (0, 0);
    for round in 0..KILLS {
        let mut profiler = Running::on(target.pid(), &["-r", "999"])?;
        // Every other one is killed while it starts, the rest while they tick.
        if round % 2 == 1 {
            profiler.attached()?;
        }
        target.tell("500")?;
        clock.tell(&amounts.below(20_000))?;
        clock.expect("work")?;
        with_programs += u32::from(kill_and_see_all_go(profiler)? > 0);
        digest = target.expect("work")?["digest"].as_u64().unwrap_or(0);
        nobody_holds(&target)?;
    }
    ensure!(
        digest == expected,
        "the target came to {digest}, not {expected}"
    );
    ensure!(
        with_programs >= KILLS / 2,
        "only {with_programs} of {KILLS} held programs when they were killed"
    );
    Ok(())
}

#[test]
fn killing_the_target_leaves_a_profile_and_a_clear_end() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(python) = pythons::any() else {
        return Ok(());
    };
    let mut target = Target::start(python, "count_work.py", &["20"])?;
    let mut profiler = Running::on(target.pid(), &["-r", "999"])?;
    profiler.attached()?;
    target.tell("20000")?;
    target.expect("work")?;
    target.kill()?;
    let finished = profiler.finish()?;
    ensure!(finished.status.code() == Some(0), "{finished:?}");
    ensure!(finished.folded()?.with("units") > 100, "{finished:?}");
    ensure!(finished.ledger()?.samples > 100, "{finished:?}");
    let said = finished.stderr.to_lowercase();
    ensure!(
        ["ended", "exited", "gone"]
            .iter()
            .any(|word| said.contains(word)),
        "nothing is said of the target's end: {said}"
    );
    Ok(())
}

#[test]
fn ctrl_c_writes_everything_and_succeeds() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(python) = pythons::any() else {
        return Ok(());
    };
    let mut target = Target::start(python, "count_work.py", &["20"])?;
    let mut profiler = Running::on(target.pid(), &["-r", "999"])?;
    profiler.attached()?;
    target.tell("20000")?;
    target.expect("work")?;
    profiler.interrupt()?;
    let finished = profiler.finish()?;
    ensure!(finished.status.signal().is_none(), "{finished:?}");
    ensure!(finished.status.code() == Some(0), "{finished:?}");
    let ledger = finished.ledger()?;
    let folded = finished.folded()?;
    ensure!(
        folded.total() == ledger.samples,
        "folded lines sum to {}, samples are {}",
        folded.total(),
        ledger.samples
    );
    Ok(())
}
