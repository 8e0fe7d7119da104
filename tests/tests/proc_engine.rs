//! Without eBPF: what is seen from outside, held against what the targets say of themselves.

use anyhow::{Context, Result, ensure};
use tests::ledger::Ledger;
use tests::on_each;
use tests::profiler::{self, Finished, Running};
use tests::pythons::{self, Python};
use tests::rung::{self, Rung};
use tests::stolen::stolen_s;
use tests::target::{self, Account, Target};

/// How far a share may be from the truth.
const THREE_POINTS: f64 = 0.03;
/// How far an account of time may be from another one.
const ONE_PERCENT: f64 = 0.01;
/// The scheduler counts the time of a running thread at its own tick, which may be this long ago.
const TICK_S: f64 = 0.01;

/// The functions of the origin's two busy threads.
const WORKERS: [&str; 2] = ["compress", "half_sleep"];

fn books_balance(ledger: &Ledger) -> Result<()> {
    ensure!(ledger.engine == "proc", "{ledger:?}");
    ensure!(
        ledger.ticks + ledger.looks == ledger.samples + ledger.lost(),
        "{ledger:?}"
    );
    for sums in [&ledger.frames_from, &ledger.gil, &ledger.handling] {
        let sum: u64 = sums.values().sum();
        ensure!(sum == ledger.samples, "{sums:?} of {ledger:?}");
    }
    ensure!(ledger.from("kernel") == 0, "from the kernel: {ledger:?}");
    let of_threads: u64 = ledger.threads.iter().map(|thread| thread.samples).sum();
    ensure!(of_threads == ledger.samples, "{ledger:?}");
    Ok(())
}

/// The origin's program, watched in a mode until its threads are done.
fn origin(python: &Python, mode: &str) -> Result<(Finished, Vec<Account>, f64)> {
    let mut target = Target::start(python, "origin.py", &["5", "0.6", "7000000", "8"])?;
    let mut profiler = Running::on(target.pid(), &["--engine", "proc", "-m", mode])?;
    profiler.attached()?;
    let stolen = stolen_s();
    target.tell("go")?;
    let accounts = target.done()?;
    let stolen = stolen_s() - stolen;
    Ok((profiler.stop()?, accounts, stolen))
}

fn of<'a>(accounts: &'a [Account], name: &str) -> Result<&'a Account> {
    let mut named = accounts.iter().filter(|account| account.name == name);
    named
        .next()
        .with_context(|| format!("no account of {name}"))
}

fn shares_and_accounts_are_true(python: &Python) -> Result<()> {
    let (finished, accounts, stolen) = origin(python, "cpu")?;
    let (ledger, folded) = (finished.ledger()?, finished.folded()?);
    books_balance(&ledger)?;
    ensure!(ledger.python == python.release, "Python {}", ledger.python);
    ensure!(ledger.looks == 0, "{ledger:?}");

    let all_cpu: f64 = accounts.iter().map(|account| account.cpu_s).sum();
    let weighed: u64 = WORKERS.iter().map(|name| folded.with(name)).sum();
    ensure!(weighed > 0, "nothing of either worker: {ledger:?}");
    for name in WORKERS {
        let account = of(&accounts, name)?;
        let truth = account.cpu_s / all_cpu;
        let share = folded.with(name) as f64 / weighed as f64;
        // What a thread did between the last look and its end is nobody's; on a busy machine that
        // may be much.
        let unsampled = ledger.unsampled.on_cpu_ns as f64 / 1e9;
        ensure!(
            (share - truth).abs() < THREE_POINTS + (stolen + unsampled) / all_cpu,
            "`{name}` has {share:.4} of the weight and {truth:.4} of the CPU time"
        );
        let thread = ledger
            .thread(account.tid)
            .with_context(|| format!("no thread {} in {ledger:?}", account.tid))?;
        ensure!(thread.python && !thread.matched_by.is_empty(), "{thread:?}");
        ensure!(thread.pthread_id == Some(account.ident), "{thread:?}");
        let (sampled, scheduled) = (thread.sampled_s(), thread.scheduler_s()?);
        let told = format!("{account:?} is {thread:?}, {stolen} s stolen");
        ensure!(
            (sampled - scheduled).abs() <= scheduled * ONE_PERCENT,
            "{told}"
        );
        // Its end comes between two looks; what it did since the last one is nobody's.
        let most = account.cpu_s * ONE_PERCENT + TICK_S + stolen;
        let unsampled = ledger.unsampled.on_cpu_ns as f64 / 1e9;
        ensure!(scheduled <= account.cpu_s + most, "{told}");
        let told = format!("{told}, {unsampled} s unsampled");
        ensure!(scheduled >= account.cpu_s - most - unsampled, "{told}");
    }
    // It starts two threads and joins them.
    let main = of(&accounts, "main")?;
    let thread = ledger.thread(main.tid).context("no main thread")?;
    ensure!(
        thread.sampled_s() <= main.cpu_s + 2.0 * TICK_S,
        "{thread:?}"
    );
    Ok(())
}

