//! Frames as numbers: each distinct frame is kept once.
//!
//! The table is bounded; a full table says so and the caller decides what stands in.

use std::collections::HashMap;
use std::sync::Arc;

use super::Frame;

/// Longest name kept, in bytes: a target may call a function anything.
const MAX_NAME_BYTES: usize = 1024;
/// Longest path kept, in bytes (`PATH_MAX`).
const MAX_FILE_BYTES: usize = 4096;

/// A frame's number in its [`Frames`], counted from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub u32);

/// Frame ↔ [`FrameId`].
///
/// The names come from the target, so the map is std's keyed one: a target cannot make names
/// that collide. Callers keep the number beside the code object it belongs to, so this lookup
/// is not on a sample's path.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    frames: Vec<Frame>,
    ids: HashMap<Frame, FrameId>,
}

impl Frames {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The frame's number; a new frame gets the next one unless `limit` frames are held
    /// already, which is `None`.
    ///
    /// A name or path beyond what can be real is shortened and marked with `…`.
    pub fn intern(&mut self, frame: Frame, limit: usize) -> Option<FrameId> {
        let frame = bounded(frame);
        if let Some(id) = self.ids.get(&frame) {
            return Some(*id);
        }
        let id = FrameId(u32::try_from(self.frames.len()).ok()?);
        if self.frames.len() >= limit {
            return None;
        }
        self.frames.push(frame.clone());
        self.ids.insert(frame, id);
        Some(id)
    }

    /// The frame of that number, if it is one of this table's.
    #[must_use]
    pub fn get(&self, id: FrameId) -> Option<&Frame> {
        self.frames.get(id.0 as usize)
    }

    /// Every frame, in the order of the numbers.
    #[must_use]
    pub fn as_slice(&self) -> &[Frame] {
        &self.frames
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

fn bounded(mut frame: Frame) -> Frame {
    for (text, max) in [
        (Some(&mut frame.function), MAX_NAME_BYTES),
        (Some(&mut frame.file), MAX_FILE_BYTES),
        (frame.module.as_mut(), MAX_FILE_BYTES),
    ] {
        if let Some(text) = text
            && text.len() > max
        {
            let kept = text.floor_char_boundary(max);
            *text = Arc::from(format!("{}…", &text[..kept]));
        }
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_frames_have_one_number() {
        let mut frames = Frames::new();
        let f = Frame::python("f", "a.py", Some(1), Some(2));
        let a = frames.intern(f.clone(), 10);
        let b = frames.intern(Frame::gc(), 10);
        assert_eq!((a, b), (Some(FrameId(0)), Some(FrameId(1))));
        assert_eq!(frames.intern(f.clone(), 10), a);
        assert_eq!(frames.get(FrameId(0)), Some(&f));
        assert_eq!(frames.get(FrameId(2)), None);
        assert_eq!(frames.len(), 2);
    }

    #[test]
    fn a_full_table_still_knows_what_it_has() {
        let mut frames = Frames::new();
        assert_eq!(frames.intern(Frame::gc(), 1), Some(FrameId(0)));
        assert_eq!(frames.intern(Frame::cut(1), 1), None);
        assert_eq!(frames.intern(Frame::gc(), 1), Some(FrameId(0)));
    }

    #[test]
    fn an_absurd_name_is_shortened_at_a_character() {
        let mut frames = Frames::new();
        let frame = Frame::python("é".repeat(100_000), "x".repeat(100_000), None, None);
        let id = frames.intern(frame.clone(), 9);
        assert_eq!(frames.intern(frame, 9), id);
        let kept = &frames.as_slice()[0];
        assert!(kept.function.len() <= MAX_NAME_BYTES + 3 && kept.function.ends_with('…'));
        assert!(kept.file.len() <= MAX_FILE_BYTES + 3);
    }
}
