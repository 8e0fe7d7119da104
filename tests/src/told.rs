//! A run of `native_calls.py` under `profiler run --native`, and what is to be thought of its stacks.
//!
//! It runs and judges; how much of what must be seen is for whoever asked.

use anyhow::{Context, Result, ensure};

use crate::calls::{Calls, Judged};
use crate::libraries::Made;
use crate::profile::Profile;
use crate::profiler::Running;
use crate::pythons::Python;
use crate::target::{Account, Target};

/// A target's whole work, its profile, and what is to be thought of its stacks.
#[derive(Debug)]
pub struct Told {
    /// How its half in C was made.
    pub made: Made,
    /// The account of the thread that worked.
    pub account: Account,
    /// How deep it dives.
    pub depth: u64,
    /// The kernel id of the thread that C made.
    pub beside: Option<i64>,
    /// Its profile.
    pub profile: Profile,
    /// Its stacks, judged.
    pub judged: Judged,
}

impl Told {
    /// The target's work from its beginning to its end, with these arguments (a way and how long),
    /// profiled with these options beside what judging needs.
    ///
    /// # Errors
    ///
    /// When either of the two fails.
    pub fn of(python: &Python, made: Made, arguments: &[&str], options: &[&str]) -> Result<Self> {
        let mut target = Target::start_native(python, made, arguments)?;
        let calls = Calls::of(&target)?;
        let options = [&["--native", "--granularity", "line"], options].concat();
        let mut profiler = Running::in_detail(target.pid(), &options)?;
        profiler.attached()?;
        target.tell("go")?;
        let mut done = target.expect("done")?;
        let profile = profiler.stop()?.profile()?;
        let mut accounts: Vec<Account> = serde_json::from_value(done["threads"].take())?;
        let account = accounts.pop().context("no account")?;
        let beside = done["beside"][0].as_i64();
        let own = profile.of(account.tid);
        let own = own.chain(beside.into_iter().flat_map(|tid| profile.of(tid)));
        let judged = calls.judge(&profile, own);
        Ok(Self {
            made,
            account,
            depth: target.ready()["depth"].as_u64().context("no depth")?,
            beside,
            profile,
            judged,
        })
    }

    /// What must hold however far native stacks went.
    ///
    /// # Errors
    ///
    /// When something does not hold.
    pub fn is_sound(&self) -> Result<()> {
        let ledger = &self.profile.ledger;
        ledger.balances()?;
        let native = ledger
            .native
            .as_ref()
            .context("no account of native stacks")?;
        let judged = &self.judged;
        ensure!(
            judged.impossible.is_empty(),
            "{} impossible stacks of {} samples: {:#?}",
            judged.impossible.len(),
            judged.samples,
            &judged.impossible[..judged.impossible.len().min(5)]
        );
        // A thread off the CPU is read once for all its looks.
        let all = if ledger.mode == "cpu" {
            ledger.samples
        } else {
            native.all()
        };
        let reasons: u64 = native.reasons.values().sum();
        ensure!(
            native.all() == all && reasons >= native.less(),
            "{} samples: {native:?}",
            ledger.samples
        );
        ensure!(
            ledger.mode != "cpu" || judged.incomplete <= native.less(),
            "{} stacks are without native frames in their middle: {native:?}",
            judged.incomplete
        );
        Ok(())
    }

    /// All but a few have all native frames.
    ///
    /// # Errors
    ///
    /// When they have not.
    pub fn is_full(&self) -> Result<()> {
        self.is_sound()?;
        let judged = &self.judged;
        ensure!(
            judged.known * 100 >= judged.samples * 98 && judged.known > 0,
            "{} of {} samples have functions of the target",
            judged.known,
            judged.samples
        );
        let native = self.profile.ledger.native.as_ref().context("no account")?;
        // A busy machine is late to make room for stacks; the samples come without.
        let not_sent = native.reasons.get("not_sent").copied().unwrap_or(0);
        let sent = native.all() - not_sent;
        ensure!(
            (native.less() - not_sent) * 100 <= sent && sent * 2 > native.all(),
            "not all native frames: {native:?}"
        );
        Ok(())
    }

    /// These calls were seen.
    ///
    /// # Errors
    ///
    /// When one was not.
    pub fn has_seen(&self, calls: &[(&str, &str)]) -> Result<()> {
        for (caller, callee) in calls {
            let pair = ((*caller).to_owned(), (*callee).to_owned());
            ensure!(
                self.judged.seen.contains_key(&pair),
                "`{caller}` was never seen to call `{callee}`: {:?}",
                self.judged.seen
            );
        }
        Ok(())
    }
}
