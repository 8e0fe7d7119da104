//! Who is better, by the figures alone.

use std::collections::BTreeMap;

use super::{apart, figure};
use crate::bench::compared::{Compared, Comparison, Measure};
use crate::bench::measure;
use crate::bench::peers::NOBODY;

/// Ours and a peer's of the same kind, on the same workload.
struct Pair<'a> {
    ours: &'a Compared,
    peer: &'a Compared,
    /// The same row with nobody watching, a second time: what the machine cannot tell apart.
    nobody: Option<&'a Compared>,
}

impl Measure {
    /// The smaller the better.
    pub(super) fn badness(self, value: f64) -> f64 {
        match self {
            Self::Got => (value - 100.0).abs(),
            // The more the better.
            Self::Highest => -value,
            _ => value,
        }
    }

    /// Differences below this are none: a part of the value, and the measure's own grain.
    fn grain(self) -> (f64, f64) {
        match self {
            Self::Error => (0.0, 0.5),
            Self::Impossible | Self::Cut | Self::Highest => (0.0, 0.0),
            Self::Got => (0.0, 1.0),
            Self::Cpu | Self::Memory => (0.05, 0.0),
            Self::First => (0.0, 4.0),
            Self::Slowdown => (0.0, 0.5),
            Self::Stolen => (0.1, 0.0),
            Self::Gaps => (0.0, 1.0),
        }
    }
}

impl Pair<'_> {
    /// By how much the peer is better: less than nothing where ours is. Zero within the grain, and
    /// within half of what the rounds of one of them lie apart, or what nobody's do.
    fn ahead(&self, of: Measure) -> f64 {
        let ours = of.badness(self.ours.median());
        let ahead = ours - of.badness(self.peer.median());
        let (part, grain) = of.grain();
        let rounds = [self.ours, self.peer].map(|it| apart(it).unwrap_or(0.0) / 2.0);
        let nobody = self.nobody.and_then(apart).unwrap_or(0.0);
        let least = rounds.into_iter().fold(grain.max(nobody), f64::max);
        if ahead.abs() <= least.max(part * ours) {
            0.0
        } else {
            ahead
        }
    }
}

fn pairs(of: &Comparison, measure: Measure) -> Vec<Pair<'_>> {
    let known = |it: &Compared| {
        let mut ran = of.ran.iter();
        ran.find(|ran| ran.tool == it.tool && ran.python == it.python)
    };
    let rows = || of.compared.iter().filter(|it| it.measure == measure);
    let mut pairs = Vec::new();
    for peer in rows() {
        let Some(of_peer) = known(peer).filter(|ran| !ran.ours) else {
            continue;
        };
        let of_row =
            || rows().filter(|it| it.workload == peer.workload && it.python == peer.python);
        let mine =
            of_row().find(|it| known(it).is_some_and(|ran| ran.ours && ran.claim == of_peer.claim));
        let nobody = of_row().find(|it| it.tool == NOBODY);
        if let Some(ours) = mine {
            pairs.push(Pair { ours, peer, nobody });
        }
    }
    pairs
}

/// The second sentence of a table.
pub(super) fn sentence(of: &Comparison, measure: Measure) -> String {
    let pairs = pairs(of, measure);
    let count = |is: fn(f64) -> bool| pairs.iter().filter(|it| is(it.ahead(measure))).count();
    let (lost, won) = (count(|ahead| ahead > 0.0), count(|ahead| ahead < 0.0));
    let all = pairs.len();
    let alike = all - lost - won;
    let mut text = match lost {
        0 => format!(
            "No peer was better in any of {all} comparisons; in {won} ours was, in {alike} neither."
        ),
        _ => format!(
            "Of {all} comparisons with a peer ours was better in {won}, neither in {alike}, **the peer in \
             {lost}**, listed below the tables."
        ),
    };
    if matches!(measure, Measure::Cpu | Measure::Memory | Measure::First) {
        let ratios = ratios(&pairs);
        if !ratios.is_empty() {
            let list = ratios.join(", ");
            text = format!("Peers' values over ours, the median of the rows: {list}. {text}");
        }
    }
    text
}

/// Each peer's values divided by ours.
fn ratios(pairs: &[Pair<'_>]) -> Vec<String> {
    let mut tools: Vec<&str> = Vec::new();
    for pair in pairs {
        if !tools.contains(&pair.peer.tool.as_str()) {
            tools.push(&pair.peer.tool);
        }
    }
    let ratio = |tool: &str| {
        let of_tool = pairs.iter().filter(|pair| pair.peer.tool == tool);
        let ratios: Vec<f64> = of_tool
            .map(|pair| pair.peer.median() / pair.ours.median())
            .collect();
        format!("`{tool}` {:.1}", measure::median(&ratios))
    };
    tools.into_iter().map(ratio).collect()
}

/// Where a peer is better: a line for each, its worst row for us first.
pub(super) fn lost(of: &Comparison, measure: Measure) -> Vec<String> {
    let pairs = pairs(of, measure);
    let mut by_peer: BTreeMap<(&str, &str), Vec<&Pair<'_>>> = BTreeMap::new();
    for pair in &pairs {
        let peer = (pair.peer.tool.as_str(), pair.peer.python.as_str());
        by_peer.entry(peer).or_default().push(pair);
    }
    let line = |((tool, python), mut pairs): ((&str, &str), Vec<&Pair<'_>>)| {
        let all = pairs.len();
        pairs.retain(|pair| pair.ahead(measure) > 0.0);
        pairs.sort_by(|one, other| other.ahead(measure).total_cmp(&one.ahead(measure)));
        let count = pairs.len();
        let row = |pair: &&Pair<'_>| {
            let (peer, ours) = (pair.peer.median(), pair.ours.median());
            let workload = &pair.ours.workload;
            format!("{workload} ({} against {})", figure(peer), figure(ours))
        };
        let rows: Vec<String> = pairs.iter().take(NAMED).map(row).collect();
        let more = match count.saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let rows = rows.join(", ");
        (count > 0).then(|| format!("`{tool}` on {python}, in {count} of {all} rows: {rows}{more}"))
    };
    by_peer.into_iter().filter_map(line).collect()
}

/// Whether a peer is better in a row that is meant.
pub(super) fn is_lost(of: &Comparison, measure: Measure, row: fn(&str) -> bool) -> bool {
    let pairs = pairs(of, measure);
    let mut lost = pairs.iter().filter(|pair| pair.ahead(measure) > 0.0);
    lost.any(|pair| row(&pair.peer.workload))
}

/// So many rows of one peer are named.
const NAMED: usize = 6;
