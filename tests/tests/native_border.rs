//! Rung 2: threads that stand still below C code that called Python, unwound from user space and
//! merged with their Python frames, against what each says its stack is.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use profiler::cpython::{self, Runtime, Wishes};
use profiler::native::{
    Detail, Images, LiveSymbols, MAX_STANDING_STACK, NativeFrame, NativeIp, Standing, Standstill,
    Symbols, Target, UnwindEnd, Unwinder,
};
use profiler::pipeline::Attached;
use profiler::pystack::{Chain, ChainEnd, PyFrame, Resolver};
use profiler::stack::interleave::{
    Merged, NativeChain, Part, PythonChain, Role, Rung as Share, entries, interleave,
};
use profiler::target::Memory;
use profiler::words::{MonotonicNs, Pid, RemoteAddr, ThreadStateAddr, Tid};
use profiler_common::plan::{NO_FIELD, Plan};
use profiler_common::walk::{BLOCK_WORDS, Block, RawFrame, frame_of, owner_of};
use serde::Deserialize;
use tests::on_each;
use tests::parked::Parked;
use tests::pythons::Python;
use tests::rung::Rung;

/// What the target says: each thread's stack, leaf first.
#[derive(Deserialize)]
struct Account {
    threads: BTreeMap<u32, Vec<String>>,
}

/// One thread's stack, merged.
struct Stack {
    frames: Vec<Shown>,
    merged: Merged,
    end: UnwindEnd,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Shown {
    Python(String),
    Native(String, Option<String>),
}

struct Look {
    attached: Attached,
    plan: Plan,
    resolver: Resolver,
    states: BTreeMap<u64, ThreadStateAddr>,
    unwinder: Unwinder,
    symbols: LiveSymbols,
    is_before_3_11: bool,
}

impl Look {
    fn at(pid: u32) -> Result<Self> {
        let attached = Attached::open(Pid(pid))?;
        let runtime: Runtime = attached.discover()?;
        let wishes = Wishes {
            since: MonotonicNs(0),
            flags: 0,
            max_frames: 512,
        };
        let plan = cpython::plan(&runtime, &attached.memory, wishes).context("no plan")?;
        let states = runtime.thread_states(&attached.memory)?;
        let by_id = |state: &cpython::ThreadState| (state.pthread_id.0, state.addr);
        Ok(Self {
            is_before_3_11: plan.walk.frame_owner == NO_FIELD,
            plan,
            resolver: Resolver::new(&runtime),
            states: states.iter().map(by_id).collect(),
            unwinder: Unwinder::new(Images::default()),
            symbols: LiveSymbols::new(Detail::Lines),
            attached,
        })
    }

