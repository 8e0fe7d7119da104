//! Containers, imitated with the namespaces that make one: a target in namespaces of its own, and
//! programs that join it there.
//!
//! Nothing is installed for it: `unshare`, `nsenter` and `chroot` are on every machine.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::unistd::Pid;

use crate::pythons::{self, Python};
use crate::rung::{self, Rung};

/// Interpreters of the machine itself and of another root, one each, on which targets can be put into
/// namespaces; what is missing is said.
#[must_use]
pub fn interpreters() -> Vec<&'static Python> {
    if !rung::reached(Rung::Kernel) {
        return Vec::new();
    }
    if !can_be() {
        rung::leave_out("this machine gives nobody a user namespace of their own");
        return Vec::new();
    }
    let all = pythons::required();
    let elsewhere = all.iter().rfind(|python| python.root.is_some());
    if elsewhere.is_none() {
        rung::leave_out("there is no interpreter in another root: run `cargo xtask setup`");
    }
    pythons::any().into_iter().chain(elsewhere).collect()
}

/// The words that put a command into new namespaces, `levels` deep: users, processes, mounts and
/// network, with a `/proc` of its own below `root`.
#[must_use]
pub fn around(levels: usize, root: &Path) -> Vec<String> {
    let proc = root.join("proc");
    let one = [
        "unshare".to_owned(),
        "--user".to_owned(),
        "--map-root-user".to_owned(),
        "--pid".to_owned(),
        "--fork".to_owned(),
        "--kill-child".to_owned(),
        "--mount".to_owned(),
        "--net".to_owned(),
        format!("--mount-proc={}", proc.display()),
    ];
    (0..levels).flat_map(|_| one.clone()).collect()
}

/// Whether there can be any here: some kernels give no user namespaces, and none in a `chroot`.
#[must_use]
pub fn can_be() -> bool {
    let words = around(1, Path::new("/"));
    let tried = Command::new(&words[0])
        .args(&words[1..])
        .arg("true")
        .output();
    tried.is_ok_and(|output| output.status.success())
}

/// The same for a program that needs the machine's own privileges: no users of its own.
#[must_use]
pub fn privileged(levels: usize) -> Vec<String> {
    let one = [
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount",
        "--net",
        "--ipc",
        "--mount-proc",
    ];
    let words = (0..levels).flat_map(|_| one);
    words.map(str::to_owned).collect()
}

/// The process at the end of a line of only children: the command, behind those that put it where
/// it is.
///
/// # Errors
///
/// When there is more than one child.
pub fn innermost(pid: Pid) -> Result<Pid> {
    let mut last = pid;
    loop {
        let place = format!("/proc/{last}/task/{last}/children");
        let children = fs::read_to_string(&place).with_context(|| place.clone())?;
        let children: Vec<i32> = children
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        match children.as_slice() {
            [] => return Ok(last),
            [child] => last = Pid::from_raw(*child),
            _ => bail!("process {last} has several children: {children:?}"),
        }
    }
}

/// The ids of a process or thread (`/proc/FOLDER/status`) in each of its pid namespaces, the
/// machine's own first.
///
/// # Errors
///
/// When it is gone.
pub fn ids(folder: &str) -> Result<Vec<i64>> {
    let status = fs::read_to_string(format!("/proc/{folder}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let line = line.context("no NSpid")?;
    let numbers = line.split_whitespace().map(|word| word.parse::<i64>());
    Ok(numbers.collect::<Result<_, _>>()?)
}
