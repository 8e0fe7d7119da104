//! What a thread was doing, in words and as frames that stand for it: its state, and on which
//! side of the GIL it was.
//!
//! The frames are no functions: a view puts them above or below a stack's own.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::aggregate::{Entry, Moment, Profile, ThreadIndex};
use crate::export::view::{Seen, thread_name};
use crate::sample::{Activity, Gil, Mode};
use crate::stack::{Frame, FrameKind, StackId};

/// Where the frame of a state stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateFrames {
    /// Above the first function, below the thread.
    Root,
    /// Below the last function.
    Leaf,
}

/// What decides which frames stand for a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) thread: ThreadIndex,
    pub(super) stack: StackId,
    pub(super) activity: Activity,
    gil: Gil,
    behind: Option<ThreadIndex>,
}

impl From<&Entry> for Spot {
    fn from(entry: &Entry) -> Self {
        Self {
            thread: entry.thread,
            stack: entry.stack,
            activity: entry.activity,
            gil: entry.gil,
            behind: entry.behind,
        }
    }
}

impl From<&Moment> for Spot {
    fn from(moment: &Moment) -> Self {
        Self {
            thread: moment.thread,
            stack: moment.stack,
            activity: moment.activity,
            gil: moment.gil,
            behind: moment.behind,
        }
    }
}

/// States without their reasons, where time of several kinds is kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    OnCpu,
    Runnable,
    Blocked,
    Unknown,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::OnCpu, Self::Runnable, Self::Blocked, Self::Unknown];

    pub(super) const fn of(activity: Activity) -> Self {
        match activity {
            Activity::OnCpu => Self::OnCpu,
            Activity::Runnable => Self::Runnable,
            Activity::Blocked(_) => Self::Blocked,
            Activity::Unknown => Self::Unknown,
        }
    }

    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::OnCpu => "on CPU",
            Self::Runnable => "runnable",
            Self::Blocked => "blocked",
            Self::Unknown => "state unknown",
        }
    }
}

/// A state as people read it.
pub(super) fn state_words(activity: Activity) -> Cow<'static, str> {
    let kind = Kind::of(activity).words();
    activity.wait().map_or(Cow::Borrowed(kind), |wait| {
        Cow::Owned(format!("{kind}: {}", wait.key()))
    })
}

/// Behind whom a thread waits for the GIL, as people read it.
pub(super) fn behind_words(profile: &Profile, behind: Option<ThreadIndex>) -> String {
    let info = behind.and_then(|thread| profile.threads().get(thread.0 as usize));
    info.map_or_else(
        || String::from("behind nobody known"),
        |info| format!("behind {}", thread_name(info)),
    )
}

/// The frames that stand for what threads did, where such are wanted.
pub(super) struct Marks {
    state_frames: Option<StateFrames>,
    states: HashMap<Activity, Seen>,
    gil: Option<GilMarks>,
}

struct GilMarks {
    holds: Seen,
    waits: Seen,
    behind: HashMap<Option<ThreadIndex>, Seen>,
}

impl Marks {
    /// The frames for `profile`: of the states where these are asked for, of the GIL in its mode.
    pub(super) fn new(
        profile: &Profile,
        state_frames: Option<StateFrames>,
        mut number: impl FnMut(Frame) -> Seen,
    ) -> Self {
        let mut number = |words: &str| {
            let words = format!("[{words}]");
            number(Frame::words(FrameKind::State, words))
        };
        let mut states = HashMap::new();
        let mut gil = (profile.meta().mode == Mode::Gil).then(|| GilMarks {
            holds: number("holds the GIL"),
            waits: number("waits for the GIL"),
            behind: HashMap::new(),
        });
        for entry in profile.entries() {
            if state_frames.is_some() {
                states
                    .entry(entry.activity)
                    .or_insert_with(|| number(&state_words(entry.activity)));
            }
            if let Some(gil) = &mut gil
                && entry.gil == Gil::Waits
            {
                gil.behind
                    .entry(entry.behind)
                    .or_insert_with(|| number(&behind_words(profile, entry.behind)));
            }
        }
        Self {
            state_frames,
            states,
            gil,
        }
    }

    /// Adds the state's frame to a stack, leaf first, that has nothing but functions.
    pub(super) fn add_state(&self, spot: Spot, stack: &mut Vec<Seen>) {
        let Some(state) = self.states.get(&spot.activity) else {
            return;
        };
        match self.state_frames {
            None => {}
            Some(StateFrames::Root) => stack.push(*state),
            Some(StateFrames::Leaf) => stack.insert(0, *state),
        }
    }

    /// Adds to a stack, leaf first, on which side of the GIL its thread was; nothing is above
    /// that, so that both sides stand beside each other.
    pub(super) fn add_gil(&self, spot: Spot, stack: &mut Vec<Seen>) {
        let Some(gil) = &self.gil else {
            return;
        };
        match spot.gil {
            Gil::Holds => stack.push(gil.holds),
            Gil::Waits => {
                stack.extend(gil.behind.get(&spot.behind));
                stack.push(gil.waits);
            }
            // The mode keeps no others.
            Gil::Neither | Gil::NoGil | Gil::Unknown => {}
        }
    }
}
