//! The native chain of a thread that stands still inside the kernel.
//!
//! Its registers are those that `/proc/PID/task/TID/syscall` tells, the stack is read from the
//! process. Exact only if the thread did not run meanwhile, which the caller has to prove.

use super::end::UnwindEnd;
use super::modules::Target;
use super::registers::{Registers, StackCopy};
use super::unwind::{NativeIp, Unwinder};
use crate::target::InKernel;
use crate::words::RemoteAddr;

/// Most bytes of a stack that are read: as much as a stack has as a rule. Most of that is read for
/// none, for a chain asks for no more than it follows.
pub const MAX_STANDING_STACK: usize = 8 << 20;
const PAGE: u64 = 4096;

/// What a look at a thread that stands still is done with; keeps its buffer.
#[derive(Debug, Default)]
pub struct Standstill {
    stack: Vec<u8>,
}

/// Where a thread stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Where its stack ends.
    pub sp: RemoteAddr,
    /// Where its code is.
    pub pc: RemoteAddr,
    /// Its frame pointer; 0 when it is not known.
    pub bp: RemoteAddr,
}

impl Standing {
    /// Where a thread is that is off the CPU; none for one that runs.
    #[must_use]
    pub fn of(place: &InKernel) -> Option<Self> {
        match *place {
            InKernel::Running => None,
            InKernel::Blocked { sp, pc, .. } => Some(Self {
                sp,
                pc,
                bp: RemoteAddr(0),
            }),
        }
    }
}

impl Standstill {
    /// The frames of a thread that stands there, leaf first; at most `bytes` of its stack are read.
    pub fn unwind(
        &mut self,
        unwinder: &mut Unwinder,
        target: &Target<'_>,
        place: Standing,
        bytes: usize,
        out: &mut Vec<NativeIp>,
    ) -> UnwindEnd {
        // A piece at a time, as long as the chain asks for more: most stacks are shallow.
        let most = bytes.min(MAX_STANDING_STACK);
        let mut wanted = most.min(4 * PAGE as usize);
        self.stack.clear();
        loop {
            let is_all = self.fill(target, place.sp, wanted);
            let stack = StackCopy {
                from: place.sp,
                bytes: &self.stack,
            };
            let registers = Registers {
                ip: place.pc,
                sp: place.sp,
                bp: place.bp,
            };
            let end = unwinder.unwind(target, registers, stack, out);
            let wants_more = matches!(
                end,
                UnwindEnd::StackCopyEnded | UnwindEnd::UnknownRegister(_)
            );
            if !wants_more || !is_all || wanted >= most {
                return end;
            }
            wanted = wanted.saturating_mul(4).min(most);
        }
    }

    /// Make the copy `wanted` bytes long, or as long as there is stack; whether there was.
    fn fill(&mut self, target: &Target<'_>, sp: RemoteAddr, wanted: usize) -> bool {
        while self.stack.len() < wanted {
            let held = self.stack.len();
            let from = sp.plus(held as u64);
            // All at once, else to the end of the page, and so on.
            let rest = wanted - held;
            let page = usize::try_from(PAGE - from.0 % PAGE)
                .unwrap_or(rest)
                .min(rest);
            let read = [rest, page].into_iter().find(|count| {
                self.stack.resize(held + count, 0);
                target.memory.read(from, &mut self.stack[held..]).is_ok()
            });
            if read.is_none() {
                self.stack.truncate(held);
                return false;
            }
        }
        true
    }
}
