//! The fields the kernel programs need, by name, and where this kernel keeps them.

use profiler_common::offsets::{KernelOffsets, NO_FIELD};

use super::btf::{Btf, BtfError};

/// `PIDTYPE_TGID` of `include/linux/pid_types.h`.
const PIDTYPE_TGID: u32 = 1;
const POINTER_BYTES: u32 = 8;
/// `THREAD_SIZE` of x86-64, but for kernels built with KASAN: there the program finds no registers
/// at that place, and says so.
const STACK_BYTES: u32 = 16 * 1024;

/// Look all of them up.
///
/// # Errors
/// The first field that this kernel does not have; all of them have been there since 5.10.
pub fn kernel_offsets(btf: &Btf<'_>) -> Result<KernelOffsets, BtfError> {
    let either = |new: &[&str], old: &[&str]| btf.offset_of(new).or_else(|_| btf.offset_of(old));
    let (task_stack, stack_regs) = if has_function(btf, "task_pt_regs") {
        (NO_FIELD, NO_FIELD)
    } else {
        let task_stack = btf.offset_of(&["task_struct", "stack"])?;
        // They are what a thread's kernel stack begins with, at its upper end.
        let regs = btf.size_of("pt_regs")?;
        (task_stack, STACK_BYTES.saturating_sub(regs))
    };
    Ok(KernelOffsets {
        task_pid: btf.offset_of(&["task_struct", "pid"])?,
        task_tgid: btf.offset_of(&["task_struct", "tgid"])?,
        // Renamed in 5.14.
        task_state: either(&["task_struct", "__state"], &["task_struct", "state"])?,
        task_fsbase: btf.offset_of(&["task_struct", "thread", "fsbase"])?,
        task_on_cpu: btf.offset_of(&["task_struct", "on_cpu"])?,
        task_exit_code: btf.offset_of(&["task_struct", "exit_code"])?,
        task_comm: btf.offset_of(&["task_struct", "comm"])?,
        task_thread_pid: btf.offset_of(&["task_struct", "thread_pid"])?,
        task_signal: btf.offset_of(&["task_struct", "signal"])?,
        signal_tgid: btf.offset_of(&["signal_struct", "pids"])? + PIDTYPE_TGID * POINTER_BYTES,
        signal_live: btf.offset_of(&["signal_struct", "live"])?,
        signal_nr_threads: btf.offset_of(&["signal_struct", "nr_threads"])?,
        pid_level: btf.offset_of(&["pid", "level"])?,
        pid_numbers: btf.offset_of(&["pid", "numbers"])?,
        upid_nr: btf.offset_of(&["upid", "nr"])?,
        upid_ns: btf.offset_of(&["upid", "ns"])?,
        namespace_inum: btf.offset_of(&["pid_namespace", "ns", "inum"])?,
        task_flags: btf.offset_of(&["task_struct", "flags"])?,
        // Some kernels' BTF has the long names.
        regs_sp: either(&["pt_regs", "sp"], &["pt_regs", "rsp"])?,
        regs_ip: either(&["pt_regs", "ip"], &["pt_regs", "rip"])?,
        regs_bp: either(&["pt_regs", "bp"], &["pt_regs", "rbp"])?,
        regs_orig_ax: either(&["pt_regs", "orig_ax"], &["pt_regs", "orig_rax"])?,
        regs_di: either(&["pt_regs", "di"], &["pt_regs", "rdi"])?,
        regs_si: either(&["pt_regs", "si"], &["pt_regs", "rsi"])?,
        // The fourth argument came with 5.18.
        switch_passes_state: u32::from(btf.tracepoint_arguments("sched_switch") >= Some(4)),
        task_stack,
        stack_regs,
        _pad: 0,
    })
}

/// Whether this kernel has the function `bpf_NAME` for programs. The list is what the kernel was
/// built from: its version tells less, since distributions carry functions back.
fn has_function(btf: &Btf<'_>, name: &str) -> bool {
    btf.has_value("bpf_func_id", &format!("BPF_FUNC_{name}"))
}

