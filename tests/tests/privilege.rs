//! Which capability does what: each is dropped, and the outcome and the words are checked. The
//! README's table of capabilities is what these tests say.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use tests::privilege::{Copy, NOBODY, SOMEBODY, as_root_without, as_user, python_of};
use tests::pythons::{self, Python};
use tests::rung::{self, Rung};
use tests::target::Target;

/// What comes of a run.
#[derive(Clone, Copy, Debug)]
enum Outcome<'a> {
    /// The stacks come from the kernel.
    Exact,
    /// From outside, and it says why: all of these words.
    Estimated(&'a [&'a str]),
    /// It does not run, and says why.
    Refused(&'a [&'a str]),
}
use Outcome::{Estimated, Exact, Refused};

struct Bench {
    copy: Copy,
    target: Target,
}

impl Bench {
    /// A busy process of a user, root's for none; nothing where there is no such Python.
    fn new(user: Option<u32>) -> Result<Option<Self>> {
        match user {
            Some(user) => Self::on(python_of(user)),
            None => Self::on(pythons::any().cloned()),
        }
    }

    fn on(python: Option<Python>) -> Result<Option<Self>> {
        let Some(python) = python else {
            return Ok(None);
        };
        let mut target = Target::start(&python, "spin.py", &["5"])?;
        target.tell("go")?;
        target.expect("running")?;
        let copy = Copy::make()?;
        Ok(Some(Self { copy, target }))
    }

    fn check(&self, before: &[String], arguments: &[&str], expected: Outcome<'_>) -> Result<()> {
        let arguments = [arguments, &["-d", "1"]].concat();
        let running = self.copy.on(before, self.target.pid(), &arguments)?;
        let finished = running.finish()?;
        let context = format!("{before:?} {arguments:?}: {finished:?}");
        let says = |text: &str, words: &[&str]| words.iter().all(|word| text.contains(word));
        ensure!(!finished.stderr.contains("panicked"), "{context}");
        match expected {
            Refused(words) => {
                ensure!(finished.status.code() == Some(1), "{context}");
                ensure!(finished.stderr.lines().count() == 1, "{context}");
                ensure!(says(&finished.stderr, words), "{context}");
            }
            Exact => {
                ensure!(finished.status.success(), "{context}");
                let ledger = finished.ledger()?;
                ensure!(ledger.engine == "bpf", "{context}");
                ensure!(ledger.from("kernel") > 0, "{context}: {ledger:?}");
                ensure!(finished.folded()?.with("leaf") > 0, "{context}");
            }
            Estimated(words) => {
                ensure!(finished.status.success(), "{context}");
                let ledger = finished.ledger()?;
                ensure!(ledger.engine == "proc", "{context}");
                ensure!(ledger.from("kernel") == 0, "{context}: {ledger:?}");
                ensure!(finished.folded()?.with("leaf") > 0, "{context}");
                ensure!(says(&finished.stderr, words), "{context}");
                let why = ledger.why_not_bpf.unwrap_or_default();
                ensure!(says(&why, words), "{why} in {context}");
            }
        }
        Ok(())
    }
}

const BPF: [&str; 2] = ["--engine", "bpf"];
const AUTO: [&str; 0] = [];
const PROC: [&str; 2] = ["--engine", "proc"];

#[test]
fn root_needs_bpf_and_perfmon_and_nothing_else_for_its_own() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(bench) = Bench::new(None)? else {
        return Ok(());
    };
    for unneeded in [
        "sys_admin",
        "sys_resource",
        "syslog",
        "dac_override",
        "dac_read_search",
        "checkpoint_restore",
    ] {
        bench.check(&as_root_without(&[unneeded]), &BPF, Exact)?;
    }
    // What was cut out of CAP_SYS_ADMIN is in it still.
    bench.check(&as_root_without(&["bpf", "perfmon"]), &BPF, Exact)?;
    for (needed, name, other) in [
        ("bpf", "CAP_BPF", "CAP_PERFMON and"),
        ("perfmon", "CAP_PERFMON", "CAP_BPF and"),
    ] {
        let without = as_root_without(&[needed, "sys_admin"]);
        let words = [name, "is missing", "sudo setcap cap_bpf", "--cap-add BPF"];
        bench.check(&without, &BPF, Refused(&words))?;
        bench.check(&without, &AUTO, Estimated(&words))?;
        let finished = bench.copy.run(&without, &["doctor"])?;
        ensure!(finished.status.code() == Some(1), "{finished:?}");
        ensure!(!finished.stdout.contains(other), "{finished:?}");
    }
    Ok(())
}

