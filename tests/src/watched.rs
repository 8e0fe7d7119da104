//! A target's whole work under one or more profilers: each of its threads is born after all of
//! them are attached and ends before any of them stops, so that its life is the same to all.

use anyhow::{Context, Result};

use crate::profile::Profile;
use crate::profiler::Running;
use crate::pythons::Python;
use crate::stolen::stolen_s;
use crate::target::{Account, Target};

/// What came of it.
#[derive(Debug)]
pub struct Watched {
    /// The target's own accounts, in its order.
    pub accounts: Vec<Account>,
    /// What each profiler wrote, in the order of their arguments.
    pub profiles: Vec<Profile>,
    /// What the host took from the machine meanwhile, seconds.
    pub stolen_s: f64,
}

/// Lets a target that ends by itself do its work under profilers, each with its own arguments.
///
/// # Errors
///
/// When either fails.
pub fn watch(
    python: &Python,
    script: &str,
    arguments: &[&str],
    profilers: &[&[&str]],
) -> Result<Watched> {
    let mut target = Target::start(python, script, arguments)?;
    let start = |arguments: &&[&str]| Running::in_detail(target.pid(), arguments);
    let mut running = profilers.iter().map(start).collect::<Result<Vec<_>>>()?;
    for profiler in &mut running {
        profiler.attached()?;
    }
    let stolen = stolen_s();
    target.tell("go")?;
    let accounts = target.done()?;
    let stolen_s = stolen_s() - stolen;
    let stop = |profiler: Running| profiler.stop()?.profile();
    Ok(Watched {
        accounts,
        profiles: running.into_iter().map(stop).collect::<Result<_>>()?,
        stolen_s,
    })
}

impl Watched {
    /// The account of the thread that ran that function; the first of several.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn account(&self, name: &str) -> Result<&Account> {
        let mut named = self.accounts.iter().filter(|account| account.name == name);
        let account = named.next();
        account.with_context(|| format!("no thread `{name}`: {:?}", self.accounts))
    }
}
