//! The end of a run, and what a run that goes on would have come to: everything is taken from the
//! ring, the accounts are read, the books are closed.

use profiler_common::{account::Account, loss::Counters};

use super::{
    books::{self, Span},
    run::{End, Outcome, pump},
    session::{Session, SoFar},
    settings::RunSettings,
};
use crate::{
    aggregate::{Profile, Whose},
    assembler::Assembler,
    source::{Kernel, KernelError, ProgramCost, Throttle, ring::Ring},
    sys,
    words::MonotonicNs,
};

/// Stop ticking, take the rest, read the accounts, and only then let the programs go.
pub(super) fn close(
    mut kernel: Kernel,
    ring: &mut Ring,
    mut session: Session,
    assembler: &mut Assembler,
    end: End,
) -> Result<Outcome, KernelError> {
    let cost = kernel.cost(sys::monotonic());
    let throttle = kernel.throttle();
    kernel.stop_ticking();
    let stopped = sys::monotonic();
    let accounts = kernel.accounts().all();
    for pid in session.pids() {
        kernel.remove_plan(pid)?;
    }
    pump(ring, &mut session, assembler, None);
    session.end_off_cpu(&accounts, stopped);
    session.end_batch();
    let counters: Counters = kernel.counters()?;
    kernel.flush_log();
    session.meet_the_unsampled(&accounts);
    session.ask_again();
    let python = session.was_python();
    let kernels = Kernels {
        counters,
        accounts,
        cost,
        throttle,
    };
    let (settings, since) = (session.kit.settings.clone(), session.since());
    let profile = profile(session.close(stopped), kernels, &settings, since, stopped);
    Ok(Outcome {
        profile,
        end,
        python,
    })
}

/// What the run would have come to if it were over now; it goes on.
pub(super) fn so_far(
    kernel: &mut Kernel,
    ring: &mut Ring,
    session: &mut Session,
    assembler: &mut Assembler,
) -> Result<Profile, KernelError> {
    let mut counters = kernel.counters()?;
    let now = sys::monotonic();
    let accounts = kernel.accounts().all();
    pump(ring, session, assembler, Some(now));
    // Of ticks since the counters were read, and of those still on their way, nothing is lost.
    let received = session.kit.received;
    let arrived = received.ticks + received.malformed + received.unknown_process;
    counters.ticks = counters.ticks.saturating_sub(counters.samples) + arrived;
    counters.samples = arrived;
    let kernels = Kernels {
        counters,
        accounts,
        cost: kernel.cost(now),
        throttle: kernel.throttle(),
    };
    let so_far = session.so_far(&kernels.accounts, now);
    let (settings, since) = (session.kit.settings.clone(), session.since());
    Ok(profile(so_far, kernels, &settings, since, now))
}

/// The kernel's side of the books.
struct Kernels {
    counters: Counters,
    accounts: Vec<Account>,
    cost: Option<ProgramCost>,
    throttle: Option<Throttle>,
}

/// The profile of a run from `since` to `end`, with its ledger.
fn profile(
    run: SoFar,
    kernels: Kernels,
    settings: &RunSettings,
    since: MonotonicNs,
    end: MonotonicNs,
) -> Profile {
    let SoFar {
        builder,
        tasks,
        received,
        looks,
        gone,
        native,
    } = run;
    let span = Span {
        began: since,
        end,
        off_cpu: settings.mode.looks_off_cpu(),
    };
    let mut ledger = builder.ledger(end);
    let (counters, accounts) = (&kernels.counters, &kernels.accounts);
    books::close(&mut ledger, counters, received, &gone, accounts, span);
    (ledger.looks, ledger.moved) = looks;
    ledger.native = native;
    let throttle = kernels.throttle.filter(|it| !it.spares(settings.rate_hz));
    ledger.max_rate_hz = throttle.map(|it| it.max_rate_hz);
    books::cost(&mut ledger, kernels.cost, sys::own_cost());
    let began = settings.began;
    ledger.profiler.first_sample_ns = received.first.map(|first| first.0.saturating_sub(began.0));
    match builder.meta().whose {
        Whose::Threads => builder.close(end, ledger),
        Whose::ThreadsByTask => {
            ledger.tasks = Some(tasks.close(&builder).1);
            builder.close(end, ledger)
        }
        Whose::Tasks => {
            let (of_tasks, accounts) = tasks.close(&builder);
            ledger.tasks = Some(accounts);
            of_tasks.close(end, ledger)
        }
    }
}
