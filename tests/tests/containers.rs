//! Targets in containers, the profiler outside, beside and inside: rung 3, root and eBPF.
//!
//! Wherever it is, every id that it says is of its own pid namespace, threads have the names and
//! frames that the target says, and no two ways to name a thread disagree.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::unistd::Pid;
use serde_json::Value;
use tests::container::{self, ids, innermost};
use tests::ledger::Ledger;
use tests::profiler::{self, Finished, Running};
use tests::pythons::{self, Python};
use tests::rung::{self, Rung};
use tests::target::{Account, Target};

/// A target `levels` deep, and where its process is for this machine.
struct Inside {
    target: Target,
    outer: Pid,
    python: &'static Python,
    levels: usize,
}

impl Inside {
    fn start(python: &'static Python, levels: usize) -> Result<Self> {
        let words = container::around(levels, python.root());
        let mut target = Target::start_behind(&words, python, "two_spinners.py", &[])?;
        let outer = innermost(target.pid())?;
        let all = ids(&outer.to_string())?;
        ensure!(all.len() == levels + 1, "its ids are {all:?}");
        ensure!(
            all.last().copied() == target.ready()["pid"].as_i64(),
            "its ids are {all:?}, and it says {}",
            target.ready()
        );
        target.tell("go")?;
        target.expect("running")?;
        Ok(Self {
            target,
            outer,
            python,
            levels,
        })
    }

    /// The process or a thread of it (by the id it has for itself) as the namespace `level` has it.
    fn id_at(&self, level: usize, own: i64) -> Result<i64> {
        let folder = format!("/proc/{}/task", self.outer);
        for task in std::fs::read_dir(&folder)? {
            let task = task?.file_name();
            let folder = format!("{}/task/{}", self.outer, task.to_string_lossy());
            let all = ids(&folder)?;
            if all.last() == Some(&own) {
                return Ok(all[level]);
            }
        }
        anyhow::bail!("no thread {own} in {folder}")
    }

    fn end(mut self) -> Result<Vec<Account>> {
        self.target.tell("stop")?;
        self.target.done()
    }

    /// Profiles it from the namespace `level` with this command, which becomes the profiler, and
    /// looks at it; then holds what came of it against what the target says.
    fn check(self, level: usize, command: impl Fn(&[&str]) -> Command) -> Result<()> {
        let own = self.target.ready()["pid"].as_i64().context("its pid")?;
        let pid = self.id_at(level, own)?;
        let typed = pid.to_string();
        let look = command(&["dump", "--json", "--pid", &typed]).output()?;
        ensure!(
            look.status.success(),
            "dump: {}",
            String::from_utf8_lossy(&look.stderr)
        );
        let look: Value = serde_json::from_slice(&look.stdout)?;
        let files = Files::new(&self)?;
        let (ledger, folded) = (files.inside("ledger.json"), files.inside("profile.folded"));
        let run = [
            "run", "--pid", &typed, "-d", "1", "-r", "499", "--ledger", &ledger, "-o", &folded,
        ];
        let finished = Running::spawn(command(&run), tempfile::tempdir()?)?.finish()?;
        let finished = finished.success()?;
        let mut tids = Vec::new();
        let threads = look["threads"].as_array().context("threads")?.clone();
        for thread in &threads {
            tids.push(thread["tid"].as_i64().context("tid")?);
        }
        let ledger = Ledger::read(&files.outside("ledger.json"))?;
        let folded = tests::folded::Folded::read(&files.outside("profile.folded"))?;
        let places: Vec<i64> = {
            let names = ["add", "concatenate"];
            let by_name = |name: &&str| {
                let named = threads.iter().find(|it| it["name"] == **name);
                named.and_then(|it| it["tid"].as_i64())
            };
            names.iter().filter_map(by_name).collect()
        };
        ensure!(places.len() == 2, "dump names {threads:?}");
        ensure!(look["contradictions"] == 0, "{look}");
        ensure!(ledger.contradictions == 0, "{ledger:?}");
        ensure!(
            ledger.pid == pid,
            "it is {pid}, and the ledger has {}",
            ledger.pid
        );
        ensure!(
            ledger.ticks == ledger.samples + ledger.lost() && ledger.samples > 0,
            "{ledger:?}"
        );
        let translated: Vec<(String, i64)> = self.translated(level)?;
        let levels = self.levels;
        for account in self.end()? {
            let told = format!("{account:?}, {levels} deep, seen from {level}");
            let (_, tid) = translated
                .iter()
                .find(|(own, _)| *own == account.tid.to_string())
                .with_context(|| told.clone())?;
            let thread = ledger.thread(*tid).with_context(|| told.clone())?;
            ensure!(
                thread.name.as_deref() == Some(&account.name),
                "{told}: {thread:?}"
            );
            ensure!(
                thread.pthread_id == Some(account.ident),
                "{told}: {thread:?}"
            );
            ensure!(thread.matched_by.len() >= 3, "{told}: {thread:?}");
            ensure!(thread.samples > 0, "{told}: {thread:?}");
            ensure!(
                folded.with(&account.name) > thread.samples * 9 / 10,
                "{told}: not in the stacks"
            );
            let seen = threads.iter().find(|it| it["tid"] == *tid);
            let seen = seen.with_context(|| format!("{told}: not in {look}"))?;
            ensure!(seen["name"] == account.name.as_str(), "{told}: {seen}");
            let has = |frame: &Value| {
                frame["function"]
                    .as_str()
                    .is_some_and(|it| it == account.name)
            };
            let frames = seen["frames"].as_array().context("frames")?;
            ensure!(frames.iter().any(has), "{told}: {seen}");
        }
        drop(finished);
        Ok(())
    }