    fn block(&self, addr: u64, bytes: u32) -> Result<Block> {
        let mut bytes = vec![0; bytes as usize];
        self.attached.memory.read(RemoteAddr(addr), &mut bytes)?;
        bytes.resize(BLOCK_WORDS * 8, 0);
        let mut block = Block::EMPTY;
        for (word, bytes) in block.words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into()?);
        }
        Ok(block)
    }

    /// The frames of a thread's chain, and of each whether it called into C, which entered the
    /// frame before it.
    fn python(&self, state: ThreadStateAddr) -> Result<(Vec<RawFrame>, Vec<bool>)> {
        let walk = &self.plan.walk;
        let mut next = self
            .block(state.0, self.plan.state.state_bytes)?
            .u64(walk.first_frame);
        if walk.cframe_current != NO_FIELD {
            let addr = next + u64::from(walk.cframe_current);
            next = self.attached.memory.u64(RemoteAddr(addr))?;
        }
        let (mut frames, mut into_c) = (Vec::new(), Vec::new());
        let mut entered = false;
        while next != 0 {
            ensure!(frames.len() < 512, "a chain without end");
            let block = self.block(next, walk.frame_bytes)?;
            next = block.u64(walk.frame_previous);
            if owner_of(walk, &block) >= walk.shim_owner {
                entered = true;
                continue;
            }
            frames.push(frame_of(walk, &block));
            into_c.push(entered || self.is_before_3_11);
            entered = walk.frame_entry != NO_FIELD && block.u8(walk.frame_entry) != 0;
        }
        Ok((frames, into_c))
    }

    fn stack(&mut self, tid: Tid, bytes: usize) -> Result<Stack> {
        let process = self.attached.process.clone();
        let ident = ident_of(&self.attached, &self.states, tid)?;
        let (frames, into_c) = self.python(self.states[&ident])?;
        let place = Standing::of(&process.in_kernel(tid)?).context("it runs")?;
        let target = Target {
            mapped: &process,
            memory: &self.attached.memory,
            now: MonotonicNs(0),
        };
        let mut chain: Vec<NativeIp> = Vec::new();
        let end =
            Standstill::default().unwind(&mut self.unwinder, &target, place, bytes, &mut chain);
        let mut named: Vec<(Arc<[NativeFrame]>, bool)> = Vec::new();
        for ip in &chain {
            let place = self.unwinder.place(ip.addr);
            let piece = place.as_ref().is_some_and(|place| place.is_piece());
            let frames = self.symbols.frames(process.pid(), ip.addr, place.as_ref());
            named.push((frames, piece));
        }
        let entries = entries(named.iter().map(|(frames, piece)| (&**frames, *piece)));
        let roles: Vec<Role> = entries.iter().map(|entry| entry.role).collect();
        let merged = interleave(
            &NativeChain {
                roles: &roles,
                is_whole: end.is_root(),
                by_frame_pointer: false,
                leaf_evaluator: None,
            },
            &PythonChain {
                into_c: &into_c,
                gap: None,
                is_whole: true,
            },
        );
        let python = self.resolver.frames(
            &self.attached.memory,
            &Chain {
                frames,
                ..Chain::empty(ChainEnd::Complete)
            },
        );
        let mut shown = Vec::new();
        for part in &merged.parts {
            match *part {
                Part::Python(index) => shown.push(Shown::Python(name_of(&python[index]))),
                Part::Native(index) => {
                    let entry = &entries[index];
                    shown.push(native(&named[entry.address].0[entry.function]));
                }
            }
        }
        Ok(Stack {
            frames: shown,
            merged,
            end,
        })
    }
}

fn native(frame: &NativeFrame) -> Shown {
    let text = |text: &str| text.to_owned();
    Shown::Native(
        frame.function().map_or_else(String::new, text),
        frame.module().map(text),
    )
}

fn name_of(frame: &PyFrame) -> String {
    match frame {
        PyFrame::Known { code, .. } => {
            let name = code.name.to_string();
            name.rsplit('.').next().unwrap_or_default().to_owned()
        }
        other => format!("{other:?}"),
    }
}

/// The pthread id of a thread: its control block holds its kernel id.
fn ident_of(attached: &Attached, states: &BTreeMap<u64, ThreadStateAddr>, tid: Tid) -> Result<u64> {
    let holds = |ident: &&u64| {
        let word = attached.memory.u32(RemoteAddr(**ident + 0x2d0));
        word.is_ok_and(|word| word == tid.0)
    };
    states.keys().find(holds).copied().context("no such thread")
}

/// What stands between the Python frames that a thread expects, those in order.
fn gaps<'a>(frames: &'a [Shown], expected: &[String]) -> Result<Vec<Vec<&'a Shown>>> {
    let mut wanted = expected.iter().filter(|name| !name.starts_with("C "));
    let mut gaps = vec![Vec::new()];
    let mut next = wanted.next();
    for frame in frames {
        match (frame, next) {
            (_, None) => break,
            (Shown::Python(name), Some(expected)) => {
                ensure!(name == expected, "`{name}` is where `{expected}` should be");
                gaps.push(Vec::new());
                next = wanted.next();
            }
            (native, Some(_)) => gaps.last_mut().context("a gap")?.push(native),
        }
    }
    ensure!(next.is_none(), "{next:?} is missing");
    Ok(gaps)
}

