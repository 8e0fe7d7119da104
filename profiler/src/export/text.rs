//! The report for people: where the time went, which threads it went to and why they did not
//! run, and the accounts.
//!
//! Every name of the target is made harmless for a terminal first.

use std::io;

use crate::aggregate::{CLOCK, Profile, UNIT, Whose, count, percent, seconds};
use crate::cpython::Build;
use crate::export::Options;
use crate::export::escape::printable;
use crate::export::table::{Paint, fitted};
use crate::sample::{Gil, Mode};
use crate::words::DurationNs;

mod part;
mod places;
mod processes;
mod tasks;
mod threads;
mod why;

use part::Part;

/// Writes the report on `profile`, with its ledger.
///
/// # Errors
/// Those of `out`.
pub fn write(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    head(profile, options, out)?;
    let mode = profile.meta().mode;
    if profile.ticks() == 0 {
        let why = match mode {
            Mode::Cpu => &nothing_sampled(profile),
            Mode::Wall if profile.meta().whose == Whose::Tasks => {
                "no task of the target was met while it was watched"
            }
            Mode::Wall => "no thread of the target was met while it was watched",
            Mode::OffCpu => "nothing of the target was off the CPU while it was watched",
            Mode::Gil if profile.meta().build == Build::FreeThreaded.key() => {
                "nothing held a GIL or waited for one while it was watched: it is a free-threaded build, which has none unless it is switched on (`PYTHON_GIL=1`); `--mode wall` shows what its threads wait for"
            }
            Mode::Gil => "nothing held the GIL or waited for it while it was watched",
        };
        writeln!(out, "\nno samples: {why}")?;
        return accounts(profile, options, out);
    }
    let all = Part::all(profile);
    match mode {
        Mode::Cpu => {
            places::write(&all, "", options, out)?;
            tasks::write(&all, options, out)?;
            processes::write(&all, "", options, out)?;
            threads::write(&all, false, "", options, out)?;
        }
        Mode::Wall | Mode::OffCpu => {
            places::write(&all, "", options, out)?;
            why::reasons(&all, options, out)?;
            tasks::write(&all, options, out)?;
            processes::write(&all, "", options, out)?;
            threads::write(&all, true, "", options, out)?;
            why::notes(&all, out)?;
        }
        Mode::Gil => gil(profile, options, out)?,
    }
    accounts(profile, options, out)
}

/// Why no tick met the target, and what to type.
fn nothing_sampled(profile: &Profile) -> String {
    let scheduled = profile.ledger().sampled_of_scheduled();
    match scheduled.filter(|(_, scheduled)| scheduled.0 > 0) {
        Some((_, scheduled)) => format!(
            "no tick met the target in its {} on a CPU: watch it for longer (`--duration`) or more often (`--rate`)",
            seconds(scheduled)
        ),
        None if profile
            .ledger()
            .processes
            .iter()
            .all(|it| it.ended_s.is_some()) =>
        {
            String::from("nothing of the target ran on a CPU while it was watched")
        }
        None => format!(
            "nothing of the target ran on a CPU while it was watched (`profiler dump --pid {}` shows what it waits for)",
            profile.meta().pid
        ),
    }
}

/// Who holds the GIL, then who waits for it.
fn gil(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let holders = Part::of_gil(profile, Gil::Holds);
    let watched = profile.duration();
    let held = holders.weight();
    let text = format!(
        "the GIL was held for {} of {} watched ({})",
        seconds(DurationNs(held)),
        seconds(watched),
        percent(held, watched.0),
    );
    writeln!(out, "\n{}", Paint::Bold.on(&text, options.style))?;
    if held > 0 {
        places::write(&holders, " that holds the GIL", options, out)?;
        processes::write(&holders, " that holds a GIL", options, out)?;
        threads::write(&holders, true, " that holds the GIL", options, out)?;
        why::notes(&holders, out)?;
    }
    let waiters = Part::of_gil(profile, Gil::Waits);
    let none = waiters.entries.is_empty();
    let text = if none {
        String::from("no thread was seen to wait for the GIL")
    } else {
        let waited = seconds(DurationNs(waiters.weight()));
        format!("threads waited for the GIL for {waited} together")
    };
    writeln!(out, "\n{}", Paint::Bold.on(&text, options.style))?;
    if none {
        return Ok(());
    }
    why::waiters(&waiters, options, out)
}

fn head(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let meta = profile.meta();
    let command = fitted(&printable(&meta.command), options.width.max(16));
    if !command.trim().is_empty() {
        writeln!(out, "{}", Paint::Bold.on(&command, options.style))?;
    }
    let mut parts = vec![format!("pid {}", meta.pid)];
    if !meta.python.is_empty() {
        let build = match meta.build.as_str() {
            "default" | "" => String::new(),
            build => format!(" {build}"),
        };
        parts.push(format!("CPython {}{build}", meta.python));
    }
    let of_tasks = match meta.whose {
        Whose::Threads => "",
        Whose::ThreadsByTask | Whose::Tasks => " by task",
    };
    parts.push(format!(
        "{}{of_tasks} at {} Hz",
        meta.mode.key(),
        meta.rate_hz
    ));
    parts.push(format!("{} watched", seconds(profile.duration())));
    let samples = count(profile.ticks());
    let time = seconds(profile.weight());
    parts.push(match meta.mode {
        Mode::Cpu => format!("{samples} samples for {time} of CPU"),
        Mode::Wall if meta.whose == Whose::Tasks => {
            format!("{samples} samples for {time} of all tasks")
        }
        Mode::Wall => format!("{samples} samples for {time} of all threads"),
        Mode::OffCpu => format!("{samples} samples for {time} off the CPU"),
        // Holding and waiting do not add up to anything.
        Mode::Gil => format!("{samples} samples"),
    });
    let what = match meta.mode {
        Mode::Cpu => "time on a CPU",
        Mode::Wall if meta.whose == Whose::Tasks => "time of each task, running or not",
        Mode::Wall => "time of each thread, on a CPU or not",
        Mode::OffCpu => "time off the CPU",
        Mode::Gil => "time with the GIL, and time waiting for it",
    };
    let clock = format!("{what} · {UNIT} of {CLOCK}, shown as seconds");
    for line in [parts.join(" · "), clock] {
        let line = printable(&line).into_owned();
        writeln!(out, "{}", Paint::Dim.on(&line, options.style))?;
    }
    Ok(())
}

fn accounts(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let ledger = profile.ledger();
    writeln!(out, "\n{}", printable(&ledger.sentence()))?;
    let beyond = profile.beyond();
    let mut lines: Vec<(bool, String)> = Vec::new();
    for (n, what) in [
        (
            beyond.stack_ticks,
            "ticks are in `[stacks beyond the limit]`",
        ),
        (beyond.frames, "frames are `[frames beyond the limit]`"),
        (beyond.threads, "threads share `[threads beyond the limit]`"),
        (
            beyond.processes,
            "processes share `[processes beyond the limit]`",
        ),
    ] {
        if n > 0 {
            lines.push((
                true,
                format!("{} {what}: the profile is too varied", count(n)),
            ));
        }
    }
    let remarks = ledger.remarks().into_iter();
    lines.extend(remarks.map(|remark| (remark.warning, remark.text)));
    for (warning, text) in lines {
        let text = printable(&text).into_owned();
        let (text, paint) = if warning {
            (format!("! {text}"), Paint::Warning)
        } else {
            (text, Paint::Dim)
        };
        writeln!(out, "{}", paint.on(&text, options.style))?;
    }
    Ok(())
}
