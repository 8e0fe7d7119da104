//! What this machine lets the profiler do: facts for `doctor` and for errors.
//!
//! Which capability is needed for what was found by dropping one at a time, as root without it and
//! as a user with only the others; `tests/tests/privilege.rs` holds that.

use std::{fs, io, os::unix::fs::MetadataExt as _};

use super::{
    hindrances::{self, Lockdown, Yama},
    options::{MAX_RATE, USUAL_RATE},
    throttle::{self, Throttle},
};

/// One thing the profiler may or may not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// What it is.
    pub name: &'static str,
    /// Whether it is there.
    pub there: bool,
    /// What was seen.
    pub seen: String,
    /// What does not work without it, and what to type.
    pub without: String,
}

/// One of the kernel's capabilities, and what it is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Privilege {
    /// Its bit in `include/uapi/linux/capability.h`.
    bit: u32,
    /// Its name.
    pub name: &'static str,
    /// Whether `--engine bpf` does not work without it.
    pub for_programs: bool,
    /// Whether few will miss it.
    pub is_extra: bool,
    /// What does not work without it.
    pub without: &'static str,
}

/// Those that make a difference, the most needed first.
pub const PRIVILEGES: [Privilege; 5] = [
    Privilege {
        bit: 39,
        name: "CAP_BPF",
        for_programs: true,
        is_extra: false,
        without: "the kernel programs cannot be loaded: only `--engine proc` works, which estimates what threads do on a CPU",
    },
    Privilege {
        bit: 38,
        name: "CAP_PERFMON",
        for_programs: true,
        is_extra: false,
        without: "the kernel programs may neither read memory nor tick: only `--engine proc` works, which estimates what threads do on a CPU",
    },
    Privilege {
        bit: 19,
        name: "CAP_SYS_PTRACE",
        for_programs: false,
        is_extra: false,
        without: "of processes, only those of the profiler's own user that have no more capabilities than it can be read",
    },
    Privilege {
        bit: 2,
        name: "CAP_DAC_READ_SEARCH",
        for_programs: false,
        is_extra: true,
        without: "of other users' processes, what their descriptors are is not seen, and without eBPF nothing of what their threads wait for",
    },
    Privilege {
        bit: 40,
        name: "CAP_CHECKPOINT_RESTORE",
        for_programs: false,
        is_extra: true,
        without: "programs and libraries that were deleted from disk cannot be opened",
    },
];

/// It implies the narrower ones that were cut out of it: until 5.8 there was nothing else.
const SYS_ADMIN: u32 = 21;
const CUT_OUT_OF_ADMIN: [&str; 3] = ["CAP_BPF", "CAP_PERFMON", "CAP_CHECKPOINT_RESTORE"];

/// Look at everything; nothing is changed and nothing is loaded.
#[must_use]
pub fn survey() -> Vec<Capability> {
    let mut found = vec![kernel_version(), btf(), pid_namespace(), user_namespace()];
    for privilege in PRIVILEGES {
        let there = has(&privilege);
        let seen = if there { "effective" } else { "not effective" };
        found.push(Capability {
            name: privilege.name,
            there,
            seen: seen.to_owned(),
            without: privilege.without.to_owned(),
        });
    }
    found.extend([
        perf_event_paranoid(),
        max_sample_rate(),
        lockdown(),
        ptrace_scope(),
    ]);
    found
}

/// The privileges that are not there.
#[must_use]
pub fn missing() -> Vec<Privilege> {
    let all = PRIVILEGES.iter().copied();
    all.filter(|privilege| !has(privilege)).collect()
}

fn has(privilege: &Privilege) -> bool {
    let effective = effective_capabilities().unwrap_or(0);
    let bit = |bit: u32| effective >> bit & 1 != 0;
    bit(privilege.bit) || (bit(SYS_ADMIN) && CUT_OUT_OF_ADMIN.contains(&privilege.name))
}

fn has_named(name: &str) -> bool {
    PRIVILEGES.iter().any(|it| it.name == name && has(it))
}

fn effective_capabilities() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// What the running kernel calls itself.
pub(crate) fn kernel_release() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

