//! Settings of a machine that forbid more than missing capabilities do.

use std::{fmt, fs};

/// How far the kernel is locked down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lockdown {
    /// It is not, or has no such thing.
    None,
    /// It may not be changed: no hindrance.
    Integrity,
    /// It may not be read either, by eBPF least of all.
    Confidentiality,
    /// Not shown here.
    Unknown,
}

impl Lockdown {
    /// By the file, in which the level that holds is in brackets.
    fn of_file(text: &str) -> Self {
        let level = text
            .split_ascii_whitespace()
            .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
        match level {
            Some("none") => Self::None,
            Some("integrity") => Self::Integrity,
            Some("confidentiality") => Self::Confidentiality,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Lockdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Integrity => "integrity, no hindrance",
            Self::Confidentiality => "confidentiality",
            Self::Unknown => "not shown",
        })
    }
}

/// How far the kernel is locked down.
#[must_use]
pub fn lockdown() -> Lockdown {
    fs::read_to_string("/sys/kernel/security/lockdown")
        .map_or(Lockdown::Unknown, |text| Lockdown::of_file(&text))
}

/// The Yama module's say on who may read whose memory: `kernel.yama.ptrace_scope`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yama {
    /// It has none.
    Absent,
    /// 0 no say; 1 only those that are started; 2 only with CAP_SYS_PTRACE; 3 nobody.
    Scope(u8),
}

impl Yama {
    /// Whether it forbids what would be allowed without it.
    #[must_use]
    pub const fn is_hindrance(self, has_sys_ptrace: bool) -> bool {
        match self {
            Self::Absent | Self::Scope(0) => false,
            Self::Scope(1 | 2) => !has_sys_ptrace,
            Self::Scope(_) => true,
        }
    }

    /// What works all the same, and what to type.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Absent | Self::Scope(0) => "nothing",
            Self::Scope(1) => {
                "only what the profiler starts can be read (`profiler run -- CMD`): for other processes of your own type `sudo sysctl kernel.yama.ptrace_scope=0`, or run the profiler with `sudo`"
            }
            Self::Scope(2) => {
                "no process can be read without CAP_SYS_PTRACE: run the profiler with `sudo`, or type `sudo sysctl kernel.yama.ptrace_scope=0`"
            }
            Self::Scope(_) => {
                "nobody may read another process's memory, not even root, until the next boot: set kernel.yama.ptrace_scope to 1 in /etc/sysctl.d and boot"
            }
        }
    }
}

/// What Yama says here.
#[must_use]
pub fn yama() -> Yama {
    number("/proc/sys/kernel/yama/ptrace_scope").map_or(Yama::Absent, Yama::Scope)
}

/// `kernel.perf_event_paranoid`.
#[must_use]
pub fn perf_event_paranoid() -> Option<i32> {
    number("/proc/sys/kernel/perf_event_paranoid")
}

fn number<T: std::str::FromStr>(path: &str) -> Option<T> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Whether this process may call only some of the kernel's functions.
#[must_use]
pub fn has_seccomp_filter() -> bool {
    const FILTER: &str = "2";
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp:"));
    line.is_some_and(|mode| mode.trim() == FILTER)
}

/// Whether user ids and capabilities mean something else here than on the host.
#[must_use]
pub fn in_own_user_namespace() -> bool {
    fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !is_identity(&map))
}

/// The initial namespace maps all ids to themselves.
fn is_identity(map: &str) -> bool {
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_in_brackets_is_the_one_that_holds() {
        let check = |text: &str, level| assert_eq!(Lockdown::of_file(text), level);
        check("[none] integrity confidentiality\n", Lockdown::None);
        check("none [integrity] confidentiality\n", Lockdown::Integrity);
        check(
            "none integrity [confidentiality]",
            Lockdown::Confidentiality,
        );
        check("", Lockdown::Unknown);
        check("none", Lockdown::Unknown);
    }

    #[test]
    fn yama_forbids_more_the_higher_its_scope() {
        let forbids = |yama: Yama| [false, true].map(|capable| yama.is_hindrance(capable));
        assert_eq!(forbids(Yama::Absent), [false, false]);
        assert_eq!(forbids(Yama::Scope(0)), [false, false]);
        assert_eq!(forbids(Yama::Scope(1)), [true, false]);
        assert_eq!(forbids(Yama::Scope(2)), [true, false]);
        assert_eq!(forbids(Yama::Scope(3)), [true, true]);
    }

    #[test]
    fn only_the_whole_range_is_the_hosts_own() {
        assert!(is_identity("         0          0 4294967295\n"));
        assert!(!is_identity("         0       1000          1\n"));
        assert!(!is_identity(""));
    }
}
