//! Native frames of a target in namespaces of its own, whose libraries the profiler has under no
//! path: rung 3.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tests::calls::Calls;
use tests::container::{self, innermost};
use tests::libraries::{self, Made};
use tests::profile::{Entry, Profile};
use tests::profiler::Running;
use tests::pythons::Python;
use tests::target::{Target, lay_out};

/// A folder that is empty for the machine and holds the libraries for the target alone.
struct Hidden {
    built: TempDir,
    folder: TempDir,
    c: &'static str,
    rust: &'static str,
    inside: PathBuf,
}

impl Hidden {
    fn make(python: &Python, made: Made) -> Result<Self> {
        let (built, _) = lay_out(python, "native_calls.py")?;
        let c = libraries::in_c(python, made, built.path())?;
        let rust = libraries::in_rust(built.path())?;
        let folder = tempfile::Builder::new()
            .prefix("profiler-hidden-")
            .tempdir_in(python.root().join("tmp"))?;
        let inside = Path::new("/").join(folder.path().strip_prefix(python.root())?);
        Ok(Self {
            built,
            folder,
            c,
            rust,
            inside,
        })
    }

    /// What puts a command into namespaces where the folder is another, with the libraries.
    fn words(&self, python: &Python) -> Vec<String> {
        let fill =
            "mount -t tmpfs none \"$0\" && cp \"$1\" \"$2\" \"$0\" && shift 2 && exec \"$@\"";
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let mut words = container::around(1, python.root());
        words.extend(["sh", "-c", fill].map(str::to_owned));
        words.push(path(self.folder.path()));
        words.push(path(&self.built.path().join(self.c)));
        words.push(path(&self.built.path().join(self.rust)));
        words
    }

    /// The target's own path of a library.
    fn own(&self, name: &str) -> String {
        self.inside.join(name).to_string_lossy().into_owned()
    }
}

/// The entries of a thread by its name: its id is another one inside.
fn of<'a>(profile: &'a Profile, name: &str) -> impl Iterator<Item = &'a Entry> {
    let place = profile.threads.iter().position(|it| it.name == name);
    let is_its = move |entry: &&Entry| Some(entry.thread) == place;
    profile.entries.iter().filter(is_its)
}

/// Calls between Python, C and Rust, with all their names and lines.
fn are_named(python: &Python, made: Made, is_deleted: bool) -> Result<()> {
    let hidden = Hidden::make(python, made)?;
    let libraries = [hidden.own(hidden.c), hidden.own(hidden.rust)];
    let arguments = [&*libraries[0], &*libraries[1], "calls", "0.5"];
    let words = hidden.words(python);
    let mut target = Target::start_behind(&words, python, "native_calls.py", &arguments)?;
    let outer = innermost(target.pid())?;
    let seen = |name: &str| PathBuf::from(format!("/proc/{outer}/root{name}"));
    for library in &libraries {
        let outside = hidden
            .folder
            .path()
            .join(library.rsplit('/').next().unwrap_or_default());
        ensure!(seen(library).exists() && !outside.exists(), "{library}");
        if is_deleted {
            std::fs::remove_file(seen(library))?;
        }
    }
    let calls = Calls::of(&target)?;
    let options = ["--native", "--granularity", "line", "-r", "999"];
    let mut profiler = Running::in_detail(outer, &options)?;
    profiler.attached()?;
    target.tell("go")?;
    target.expect("done")?;
    let profile = profiler.stop()?.profile()?;
    profile.ledger.balances()?;
    let judged = calls.judge(&profile, of(&profile, "calls"));
    let told = || format!("{judged:?} {:?}", profile.ledger.native);
    ensure!(judged.impossible.is_empty(), "{}", told());
    ensure!(
        judged.samples > 200 && judged.known * 100 >= judged.samples * 98,
        "{}",
        told()
    );
    for (caller, callee) in [("c1", "c2"), ("c2", "c_spin"), ("r2", "r_spin")] {
        let pair = (caller.to_owned(), callee.to_owned());
        ensure!(judged.seen.contains_key(&pair), "{pair:?}: {}", told());
    }
    Ok(())
}

#[test]
fn libraries_that_only_the_target_has_are_named() -> Result<()> {
    for python in container::interpreters() {
        for made in Made::all_of(python) {
            are_named(python, *made, false)
                .with_context(|| format!("{}, {made:?}", python.label))?;
        }
    }
    Ok(())
}

#[test]
fn libraries_that_nobody_has_any_more_are_named() -> Result<()> {
    for python in container::interpreters() {
        for made in Made::all_of(python) {
            are_named(python, *made, true)
                .with_context(|| format!("{}, {made:?}", python.label))?;
        }
    }
    Ok(())
}

/// It is where the target has it, by the number that the target has for itself.
#[test]
fn the_perf_map_is_that_of_the_targets_own_number() -> Result<()> {
    for python in container::interpreters() {
        let words = container::around(1, python.root());
        let mut target = Target::start_behind(&words, python, "makes_code.py", &["0.3"])?;
        let outer = innermost(target.pid())?;
        let mut profiler = Running::in_detail(outer, &["--native", "-r", "999"])?;
        profiler.attached()?;
        target.tell("go")?;
        target.expect("made_first")?;
        profiler.so_far()?;
        target.tell("go on")?;
        target.expect("done")?;
        let profile = profiler.stop()?.profile()?;
        for (function, made) in [("first", "made_first"), ("second", "made_second")] {
            let (mut all, mut right) = (0, 0);
            for entry in of(&profile, function) {
                all += entry.ticks;
                right += if profile.is_in(entry, made) {
                    entry.ticks
                } else {
                    0
                };
            }
            // Of a busy machine's samples some come without their stack.
            ensure!(
                all > 100 && right * 2 > all,
                "{}: {right} of {all} in {made}: {:?}",
                python.label,
                profile.folded(|_| true).stacks
            );
        }
    }
    Ok(())
}
