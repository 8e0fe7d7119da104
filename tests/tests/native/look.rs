//! One thread that stands still, unwound and merged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use profiler::cpython::{self, Runtime, Wishes};
use profiler::native::{
    Detail, Found, Images, LiveSymbols, NativeFrame, NativeIp, Standing, Standstill, Symbols,
    Target, UnwindEnd, Unwinder,
};
use profiler::pipeline::Attached;
use profiler::pystack::{Chain, ChainEnd, PyFrame, Resolver};
use profiler::stack::interleave::{
    Merged, NativeChain, Part, PythonChain, Role, entries, interleave,
};
use profiler::target::{Backing, InKernel, Mapping, Memory};
use profiler::words::{MonotonicNs, Pid, RemoteAddr, ThreadStateAddr, Tid};
use profiler_common::plan::{NO_FIELD, Plan};
use profiler_common::walk::{BLOCK_WORDS, Block, RawFrame, frame_of, owner_of};
use serde::Deserialize;

/// How long a thread may take to come to where it waits.
const PATIENCE: Duration = Duration::from_secs(60);

/// Most frames of a Python chain that are kept, half of them at either end.
pub(crate) const MOST_FRAMES: usize = 256;

/// What the target says: each thread's stack, leaf first.
#[derive(Deserialize)]
pub(crate) struct Account {
    /// The descriptor that they wait at.
    reader: u64,
    pub(crate) threads: BTreeMap<u32, Vec<String>>,
}

/// One thread's stack, merged.
pub(crate) struct Stack {
    pub(crate) frames: Vec<Shown>,
    pub(crate) merged: Merged,
    pub(crate) end: UnwindEnd,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Python(String),
    Native(NativeFrame),
}

/// A thread says what it will do a moment before it does.
fn until_it_reads(attached: &Attached, tid: Tid, reader: u64) -> Result<()> {
    const READ: u32 = 0;
    let start = Instant::now();
    loop {
        let place = attached.process.in_kernel(tid)?;
        if matches!(place, InKernel::Blocked { syscall: Some(READ), args, .. } if args[0] == reader)
        {
            return Ok(());
        }
        ensure!(start.elapsed() < PATIENCE, "{tid} never reads: {place:?}");
        std::thread::yield_now();
    }
}

/// A process under the eye of a test.
pub(crate) struct Look {
    attached: Attached,
    plan: Plan,
    resolver: Resolver,
    states: BTreeMap<u64, ThreadStateAddr>,
    unwinder: Unwinder,
    symbols: LiveSymbols,
    /// Where debug information is by build ids.
    debug_files: PathBuf,
    is_before_3_11: bool,
    /// The last chain.
    chain: Vec<NativeIp>,
}

impl Look {
    /// A process whose threads are all where they say.
    pub(crate) fn at(pid: u32, account: &Account) -> Result<Self> {
        Self::with_debug_files(pid, account, Path::new("/nowhere"))
    }

    /// The same, with debug information by build ids in a folder.
    pub(crate) fn with_debug_files(
        pid: u32,
        account: &Account,
        debug_files: &Path,
    ) -> Result<Self> {
        let attached = Attached::open(Pid(pid))?;
        for tid in account.threads.keys() {
            until_it_reads(&attached, Tid(*tid), account.reader)?;
        }
        let runtime: Runtime = attached.discover()?;
        let wishes = Wishes {
            since: MonotonicNs(0),
            flags: 0,
            max_frames: 1024,
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
            symbols: LiveSymbols::new(Detail::Lines).with_debug_files(debug_files.into()),
            debug_files: debug_files.into(),
            chain: Vec::new(),
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
            ensure!(frames.len() < 4096, "a chain without end");
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

    /// The last chain's functions, named anew by one who has seen nothing before.
    pub(crate) fn named_afterwards(&mut self) -> Vec<NativeFrame> {
        let anew = LiveSymbols::new(Detail::Lines);
        self.symbols = anew.with_debug_files(self.debug_files.clone());
        self.named()
    }

    /// The last chain's functions, with what is folded away.
    pub(crate) fn named(&mut self) -> Vec<NativeFrame> {
        let symbols = &mut self.symbols;
        let pid = self.attached.process.pid();
        let named = |ip: &NativeIp| {
            let place = self.unwinder.place(ip.addr);
            symbols.frames(pid, ip.addr, place.as_ref()).to_vec()
        };
        self.chain.iter().flat_map(named).collect()
    }

    /// What is at every place of the vdso that a function may begin at.
    pub(crate) fn vdso(&mut self) -> Result<Vec<NativeFrame>> {
        let process = self.attached.process.clone();
        let target = Target {
            mapped: &process,
            memory: &self.attached.memory,
            now: MonotonicNs(0),
        };
        let maps = process.maps()?;
        let is_vdso = |mapping: &&Mapping| mapping.backing == Backing::Special("vdso".to_owned());
        let vdso = maps.iter().find(is_vdso).context("no vdso")?;
        let mut named = Vec::new();
        for addr in (vdso.start.0..vdso.end.0).step_by(16).map(RemoteAddr) {
            let place = self.unwinder.meet(&target, addr);
            let frames = self.symbols.frames(process.pid(), addr, place.as_ref());
            named.extend_from_slice(&frames);
        }
        Ok(named)
    }

    pub(crate) fn stack(&mut self, tid: Tid, bytes: usize) -> Result<Stack> {
        let process = self.attached.process.clone();
        let ident = ident_of(&self.attached, &self.states, tid)?;
        let (mut frames, mut into_c) = self.python(self.states[&ident])?;
        // As the walk leaves a deep chain: both ends.
        let missing = frames.len().saturating_sub(MOST_FRAMES);
        let gap = (missing > 0).then_some(MOST_FRAMES / 2);
        if let Some(gap) = gap {
            frames.drain(gap..gap + missing);
            into_c.drain(gap..gap + missing);
        }
        let place = Standing::of(&process.in_kernel(tid)?).context("it runs")?;
        let target = Target {
            mapped: &process,
            memory: &self.attached.memory,
            now: MonotonicNs(0),
        };
        let mut chain: Vec<NativeIp> = Vec::new();
        let end =
            Standstill::default().unwind(&mut self.unwinder, &target, place, bytes, &mut chain);
        self.chain.clone_from(&chain);
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
                by_frame_pointer: chain.iter().any(|ip| ip.found == Found::FramePointer),
                leaf_evaluator: None,
            },
            &PythonChain {
                into_c: &into_c,
                gap,
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
                    let frame = &named[entry.address].0[entry.function];
                    shown.push(Shown::Native(frame.clone()));
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
