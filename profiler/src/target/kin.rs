//! Who made whom: the processes that come from others, as far as the kernel still knows.
//!
//! A process whose parent has ended is its grandparent's or nobody's child from then on.

use std::collections::BTreeMap;

use crate::words::Pid;

/// The living processes that come from `roots`, with the parent of each, parents before their
/// children; `roots` themselves are not among them.
#[must_use]
pub fn descendants(roots: &[Pid]) -> Vec<(Pid, Pid)> {
    below(roots, &parents())
}

/// Every process of this `/proc` and its parent.
fn parents() -> Vec<(Pid, Pid)> {
    let Ok(all) = procfs::process::all_processes() else {
        return Vec::new();
    };
    let of = |process: procfs::process::Process| {
        let stat = process.stat().ok()?;
        let pid = u32::try_from(stat.pid).ok()?;
        let parent = u32::try_from(stat.ppid).ok()?;
        Some((Pid(pid), Pid(parent)))
    };
    all.flatten().filter_map(of).collect()
}

fn below(roots: &[Pid], parents: &[(Pid, Pid)]) -> Vec<(Pid, Pid)> {
    let mut children: BTreeMap<Pid, Vec<Pid>> = BTreeMap::new();
    for (pid, parent) in parents {
        children.entry(*parent).or_default().push(*pid);
    }
    let mut found: Vec<(Pid, Pid)> = Vec::new();
    let mut left: Vec<Pid> = roots.to_vec();
    // Each list of children is taken once, so a cycle, which there is not, would end.
    while let Some(parent) = left.pop() {
        for pid in children.remove(&parent).unwrap_or_default() {
            if !roots.contains(&pid) {
                found.push((pid, parent));
                left.push(pid);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_come_after_their_parents_and_once() {
        let pairs = |pairs: &[(u32, u32)]| -> Vec<(Pid, Pid)> {
            pairs.iter().map(|(a, b)| (Pid(*a), Pid(*b))).collect()
        };
        let check = |roots: &[u32], parents: &[(u32, u32)], expected: &[(u32, u32)]| {
            let roots: Vec<Pid> = roots.iter().map(|pid| Pid(*pid)).collect();
            assert_eq!(below(&roots, &pairs(parents)), pairs(expected));
        };
        check(&[1], &[], &[]);
        check(
            &[2],
            &[(2, 1), (3, 2), (5, 3), (4, 1), (6, 4)],
            &[(3, 2), (5, 3)],
        );
        check(&[2, 3], &[(3, 2), (4, 3)], &[(4, 3)]);
        check(&[2], &[(3, 2), (2, 3)], &[(3, 2)]);
    }

    #[test]
    fn this_process_comes_from_its_parent() {
        let me = Pid(std::process::id());
        let parent = Pid(std::os::unix::process::parent_id());
        assert!(descendants(&[parent]).contains(&(me, parent)));
    }
}
