//! What an exec makes of a process's threads: one is left, under the first one's id, and nothing that
//! was known of Python holds any more.

use super::{Mappings, People};
use crate::{aggregate::ProfileBuilder, threads::Registry, words::Tid};

impl People {
    /// Whether the end of a thread with this id is that of who had it before an exec: a thread
    /// begins to end before it has.
    pub(in crate::pipeline) fn is_of_former(&self, tid: Tid) -> bool {
        let place = self.living.get(&tid).filter(|place| place.took_over);
        let person = place.and_then(|place| self.everyone.get(place.own));
        person.is_some_and(|person| person.ended.is_none())
    }

    /// After an exec the one thread bears the new program's name, until it is known as Python's.
    pub(in crate::pipeline) fn rename_all(&self, builder: &mut ProfileBuilder, name: &str) {
        for place in self.living.values() {
            builder.rename(place.index, name, place.python);
        }
    }

    /// The program was replaced: nobody is who they were, but the thread that did it lives on.
    pub(in crate::pipeline) fn forget_python(&mut self) {
        self.facts.clear();
        self.states.clear();
        self.states_of.clear();
        self.bases.clear();
        self.registry = Registry::new();
        self.mappings = Mappings::default();
        self.start_stack = None;
        for place in self.living.values_mut() {
            place.python = false;
        }
    }

    /// In an exec, the thread that did it has become its process's first: the same thread, another
    /// id. Who was the first before has ended.
    pub(in crate::pipeline) fn take_over(
        &mut self,
        builder: &mut ProfileBuilder,
        old: Tid,
        first: Tid,
    ) {
        if old == first {
            return;
        }
        self.births.remove(&first);
        if let Some(born) = self.births.remove(&old) {
            self.births.insert(first, born);
        }
        self.living.remove(&first);
        self.strangers.retain(|stranger| stranger.tid != first);
        let Some(mut place) = self.living.remove(&old) else {
            return;
        };
        place.took_over = true;
        builder.renumber(place.index, first);
        if let Some(person) = self.everyone.get_mut(place.own) {
            person.tid = first;
        }
        for stranger in &mut self.strangers {
            if stranger.tid == old {
                stranger.tid = first;
            }
        }
        self.living.insert(first, place);
    }
}