on_each! {
    Rung::Live, shares_and_accounts_are_true;
    shares_and_accounts_are_true_on_3_8: 8;
    shares_and_accounts_are_true_on_3_9: 9;
    shares_and_accounts_are_true_on_3_10: 10;
    shares_and_accounts_are_true_on_3_11: 11;
    shares_and_accounts_are_true_on_3_12: 12;
    shares_and_accounts_are_true_on_3_13: 13;
    shares_and_accounts_are_true_on_3_14: 14;
    shares_and_accounts_are_true_on_3_15: 15;
}

fn live() -> Option<&'static Python> {
    rung::reached(Rung::Live).then(pythons::any).flatten()
}

#[test]
fn all_time_of_every_thread_is_told_and_what_it_waited_for() -> Result<()> {
    let Some(python) = live() else { return Ok(()) };
    let (finished, accounts, stolen) = origin(python, "wall")?;
    let ledger = finished.ledger()?;
    books_balance(&ledger)?;
    // Where the profiler has to take its CPU from them, those who run are found preempted.
    ensure!(ledger.looks > 0, "{ledger:?}");
    for name in WORKERS.iter().copied().chain(["main"]) {
        let account = of(&accounts, name)?;
        let thread = ledger.thread(account.tid).context("its thread")?;
        let lived = thread.wall_ns.context("its life")? as f64;
        let sampled = [
            thread.sampled_ns,
            thread.sampled_runnable_ns,
            thread.sampled_blocked_ns,
        ];
        let sampled = sampled.iter().sum::<u64>() as f64;
        let told = format!("{account:?} is {thread:?}, {stolen} s stolen");
        // At either end a look is a period off.
        let most = lived * ONE_PERCENT + 2.0 * ledger.period_ns as f64;
        ensure!((sampled - lived).abs() <= most, "{told}");
    }
    // What it wants afterwards, a CPU and the GIL, is in its clock too.
    let truth = of(&accounts, "half_sleep")?.spent("sleep")?;
    let slept = ledger.blocked.get("sleep").copied().unwrap_or(0) as f64 / 1e9;
    let told = format!("slept for {slept} s of {truth}: {ledger:?}");
    ensure!(slept > 0.5 * truth && slept < 1.5 * truth, "{told}");
    let joined = finished.folded()?.with("join") as f64;
    let main = ledger.thread(of(&accounts, "main")?.tid).context("main")?;
    // The rest of its life it waits for a line.
    let blocked = main.sampled_blocked_ns as f64;
    ensure!(joined > 0.5 * blocked, "joined {joined} ns of {main:?}");
    Ok(())
}

#[test]
fn who_holds_the_gil_and_who_waits_is_seen() -> Result<()> {
    let Some(python) = live() else { return Ok(()) };
    let mut target = Target::start(python, "two_spinners.py", &[])?;
    let mut clock = Target::start(python, "count_work.py", &["1"])?;
    target.tell("go")?;
    target.expect("running")?;
    let mut profiler = Running::on(
        target.pid(),
        &["--engine", "proc", "-m", "gil", "--threads"],
    )?;
    profiler.attached()?;
    clock.tell("40000")?;
    clock.expect("work")?;
    let finished = profiler.stop()?;
    let (ledger, folded) = (finished.ledger()?, finished.folded()?);
    books_balance(&ledger)?;
    let side = |words: &str| {
        let stacks = folded.stacks.iter();
        let of_it = stacks.filter(|stack| stack.frames.first().is_some_and(|f| f == words));
        of_it.map(|stack| stack.count).sum::<u64>() as f64 / 1e9
    };
    let (held, waited) = (side("[holds the GIL]"), side("[waits for the GIL]"));
    let runnable = ledger.threads.iter().map(|it| it.sampled_runnable_ns);
    let runnable = runnable.sum::<u64>() as f64 / 1e9;
    let told = format!("held {held} s, waited {waited} s, runnable {runnable} s: {ledger:?}");
    // One of the two has it at any time, but for the moments of handing it on. Who waits for it
    // wakes every 5 ms, and whether one without a CPU did that or has it, few looks tell.
    ensure!(held > 0.7 * ledger.duration_s - 0.5 * runnable, "{told}");
    ensure!(held < 1.2 * ledger.duration_s + 0.5 * runnable, "{told}");
    ensure!(waited > 0.0, "{told}");
    Ok(())
}

