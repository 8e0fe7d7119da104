//! Which evaluator runs which run of Python frames.

use std::ops::Range;

use super::{Home, NativeChain, Part, PythonChain, Role, Why};

/// Runs of Python frames with their evaluators.
#[derive(Debug)]
pub(super) struct Matched {
    runs: Vec<Range<usize>>,
    /// The first run behind missing frames.
    behind_gap: Option<usize>,
    /// For each run the index of its evaluator, where that is proven.
    evaluators: Vec<Option<usize>>,
    /// The index of the innermost evaluator, or behind the last frame.
    innermost: usize,
    /// How many runs, from the leaf on, have theirs.
    pub(super) leaf: usize,
    /// Why not all have.
    pub(super) why: Option<Why>,
    /// What is below the outermost evaluator is below the outermost run.
    has_root: bool,
}

pub(super) fn matched(
    native: &NativeChain<'_>,
    python: &PythonChain<'_>,
    shown: &[bool],
) -> Matched {
    let (runs, behind_gap) = runs_of(python);
    let stack = Evaluators::of(native.roles, shown);
    let mut matched = Matched {
        evaluators: vec![None; runs.len()],
        runs,
        behind_gap,
        innermost: stack.at.first().copied().unwrap_or(native.roles.len()),
        leaf: 0,
        why: None,
        has_root: false,
    };
    let is_all = python.is_whole && behind_gap.is_none();
    if native.is_whole && is_all {
        match stack.by_count(matched.runs.len(), native.leaf_evaluator) {
            Ok(evaluators) => {
                matched.leaf = evaluators.len();
                matched.evaluators = evaluators.into_iter().map(Some).collect();
                matched.has_root = true;
            }
            Err(why) => {
                matched.why = Some(why);
                matched.match_leaf(&stack, native.leaf_evaluator);
            }
        }
        return matched;
    }
    matched.why = Some(if is_all {
        Why::Ended
    } else {
        Why::PythonMissing
    });
    matched.match_leaf(&stack, native.leaf_evaluator);
    if is_all && matched.leaf == matched.runs.len() {
        matched.why = None;
        matched.has_root = true;
    }
    if native.is_whole
        && python.is_whole
        && let Some(first) = behind_gap
    {
        matched.match_root(&stack, first);
        matched.has_root = matched.evaluators.last().is_some_and(Option::is_some);
    }
    matched
}

/// The runs of Python frames, leaf first, and the first one behind the missing frames.
fn runs_of(python: &PythonChain<'_>) -> (Vec<Range<usize>>, Option<usize>) {
    let count = python.into_c.len();
    let gap = python.gap.filter(|gap| *gap <= count);
    let mut runs = Vec::new();
    let mut behind = None;
    let mut start = 0;
    for index in 0..count {
        let ends = index > 0 && (python.into_c[index] || gap == Some(index));
        if ends {
            runs.push(start..index);
            start = index;
        }
        if gap == Some(index) {
            behind = Some(runs.len());
        }
    }
    runs.push(start..count);
    if gap == Some(count) {
        behind = Some(runs.len());
    }
    (runs, behind)
}

/// The evaluators of a native chain, leaf first.
struct Evaluators {
    at: Vec<usize>,
    /// The innermost may have no Python frame: nothing that is shown was called by it.
    leaf_may_be_empty: bool,
    /// Those whose last frame may be gone, by their place in `at`: they called what clears it.
    may_be_empty: Vec<usize>,
    /// Native frames that may be an evaluator's without a name.
    may_be_one: Vec<usize>,
}

impl Evaluators {
    fn of(roles: &[Role], shown: &[bool]) -> Self {
        let at: Vec<usize> = (0..roles.len())
            .filter(|index| roles[*index] == Role::Evaluator)
            .collect();
        let leaf = at.first().copied();
        let may_be_empty = |place: &usize| {
            let from = place.checked_sub(1).map_or(0, |before| at[before] + 1);
            *place > 0 && roles[from..at[*place]].contains(&Role::Clears)
        };
        let is_piece = |index: &usize| {
            matches!(
                roles[*index],
                Role::Nameless {
                    home: Home::Interpreter,
                    piece: true
                }
            )
        };
        Self {
            leaf_may_be_empty: leaf.is_some_and(|leaf| !shown[..leaf].contains(&true)),
            may_be_empty: (0..at.len()).filter(may_be_empty).collect(),
            may_be_one: (0..roles.len()).filter(is_piece).collect(),
            at,
        }
    }

    fn place(&self, at: usize) -> Option<usize> {
        self.at.iter().position(|evaluator| *evaluator == at)
    }

