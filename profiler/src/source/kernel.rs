//! The programs, loaded and attached; their maps, behind typed questions.

use std::{fs, io, os::fd::AsFd as _};

use aya::{
    Btf, EbpfLoader, Endianness, VerifierLogLevel,
    maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, RingBuf, Stack},
    programs::{BtfTracePoint, Iter, PerfEvent},
    util::online_cpus,
};
use profiler_common::{
    CONTRACT_VERSION,
    account::{FREE_STRIDE, MAX_ACCOUNTS, PLACES_OF_STRIDE},
    loss::{Counters, N_REASONS},
    offsets::Settings,
    plan::{Plan, StateKey},
};

use super::{
    accounts::Accounts,
    btf,
    capabilities::{self, PidNamespace},
    error::{KernelError, is_refusal, one_line},
    hindrances::{self, Lockdown},
    log::{self, KernelLog},
    meter::{Meter, ProgramCost},
    offsets,
    options::KernelOptions,
    ring::Ring,
    throttle::Throttle,
};
use crate::sys::{self, PerfClock};
use crate::words::{Cpu, DurationNs, MonotonicNs, Pid, PthreadId, ThreadStateAddr};

/// The object that `cargo xtask build-ebpf` makes, aligned as aya wants it.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../profiler-ebpf/profiler.bpf.o"
));

