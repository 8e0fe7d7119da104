//! Who can be asked about a process: its first thread may be over before the others.

use crate::words::Pid;

/// Most threads that are asked for one that lives.
const MAX_ASKED: usize = 64;

/// Its first thread, or, when that has ended, another one, which can be named as if it were a
/// process.
pub(super) fn with_memory(pid: Pid) -> Pid {
    if has_memory(pid) {
        return pid;
    }
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let ids = tasks.into_iter().flatten().flatten().filter_map(|task| {
        let name = task.file_name();
        name.to_str()?.parse().ok().map(Pid)
    });
    ids.take(MAX_ASKED)
        .find(|id| has_memory(*id))
        .unwrap_or(pid)
}

/// A zombie has no memory map any more.
pub(super) fn has_memory(pid: Pid) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}
