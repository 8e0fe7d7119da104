//! The ground truth itself: every target runs on every interpreter and says what it is to say.

use anyhow::{Context, Result, ensure};
use tests::libraries::Made;
use tests::on_each;
use tests::parked::Parked;
use tests::pythons::{self, Python};
use tests::rung::Rung;
use tests::target::{Account, Target};

fn check(python: &Python, script: &str, arguments: &[&str]) -> Result<()> {
    let mut target = Target::start(python, script, arguments)?;
    target.tell("go")?;
    target.expect("running")?;
    target.tell("stop")?;
    for account in target.done()? {
        ensure!(account.tid > 0 && account.ident > 0, "{account:?}");
        ensure!(
            account.cpu_s.is_finite() && account.stat_s.is_finite(),
            "{account:?}"
        );
    }
    for (caller, callee) in target.pairs() {
        // Only what is named for it is a recursion.
        let recursion = arguments.contains(&"recursive");
        ensure!(caller != callee || recursion, "{caller} calls itself");
    }
    Ok(())
}

/// A target that ends by itself: its accounts must be of these names, and have measured these.
fn check_once(python: &Python, script: &str, arguments: &[&str], measured: &[&str]) -> Result<()> {
    let mut target = Target::start(python, script, arguments)?;
    target.tell("go")?;
    let accounts = target.done()?;
    for account in &accounts {
        let spent: f64 = account.spent_s.values().sum();
        ensure!(spent.is_finite() && spent >= 0.0, "{account:?}");
        // A thread has worked a moment before its function begins.
        ensure!(account.wall_s + 0.01 >= account.cpu_s, "{account:?}");
    }
    for name in measured {
        let spent = |account: &Account| account.spent(name).unwrap_or(0.0);
        ensure!(
            accounts.iter().any(|account| spent(account) > 0.0),
            "`{name}` was not measured: {accounts:?}"
        );
    }
    Ok(())
}

/// Those that are several processes.
fn families(python: &Python) -> Result<()> {
    let ways = [
        ("prefork", 4),
        ("spawn", 2),
        ("chain", 1),
        ("orphan", 1),
        ("thread_exec", 1),
        ("thread_fork", 1),
    ];
    for (way, size) in ways {
        // A small root need not have a shell.
        if way == "chain" && !python.root().join("bin/sh").exists() {
            continue;
        }
        let mut family = Target::start(python, "family.py", &[way, "0.01"])?;
        family.tell("go")?;
        let said = family.expect("done")?["family"].take();
        let members = said.as_array().map(Vec::len);
        ensure!(members == Some(size), "{way}: {said}");
    }

    let mut children = Target::start(python, "children.py", &["4", "50", "0.03", "0.01"])?;
    children.tell("warm up")?;
    children.expect("running")?;
    children.tell("go")?;
    let said = children.expect("done")?["children"].take();
    ensure!(said.as_array().map(Vec::len) == Some(4), "{said}");

    let mut crowd = Target::start(python, "crowd.py", &["3"])?;
    crowd.tell("go")?;
    crowd.expect("running")?;
    crowd.tell("end")?;
    crowd.expect("done")?;
    Ok(())
}

/// A target that ends by itself: it must have measured these, and nothing else.
fn check_shares(python: &Python, script: &str, arguments: &[&str], names: &[&str]) -> Result<()> {
    let mut target = Target::start(python, script, arguments)?;
    target.tell("go")?;
    let accounts = target.done()?;
    let account = accounts.first().context("no account")?;
    ensure!(account.spent_s.len() == names.len(), "{account:?}");
    for name in names {
        ensure!(account.spent(name)? > 0.0, "{account:?}");
    }
    Ok(())
}