#[test]
fn a_process_that_can_do_more_takes_sys_ptrace() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let without = as_root_without(&["sys_ptrace"]);
    let Some(more) = Bench::new(None)? else {
        return Ok(());
    };
    let who = more.target.pid().to_string();
    for arguments in [BPF.as_slice(), &AUTO, &PROC] {
        let words = [who.as_str(), "may not look into", "CAP_SYS_PTRACE"];
        more.check(&without, arguments, Refused(&words))?;
    }
    let equal = pythons::any().cloned().map(|python| Python {
        command: [without.clone(), python.command.clone()].concat(),
        ..python
    });
    let Some(equal) = Bench::on(equal)? else {
        return Ok(());
    };
    equal.check(&without, &BPF, Exact)?;
    equal.check(&without, &PROC, Estimated(&[]))
}

#[test]
fn another_users_process_takes_sys_ptrace() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(bench) = Bench::new(Some(NOBODY))? else {
        return Ok(());
    };
    let who = bench.target.pid().to_string();
    let refused = [who.as_str(), "may not look into"];
    for arguments in [BPF.as_slice(), &AUTO, &PROC] {
        let without = as_root_without(&["sys_ptrace"]);
        let words = [refused[0], refused[1], "CAP_SYS_PTRACE"];
        bench.check(&without, arguments, Refused(&words))?;
        let stranger = as_user(SOMEBODY, &["bpf", "perfmon", "dac_read_search"]);
        bench.check(&stranger, arguments, Refused(&refused))?;
    }
    let all = as_user(SOMEBODY, &["bpf", "perfmon", "sys_ptrace"]);
    bench.check(&all, &BPF, Exact)?;
    let lacks = ["CAP_BPF and CAP_PERFMON are missing"];
    let stranger = as_user(SOMEBODY, &["sys_ptrace"]);
    bench.check(&stranger, &AUTO, Estimated(&lacks))
}

#[test]
fn ones_own_process_takes_no_privilege_to_estimate_and_two_to_be_exact() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(bench) = Bench::new(Some(NOBODY))? else {
        return Ok(());
    };
    let both = ["CAP_BPF and CAP_PERFMON are missing"];
    bench.check(&as_user(NOBODY, &[]), &AUTO, Estimated(&both))?;
    bench.check(&as_user(NOBODY, &[]), &PROC, Estimated(&[]))?;
    bench.check(&as_user(NOBODY, &[]), &BPF, Refused(&both))?;
    let lacks_bpf = ["CAP_BPF is missing"];
    let lacks_perfmon = ["CAP_PERFMON is missing"];
    bench.check(&as_user(NOBODY, &["bpf"]), &BPF, Refused(&lacks_perfmon))?;
    bench.check(&as_user(NOBODY, &["perfmon"]), &BPF, Refused(&lacks_bpf))?;
    bench.check(&as_user(NOBODY, &["bpf", "perfmon"]), &BPF, Exact)?;
    bench.check(&as_user(NOBODY, &["sys_admin"]), &BPF, Exact)
}

#[test]
fn a_command_of_ones_own_is_profiled_with_the_files_own_capabilities() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(python) = python_of(NOBODY) else {
        return Ok(());
    };
    let copy = Copy::make()?;
    let given = Command::new("setcap")
        .arg("cap_bpf,cap_perfmon=ep")
        .arg(copy.path())
        .status();
    if !given.is_ok_and(|status| status.success()) {
        rung::leave_out("`setcap` is not there, or files here have no capabilities");
        return Ok(());
    }
    // Without the words that make it another user's.
    let interpreter = python.command.last().context("an interpreter")?;
    let source = "import time\nwhile time.process_time() < 0.5:\n    pass";
    let before: Vec<String> = ["setpriv", "--reuid", "65534", "--regid", "65534"]
        .into_iter()
        .chain(["--clear-groups", "--inh-caps", "-all"])
        .map(str::to_owned)
        .collect();
    let run = ["run", "--engine", "bpf", "--", interpreter, "-c", source];
    let finished = copy.run(&before, &run)?.success()?;
    ensure!(finished.stdout.contains("<module>"), "{finished:?}");
    ensure!(!finished.stdout.contains("estimated"), "{finished:?}");
    Ok(())
}

