//! Which kernels there are to boot: those of Debian's releases.

use anyhow::{Result, bail};

/// A kernel that the tests run on.
#[derive(Debug)]
pub(super) struct Kernel {
    /// Major and minor, as it is asked for.
    pub(super) series: &'static str,
    /// Debian's release that has it.
    pub(super) suite: &'static str,
}

/// Oldest first. Debian has no 5.15 any more: what came between 5.10 and 6.1 is in the latter.
const KERNELS: &[Kernel] = &[
    Kernel {
        series: "5.10",
        suite: "bullseye",
    },
    Kernel {
        series: "6.1",
        suite: "bookworm",
    },
    Kernel {
        series: "6.12",
        suite: "trixie",
    },
];

/// The word for all of them.
pub(crate) const ALL: &str = "all";

/// The kernels by the names that were typed.
pub(super) fn asked(names: &[String]) -> Result<Vec<&'static Kernel>> {
    if names.iter().any(|name| name == ALL) {
        return Ok(KERNELS.iter().collect());
    }
    let find = |name: &String| {
        let known: Vec<&str> = KERNELS.iter().map(|kernel| kernel.series).collect();
        match KERNELS.iter().find(|kernel| kernel.series == name) {
            Some(kernel) => Ok(kernel),
            None => bail!("no kernel `{name}` here: there are {}", known.join(", ")),
        }
    };
    names.iter().map(find).collect()
}