#[test]
fn a_short_threads_work_is_nobody_elses() -> Result<()> {
    if !rung::reached(Rung::Live) {
        return Ok(());
    }
    for python in pythons::required() {
        let mut target = Target::start(python, "named_after_work.py", &[])?;
        let mut clock = Target::start(python, "count_work.py", &["1"])?;
        target.tell("go")?;
        target.expect("running")?;
        let options = ["--engine", "proc", "-m", "wall", "-r", "499", "--threads"];
        let mut profiler = Running::on(target.pid(), &options)?;
        profiler.attached()?;
        clock.tell("30000")?;
        clock.expect("work")?;
        let finished = profiler.stop()?;
        books_balance(&finished.ledger()?)?;
        let folded = finished.folded()?;
        target.tell("stop")?;
        let accounts = target.done()?;
        let churn = format!("churn (tid {})", of(&accounts, "churn")?.tid);
        let mut right = 0;
        for stack in &folded.stacks {
            let thread = stack.frames.first().context("a stack without its thread")?;
            for frame in stack.frames.iter().skip(1) {
                let Some((work, _)) = frame
                    .split_once(" (")
                    .filter(|it| it.0.starts_with("work_"))
                else {
                    continue;
                };
                // A thread that ended before its name was read bears the kernel's, which from
                // 3.14 on is at first that of the one that started it.
                let is_own = thread.starts_with(&format!("{work} (tid "));
                let named = thread.starts_with("work_") || *thread == churn;
                ensure!(
                    is_own || !named && !thread.starts_with("MainThread"),
                    "on {}: {stack:?}",
                    python.label
                );
                right += u32::from(is_own);
            }
        }
        ensure!(
            right > 0,
            "on {}: no work was seen: {folded:?}",
            python.label
        );
    }
    Ok(())
}

fn turns_are_their_threads_own(python: &Python, mode: &str) -> Result<()> {
    let mut target = Target::start(python, "short_turns.py", &[])?;
    let mut clock = Target::start(python, "count_work.py", &["1"])?;
    target.tell("go")?;
    target.expect("running")?;
    let options = ["--engine", "proc", "-m", mode, "-r", "199", "--threads"];
    let mut profiler = Running::on(target.pid(), &options)?;
    profiler.attached()?;
    clock.tell("5000")?;
    clock.expect("work")?;
    let finished = profiler.stop()?;
    target.tell("stop")?;
    target.done()?;
    books_balance(&finished.ledger()?)?;
    let is_turn = |frame: &&String| frame.starts_with("turn_");
    let name = |frame: &str| frame.split_once(" (").map(|it| it.0.to_owned());
    let mut met = 0;
    for stack in &finished.folded()?.stacks {
        let (thread, frames) = stack.frames.split_first().context("no thread")?;
        let Some(turn) = frames.iter().find(is_turn) else {
            continue;
        };
        ensure!(name(turn) == name(thread), "{stack:?}");
        met += 1;
    }
    ensure!(met > 0, "no turn was seen");
    Ok(())
}

/// Regression: in `cpu` mode a turn that was read at neither end went to whichever stack was the
/// first of the profile.
#[test]
fn a_turn_between_two_looks_is_no_other_threads() -> Result<()> {
    if !rung::reached(Rung::Live) {
        return Ok(());
    }
    for python in pythons::required() {
        for mode in ["cpu", "wall"] {
            turns_are_their_threads_own(python, mode)
                .with_context(|| format!("{mode} on {}", python.label))?;
        }
    }
    Ok(())
}

#[test]
fn a_shell_that_becomes_python_is_followed() -> Result<()> {
    let Some(python) = live() else { return Ok(()) };
    let files = tempfile::tempdir()?;
    let path = files.path().join("profile.folded");
    let path = path.to_str().context("a path of text")?;
    let source = "import time
def spin():
    while time.process_time() < 0.5:
        pass
spin()";
    let mut words = vec!["run", "--engine", "proc", "-o", path, "--", "sh", "-c"];
    words.extend(["exec \"$@\"", "sh"]);
    words.extend(python.command.iter().map(String::as_str));
    words.extend(["-c", source]);
    let finished = profiler::run(&words)?;
    ensure!(finished.status.code() == Some(0), "{finished:?}");
    let folded = tests::folded::Folded::read(std::path::Path::new(path))?;
    let spun = folded.with("spin") as f64 / 1e9;
    // Until the interpreter is found it is nobody's.
    ensure!((0.1..0.6).contains(&spun), "spun for {spun} s: {folded:?}");
    Ok(())
}

