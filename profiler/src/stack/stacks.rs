//! Stacks as numbers: each distinct list of frames is kept once.
//!
//! This is on the path of every sample: a lookup allocates nothing. What a full table means is
//! the caller's affair.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::FrameId;

/// A stack's number in its [`Stacks`], counted from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

/// List of frames (leaf first) ↔ [`StackId`].
///
/// The keys are numbers that the profiler gave out itself, so a fast unkeyed hash will do.
#[derive(Clone, Debug, Default)]
pub struct Stacks {
    stacks: Vec<Arc<[FrameId]>>,
    ids: FxHashMap<Arc<[FrameId]>, StackId>,
    frames: usize,
}

impl Stacks {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of a stack that is known already; `frames` is leaf first.
    #[must_use]
    pub fn find(&self, frames: &[FrameId]) -> Option<StackId> {
        self.ids.get(frames).copied()
    }

    /// The stack's number; a new one gets the next unless `limit` stacks, or `frame_limit`
    /// frames over all stacks, are held already, which is `None`.
    pub fn intern(
        &mut self,
        frames: &[FrameId],
        limit: usize,
        frame_limit: usize,
    ) -> Option<StackId> {
        if let Some(id) = self.find(frames) {
            return Some(id);
        }
        let total = self.frames.saturating_add(frames.len());
        if self.stacks.len() >= limit || total > frame_limit {
            return None;
        }
        let id = StackId(u32::try_from(self.stacks.len()).ok()?);
        let stack: Arc<[FrameId]> = Arc::from(frames);
        self.stacks.push(Arc::clone(&stack));
        self.ids.insert(stack, id);
        self.frames = total;
        Some(id)
    }

    /// The frames of that stack, leaf first, if it is one of this table's.
    #[must_use]
    pub fn get(&self, id: StackId) -> Option<&[FrameId]> {
        self.stacks.get(id.0 as usize).map(|stack| &**stack)
    }

    /// Every stack, in the order of the numbers.
    pub fn iter(&self) -> impl Iterator<Item = &[FrameId]> {
        self.stacks.iter().map(|stack| &**stack)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.stacks.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: usize = 1000;

    fn stack(ids: &[u32]) -> Vec<FrameId> {
        ids.iter().copied().map(FrameId).collect()
    }

    #[test]
    fn equal_stacks_have_one_number() {
        let mut stacks = Stacks::new();
        let a = stacks.intern(&stack(&[1, 2, 3]), MANY, MANY);
        let b = stacks.intern(&stack(&[3, 2, 1]), MANY, MANY);
        let empty = stacks.intern(&[], MANY, MANY);
        assert_eq!(
            [a, b, empty],
            [Some(StackId(0)), Some(StackId(1)), Some(StackId(2))]
        );
        assert_eq!(stacks.find(&stack(&[1, 2, 3])), a);
        assert_eq!(stacks.find(&stack(&[1, 2])), None);
        assert_eq!(stacks.get(StackId(1)), Some(&stack(&[3, 2, 1])[..]));
        assert_eq!(stacks.get(StackId(3)), None);
    }

    #[test]
    fn the_table_is_bounded_in_stacks_and_in_frames() {
        let mut stacks = Stacks::new();
        assert!(stacks.intern(&stack(&[1, 2, 3]), 2, 5).is_some());
        assert!(stacks.intern(&stack(&[4, 5, 6]), 2, 5).is_none(), "frames");
        assert!(stacks.intern(&stack(&[4]), 2, 5).is_some());
        assert!(stacks.intern(&stack(&[5]), 2, 5).is_none(), "stacks");
        assert!(stacks.intern(&stack(&[4]), 2, 5).is_some(), "known");
    }
}