/// One thread's merged stack against what it says: every Python frame where it is, every C function
/// between the two that it says, and, where all have names, no other.
fn is_as_it_says(stack: &Stack, expected: &[String]) -> Result<()> {
    ensure!(
        stack.merged.rung == Share::Full && stack.merged.why.is_none() && stack.end.is_root(),
        "{:?}, {:?}, {}",
        stack.merged.rung,
        stack.merged.why,
        stack.end
    );
    let mut gaps = gaps(&stack.frames, expected)?.into_iter();
    // Without names, a function that enters the evaluator itself is taken for machinery.
    let is_stripped = stack.frames.iter().any(|frame| {
        matches!(frame, Shown::Native(name, Some(module))
            if name.is_empty() && module.starts_with("python"))
    });
    let is_named = |frame: &&Shown| matches!(frame, Shown::Native(name, _) if !name.is_empty());
    let top = gaps.next().context("nothing on top")?;
    ensure!(!top.is_empty(), "nothing waits on top");
    let mut gap = top;
    let mut after = false;
    for name in expected {
        match name.strip_prefix("C ") {
            None => {
                let left = gap.iter().filter(|frame| is_named(frame)).count();
                let is_unexpected = after && left > 0 && gap.iter().all(is_named);
                ensure!(!is_unexpected, "above `{name}`: {gap:?}");
                gap = gaps.next().unwrap_or_default();
                after = true;
            }
            Some(names) => {
                let fits = |frame: &&Shown| {
                    matches!(frame, Shown::Native(own, _)
                        if own.is_empty() || names.split(' ').any(|name| own.starts_with(name)))
                };
                let at = gap.iter().position(fits);
                if at.is_none() && is_stripped && gap.is_empty() {
                    continue;
                }
                let at = at.with_context(|| format!("`{names}` is not in {gap:?}"))?;
                gap.drain(..=at);
                // What it has below itself until its caller is the C library's and its own.
                after = false;
            }
        }
    }
    Ok(())
}

/// A merged stack of a part of the C stack has nothing at another place than the whole one.
fn is_part_of(part: &Merged, whole: &Merged) -> Result<()> {
    let mut rest = whole.parts.iter();
    let is_in_order = part
        .parts
        .iter()
        .all(|part| rest.any(|other| other == part));
    ensure!(is_in_order, "{part:?} of {whole:?}");
    let pythons = |merged: &Merged| {
        let is_python = |part: &&Part| matches!(part, Part::Python(_));
        merged.parts.iter().filter(is_python).count()
    };
    ensure!(pythons(part) == pythons(whole), "Python frames are lost");
    Ok(())
}

fn check(python: &Python) -> Result<()> {
    let parked = Parked::start(python, "native_border.py", &[])?;
    let account: Account = serde_json::from_str(&parked.line).context(parked.line.clone())?;
    let mut look = Look::at(parked.pid().parse()?)?;
    for (tid, expected) in &account.threads {
        let whole = look.stack(Tid(*tid), MAX_STANDING_STACK)?;
        let told = || format!("{expected:?}: {:#?}", whole.frames);
        is_as_it_says(&whole, expected).with_context(told)?;
        for bytes in (0..24).map(|step| step * 700) {
            let part = look.stack(Tid(*tid), bytes)?;
            is_part_of(&part.merged, &whole.merged).with_context(told)?;
        }
    }
    Ok(())
}

on_each! {
    Rung::Live, check;
    every_thread_is_merged_as_it_says_on_3_8: 8;
    every_thread_is_merged_as_it_says_on_3_9: 9;
    every_thread_is_merged_as_it_says_on_3_10: 10;
    every_thread_is_merged_as_it_says_on_3_11: 11;
    every_thread_is_merged_as_it_says_on_3_12: 12;
    every_thread_is_merged_as_it_says_on_3_13: 13;
    every_thread_is_merged_as_it_says_on_3_14: 14;
    every_thread_is_merged_as_it_says_on_3_15: 15;
}
