//! The native stack of the thread that the tick interrupted: its registers, and a copy of the top of
//! its stack, which user space unwinds. No unwinding table is in the kernel.
//!
//! It goes ahead of the sample as a record of its own: where it finds no room, the sample does.

use aya_ebpf::{helpers, programs::PerfEventContext};
use profiler_common::{
    offsets::{LOOK_AT_KERNEL, LOOK_AT_STACKS},
    record::{
        FLAG_IN_KERNEL, KIND_STACK, MAX_KERNEL_FRAMES, MAX_STACK_BYTES, MAX_STACK_RECORD_BYTES,
        RecordHead, SampleRecord, StackRecord,
    },
};

use crate::{
    maps::{self, KERNEL_MASK, PAGE, PAGES_MASK, SETTINGS, STACK_MASK, STACKS},
    task::Task,
};

/// Send the native stack that belongs to a sample.
#[inline(always)]
pub fn send(ctx: &PerfEventContext, task: Task, sample: &SampleRecord) {
    let flags = SETTINGS.load().flags;
    if flags & LOOK_AT_STACKS == 0 || sample.user_sp == 0 {
        return;
    }
    let Some(stack) = STACKS.get_ptr_mut(0) else {
        return;
    };
    let in_kernel = sample.flags & FLAG_IN_KERNEL != 0;
    // SAFETY: the CPU's own memory, alive as long as the program; the borrow ends here.
    let record = unsafe { &mut (*stack).record };
    *record = StackRecord {
        head: RecordHead {
            kind: KIND_STACK,
            ..sample.head
        },
        user_ip: sample.user_ip,
        user_sp: sample.user_sp,
        user_bp: task.frame_pointer(ctx, in_kernel),
        cpu: sample.cpu,
        ..StackRecord::default()
    };
    let mut kernel = 0;
    if in_kernel && flags & LOOK_AT_KERNEL != 0 {
        // SAFETY: the body has room for that many addresses; the helper writes no more.
        let bytes = unsafe {
            helpers::generated::bpf_get_stack(
                ctx.ctx.cast(),
                (&raw mut (*stack).body).cast(),
                (MAX_KERNEL_FRAMES * 8) as u32,
                0,
            )
        };
        if bytes > 0 {
            kernel = bytes as u64 / 8;
        }
    }
    let copied = copy_stack(sample.user_sp, kernel);
    record.kernel_frames = kernel as u32;
    record.stack_bytes = copied as u32;
    let bytes = (size_of::<StackRecord>() as u64 + kernel * 8 + copied)
        // It is no more anyway; the verifier wants to see it.
        .min(MAX_STACK_RECORD_BYTES as u64);
    record.head.bytes = bytes as u32;
    // Where there is no room, the sample says itself that none came with it.
    maps::send_stack(stack, bytes);
}

/// What is within bounds already, so that it is seen to be: Linux 5.10 forgets what it was compared
/// with when it goes by the stack. The compiler is not to see it, or it leaves the mask out.
#[inline(always)]
fn masked(number: u64, mask: usize) -> usize {
    core::hint::black_box(number) as usize & mask
}

/// Copy the user stack from `sp` on behind so many of the kernel's frames: as much as is asked for
/// and resident. For the verifier, a function by itself (see `pychain`).
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn copy_stack(sp: u64, kernel: u64) -> u64 {
    let Some(stack) = STACKS.get_ptr_mut(0) else {
        return 0;
    };
    let wanted = u64::from(SETTINGS.load().stack_bytes).min(MAX_STACK_BYTES as u64);
    if kernel > MAX_KERNEL_FRAMES as u64 {
        return 0;
    }
    let mut copied = 0;
    let mut page = 0;
    // A stack that begins within a page lies in one page more.
    while page <= MAX_STACK_BYTES / PAGE {
        let at = sp.wrapping_add(copied);
        let to_its_end = PAGE as u64 - (at & (PAGE as u64 - 1));
        let left = wanted.saturating_sub(copied);
        let bytes = if left < to_its_end { left } else { to_its_end };
        if bytes == 0 || bytes > PAGE as u64 || copied > MAX_STACK_BYTES as u64 {
            break;
        }
        // SAFETY: the body has room for as many bytes as the masks let through; the helper checks
        // the user's address and fails cleanly.
        let failed = unsafe {
            let body = (&raw mut (*stack).body).cast::<u8>();
            let to = body
                .add(masked(kernel, KERNEL_MASK) * 8)
                .add(masked(copied, STACK_MASK));
            let bytes = masked(bytes, PAGES_MASK) as u32;
            helpers::generated::bpf_probe_read_user(to.cast(), bytes, at as *const _)
        };
        if failed != 0 {
            break;
        }
        copied += bytes;
        page += 1;
    }
    copied
}