/// The running programs. Dropping it detaches them all.
pub struct Kernel {
    ebpf: aya::Ebpf,
    log: KernelLog,
    ring: Option<RingBuf<MapData>>,
    meter: Meter,
    accounts: Accounts,
    clocks: Vec<(Cpu, PerfClock)>,
    throttle: Option<Throttle>,
    options: KernelOptions,
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel")
            .field("clocks", &self.clocks)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

fn load_error(what: &str, error: &(dyn std::error::Error + 'static)) -> KernelError {
    // Locked down, the kernel does not refuse: the verifier knows no function that reads.
    if is_refusal(error) || hindrances::lockdown() == Lockdown::Confidentiality {
        KernelError::Refused(capabilities::refusal("load kernel programs"))
    } else {
        KernelError::Load {
            what: what.to_owned(),
            why: one_line(error),
        }
    }
}

fn map_error(name: &'static str) -> impl FnOnce(MapError) -> KernelError {
    move |error| KernelError::Map {
        name,
        why: one_line(&error),
    }
}

const ITERATORS: [&str; 1] = ["task"];
const CENSUS: &str = "census";
const TICK: &str = "tick";
/// The programs on tracepoints; the first is for looks off the CPU alone.
const TRACING: [&str; 5] = ["wakeup", "switch", "fork", "exec", "exit"];
const TRACEPOINTS: [&str; 5] = [
    "sched_wakeup",
    "sched_switch",
    "sched_process_fork",
    "sched_process_exec",
    "sched_process_exit",
];

impl Kernel {
    /// Load the programs and attach all but the tick, so that accounts run before samples.
    ///
    /// # Errors
    /// Everything that can be missing; nothing stays attached then.
    pub fn load(options: KernelOptions) -> Result<Self, KernelError> {
        let (offsets, tracepoints) = {
            let bytes = fs::read("/sys/kernel/btf/vmlinux").map_err(KernelError::NoBtf)?;
            let index = btf::Btf::parse(&bytes).map_err(KernelError::Btf)?;
            if let Some(lacks) = offsets::missing(&index) {
                let release = capabilities::kernel_release();
                return Err(KernelError::TooOld { release, lacks });
            }
            let offsets = offsets::kernel_offsets(&index).map_err(KernelError::Btf)?;
            (
                offsets,
                index.with_attachments_only(&TRACEPOINTS, &ITERATORS),
            )
        };
        let settings = Settings {
            contract: CONTRACT_VERSION,
            wake_bytes: options.wake_bytes,
            period_ns: options.period.0,
            flags: options.flags(),
            pid_namespace: options.pid_namespace.map_or(0, |PidNamespace(inode)| inode),
            stack_bytes: options.stacks.map_or(0, |stacks| stacks.bytes),
            // A quarter is for samples, which are small.
            stacks_until: ring_size(options.ring_bytes) / 4 * 3,
        };
        let level = log::level();
        // Ask first, so that the run time of the very first tick is counted too.
        let meter = Meter::start(sys::monotonic());
        // There is nothing to relocate: the offsets are globals.
        let mut ebpf = EbpfLoader::new()
            .btf(None)
            .verifier_log_level(VerifierLogLevel::STATS)
            .override_global("OFFSETS", &offsets, true)
            .override_global("SETTINGS", &settings, true)
            .override_global("AYA_LOG_LEVEL", &level, false)
            .map_max_entries("RING", ring_size(options.ring_bytes))
            .load(OBJECT)
            .map_err(|error| load_error("the object", &error))?;
        let log = KernelLog::open(&mut ebpf);
        let ring = ebpf
            .take_map("RING")
            .and_then(|map| RingBuf::try_from(map).ok())
            .ok_or_else(|| KernelError::Load {
                what: "RING".into(),
                why: "not in the object".into(),
            })?;
        let accounts = {
            let fd = |name: &'static str| match ebpf.map(name) {
                Some(Map::Array(map)) => Ok(map.fd()),
                _ => Err(KernelError::Map {
                    name,
                    why: "not in the object".into(),
                }),
            };
            Accounts::map(fd("ACCOUNTS")?, fd("USED")?).map_err(|error| KernelError::Map {
                name: "ACCOUNTS",
                why: error.to_string(),
            })?
        };
        free_all_places(&mut ebpf)?;
        let mut kernel = Self {
            accounts,
            ebpf,
            log,
            ring: Some(ring),
            meter,
            clocks: Vec::new(),
            throttle: None,
            options,
        };
        let btf = Btf::parse(&tracepoints, Endianness::default())
            .map_err(|error| load_error("the tracepoints", &error))?;
        let skipped = usize::from(!options.looks_off_cpu);
        for (program, tracepoint) in TRACING.iter().zip(TRACEPOINTS).skip(skipped) {
            kernel.attach_tracepoint(program, tracepoint, &btf)?;
        }
        if options.looks_off_cpu {
            kernel
                .census_program()?
                .load(ITERATORS[0], &btf)
                .map_err(|error| load_error(CENSUS, &error))?;
        }
        kernel.load_tick()?;
        Ok(kernel)
    }

    fn attach_tracepoint(
        &mut self,
        name: &str,
        tracepoint: &str,
        btf: &Btf,
    ) -> Result<(), KernelError> {
        let program: &mut BtfTracePoint = self
            .ebpf
            .program_mut(name)
            .and_then(|program| program.try_into().ok())
            .ok_or_else(|| KernelError::Load {
                what: name.into(),
                why: "not in the object".into(),
            })?;
        program
            .load(tracepoint, btf)
            .map_err(|error| load_error(name, &error))?;
        program.attach().map_err(|error| load_error(name, &error))?;
        Ok(())
    }

    fn tick_program(&mut self) -> Result<&mut PerfEvent, KernelError> {
        self.ebpf
            .program_mut(TICK)
            .and_then(|program| program.try_into().ok())
            .ok_or_else(|| KernelError::Load {
                what: TICK.into(),
                why: "not in the object".into(),
            })
    }

    fn load_tick(&mut self) -> Result<(), KernelError> {
        self.tick_program()?
            .load()
            .map_err(|error| load_error(TICK, &error))
    }

    /// Tick on every online CPU that does not tick yet. Called again now and then, it picks up
    /// CPUs that came online.
    ///
    /// # Errors
    /// When a perf event is refused.
    pub fn tick_everywhere(&mut self) -> Result<(), KernelError> {
        let online = online_cpus().map_err(|(what, error)| KernelError::Load {
            what: what.to_owned(),
            why: error.to_string(),
        })?;
        self.look_at_throttle();
        let period = self.options.period;
        for cpu in online.into_iter().map(Cpu) {
            if self.clocks.iter().any(|(ticking, _)| *ticking == cpu) {
                continue;
            }
            let program = self.tick_program()?.fd();
            let program = program.map_err(|error| load_error(TICK, &error))?;
            let clock =
                PerfClock::start(cpu, period, program.as_fd()).map_err(|error| {
                    match error.kind() {
                        io::ErrorKind::PermissionDenied => {
                            let what = "open a perf event on every CPU";
                            KernelError::Refused(capabilities::refusal(what))
                        }
                        _ => load_error(TICK, &error),
                    }
                })?;
            self.clocks.push((cpu, clock));
        }
        Ok(())
    }

    /// Go on ticking at another period on every CPU.
    ///
    /// # Errors
    /// When a perf event is refused.
    pub fn change_period(&self, period: DurationNs) -> io::Result<()> {
        for (_, clock) in &self.clocks {
            clock.set_period(period)?;
        }
        Ok(())
    }

    /// What holds ticks back, as tight as it was at any look so far.
    pub fn throttle(&mut self) -> Option<Throttle> {
        self.look_at_throttle();
        self.throttle
    }

    fn look_at_throttle(&mut self) {
        let seen = [self.throttle, Throttle::now()].into_iter().flatten();
        self.throttle = seen.min_by_key(|throttle| throttle.max_rate_hz);
    }

    fn census_program(&mut self) -> Result<&mut Iter, KernelError> {
        self.ebpf
            .program_mut(CENSUS)
            .and_then(|program| program.try_into().ok())
            .ok_or_else(|| KernelError::Load {
                what: CENSUS.into(),
                why: "not in the object".into(),
            })
    }

    /// Open an account for every thread of the targets that has none yet; without
    /// `looks_off_cpu` nobody needs them.
    ///
    /// # Errors
    /// When the kernel refuses the iterator.
    pub fn take_census(&mut self) -> Result<(), KernelError> {
        if !self.options.looks_off_cpu {
            return Ok(());
        }
        let program = self.census_program()?;
        let link = program
            .attach()
            .and_then(|link| program.take_link(link))
            .map_err(|error| load_error(CENSUS, &error))?;
        let mut tasks = link
            .into_file()
            .map_err(|error| load_error(CENSUS, &error))?;
        // The program runs for each task while this reads; it writes nothing.
        io::copy(&mut tasks, &mut io::sink()).map_err(|error| load_error(CENSUS, &error))?;
        Ok(())
    }

    /// The accounts of all targets.
    #[must_use]
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Stop ticking; accounts go on until the drop.
    pub fn stop_ticking(&mut self) {
        self.clocks.clear();
    }

    /// The consumer's end of the ring, once.
    pub fn take_ring(&mut self) -> Option<io::Result<Ring>> {
        self.ring.take().map(Ring::new)
    }

    /// Hand on what the programs logged.
    pub fn flush_log(&mut self) {
        self.log.flush();
    }

    fn hash<K: aya::Pod, V: aya::Pod>(
        &mut self,
        name: &'static str,
    ) -> Result<HashMap<&mut MapData, K, V>, KernelError> {
        let map = self.ebpf.map_mut(name).ok_or_else(|| KernelError::Map {
            name,
            why: "not in the object".into(),
        })?;
        HashMap::try_from(map).map_err(map_error(name))
    }

    /// Make a process a target, or change how it is read.
    ///
    /// # Errors
    /// When the map has no room.
    pub fn set_plan(&mut self, pid: Pid, plan: &Plan) -> Result<(), KernelError> {
        let mut plans = self.hash::<u32, Plan>("PLANS")?;
        // What the kernel has noted there stays; nothing else is, for a process of ours.
        let owner = plans.get(&pid.0, 0).map_or(0, |known: Plan| known.owner);
        plans
            .insert(pid.0, Plan { owner, ..*plan }, 0)
            .map_err(map_error("PLANS"))
    }

    /// Let go of a process; the kernel has done so already with one that has ended.
    ///
    /// # Errors
    /// When the map cannot be changed.
    pub fn remove_plan(&mut self, pid: Pid) -> Result<(), KernelError> {
        let mut plans = self.hash::<u32, Plan>("PLANS")?;
        match plans.remove(&pid.0) {
            Ok(()) => Ok(()),
            Err(MapError::SyscallError(error))
                if error.io_error.kind() == io::ErrorKind::NotFound =>
            {
                Ok(())
            }
            Err(error) => Err(map_error("PLANS")(error)),
        }
    }

    /// Let go of a process that had ended by `time`, unless another one that has come since has its
    /// id and its plan.
    ///
    /// # Errors
    /// As [`Kernel::remove_plan`].
    pub fn remove_plan_of(&mut self, pid: Pid, time: MonotonicNs) -> Result<(), KernelError> {
        let plans = self.hash::<u32, Plan>("PLANS")?;
        match plans.get(&pid.0, 0) {
            Ok(plan) if plan.since_ns > time.0 => Ok(()),
            _ => self.remove_plan(pid),
        }
    }

    /// Tell the tick whose thread state belongs to a TLS base.
    ///
    /// # Errors
    /// When the map has no room.
    pub fn set_state(
        &mut self,
        pid: Pid,
        thread: PthreadId,
        state: ThreadStateAddr,
    ) -> Result<(), KernelError> {
        let key = StateKey {
            tgid: pid.0,
            _pad: 0,
            tls_base: thread.0,
        };
        self.hash::<StateKey, u64>("STATES")?
            .insert(key, state.0, 0)
            .map_err(map_error("STATES"))
    }

    /// Whether each sample is to wake user space by itself.
    ///
    /// # Errors
    /// When the map cannot be changed.
    pub fn set_urgent(&mut self, urgent: bool) -> Result<(), KernelError> {
        let name = "URGENT";
        let map = self.ebpf.map_mut(name).ok_or_else(|| KernelError::Map {
            name,
            why: "not in the object".into(),
        })?;
        let mut map: Array<_, u32> = Array::try_from(map).map_err(map_error(name))?;
        map.set(0, u32::from(urgent), 0).map_err(map_error(name))
    }

    /// The counters of all CPUs, summed.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn counters(&self) -> Result<Counters, KernelError> {
        let name = "COUNTERS";
        let map = self.ebpf.map(name).ok_or_else(|| KernelError::Map {
            name,
            why: "not in the object".into(),
        })?;
        let counters: PerCpuArray<_, Counters> =
            PerCpuArray::try_from(map).map_err(map_error(name))?;
        let mut sum = Counters::default();
        for one in counters.get(&0, 0).map_err(map_error(name))?.iter() {
            sum.ticks += one.ticks;
            sum.samples += one.samples;
            sum.elsewhere += one.elsewhere;
            for reason in 0..N_REASONS {
                sum.losses[reason] += one.losses[reason];
            }
            sum.events_lost += one.events_lost;
            sum.switches += one.switches;
            sum.accounts_full += one.accounts_full;
            sum.plans_full += one.plans_full;
            sum.switches_unseen += one.switches_unseen;
        }
        Ok(sum)
    }