fn kernel_version() -> Capability {
    let release = kernel_release();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    Capability {
        name: "kernel 5.10 or newer",
        there: version >= (5, 10),
        seen: release,
        without: "the kernel programs need functions that came with 5.8, and nobody tried them on kernels before 5.10: boot a newer one".into(),
    }
}

fn btf() -> Capability {
    let seen = fs::metadata("/sys/kernel/btf/vmlinux");
    Capability {
        name: "kernel type information",
        there: seen.is_ok(),
        seen: match &seen {
            Ok(data) => format!("/sys/kernel/btf/vmlinux, {} KiB", data.len() / 1024),
            Err(error) => format!("/sys/kernel/btf/vmlinux: {error}"),
        },
        without: "the kernel programs cannot find their fields: boot a kernel with CONFIG_DEBUG_INFO_BTF=y".into(),
    }
}

/// `PROC_PID_INIT_INO` of `include/linux/proc_ns.h`.
const INITIAL_PID_NAMESPACE: u32 = 0xEFFF_FFFC;

fn pid_namespace() -> Capability {
    let own = own_pid_namespace();
    Capability {
        name: "a /proc of the own pid namespace",
        there: own.is_ok(),
        seen: match &own {
            Ok(None) => String::from("the host's"),
            Ok(Some(PidNamespace(inode))) => format!("that of a container, pid:[{inode}]"),
            Err(error) => error.to_string(),
        },
        without: "process ids of /proc mean other processes than to the profiler: mount a /proc of the own pid namespace (`mount -t proc proc /proc`)".into(),
    }
}

fn user_namespace() -> Capability {
    let own = hindrances::in_own_user_namespace();
    Capability {
        name: "host's user namespace",
        there: !own,
        seen: if own {
            "no: a rootless container, or `unshare --user`".into()
        } else {
            "yes".into()
        },
        without: "capabilities count inside of it alone, and eBPF is not inside: run the profiler on the host".into(),
    }
}

fn perf_event_paranoid() -> Capability {
    let level = hindrances::perf_event_paranoid();
    let has_perfmon = has_named("CAP_PERFMON");
    Capability {
        name: "kernel.perf_event_paranoid",
        there: has_perfmon,
        seen: match level {
            Some(level) if has_perfmon => format!("{level}, no hindrance with CAP_PERFMON"),
            Some(level) => level.to_string(),
            None => "not shown".into(),
        },
        without: "no value of it lets the kernel programs tick without CAP_PERFMON".into(),
    }
}

fn max_sample_rate() -> Capability {
    let throttle = Throttle::now();
    let refusal = throttle.filter(|it| !it.spares(USUAL_RATE));
    Capability {
        name: "kernel.perf_event_max_sample_rate",
        there: refusal.is_none(),
        seen: match throttle {
            None => "not shown".into(),
            Some(it) if it.spares(MAX_RATE) || refusal.is_some() => it.max_rate_hz.to_string(),
            Some(it) => format!(
                "{}, enough up to `--rate {}`; for more, {}",
                it.max_rate_hz,
                it.room_hz(),
                throttle::what_to_type()
            ),
        },
        without: match refusal {
            Some(it) => it.refusal(USUAL_RATE),
            None => throttle::what_to_type(),
        },
    }
}

fn lockdown() -> Capability {
    let lockdown = hindrances::lockdown();
    Capability {
        name: "kernel lockdown",
        there: lockdown != Lockdown::Confidentiality,
        seen: lockdown.to_string(),
        without: "kernel programs may read no memory, whatever their capabilities, until a boot without `lockdown=confidentiality`: only `--engine proc` works".into(),
    }
}

fn ptrace_scope() -> Capability {
    let yama = hindrances::yama();
    let is_hindrance = yama.is_hindrance(has_named("CAP_SYS_PTRACE"));
    Capability {
        name: "kernel.yama.ptrace_scope",
        there: !is_hindrance,
        seen: match yama {
            Yama::Absent => "not there".into(),
            Yama::Scope(scope) if is_hindrance || scope == 0 => scope.to_string(),
            Yama::Scope(scope) => format!("{scope}, no hindrance with CAP_SYS_PTRACE"),
        },
        without: yama.advice().into(),
    }
}

/// A pid namespace that is not the initial one, by its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PidNamespace(pub u32);