/// Those that are like what people run.
fn workloads(python: &Python) -> Result<()> {
    let classics = [
        ("numbers", ["planets", "norm"]),
        ("objects", ["interprets", "constrains"]),
        ("texts", ["there_and_back", "counts_words"]),
    ];
    for (way, names) in classics {
        check_shares(python, "classics.py", &[way, "0.05"], &names).context(way)?;
    }
    let both = ["computes", "frameless"];
    check_shares(python, "frameless.py", &["0.05"], &both).context("frameless")?;
    let tasks = ["parses", "counts", "sorts"];
    check_shares(python, "loop_of_tasks.py", &["0.1"], &tasks).context("loop_of_tasks")?;
    for way in ["fork", "start"] {
        let arguments = [way, "0.02", "0.05"];
        check_shares(python, "short_lives.py", &arguments, &["lives"]).context(way)?;
    }
    if let Some(packages) = pythons::packages(python, "numpy") {
        let both = ["multiplies", "adds"];
        check_shares(python, "numbers_in_c.py", &[&packages, "0.1"], &both).context("numpy")?;
    }
    if let Some(packages) = pythons::packages(python, "django") {
        let handlers = ["page", "search", "api", "login"];
        let arguments = [&*packages, "0.5"];
        check_shares(python, "web_service.py", &arguments, &handlers).context("django")?;
    }
    Ok(())
}

