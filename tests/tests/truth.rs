//! The origin's program on every version: the shares of two threads against their CPU clocks.

use anyhow::{Context, Result, ensure};
use tests::on_each;
use tests::profiler::Running;
use tests::pythons::Python;
use tests::rung::Rung;
use tests::stolen::stolen_s;
use tests::target::Target;

/// The functions of the two busy threads.
const WORKERS: [&str; 2] = ["compress", "half_sleep"];

/// How far a share may be from the truth.
const ONE_POINT: f64 = 0.01;

fn shares_are_the_clocks(python: &Python) -> Result<()> {
    let mut target = Target::start(python, "origin.py", &["8", "0.3", "12000000", "8"])?;
    let mut profiler = Running::on(target.pid(), &["-r", "999"])?;
    profiler.attached()?;
    let stolen = stolen_s();
    target.tell("go")?;
    let accounts = target.done()?;
    let stolen = stolen_s() - stolen;
    let finished = profiler.stop()?;
    let folded = finished.folded()?;
    let ledger = finished.ledger()?;

    let cpu = |name: &str| {
        let mut named = accounts.iter().filter(|account| account.name == name);
        named.next().map_or(0.0, |account| account.cpu_s)
    };
    let all_cpu: f64 = WORKERS.iter().map(|name| cpu(name)).sum();
    let all_samples: u64 = WORKERS.iter().map(|name| folded.with(name)).sum();
    ensure!(all_samples > 0, "no sample of either worker: {ledger:?}");
    for name in WORKERS {
        let truth = cpu(name) / all_cpu;
        let share = folded.with(name) as f64 / all_samples as f64;
        ensure!(
            (share - truth).abs() < ONE_POINT + stolen / all_cpu,
            "`{name}` has {share:.4} of the samples and {truth:.4} of the CPU time ({stolen} s stolen)"
        );
    }

    // The main thread starts two threads, joins them and says so: about a millisecond. A tick that
    // came late, or that a change of the period put off, stands for two.
    let main = accounts.first().context("the main thread's account")?;
    let samples = ledger.thread(main.tid).map_or(0, |thread| thread.samples);
    let most = (main.cpu_s * 1e9 / ledger.period_ns as f64).ceil() as u64 + 2;
    ensure!(
        samples <= most,
        "the main thread has {samples} samples and was {} s on a CPU",
        main.cpu_s
    );
    ensure!(
        ledger.python == python.release,
        "the ledger says Python {}",
        ledger.python
    );
    let build = if python.free_threaded {
        "free-threaded"
    } else {
        "default"
    };
    ensure!(ledger.build == build, "the ledger says {}", ledger.build);
    Ok(())
}

on_each! {
    Rung::Kernel, shares_are_the_clocks;
    shares_are_the_clocks_on_3_8: 8;
    shares_are_the_clocks_on_3_9: 9;
    shares_are_the_clocks_on_3_10: 10;
    shares_are_the_clocks_on_3_11: 11;
    shares_are_the_clocks_on_3_12: 12;
    shares_are_the_clocks_on_3_13: 13;
    shares_are_the_clocks_on_3_14: 14;
    shares_are_the_clocks_on_3_15: 15;
}