    /// One evaluator for each of `runs` runs of two whole chains, if there is only one way.
    fn by_count(&self, runs: usize, leaf: Option<usize>) -> Result<Vec<usize>, Why> {
        let count = self.at.len();
        let leaf = leaf.and_then(|leaf| self.place(leaf));
        if count < runs || (count == runs && leaf.is_some_and(|leaf| leaf > 0)) {
            if count + self.may_be_one.len() != runs {
                return Err(Why::FewerEvaluators);
            }
            let mut all = [self.at.as_slice(), &self.may_be_one].concat();
            all.sort_unstable();
            return Ok(all);
        }
        let mut empty = self.may_be_empty.clone();
        match leaf {
            Some(first) => {
                empty.retain(|place| *place > first);
                empty.extend(0..first);
            }
            None if self.leaf_may_be_empty => empty.push(0),
            None => {}
        }
        // Who may be empty need not be.
        if count == runs {
            empty.clear();
        }
        if runs + empty.len() != count {
            return Err(Why::MoreEvaluators);
        }
        let has_run = |place: &usize| !empty.contains(place);
        Ok((0..count)
            .filter(has_run)
            .map(|place| self.at[place])
            .collect())
    }
}

impl Matched {
    /// The evaluators that have their run.
    pub(super) fn evaluators(&self) -> impl Iterator<Item = usize> {
        self.evaluators.iter().flatten().copied()
    }

    /// From the leaf on, as far as there is only one way.
    fn match_leaf(&mut self, stack: &Evaluators, leaf_evaluator: Option<usize>) {
        let known = leaf_evaluator.and_then(|leaf| stack.place(leaf));
        if known.is_none() && stack.leaf_may_be_empty {
            self.why = Some(Why::MayBeEntering);
            return;
        }
        // The counts contradict each other, and nothing says where.
        let nothing_doubtful = match self.why {
            Some(Why::MoreEvaluators) => stack.may_be_empty.is_empty(),
            Some(Why::FewerEvaluators) => stack.may_be_one.is_empty(),
            _ => false,
        };
        if nothing_doubtful {
            return;
        }
        let first = known.unwrap_or(0);
        let piece = stack.may_be_one.first().copied().unwrap_or(usize::MAX);
        for run in 0..self.behind_gap.unwrap_or(self.runs.len()) {
            let place = first + run;
            let doubtful = place > first && stack.may_be_empty.contains(&place);
            match stack.at.get(place) {
                Some(at) if *at < piece && !doubtful => self.evaluators[run] = Some(*at),
                _ => return,
            }
            self.leaf = run + 1;
        }
    }

    /// From the root on, down to the frames that are missing.
    fn match_root(&mut self, stack: &Evaluators, first: usize) {
        let innermost = self.evaluators.iter().flatten().copied().max();
        let piece = stack.may_be_one.last().copied();
        let runs = (first..self.runs.len()).rev();
        for (run, place) in runs.zip((0..stack.at.len()).rev()) {
            let at = stack.at[place];
            let is_proven = innermost.is_none_or(|innermost| at > innermost)
                && piece.is_none_or(|piece| at > piece)
                && !stack.may_be_empty.contains(&place)
                && (place > 0 || !stack.leaf_may_be_empty);
            if !is_proven {
                return;
            }
            self.evaluators[run] = Some(at);
        }
    }

    /// Both chains in one: what is between two evaluators is shown between their runs if these
    /// follow one another.
    pub(super) fn parts(&self, natives: usize, shown: &[bool]) -> Vec<Part> {
        let mut parts = Vec::with_capacity(natives);
        let show = |parts: &mut Vec<Part>, range: Range<usize>| {
            parts.extend(range.filter(|index| shown[*index]).map(Part::Native));
        };
        for (run, frames) in self.runs.iter().enumerate() {
            let own = self.evaluators[run];
            let above = match run.checked_sub(1) {
                // What is above all evaluators was called by the innermost run, whoever ran it.
                None => Some(0..own.unwrap_or(self.innermost)),
                Some(_) if self.behind_gap == Some(run) => None,
                Some(before) => self.evaluators[before]
                    .zip(own)
                    .map(|(above, own)| above + 1..own),
            };
            if let Some(above) = above {
                show(&mut parts, above);
            }
            parts.extend(frames.clone().map(Part::Python));
        }
        if self.has_root
            && let Some(outermost) = self.evaluators.last().copied().flatten()
        {
            show(&mut parts, outermost + 1..natives);
        }
        parts
    }
}