    /// Every thread's own id, and the one it has in the namespace `level`.
    fn translated(&self, level: usize) -> Result<Vec<(String, i64)>> {
        let folder = format!("/proc/{}/task", self.outer);
        let mut all = Vec::new();
        for task in std::fs::read_dir(&folder)? {
            let task = task?.file_name();
            let ids = ids(&format!("{}/task/{}", self.outer, task.to_string_lossy()))?;
            let own = ids.last().context("ids")?;
            all.push((own.to_string(), ids[level]));
        }
        Ok(all)
    }
}

/// A folder that the profiler has in its own root and this test in the machine's.
struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new(inside: &Inside) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("profiler-files-")
            .tempdir_in(inside.python.root().join("tmp"))?;
        Ok(Self { folder })
    }

    fn outside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The path as seen from a profiler in the target's root; it is the same one in the machine's.
    fn inside(&self, name: &str) -> String {
        self.outside(name).to_string_lossy().into_owned()
    }
}

fn command(words: &[&str], arguments: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(arguments);
    command
}

#[test]
fn from_the_host_a_container_is_like_any_process() -> Result<()> {
    let profiler = profiler::binary()?.to_string_lossy().into_owned();
    for python in container::interpreters() {
        for levels in [1, 2] {
            Inside::start(python, levels)?
                .check(0, |arguments| command(&[&profiler], arguments))
                .with_context(|| format!("{} on {levels} levels", python.label))?;
        }
    }
    Ok(())
}

#[test]
fn a_sidecar_that_shares_the_pid_namespace_counts_as_the_target_does() -> Result<()> {
    let profiler = profiler::binary()?.to_string_lossy().into_owned();
    for python in container::interpreters() {
        for (levels, level) in [(1, 1), (2, 2), (2, 1)] {
            let inside = Inside::start(python, levels)?;
            // Somebody of the namespace: the target, or what holds the inner one.
            let resident = resident(&inside, level)?.to_string();
            inside
                .check(level, |arguments| {
                    let mount = "mount -t proc proc /proc && exec \"$@\"";
                    let enter = ["nsenter", "--pid", "--target", &resident, "--"];
                    let own = ["unshare", "--mount", "--fork", "--kill-child", "sh", "-c"];
                    let words = [&enter[..], &own[..], &[mount, "sh", &profiler]].concat();
                    command(&words, arguments)
                })
                .with_context(|| format!("{} on {levels} levels from {level}", python.label))?;
        }
    }
    Ok(())
}