    /// Let the kernel count what the programs cost for a moment, now and then; to be called often.
    pub fn turn_meter(&mut self, now: MonotonicNs) {
        let Self { ebpf, meter, .. } = self;
        meter.turn(now, || counted(ebpf));
    }

    /// What the programs cost up to now; none where the kernel does not count it.
    #[must_use]
    pub fn cost(&self, now: MonotonicNs) -> Option<ProgramCost> {
        self.meter.cost(now, || counted(&self.ebpf))
    }
}

/// What the kernel counted of the programs while its clock ran.
fn counted(ebpf: &aya::Ebpf) -> ProgramCost {
    let mut cost = ProgramCost::default();
    for (name, program) in ebpf.programs() {
        let Ok(info) = program.info() else { continue };
        let (ns, runs) = (info.run_time().as_nanos() as u64, info.run_count());
        cost.all_ns += ns;
        cost.all_runs += runs;
        if name == TICK {
            cost.tick_ns = ns;
        }
    }
    cost
}

/// Nobody has an account yet; the first to open one gets the first place.
fn free_all_places(ebpf: &mut aya::Ebpf) -> Result<(), KernelError> {
    let name = "FREE";
    let map = ebpf.map_mut(name).ok_or_else(|| KernelError::Map {
        name,
        why: "not in the object".into(),
    })?;
    let mut free: Stack<_, u32> = Stack::try_from(map).map_err(map_error(name))?;
    for stride in (0..MAX_ACCOUNTS / PLACES_OF_STRIDE).rev() {
        let places = FREE_STRIDE | (stride * PLACES_OF_STRIDE);
        free.push(places, 0).map_err(map_error(name))?;
    }
    Ok(())
}

/// A ring's size must be a power of two, and whole pages.
fn ring_size(bytes: u32) -> u32 {
    bytes.clamp(4096, 1 << 30).next_power_of_two()
}