/// The first function that the programs cannot do without, and this kernel lacks.
#[must_use]
pub fn missing(btf: &Btf<'_>) -> Option<&'static str> {
    // What came last of all that they use: the ring is of 5.8, the reads are of 5.5.
    const NEEDED: [(&str, &str); 2] = [
        ("ringbuf_output", "bpf_ringbuf_output"),
        ("probe_read_user", "bpf_probe_read_user"),
    ];
    let lacking = NEEDED.iter().find(|(name, _)| !has_function(btf, name));
    lacking.map(|(_, spelled)| *spelled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_or_foreign_bytes_are_refused() {
        for bytes in [
            &b""[..],
            b"\x9f\xeb",
            b"not btf at all, but long enough",
            &[0; 64],
        ] {
            assert!(matches!(Btf::parse(bytes), Err(BtfError::Malformed(_))));
        }
    }

    #[test]
    fn a_forged_length_is_out_of_bounds() {
        let mut bytes = vec![0u8; 32];
        bytes[0..2].copy_from_slice(&[0x9f, 0xeb]);
        bytes[4..8].copy_from_slice(&24u32.to_le_bytes());
        bytes[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(
            Btf::parse(&bytes).err(),
            Some(BtfError::Malformed("types out of bounds"))
        );
    }

    /// BTF with one enumeration of that name and these values.
    fn enumeration(name: &str, values: &[&str]) -> Vec<u8> {
        let mut strings = vec![0];
        let mut push = |text: &str| {
            let at = strings.len() as u32;
            strings.extend(text.bytes().chain([0]));
            at
        };
        let mut types = vec![push(name), 6 << 24 | values.len() as u32, 4];
        for (index, value) in values.iter().enumerate() {
            types.extend([push(value), index as u32]);
        }
        let length = types.len() as u32 * 4;
        let header = [0x1_eb9f, 24, 0, length, length, strings.len() as u32];
        let words = header.into_iter().chain(types);
        let mut bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn a_kernel_without_a_function_that_is_needed_is_told_by_its_own_list() {
        let check = |name: &str, values: &[&str], expected: Option<&str>| {
            let bytes = enumeration(name, values);
            let btf = Btf::parse(&bytes).expect("well formed");
            assert_eq!(missing(&btf), expected, "{values:?}");
        };
        let (read, ring) = ("BPF_FUNC_probe_read_user", "BPF_FUNC_ringbuf_output");
        check("bpf_func_id", &[read, ring], None);
        check(
            "bpf_func_id",
            &[read, "BPF_FUNC_ringbuf_output2"],
            Some("bpf_ringbuf_output"),
        );
        check(
            "bpf_func_id",
            &[ring, "BPF_FUNC_probe_read"],
            Some("bpf_probe_read_user"),
        );
        check("bpf_func_id", &[], Some("bpf_ringbuf_output"));
        check("other", &[read, ring], Some("bpf_ringbuf_output"));
    }

    /// A structure `a` with as many nameless members of its own kind as there may be.
    #[test]
    fn structures_within_structures_are_not_searched_without_end() {
        const MEMBERS: u32 = 0xffff;
        let strings = b"\0a\0";
        let mut types: Vec<u8> = [1, 4 << 24 | MEMBERS, 8]
            .into_iter()
            .flat_map(u32::to_le_bytes)
            .collect();
        for _ in 0..MEMBERS {
            types.extend([0, 1, 1 << 31].into_iter().flat_map(u32::to_le_bytes));
        }
        let length = types.len() as u32;
        let header = [0x1_eb9f, 24, 0, length, length, strings.len() as u32];
        let mut bytes: Vec<u8> = header.into_iter().flat_map(u32::to_le_bytes).collect();
        bytes.extend(types);
        bytes.extend(strings);
        let btf = Btf::parse(&bytes).expect("well formed");
        let missing = BtfError::NoMember("a.b".to_owned());
        assert_eq!(btf.offset_of(&["a", "b"]), Err(missing));
    }
}
