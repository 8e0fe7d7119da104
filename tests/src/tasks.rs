//! Tasks: what a target says that each of them spent, beside its profile; and all of them at rest.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::profile::{Entry, Profile};
use crate::profiler::{self, Running};
use crate::pythons::Python;
use crate::stolen::stolen_s;
use crate::target::Target;

/// How long tasks may take to come to rest.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a target and its profile say of the same time.
#[derive(Debug)]
pub struct Told {
    /// The target's last word: `spent` has the seconds on a CPU by name, and `all` of them.
    pub done: Value,
    /// The profile.
    pub profile: Profile,
    /// What the host took from the machine meanwhile, seconds.
    pub stolen_s: f64,
}

/// Lets a target do its work, from `go` to `done`, while it is profiled.
///
/// # Errors
///
/// When either fails.
pub fn told(python: &Python, script: &str, arguments: &[&str], options: &[&str]) -> Result<Told> {
    let mut target = Target::start(python, script, arguments)?;
    let mut profiler = Running::in_detail(target.pid(), options)?;
    profiler.attached()?;
    let stolen = stolen_s();
    target.tell("go")?;
    let done = target.expect("done")?;
    let stolen_s = stolen_s() - stolen;
    let profile = profiler.stop()?.profile()?;
    target.tell("end")?;
    Ok(Told {
        done,
        profile,
        stolen_s,
    })
}

impl Told {
    /// What a task spent on a CPU by its own account, seconds.
    ///
    /// # Errors
    ///
    /// When it did not say.
    pub fn spent(&self, name: &str) -> Result<f64> {
        let spent = self.done["spent"][name].as_f64();
        spent.with_context(|| format!("no time of {name}: {}", self.done))
    }

    /// The kernel id of the thread that ran them.
    ///
    /// # Errors
    ///
    /// When the target did not say.
    pub fn tid(&self) -> Result<i64> {
        let tid = self.done["threads"][0]["tid"].as_i64();
        tid.with_context(|| format!("no thread: {}", self.done))
    }

    /// The time of some of the entries, seconds.
    pub fn seconds(&self, counts: impl Fn(&Entry) -> bool) -> f64 {
        let entries = self.profile.entries.iter();
        entries.filter(|it| counts(it)).map(Entry::weight_s).sum()
    }

    /// The task that an entry is of; none when it is a thread's.
    #[must_use]
    pub fn task(&self, entry: &Entry) -> Option<&str> {
        let mut frames = self.profile.stack(entry);
        let task = frames.find(|frame| frame.kind == "task")?;
        task.label.strip_prefix("[task ")?.strip_suffix(']')
    }

    /// The time of a task's entries, seconds.
    #[must_use]
    pub fn seconds_of(&self, task: &str) -> f64 {
        self.seconds(|entry| self.task(entry) == Some(task))
    }

    /// Below a task's name there must be nothing.
    ///
    /// # Errors
    ///
    /// When there is.
    pub fn has_one_root(&self) -> Result<()> {
        for entry in &self.profile.entries {
            let labels: Vec<_> = self.profile.stack(entry).map(|it| &*it.label).collect();
            let mut kinds = self.profile.stack(entry).map(|it| it.kind == "task");
            let task = kinds.position(|is_task| is_task);
            ensure!(
                task.is_none_or(|place| place + 1 == labels.len()),
                "{labels:?}"
            );
        }
        Ok(())
    }
}

/// All tasks as `dump --tasks --json` has them, once nobody runs while they are read; nothing may be
/// missing.
///
/// # Errors
///
/// When something is, or they never rest.
pub fn at_rest(target: &Target) -> Result<Vec<Value>> {
    let started = Instant::now();
    loop {
        let pid = target.pid().to_string();
        let finished = profiler::run(&["dump", "--tasks", "--json", "--pid", &pid])?.success()?;
        let mut value: Value = serde_json::from_str(&finished.stdout)?;
        let mut tasks = value["tasks"].take();
        for lost in ["unreadable", "broken_lists"] {
            ensure!(tasks[lost] == json!([]), "{lost}: {tasks:#}");
        }
        ensure!(tasks["left_out"] == 0, "{tasks:#}");
        let Value::Array(alive) = tasks["alive"].take() else {
            anyhow::bail!("no tasks: {tasks:#}");
        };
        if alive.iter().all(|task| task["frames_from"] == "user") {
            return Ok(alive);
        }
        ensure!(started.elapsed() < PATIENCE, "never at rest: {alive:#?}");
    }
}