#[test]
fn estimates_are_called_estimates_and_the_report_says_what_is_exact() -> Result<()> {
    let Some(python) = live() else { return Ok(()) };
    let mut target = Target::start(python, "spin.py", &["5"])?;
    target.tell("go")?;
    target.expect("running")?;
    let pid = target.pid().to_string();
    let words = ["run", "--engine", "proc", "-d", "1", "--pid", &pid];
    let finished = profiler::run(&words)?.success()?;
    for said in ["frames are estimated", "`--engine bpf`"] {
        ensure!(finished.stdout.contains(said), "{finished:?}");
    }
    let path = finished.files().join("profile.txt");
    ensure!(!path.exists(), "nobody asked for it");
    Ok(())
}

#[test]
fn memory_that_may_not_be_read_at_once_is_read_through_its_file() -> Result<()> {
    let Some(python) = live() else { return Ok(()) };
    let [program] = python.command.as_slice() else {
        rung::leave_out("the interpreter is not started by its path");
        return Ok(());
    };
    let (_folder, filter) = target::lay_out(python, "deny_call.py")?;
    let mut target = Target::start(python, "spin.py", &["5"])?;
    target.tell("go")?;
    target.expect("running")?;
    let files = tempfile::tempdir()?;
    let mut run = std::process::Command::new(program);
    run.arg(&filter).arg("process_vm_readv");
    run.arg(profiler::binary()?);
    run.args(["run", "--engine", "proc", "-d", "1"]);
    run.args(["--pid", &target.pid().to_string()]);
    run.arg("--ledger").arg(files.path().join("ledger.json"));
    run.arg("-o").arg(files.path().join("profile.folded"));
    let finished = Running::spawn(run, files)?.finish()?.success()?;
    books_balance(&finished.ledger()?)?;
    ensure!(finished.folded()?.with("leaf") > 0, "{finished:?}");
    Ok(())
}

#[test]
fn a_process_whose_first_thread_has_ended_is_as_alive_as_any() -> Result<()> {
    let Some(python) = live() else { return Ok(()) };
    for mode in ["cpu", "wall"] {
        let mut target = Target::start(python, "main_thread_exits.py", &[])?;
        target.tell("go")?;
        target.expect("running")?;
        let options = ["--engine", "proc", "-m", mode, "-d", "1"];
        let finished = Running::on(target.pid(), &options)?.finish()?.success()?;
        let ledger = finished.ledger()?;
        books_balance(&ledger)?;
        ensure!(finished.folded()?.with("spin") > 0, "{ledger:?}");
        let main = target.ready()["main"].as_i64().context("its main thread")?;
        let ghost = ledger.thread(main);
        ensure!(
            ghost.is_none(),
            "{mode}: the ended thread has time: {ghost:?}"
        );
    }
    Ok(())
}

#[test]
fn each_interpreter_of_a_process_is_seen() -> Result<()> {
    if !rung::reached(Rung::Live) {
        return Ok(());
    }
    // Before 3.12 nothing tells which of its interpreters a thread without the GIL is in.
    let newer = pythons::required()
        .iter()
        .filter(|it| it.minor() >= (3, 12));
    for python in newer {
        let mut target = Target::start(python, "sub_interpreters.py", &[])?;
        let mut clock = Target::start(python, "count_work.py", &["1"])?;
        target.tell("go")?;
        target.expect("running")?;
        let inners = ["inner_first", "inner_second", "inner_third"];
        // On a busy machine an interpreter takes long to begin.
        let asked = std::time::Instant::now();
        loop {
            let dump = profiler::run(&["dump", "--pid", &target.pid().to_string()])?;
            if inners.iter().all(|inner| dump.stdout.contains(inner)) {
                break;
            }
            ensure!(asked.elapsed().as_secs() < 60, "they never ran: {dump:?}");
        }
        let mut profiler = Running::on(target.pid(), &["--engine", "proc", "-m", "wall"])?;
        profiler.attached()?;
        clock.tell("30000")?;
        clock.expect("work")?;
        let finished = profiler.stop()?;
        let (ledger, folded) = (finished.ledger()?, finished.folded()?);
        books_balance(&ledger)?;
        for inner in inners {
            let share = folded.with(inner) as f64 / 1e9 / ledger.duration_s;
            ensure!(
                share > 0.7,
                "on {}: {inner} has {share}: {folded:?}",
                python.label
            );
        }
    }
    Ok(())
}