/// A process whose innermost pid namespace is the one of that level.
fn resident(inside: &Inside, level: usize) -> Result<Pid> {
    let mut pid = inside.target.pid();
    while ids(&pid.to_string())?.len() != level + 1 {
        let place = format!("/proc/{pid}/task/{pid}/children");
        let child = std::fs::read_to_string(&place)?;
        let child = child.split_whitespace().next().context("a child")?;
        pid = Pid::from_raw(child.parse()?);
    }
    Ok(pid)
}

#[test]
fn inside_the_containers_own_namespaces_and_root_it_profiles_its_neighbour() -> Result<()> {
    let profiler = profiler::binary()?;
    for python in container::interpreters() {
        for levels in [1, 2] {
            let inside = Inside::start(python, levels)?;
            let root = python.root().to_owned();
            let folder = tempfile::Builder::new()
                .prefix("profiler-bin-")
                .tempdir_in(root.join("tmp"))?;
            let copy = folder.path().join("profiler");
            std::fs::copy(&profiler, &copy)?;
            let copied = below(&root, &copy)?;
            std::fs::create_dir_all(root.join("sys"))?;
            let outer = inside.outer.to_string();
            let root = root.to_string_lossy().into_owned();
            inside
                .check_in_root(levels, |arguments| {
                    // The kernel's own types, as a container runtime gives them.
                    let line = "mountpoint -q \"$0/sys\" || mount --rbind /sys \"$0/sys\"; exec chroot \"$0\" \"$@\"";
                    let enter = [
                        "nsenter", "--pid", "--mount", "--net", "--target", &outer, "--", "sh", "-c",
                    ];
                    let words = [&enter[..], &[line, &root, &copied]].concat();
                    command(&words, arguments)
                })
                .with_context(|| format!("{} on {levels} levels", python.label))?;
        }
    }
    Ok(())
}

/// A path as it is below another root.
fn below(root: &Path, path: &Path) -> Result<String> {
    let inside = Path::new("/").join(path.strip_prefix(root)?);
    Ok(inside.to_string_lossy().into_owned())
}

impl Inside {
    /// [`Inside::check`] for a profiler that has the target's root.
    fn check_in_root(self, level: usize, command: impl Fn(&[&str]) -> Command) -> Result<()> {
        let root = self.python.root().to_owned();
        let strip = move |argument: &str| match below(&root, Path::new(argument)) {
            Ok(inside) if argument.starts_with('/') => inside,
            _ => argument.to_owned(),
        };
        self.check(level, |arguments| {
            let arguments: Vec<String> = arguments.iter().map(|it| strip(it)).collect();
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            command(&arguments)
        })
    }
}

#[test]
fn a_command_and_its_children_are_profiled_inside() -> Result<()> {
    let Some(python) = rung::reached(Rung::Kernel).then(pythons::any).flatten() else {
        return Ok(());
    };
    let profiler = profiler::binary()?;
    for levels in [1, 2] {
        let (_folder, script) = tests::target::lay_out(python, "family.py")?;
        let family = tests::target::command(python, &script, &["orphan"]);
        let files = tempfile::tempdir()?;
        let words = container::privileged(levels);
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .arg(&profiler)
            .args(["run", "--subprocesses", "-r", "499", "--ledger"])
            .arg(files.path().join("ledger.json"))
            .arg("-o")
            .arg(files.path().join("profile.folded"))
            .arg("--")
            .arg(family.get_program())
            .args(family.get_args());
        let finished: Finished = Running::spawn(command, files)?.finish()?.success()?;
        let ledger = finished.ledger()?;
        let told = format!("{levels} levels: {ledger:?}");
        // The profiler is the namespace's first process, and the numbers go on from there.
        ensure!(ledger.processes.len() == 3, "{told}");
        ensure!(ledger.processes.iter().all(|it| it.pid < 100), "{told}");
        ensure!(ledger.ticks == ledger.samples + ledger.lost(), "{told}");
        ensure!(ledger.contradictions == 0, "{told}");
        for process in &ledger.processes {
            ensure!(process.ended_by.as_deref() == Some("exit 0"), "{told}");
            ensure!(process.python == python.release, "{told}");
            ensure!(process.scheduler_ns > Some(0), "{told}");
        }
        ensure!(finished.folded()?.with("first") > 0, "{told}");
    }
    Ok(())
}
