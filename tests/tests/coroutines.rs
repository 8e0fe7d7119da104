//! Whose frames the kernel meets: the generators and coroutines of a chain, and its root.
//!
//! What the target says of its own objects is held against the records of the ring, as they are.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use profiler::cpython::{self, Runtime, Wishes};
use profiler::pipeline::Attached;
use profiler::pystack::{Chain, ChainEnd, GeneratorFrame, Walker, one_frame};
use profiler::source::{Kernel, KernelOptions, capabilities};
use profiler::target::Memory;
use profiler::wire::{self, Event, Tick};
use profiler::words::{
    CodeAddr, CoroutineAddr, DurationNs, FrameAddr, MonotonicNs, Pid, RemoteAddr,
};
use profiler_common::plan::{PLAN_GENERATORS, Plan};
use profiler_common::walk::END_UNREADABLE;
use serde::Deserialize;
use tests::on_each;
use tests::pythons::Python;
use tests::rung::Rung;
use tests::target::Target;

/// What the target knows.
#[derive(Deserialize)]
struct Known {
    /// By a name: a function that burns, and the generators below which it is called, leaf first.
    burn: BTreeMap<String, Burn>,
    /// By the same name: the object of the thread's first frame.
    roots: BTreeMap<String, u64>,
    suspended: Suspended,
}

#[derive(Deserialize)]
struct Burn {
    code: u64,
    generators: Vec<u64>,
}

#[derive(Deserialize)]
struct Suspended {
    generator: u64,
    code: u64,
}

/// Samples of each of the functions that are enough, and of ticks that are too many without them.
const ENOUGH: usize = 20;
const TOO_MANY: usize = 20_000;
/// Ticks of a thread that runs all the time do not stay away for so long.
const SILENCE: Duration = Duration::from_secs(60);

fn plan(runtime: &Runtime, memory: &dyn Memory, flags: u32) -> Result<Plan> {
    let wishes = Wishes {
        since: MonotonicNs(0),
        flags,
        max_frames: 512,
    };
    cpython::plan(runtime, memory, wishes).context("no plan")
}

/// The ticks of a process in these functions, by their codes, until there are enough of each.
fn ticks(pid: Pid, plan: &Plan, codes: &[CodeAddr]) -> Result<HashMap<CodeAddr, Vec<Tick>>> {
    let mut kernel = Kernel::load(KernelOptions {
        period: DurationNs(1_000_000),
        ring_bytes: 1 << 20,
        wake_bytes: 0,
        looks_off_cpu: false,
        stacks: None,
        pid_namespace: capabilities::own_pid_namespace()?,
    })?;
    let mut found: HashMap<CodeAddr, Vec<Tick>> = HashMap::new();
    let mut seen = 0;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut ring = kernel.take_ring().context("the ring is taken")??;
        kernel.set_plan(pid, plan)?;
        kernel.tick_everywhere()?;
        let mut records = Vec::new();
        let lacks = |found: &HashMap<CodeAddr, Vec<Tick>>| {
            let of = |code| found.get(code).map_or(0, Vec::len);
            codes.iter().any(|code| of(code) < ENOUGH)
        };
        while lacks(&found) {
            ensure!(seen < TOO_MANY, "{seen} ticks, and too few in {codes:?}");
            tokio::time::timeout(SILENCE, ring.readable())
                .await
                .context("no ticks come")??;
            ring.drain(&mut records, TOO_MANY);
            for record in records.drain(..) {
                let Event::Tick(tick) = wire::decode(&record)? else {
                    continue;
                };
                ensure!(tick.pid == pid, "a tick of {}", tick.pid);
                seen += 1;
                // Pages that the kernel has just moved cannot be read in an interrupt: such a
                // sample says that it is not whole.
                if tick.walk_end == END_UNREADABLE {
                    continue;
                }
                let leaf = tick.frames().next().map(|frame| CodeAddr(frame.code));
                if let Some(leaf) = leaf.filter(|leaf| codes.contains(leaf)) {
                    found.entry(leaf).or_default().push(tick);
                }
            }
        }
        Ok(())
    })?;
    Ok(found)
}

fn chain_of(tick: &Tick) -> Chain {
    let frames: Vec<_> = tick.frames().collect();
    Chain::from_record(&frames, tick.depth, tick.leaf_frames, tick.walk_end).with_notes(
        tick.generators(),
        tick.generators_missing,
        tick.root,
    )
}

