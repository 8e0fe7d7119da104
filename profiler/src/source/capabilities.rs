//! What this machine lets the profiler do: facts for `doctor` and for errors.

use std::{fs, io, os::unix::fs::MetadataExt as _};

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
    pub without: &'static str,
}

/// The capability bits of `include/uapi/linux/capability.h` that matter here.
const CAPABILITIES: [(u32, &str, &str); 4] = [
    (
        39,
        "CAP_BPF",
        "the kernel programs cannot be loaded: run with `sudo`, or add CAP_BPF",
    ),
    (
        38,
        "CAP_PERFMON",
        "the kernel programs cannot tick: run with `sudo`, or add CAP_PERFMON",
    ),
    (
        19,
        "CAP_SYS_PTRACE",
        "processes of other users cannot be read: run with `sudo`, or add CAP_SYS_PTRACE",
    ),
    (
        21,
        "CAP_SYS_ADMIN",
        "binaries deleted from disk cannot be opened through map_files: run with `sudo`",
    ),
];

/// Look at everything; nothing is changed and nothing is loaded.
#[must_use]
pub fn survey() -> Vec<Capability> {
    let mut found = vec![kernel_version(), btf(), pid_namespace()];
    let effective = effective_capabilities().unwrap_or(0);
    // Before 5.8 there was only CAP_SYS_ADMIN; it still implies the narrower two.
    let admin = effective >> 21 & 1 != 0;
    for (bit, name, without) in CAPABILITIES {
        let there = effective >> bit & 1 != 0 || (admin && matches!(bit, 38 | 39));
        let seen = if there { "effective" } else { "not effective" };
        found.push(Capability {
            name,
            there,
            seen: seen.to_owned(),
            without,
        });
    }
    found
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
        without: "the kernel programs need functions that came with 5.8, and nobody tried them on kernels before 5.10: boot a newer one",
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
        without: "the kernel programs cannot find their fields: boot a kernel with CONFIG_DEBUG_INFO_BTF=y",
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
        without: "process ids of /proc mean other processes than to the profiler: mount a /proc of the own pid namespace (`mount -t proc proc /proc`)",
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
    let shown = fs::read_link("/proc/self")?;
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
