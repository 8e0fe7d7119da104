//! Ids as the profiler's own pid namespace numbers them, when that is not the initial one.
//!
//! The kernel keeps for each thread and process one number for each namespace it is in, outermost
//! first. The profiler's namespace is told by its inode; where it is deep among the others is
//! learned from the first thread met in it, and holds for all.

use aya_ebpf::helpers;

use crate::maps::{NAMESPACE, OFFSETS, SETTINGS};

/// `MAX_PID_NS_LEVEL` of `include/linux/pid_namespace.h`.
const MAX_LEVEL: u64 = 32;
/// `struct upid` is a number and a pointer.
const UPID_BYTES: u64 = 16;

#[inline(always)]
fn word(address: u64) -> u64 {
    // SAFETY: the helper checks the address and fails cleanly.
    unsafe { helpers::bpf_probe_read_kernel(address as *const u64) }.unwrap_or(0)
}

#[inline(always)]
fn half(address: u64) -> u32 {
    // SAFETY: as above.
    unsafe { helpers::bpf_probe_read_kernel(address as *const u32) }.unwrap_or(0)
}

/// The number that a `struct pid` has in the profiler's namespace; 0 when it is not in it, or gone.
#[inline(always)]
pub fn number(pid: u64) -> u32 {
    number_of_pid(pid)
}

/// Visible from outside, so that the verifier looks at it once (see `pychain::walk_stride`).
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn number_of_pid(pid: u64) -> u32 {
    if pid == 0 {
        return 0;
    }
    let offsets = OFFSETS.load();
    let deepest = u64::from(half(pid.wrapping_add(u64::from(offsets.pid_level))));
    let numbers = pid.wrapping_add(u64::from(offsets.pid_numbers));
    let Some(ours) = NAMESPACE.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: the map's value lives as long as the programs; whoever writes it writes the same.
    let known = unsafe { (&raw const (*ours).address).read_volatile() };
    if known != 0 {
        // SAFETY: as above; it was written before the address.
        let level = unsafe { (&raw const (*ours).level).read_volatile() };
        let upid = numbers.wrapping_add(level.wrapping_mul(UPID_BYTES));
        if level > deepest || word(upid.wrapping_add(u64::from(offsets.upid_ns))) != known {
            return 0;
        }
        return half(upid.wrapping_add(u64::from(offsets.upid_nr)));
    }
    let mut level = 0;
    while level <= MAX_LEVEL {
        if level > deepest {
            return 0;
        }
        let upid = numbers.wrapping_add(level * UPID_BYTES);
        let namespace = word(upid.wrapping_add(u64::from(offsets.upid_ns)));
        let inode = half(namespace.wrapping_add(u64::from(offsets.namespace_inum)));
        if inode == SETTINGS.load().pid_namespace {
            // SAFETY: as above.
            unsafe {
                (&raw mut (*ours).level).write_volatile(level);
                (&raw mut (*ours).address).write_volatile(namespace);
            }
            return half(upid.wrapping_add(u64::from(offsets.upid_nr)));
        }
        level += 1;
    }
    0
}