/// The frame that a frame object stands for, which to 3.10 is the frame itself.
fn frame_of(runtime: &Runtime, memory: &dyn Memory, object: u64) -> Result<FrameAddr> {
    let layout = runtime.layout();
    if layout.frame.owner.is_none() {
        return Ok(FrameAddr(object));
    }
    // Its first field is `f_back`, its second `f_frame`.
    let field = RemoteAddr(object).plus(u64::from(layout.object.size) + 8);
    Ok(FrameAddr(memory.u64(field)?))
}

/// A generator that is suspended is in no thread's chain, and can be read from its own address.
fn check_suspended(
    runtime: &Runtime,
    memory: &dyn Memory,
    plan: &Plan,
    known: &Suspended,
) -> Result<()> {
    let layout = runtime.layout();
    let place = RemoteAddr(known.generator).plus(layout.generator.frame.into());
    let frame = match layout.frame.owner {
        Some(_) => FrameAddr(place.0),
        None => FrameAddr(memory.u64(place)?),
    };
    let one = one_frame(memory, plan, frame)?;
    ensure!(one.code == known.code, "{one:?}");
    let coroutine = CoroutineAddr(known.generator);
    let alone = Chain {
        frames: vec![one],
        cut_at: 1,
        generators: vec![GeneratorFrame {
            coroutine,
            frame: 0,
        }],
        root: Some(frame),
        ..Chain::empty(ChainEnd::Complete)
    };
    let chain = Walker::default().chain_from(memory, plan, frame);
    ensure!(chain == alone, "{chain:?}");
    Ok(())
}

fn the_kernel_says_whose_frames_it_met(python: &Python) -> Result<()> {
    let mut target = Target::start(python, "coroutines.py", &[])?;
    target.tell("go")?;
    let known: Known = serde_json::from_value(target.expect("running")?)?;
    let pid = Pid(target.pid().as_raw().cast_unsigned());
    let attached = Attached::open(pid)?;
    let (memory, runtime) = (&attached.memory, attached.discover()?);
    let asked = plan(&runtime, memory, PLAN_GENERATORS)?;
    check_suspended(&runtime, memory, &asked, &known.suspended)?;

    let codes: Vec<CodeAddr> = known.burn.values().map(|it| CodeAddr(it.code)).collect();
    let ticks_asked = ticks(pid, &asked, &codes)?;
    let ticks_plain = ticks(pid, &plan(&runtime, memory, 0)?, &codes)?;
    let mut threads = BTreeMap::new();
    for (name, burn) in &known.burn {
        let code = CodeAddr(burn.code);
        let generators = burn.generators.iter().zip(1..);
        let generators: Vec<_> = generators
            .map(|(addr, frame)| GeneratorFrame {
                coroutine: CoroutineAddr(*addr),
                frame,
            })
            .collect();
        let root = frame_of(&runtime, memory, known.roots[name])?;
        for tick in &ticks_asked[&code] {
            let chain = chain_of(tick);
            ensure!(chain.end == ChainEnd::Complete, "{name}: {chain:?}");
            ensure!(
                chain.generators == generators,
                "{name}: not {generators:?}: {chain:?}"
            );
            ensure!(chain.root == Some(root), "{name}: not {root}: {chain:?}");
            threads.insert(name.as_str(), tick.tid);
        }
        for tick in &ticks_plain[&code] {
            let noted = tick.generators().count();
            ensure!((tick.root, noted) == (None, 0), "{name}: {tick:?}");
        }
    }
    ensure!(threads["one"] == threads["two"], "{threads:?}");
    ensure!(threads["one"] != threads["three"], "{threads:?}");
    target.tell("stop")?;
    target.done()?;
    Ok(())
}

on_each! {
    Rung::Kernel, the_kernel_says_whose_frames_it_met;
    the_kernel_says_whose_frames_it_met_on_3_8: 8;
    the_kernel_says_whose_frames_it_met_on_3_9: 9;
    the_kernel_says_whose_frames_it_met_on_3_10: 10;
    the_kernel_says_whose_frames_it_met_on_3_11: 11;
    the_kernel_says_whose_frames_it_met_on_3_12: 12;
    the_kernel_says_whose_frames_it_met_on_3_13: 13;
    the_kernel_says_whose_frames_it_met_on_3_14: 14;
    the_kernel_says_whose_frames_it_met_on_3_15: 15;
}
