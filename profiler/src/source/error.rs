//! Why the kernel half could not be had, in words that say what to do.

use std::{fmt, io};

use super::btf::BtfError;

/// Why the programs do not run.
#[derive(Debug)]
pub enum KernelError {
    /// `/sys/kernel/btf/vmlinux` could not be read.
    NoBtf(io::Error),
    /// This kernel's BTF lacks a field.
    Btf(BtfError),
    /// This kernel has not got what the programs need.
    TooOld {
        /// What it calls itself.
        release: String,
        /// The first thing that is missing.
        lacks: &'static str,
    },
    /// The system refused for lack of privilege; what was asked of it.
    Refused(&'static str),
    /// The embedded object is broken, or the kernel does not take it.
    Load {
        /// The program or map.
        what: String,
        /// Everything that is known of why.
        why: String,
    },
    /// A map could not be read or written.
    Map {
        /// The map.
        name: &'static str,
        /// Why.
        why: String,
    },
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBtf(error) => write!(
                f,
                "this kernel shows no type information (`/sys/kernel/btf/vmlinux`: {error}): the kernel programs need Linux 5.10 or newer, built with CONFIG_DEBUG_INFO_BTF; `profiler doctor` tells more"
            ),
            Self::Btf(error) => {
                write!(
                    f,
                    "this kernel is not understood: {error}; `profiler doctor` tells more"
                )
            }
            Self::TooOld { release, lacks } => write!(
                f,
                "this kernel ({release}) is too old for the kernel programs: it has no `{lacks}`; they need Linux 5.10 or newer"
            ),
            Self::Refused(what) if nix::unistd::geteuid().is_root() => write!(
                f,
                "no permission to {what}, though this is root: it lacks CAP_BPF or CAP_PERFMON (in a container, add `--cap-add BPF --cap-add PERFMON --cap-add SYS_PTRACE`); `profiler doctor` says which"
            ),
            Self::Refused(what) => write!(
                f,
                "no permission to {what}: run it as root (`sudo profiler …`) or with CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE"
            ),
            Self::Load { what, why } => write!(
                f,
                "the kernel did not take `{what}`: {why}; `profiler doctor` tells what works here"
            ),
            Self::Map { name, why } => write!(f, "the kernel map `{name}` failed: {why}"),
        }
    }
}

impl std::error::Error for KernelError {}

const EPERM: i32 = 1;

/// Whether an error's chain holds EPERM. EACCES is another matter: so the verifier answers when
/// it refuses a program.
pub(crate) fn is_refusal(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut source = Some(error);
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<io::Error>()
            && io.raw_os_error() == Some(EPERM)
        {
            return true;
        }
        source = error.source();
    }
    false
}

/// The whole chain of an error on one line, without saying anything twice.
pub(crate) fn one_line(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = error.source();
    }
    // The verifier's log runs over many lines, and its last ones tell what it refused.
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    match lines.len() {
        0 => String::new(),
        1..=4 => lines.join(" | "),
        n => format!("{} | … | {}", lines[0], lines[n - 3..].join(" | ")),
    }
}
