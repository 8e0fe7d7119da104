//! Calls between Python, C and Rust that are known: how many samples show one that nobody makes, a
//! wrong name or a wrong line.

use ::tests::calls::Wrong;
use ::tests::libraries::Made;
use ::tests::pythons::Python;
use ::tests::told::Told;
use anyhow::{Context, Result, ensure};

use super::Setting;
use super::report::{Bound, Report};

/// Versions with evaluators of different forms.
const MINORS: &[(u8, u8)] = &[(3, 8), (3, 10), (3, 12), (3, 13), (3, 14)];
/// So many ticks a second the ring holds with copies of stacks.
const RATE: &str = "3999";

pub(super) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let wanted = setting.pick(10_000, 50_000);
    let is_wanted = |python: &&Python| MINORS.contains(&python.minor());
    let chosen: Vec<&Python> = setting.pythons.iter().filter(is_wanted).collect();
    ensure!(!chosen.is_empty(), "no interpreter of the versions for it");
    for python in chosen {
        if let Err(error) = of(python, wanted, setting.pick("2", "8"), report) {
            report.failed(&error.context(python.label.clone()));
        }
    }
    Ok(())
}

/// All that an interpreter's runs came to, in samples.
#[derive(Debug, Default)]
struct All {
    samples: u64,
    crossing: u64,
    edges: u64,
    names: u64,
    lines: u64,
    full: u64,
    not_sent: u64,
    lost: u64,
}

impl All {
    fn add(&mut self, told: &Told) -> Result<()> {
        let (judged, ledger) = (&told.judged, &told.profile.ledger);
        let native = ledger.native.as_ref().context("no account")?;
        let wrong = |what| judged.wrong.get(&what).copied().unwrap_or(0);
        self.samples += ledger.samples;
        self.crossing += judged.crossing;
        self.edges += wrong(Wrong::Edge);
        self.names += wrong(Wrong::Name);
        self.lines += wrong(Wrong::Line);
        self.full += native.full + native.frame_pointers;
        self.not_sent += native.reasons.get("not_sent").copied().unwrap_or(0);
        self.lost += ledger.lost();
        ensure!(
            judged.crossing > 0,
            "nothing crosses the border: {native:?}"
        );
        for example in judged.impossible.iter().take(5) {
            println!("  {:?}: {example}", told.made);
        }
        Ok(())
    }
}

/// Runs with every kind of library, each once and on until so many samples crossed the border.
fn of(python: &Python, wanted: u64, seconds: &str, report: &mut Report) -> Result<()> {
    let mut all = All::default();
    let makes = Made::all_of(python);
    for (round, made) in makes.iter().cycle().enumerate() {
        if round >= makes.len() && all.crossing >= wanted {
            break;
        }
        let told = Told::of(python, *made, &["calls", seconds], &["-r", RATE]);
        all.add(&told.with_context(|| format!("{made:?}"))?)?;
    }
    let case = python.label.as_str();
    let mut none = |figure, value: u64| {
        report.bounded(case, figure, value as f64, "samples", Bound::AtMost(0.0));
    };
    none("impossible edges", all.edges);
    none("wrong names", all.names);
    none("wrong lines", all.lines);
    report.plain(case, "across the border", all.crossing as f64, "samples");
    let share = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
    let sent = all.samples - all.not_sent;
    report.plain(
        case,
        "full, of those with a stack",
        share(all.full, sent),
        "%",
    );
    let not_sent = share(all.not_sent, all.samples);
    report.plain(case, "without a stack, for want of room", not_sent, "%");
    report.plain(
        case,
        "lost ticks",
        share(all.lost, all.samples + all.lost),
        "%",
    );
    Ok(())
}