fn all_of(python: &Python) -> Result<()> {
    check_once(python, "absent_pages.py", &[], &[]).context("absent_pages")?;
    check(python, "asleep_from_birth.py", &[]).context("asleep_from_birth")?;
    check(python, "short_calls.py", &["4"]).context("short_calls")?;
    check(python, "short_turns.py", &[]).context("short_turns")?;
    check(python, "spin.py", &["1"]).context("spin at 1")?;
    check(python, "spin.py", &["2000"]).context("spin at 2000")?;
    check(python, "native_spin.py", &["20"]).context("native spin")?;
    check(python, "sleepers.py", &["100"]).context("sleepers")?;
    check(python, "two_spinners.py", &[]).context("two_spinners")?;
    check(python, "generators.py", &[]).context("generators")?;
    check(python, "coroutines.py", &[]).context("coroutines")?;
    check_once(python, "code_in_turns.py", &["0.1"], &[]).context("code_in_turns")?;
    check(python, "gil_waiters.py", &[]).context("gil_waiters")?;
    check(python, "exceptions.py", &[]).context("exceptions")?;
    check(python, "blocked_threads.py", &[]).context("blocked_threads")?;
    check(python, "busy_threads.py", &["3"]).context("busy_threads")?;
    check(python, "c_call.py", &[]).context("c_call")?;
    check(python, "named_after_work.py", &[]).context("named_after_work")?;
    check(python, "equal_spinners.py", &["3", "0.01"]).context("equal_spinners")?;
    check(python, "collect_beside.py", &[]).context("collect_beside")?;
    check(python, "lock_ping_pong.py", &["20"]).context("lock_ping_pong")?;
    let waits = [
        "io_socket",
        "poll",
        "lock",
        "sleep",
        "gil",
        "io_pipe",
        "rt_sigtimedwait",
        "child",
    ];
    check_once(python, "reasons.py", &["0.2"], &waits).context("reasons")?;
    check_once(
        python,
        "stops.py",
        &["0.1"],
        &["stopped", "lock", "poll", "sleep"],
    )
    .context("stops")?;
    check_once(python, "work_and_sleep.py", &["0.1"], &[]).context("work_and_sleep")?;
    let collects = ["gc", "gc_cpu", "gc_count"];
    check_once(python, "collects.py", &["0.3", "automatic"], &collects).context("collects")?;
    let collects_explicitly = ["0.1", "explicit", "bystander"];
    check_once(python, "collects.py", &collects_explicitly, &collects).context("collects")?;
    check_once(python, "native_leaves.py", &["compresses", "0.1"], &[]).context("native_leaves")?;
    let mut makes = Target::start(python, "makes_code.py", &["0.05"])?;
    makes.tell("go")?;
    makes.expect("made_first")?;
    makes.tell("go on")?;
    makes.done().context("makes_code")?;
    for made in Made::all_of(python) {
        for way in ["calls", "tasks", "sleeps", "ways", "deep", "beside"] {
            let mut native = Target::start_native(python, *made, &[way, "0.1"])?;
            native.tell("go")?;
            native.done().with_context(|| format!("{made:?}, {way}"))?;
        }
    }
    check_once(python, "in_step.py", &["1", "0.05"], &["major", "minor"]).context("in_step")?;
    for way in [
        "recursive",
        "wide",
        "slices",
        "in_c",
        "generators",
        "coroutines",
    ] {
        check(python, "known_shares.py", &[way, "0.05"]).with_context(|| way.to_owned())?;
    }
    check(python, "kinds_of_threads.py", &["20", "0.05"]).context("kinds_of_threads")?;
    check(python, "kinds_of_threads.py", &["2", "0.05", "pinned"]).context("kinds_of_threads")?;
    check(python, "phases.py", &["0.02"]).context("phases")?;
    check_once(python, "in_step.py", &["1", "0.05", "3"], &["major"]).context("in_step, one")?;
    check(python, "main_thread_exits.py", &[]).context("main_thread_exits")?;
    check(python, "sub_interpreters.py", &[]).context("sub_interpreters")?;
    // Its threads block once it has said what their stacks are; another test compares these.
    let parked = Parked::start(python, "native_border.py", &[]).context("native_border")?;
    ensure!(parked.line.contains("\"recurses\""), "{}", parked.line);
    check(python, "without_sys.py", &[]).context("without_sys")?;
    check(python, "tasks.py", &[]).context("tasks")?;
    check(python, "many_tasks.py", &["10"]).context("many_tasks")?;
    for what in [
        &["queue", "10", "0"][..],
        &["turns", "1"],
        &["crowd", "4", "1"],
        &["storm", "100", "0"],
    ] {
        let mut tasks = Target::start(python, "task_time.py", what)?;
        tasks.tell("go")?;
        let done = tasks.expect("done")?;
        ensure!(done["spent"].is_object(), "{done}");
    }

    if let Some(packages) = pythons::packages(python, "gevent") {
        check(python, "greenlets.py", &[&packages, "still"]).context("greenlets")?;
        for what in [&["turns", "0.1"][..], &["server", "3", "0.1"]] {
            let arguments = [&[&*packages][..], what].concat();
            let mut greenlets = Target::start(python, "greenlets.py", &arguments)?;
            greenlets.tell("go")?;
            let done = greenlets.expect("done")?;
            ensure!(done["spent"].is_object(), "{done}");
        }
    }

    workloads(python)?;

    let mut origin = Target::start(python, "origin.py", &["1", "0", "1000", "1"])?;
    origin.tell("go")?;
    let names: Vec<String> = origin.done()?.into_iter().map(|it| it.name).collect();
    ensure!(names == ["main", "compress", "half_sleep"], "{names:?}");

    let mut work = Target::start(python, "count_work.py", &["20"])?;
    work.tell("10")?;
    let digest = work.expect("work")?["digest"].clone();
    ensure!(digest == 1_360_668_137_u64, "the digest is {digest}");
    let mut native = Target::start(python, "native_depth.py", &["20"])?;
    native.tell("10")?;
    ensure!(native.expect("work")?["cpu_s"].is_number());

    for kind in ["threads", "processes"] {
        let mut pipe = Target::start(python, "pipe_ping_pong.py", &[kind])?;
        pipe.tell("10")?;
        let units = pipe.expect("work")?["units"].clone();
        ensure!(units == 10, "{kind}: {units} units");
    }

    families(python)?;

    let mut gaps = Target::start_gap_meter(python)?;
    gaps.tell("0.01")?;
    let wall = gaps.expect("gaps")?["wall_ns"].as_u64();
    ensure!(wall >= Some(10_000_000), "it looked for {wall:?} ns");
    Ok(())
}

on_each! {
    Rung::Live, all_of;
    every_target_runs_on_3_8: 8;
    every_target_runs_on_3_9: 9;
    every_target_runs_on_3_10: 10;
    every_target_runs_on_3_11: 11;
    every_target_runs_on_3_12: 12;
    every_target_runs_on_3_13: 13;
    every_target_runs_on_3_14: 14;
    every_target_runs_on_3_15: 15;
}
