//! What a process has to do with its parent's and its children's code objects.

use super::member::Member;
use crate::words::CodeAddr;

impl Member {
    /// How often it ran a code that was not known before.
    pub(super) fn news(&self) -> u64 {
        self.python.as_ref().map_or(0, |it| it.stacks.news())
    }

    /// Codes that it ran and that its parent was not asked for.
    pub(super) fn take_unknown(&mut self) -> Vec<CodeAddr> {
        let python = self.python.as_mut();
        python.map_or_else(Vec::new, |python| python.stacks.take_unknown())
    }

    /// A child of this process ran these codes: those that come will run them too, and may be over
    /// before they can be asked.
    pub(super) fn learn_codes(&mut self, codes: &[CodeAddr]) {
        if let Some(python) = &mut self.python {
            python.stacks.learn_codes(self.hold.memory(), codes);
        }
    }
}