#[test]
fn what_another_users_threads_wait_for_takes_dac_read_search() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(bench) = Bench::new(Some(NOBODY))? else {
        return Ok(());
    };
    let waits = |capabilities: &[&str], engine: &str| {
        let before = as_user(SOMEBODY, capabilities);
        let options = ["--engine", engine, "-m", "wall", "-d", "1"];
        let running = bench.copy.on(&before, bench.target.pid(), &options)?;
        running.finish()?.success()?.ledger()
    };
    // The main thread reads from a pipe.
    for engine in ["bpf", "proc"] {
        let narrow = ["bpf", "perfmon", "sys_ptrace"];
        let ledger = waits(&narrow, engine)?;
        ensure!(!ledger.blocked.contains_key("io_pipe"), "{ledger:?}");
        // Where nothing of a thread moved, that is proven all the same.
        ensure!(ledger.from("user") > 0, "{ledger:?}");
        let wide = ["bpf", "perfmon", "sys_ptrace", "dac_read_search"];
        let ledger = waits(&wide, engine)?;
        ensure!(ledger.blocked.contains_key("io_pipe"), "{ledger:?}");
    }
    Ok(())
}

#[test]
fn doctor_names_what_is_missing_and_the_line_for_each_way_to_run_it() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let copy = Copy::make()?;
    let path = copy.path().to_string_lossy().into_owned();
    let finished = copy.run(&as_user(NOBODY, &[]), &["doctor"])?;
    ensure!(finished.status.code() == Some(1), "{finished:?}");
    let setcap = format!("sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace=ep {path}");
    for said in [
        "no  CAP_BPF: not effective",
        "no  CAP_PERFMON: not effective",
        "no  CAP_SYS_PTRACE: not effective",
        "no  CAP_DAC_READ_SEARCH: not effective",
        "no  CAP_CHECKPOINT_RESTORE: not effective",
        "kernel.perf_event_paranoid",
        "kernel.yama.ptrace_scope",
        "kernel lockdown",
        &setcap,
        "docker run --pid=host --cap-add BPF --cap-add PERFMON --cap-add SYS_PTRACE",
        "securityContext: {capabilities: {add: [\"BPF\", \"PERFMON\", \"SYS_PTRACE\"]}}",
        "AmbientCapabilities=CAP_BPF CAP_PERFMON CAP_SYS_PTRACE",
        "sysctl",
        "`--engine proc`",
    ] {
        ensure!(finished.stdout.contains(said), "`{said}`: {finished:?}");
    }
    // Each of them makes its own line good.
    for name in ["bpf", "perfmon", "sys_ptrace"] {
        let finished = copy.run(&as_user(NOBODY, &[name]), &["doctor"])?;
        let good = format!("ok  CAP_{}: effective", name.to_uppercase());
        ensure!(finished.stdout.contains(&good), "{finished:?}");
    }
    let finished = copy.run(&as_user(NOBODY, &["bpf", "perfmon"]), &["doctor"])?;
    ensure!(finished.status.code() == Some(0), "{finished:?}");
    Ok(())
}

#[test]
fn what_a_seccomp_filter_refuses_is_said_and_done_another_way() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(python) = pythons::any() else {
        return Ok(());
    };
    let [program] = python.command.as_slice() else {
        rung::leave_out("the interpreter is not started by its path");
        return Ok(());
    };
    let (_folder, filter) = tests::target::lay_out(python, "deny_call.py")?;
    let filter = filter.to_string_lossy().into_owned();
    let without = |call: &str| [program, &filter, call].map(str::to_owned);
    let Some(bench) = Bench::new(None)? else {
        return Ok(());
    };
    let no_readv = without("process_vm_readv");
    let finished = bench.copy.run(&no_readv, &["doctor"])?;
    ensure!(finished.status.code() == Some(0), "{finished:?}");
    let said = "process_vm_readv: refused";
    ensure!(finished.stdout.contains(said), "{finished:?}");
    bench.check(&no_readv, &BPF, Exact)?;
    bench.check(&no_readv, &PROC, Estimated(&[]))?;

    let no_bpf = without("bpf");
    let words = ["seccomp", "--security-opt seccomp=unconfined"];
    let finished = bench.copy.run(&no_bpf, &["doctor"])?;
    ensure!(finished.status.code() == Some(1), "{finished:?}");
    let says = |word: &&str| finished.stdout.contains(*word);
    ensure!(words.iter().all(says), "{finished:?}");
    bench.check(&no_bpf, &BPF, Refused(&words))?;
    bench.check(&no_bpf, &AUTO, Estimated(&words))
}

