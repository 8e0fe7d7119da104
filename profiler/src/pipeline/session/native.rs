//! Native stacks: each waits for the sample that it came ahead of.

use profiler_common::account::Account;
use rustc_hash::FxHashMap;

use super::{Kit, member::Member};
use crate::{
    aggregate::NativeAccounts,
    native::{Images, Standing},
    pipeline::natives::{Base, NativeId, Natives},
    stack::{StackId, interleave::Rung},
    sys,
    wire::{NativeStack, Tick},
    words::{Cpu, Pid, RemoteAddr, Tid},
};

/// What came of the CPUs and is not fetched yet: one each, since a sample follows at once or was
/// lost.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    waiting: FxHashMap<Cpu, NativeStack>,
}

impl Arrivals {
    pub(super) fn bring(&mut self, stack: NativeStack) {
        self.waiting.insert(stack.cpu, stack);
    }

    /// The stack of a tick.
    pub(super) fn fetch(&mut self, tick: &Tick) -> Option<NativeStack> {
        let stack = self.waiting.remove(&tick.cpu)?;
        let is_its = stack.time == tick.time && stack.tid == tick.tid;
        is_its.then_some(stack)
    }
}

/// What there is of a sample's native stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Native {
    /// Nobody asked, or it is not to have one.
    Unasked,
    /// There is none to be shown, and why.
    Not(&'static str),
    /// A chain.
    Chain(NativeId),
}

/// What all processes of a run know of native frames together.
#[derive(Debug, Default)]
pub(super) struct NativeBooks {
    pub(super) accounts: NativeAccounts,
    pub(super) arrivals: Arrivals,
    pub(super) images: Images,
}

impl Kit {
    /// How far native frames went; none when they were not asked for.
    pub(super) fn native(&self) -> Option<NativeAccounts> {
        let asked = self.settings.native.is_some();
        asked.then(|| self.native.accounts.clone())
    }
}

impl NativeBooks {
    /// So many samples have native frames up to there.
    fn count(&mut self, rung: Rung, why: Option<&'static str>, samples: u64) {
        let accounts = &mut self.accounts;
        let counter = match rung {
            Rung::Full => &mut accounts.full,
            Rung::FramePointers => &mut accounts.frame_pointers,
            Rung::LeafEnd => &mut accounts.leaf_end,
            Rung::TopOnly => &mut accounts.top_only,
            Rung::PythonOnly => &mut accounts.python_only,
        };
        *counter += samples;
        if let Some(why) = why {
            *accounts.reasons.entry(why.to_owned()).or_default() += samples;
        }
    }
}

/// A stack with its native frames, if it is to have any; it counts for so many samples.
pub(super) fn with_native(
    kit: &mut Kit,
    natives: &mut Option<Natives>,
    pid: Pid,
    native: Native,
    base: Base<'_>,
    samples: u64,
) -> StackId {
    let id = match native {
        Native::Unasked => return base.stack,
        Native::Not(why) => {
            kit.native.count(Rung::PythonOnly, Some(why), samples);
            return base.stack;
        }
        Native::Chain(id) => id,
    };
    let Some(natives) = natives else {
        return base.stack;
    };
    if base.may_be_anothers {
        let why = Some("several_interpreters");
        kit.native.count(Rung::PythonOnly, why, samples);
        return base.stack;
    }
    let joined = natives.join(&mut kit.builder, &mut kit.symbols, pid, base, id);
    kit.native.count(joined.rung, joined.why, samples);
    joined.stack
}

/// Of a program that has just begun: its interpreter is found sooner if nothing else is read.
const TOO_YOUNG: &str = "interpreter_not_found_yet";

/// A process's native frames, from the first that is asked for.
fn opened<'a>(natives: &'a mut Option<Natives>, kit: &Kit) -> &'a mut Natives {
    natives.get_or_insert_with(|| Natives::new(kit.native.images.clone()))
}

impl Member {
    /// Whether its interpreter is still to be found, as far as can be told.
    fn may_become_python(&self) -> bool {
        self.python.is_none() && self.search.is_young(sys::monotonic())
    }

    /// Before the samples of a batch get their native frames: what has changed since the last one.
    pub(super) fn renew_natives(&mut self, kit: &mut Kit) {
        let Some(natives) = &mut self.natives else {
            return;
        };
        if kit.symbols.follow(self.pid) {
            natives.rename();
        }
        if let Some(python) = &mut self.python {
            python.ask_for_interpreters(self.hold.memory());
        }
    }

    /// The native stack of a thread off the CPU, with what it has of that in its account.
    /// `entry` lies in the C frame of the evaluator of its innermost Python frames.
    pub(super) fn native_at_rest(
        &mut self,
        kit: &Kit,
        account: &Account,
        entry: Option<RemoteAddr>,
    ) -> Native {
        if kit.settings.native.is_none() || self.people.is_kernels(Tid(account.tid)) {
            return Native::Unasked;
        }
        if self.may_become_python() {
            return Native::Not(TOO_YOUNG);
        }
        if account.off_sp == 0 {
            return Native::Not("not_in_user_code");
        }
        let standing = Standing {
            sp: RemoteAddr(account.off_sp),
            pc: RemoteAddr(account.off_ip),
            bp: RemoteAddr(account.off_bp),
        };
        let syscall = u32::try_from(account.off_syscall).ok();
        // Preempted in user mode, it was in no system call.
        let kernel = (account.off_state != 0 || syscall.is_some()).then_some(syscall);
        let natives = opened(&mut self.natives, kit);
        Native::Chain(natives.of_standing(&self.hold, standing, kernel, entry))
    }

    /// The native stack of a tick, as far as it came; `hindrance` is why it could not be shown.
    pub(super) fn native_of(
        &mut self,
        kit: &mut Kit,
        tick: &Tick,
        hindrance: Option<&'static str>,
    ) -> Native {
        if kit.settings.native.is_none() {
            return Native::Unasked;
        }
        let Some(stack) = kit.native.arrivals.fetch(tick) else {
            return Native::Not("not_sent");
        };
        let young = self.may_become_python().then_some(TOO_YOUNG);
        if let Some(why) = young.or(hindrance) {
            return Native::Not(why);
        }
        let natives = opened(&mut self.natives, kit);
        Native::Chain(natives.of_tick(&self.hold, tick, &stack))
    }
}
