//! Stacks merged by their labels, in the order of the labels: what folded lines and flame
//! graphs are made of.

use std::collections::HashMap;

use crate::export::Unit;
use crate::export::states::Spot;
use crate::export::view::View;
use crate::stack::Frame;

pub(super) struct Fold {
    /// Distinct and in order.
    pub(super) labels: Vec<String>,
    /// By label: one of the frames that have it.
    pub(super) frames: Vec<Frame>,
    /// Numbers of labels, root first, and the weight; distinct and in order, so that stacks
    /// that begin alike are neighbours.
    pub(super) stacks: Vec<(Vec<u32>, u64)>,
}

impl Fold {
    pub(super) fn new(
        view: &View<'_>,
        threads: bool,
        unit: Unit,
        label: impl Fn(&Frame) -> String,
    ) -> Self {
        let mut named: Vec<(String, usize)> = view.frames().iter().map(label).zip(0..).collect();
        named.sort();
        let mut labels: Vec<String> = Vec::new();
        let mut frames = Vec::new();
        let mut rank = vec![0; named.len()];
        for (label, frame) in named {
            if labels.last() != Some(&label) {
                labels.push(label);
                frames.push(view.frames()[frame].clone());
            }
            rank[frame] = u32::try_from(labels.len() - 1).unwrap_or(u32::MAX);
        }

        let mut weights: HashMap<Vec<u32>, u64> = HashMap::new();
        let mut stack = Vec::new();
        for entry in view.profile.entries() {
            let weight = match unit {
                Unit::Samples => entry.ticks,
                Unit::Nanoseconds => entry.weight.0,
            };
            view.root_first(Spot::from(entry), threads, &mut stack);
            for frame in &mut stack {
                *frame = rank[*frame as usize];
            }
            match weights.get_mut(&stack) {
                Some(sum) => *sum = sum.saturating_add(weight),
                None if weight > 0 => {
                    weights.insert(stack.clone(), weight);
                }
                None => {}
            }
        }
        let mut stacks: Vec<_> = weights.into_iter().collect();
        stacks.sort();
        Self {
            labels,
            frames,
            stacks,
        }
    }
}