/// Whether it is exact there, `containers.rs` tells.
#[test]
fn without_a_proc_of_its_own_pid_namespace_it_says_what_to_mount() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(python) = pythons::any() else {
        return Ok(());
    };
    let [interpreter] = python.command.as_slice() else {
        rung::leave_out("the interpreter is not started by its path");
        return Ok(());
    };
    let copy = Copy::make()?;
    let before = ["unshare", "--pid", "--fork"].map(str::to_owned);
    for engine in ["bpf", "proc", "auto"] {
        let words = ["run", "--engine", engine, "--", interpreter, "-c", "pass"];
        let finished = copy.run(&before, &words)?;
        let said = finished.stderr.contains("mount -t proc proc /proc");
        ensure!(said, "{finished:?}");
        // Regression: it went on, and took another process for the command.
        let is_refused = finished.status.code() == Some(1) && finished.stderr.lines().count() == 1;
        ensure!(is_refused, "{finished:?}");
    }
    // Regression: it said so, and ended as if all were well.
    let finished = copy.run(&before, &["doctor"])?;
    ensure!(finished.status.code() == Some(1), "{finished:?}");
    let said = finished.stdout.contains("mount -t proc proc /proc");
    ensure!(said, "{finished:?}");
    Ok(())
}

#[test]
fn where_the_kernels_own_walk_is_asked_for_there_is_no_estimate() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(bench) = Bench::new(None)? else {
        return Ok(());
    };
    let without = as_root_without(&["bpf", "sys_admin"]);
    let words = ["CAP_BPF is missing"];
    bench.check(&without, &["--walk", "kernel"], Refused(&words))
}

#[test]
fn in_a_user_namespace_nothing_is_exact_and_it_says_why() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(python) = python_of(NOBODY) else {
        return Ok(());
    };
    let probe = Command::new("unshare").args(["--user", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        rung::leave_out("no user namespaces here");
        return Ok(());
    }
    let copy = Copy::make()?;
    let interpreter = python.command.last().context("an interpreter")?;
    let source = "import time\nwhile time.process_time() < 0.5:\n    pass";
    let before = [
        as_user(NOBODY, &[]),
        vec!["unshare".into(), "--user".into()],
    ]
    .concat();
    let finished = copy.run(&before, &["run", "--", interpreter, "-c", source])?;
    let finished = finished.success()?;
    ensure!(finished.stderr.contains("user namespace"), "{finished:?}");
    ensure!(finished.stdout.contains("<module>"), "{finished:?}");
    Ok(())
}

/// Where the scheduler's counts are not shown, times are those of `stat`, and nothing is proven.
#[test]
fn without_schedstat_there_still_is_an_estimate() -> Result<()> {
    if !rung::reached(Rung::Kernel) {
        return Ok(());
    }
    let Some(bench) = Bench::new(None)? else {
        return Ok(());
    };
    let pid = bench.target.pid();
    let hide = format!(
        "for f in /proc/{pid}/task/*/schedstat; do mount --bind /dev/null $f || exit 9; done; \
         exec \"$@\""
    );
    let before = ["unshare", "--mount", "sh", "-c", &hide, "sh"].map(str::to_owned);
    let options = ["--engine", "proc", "-m", "wall", "-d", "1"];
    let finished = bench.copy.on(&before, pid, &options)?.finish()?.success()?;
    let ledger = finished.ledger()?;
    ensure!(ledger.from("user") == 0, "proven: {ledger:?}");
    ensure!(ledger.from("estimated") > 0, "{ledger:?}");
    ensure!(finished.folded()?.with("leaf") > 0, "{ledger:?}");
    let busy = ledger.threads.iter().map(|thread| thread.sampled_ns).max();
    ensure!(busy > Some(0), "{ledger:?}");
    Ok(())
}
