//! A sample of which not all is known before its batch is over.

use std::sync::Arc;

use super::native::Native;
use crate::{
    aggregate::{Place, ThreadIndex},
    pipeline::stacks::ChainId,
    sample::{FramesFrom, Sample},
    stack::StackId,
    tasks::Task,
};

/// Where a sample's stack will come from at the end of its batch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Frames {
    Chain(ChainId),
    /// Nothing but the place where it runs native code.
    Bare(StackId),
    Ready(StackId),
}

/// A sample whose batch is not over.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) thread: ThreadIndex,
    pub(super) frames: Frames,
    pub(super) sample: Sample,
    pub(super) from: FramesFrom,
    /// The task that ran, if its name is to be asked for again.
    pub(super) named: Option<Arc<Task>>,
    pub(super) native: Native,
}

impl Pending {
    pub(super) fn place(&self, stack: StackId) -> Place {
        Place {
            thread: self.thread,
            stack,
            frames_from: self.from,
            behind: None,
        }
    }
}