/// The pid namespace by which this process and its `/proc` number processes; none is the initial
/// one.
///
/// # Errors
/// When `/proc` is not there, or is that of another namespace.
pub fn own_pid_namespace() -> io::Result<Option<PidNamespace>> {
    let shown = fs::read_link("/proc/self").map_err(|error| {
        io::Error::other(format!(
            "there is no /proc ({error}): mount one (`mount -t proc proc /proc`)"
        ))
    })?;
    if shown.to_str().and_then(|shown| shown.parse().ok()) != Some(std::process::id()) {
        return Err(io::Error::other(format!(
            "/proc is of another pid namespace, which has this process, {}, as {}: mount one of the own (`mount -t proc proc /proc`)",
            std::process::id(),
            shown.display(),
        )));
    }
    let inode = fs::metadata("/proc/self/ns/pid")?.ino();
    Ok(match u32::try_from(inode) {
        Ok(INITIAL_PID_NAMESPACE) => None,
        Ok(inode) => Some(PidNamespace(inode)),
        // The kernel counts them in 32 bits.
        Err(error) => return Err(io::Error::other(error)),
    })
}

/// Why the kernel may have refused `what`, and what to type.
#[must_use]
pub fn refusal(what: &str) -> String {
    let missing = missing();
    let lacks = missing.iter().filter(|it| it.for_programs);
    let lacks: Vec<&str> = lacks.map(|it| it.name).collect();
    let why = if hindrances::lockdown() == Lockdown::Confidentiality {
        "the kernel is locked down (`confidentiality`) until a boot without that".to_owned()
    } else if hindrances::in_own_user_namespace() {
        "this is a user namespace of its own (a rootless container), and eBPF is not in it: run the profiler on the host".to_owned()
    } else if !lacks.is_empty() {
        format!(
            "{} {} missing: run it with `sudo`, or `sudo setcap {}=ep {}`, or in a container with `{}`",
            lacks.join(" and "),
            if lacks.len() == 1 { "is" } else { "are" },
            setcap_names(&wanted()),
            own_path(),
            docker_flags(&wanted()),
        )
    } else if hindrances::has_seccomp_filter() {
        "though CAP_BPF and CAP_PERFMON are there: a seccomp filter forbids it (in a container, `--security-opt seccomp=unconfined`)".to_owned()
    } else {
        "though CAP_BPF and CAP_PERFMON are there: a security module of the kernel forbids it"
            .to_owned()
    };
    format!("no permission to {what}: {why}; `profiler doctor` tells more")
}

/// The privileges that a line to type should give: the usual ones.
#[must_use]
pub fn wanted() -> Vec<&'static str> {
    let usual = PRIVILEGES.iter().filter(|it| !it.is_extra);
    usual.map(|it| it.name).collect()
}

/// As `setcap` and `setpriv` have their names.
#[must_use]
pub fn setcap_names(names: &[&str]) -> String {
    names.join(",").to_lowercase()
}

/// As docker wants them.
#[must_use]
pub fn docker_flags(names: &[&str]) -> String {
    let flag = |name: &&str| format!("--cap-add {}", short(name));
    names.iter().map(flag).collect::<Vec<_>>().join(" ")
}

/// A capability's name without its prefix, as container runtimes have it.
#[must_use]
pub fn short(name: &str) -> &str {
    name.strip_prefix("CAP_").unwrap_or(name)
}

/// This program's file, for lines to type.
#[must_use]
pub fn own_path() -> String {
    std::env::current_exe().map_or_else(
        |_| "/usr/local/bin/profiler".to_owned(),
        |path| path.display().to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_to_type_have_every_runtimes_own_names() {
        let names = wanted();
        assert_eq!(names, ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE"]);
        assert_eq!(setcap_names(&names), "cap_bpf,cap_perfmon,cap_sys_ptrace");
        assert_eq!(
            docker_flags(&names),
            "--cap-add BPF --cap-add PERFMON --cap-add SYS_PTRACE"
        );
    }

    #[test]
    fn the_survey_says_of_everything_what_is_without_it() {
        for found in survey() {
            assert!(!found.seen.is_empty(), "{found:?}");
            assert!(!found.without.is_empty(), "{found:?}");
        }
        assert!(refusal("do it").starts_with("no permission to do it: "));
    }
}
