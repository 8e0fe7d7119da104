//! A profile as an exporter sees it: frames merged by the granularity asked for, the empty
//! stack given a frame, each thread given a root frame, and what it did another.

use crate::aggregate::{ProcessInfo, Profile, ThreadIndex, ThreadInfo};
use crate::export::states::{Marks, Spot};
use crate::export::{Granularity, Options};
use crate::stack::{Frame, FrameKind, StackId};
use crate::words::Pid;

use std::collections::HashMap;

/// A frame's number in its [`View`].
pub(super) type Seen = u32;

pub(super) struct View<'a> {
    pub(super) profile: &'a Profile,
    frames: Vec<Frame>,
    /// By the profile's own frame numbers.
    seen: Vec<Seen>,
    /// Stands in the empty stack.
    no_frames: Seen,
    /// By thread: its process where there are several, itself.
    roots: Vec<(Option<Seen>, Seen)>,
    marks: Marks,
}

impl<'a> View<'a> {
    pub(super) fn new(profile: &'a Profile, options: &Options) -> Self {
        let mut frames = Vec::new();
        let mut numbers: HashMap<Frame, Seen> = HashMap::new();
        let mut number = |frame: Frame| {
            *numbers.entry(frame).or_insert_with_key(|frame| {
                frames.push(frame.clone());
                Seen::try_from(frames.len() - 1).unwrap_or(Seen::MAX)
            })
        };
        let no_frames = number(Frame::words(FrameKind::Unknown, "[no Python frames]"));
        let seen = profile.frames().as_slice().iter();
        let seen = seen
            .map(|frame| match options.granularity {
                Granularity::Function => number(frame.without_line()),
                Granularity::Line => number(frame.clone()),
            })
            .collect();
        let threads = profile.threads();
        let several = threads.iter().any(|info| info.pid != profile.meta().pid);
        let roots = (0..)
            .map(ThreadIndex)
            .zip(threads)
            .map(|(index, info)| {
                let process = profile.process_of(index).0 as usize;
                let words = process_name(profile.processes().get(process), info.pid);
                let process = several.then(|| number(Frame::words(FrameKind::Process, words)));
                let thread = number(Frame::words(FrameKind::Thread, thread_name(info)));
                (process, thread)
            })
            .collect();
        let marks = Marks::new(profile, options.state_frames, number);
        Self {
            profile,
            frames,
            seen,
            no_frames,
            roots,
            marks,
        }
    }

    /// Every frame there may be in a stack of this view.
    pub(super) fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Fills `out` with the stack, leaf first; it has at least one frame.
    pub(super) fn leaf_first(&self, stack: StackId, out: &mut Vec<Seen>) {
        out.clear();
        let ids = self.profile.stacks().get(stack).unwrap_or_default();
        out.extend(ids.iter().filter_map(|id| self.seen.get(id.0 as usize)));
        if out.is_empty() {
            out.push(self.no_frames);
        }
    }

    /// Fills `out` with the stack, root first: the side of the GIL, process and thread where
    /// `threads` asks for them, the state where its frame is a root, functions, the state where
    /// it is a leaf.
    pub(super) fn root_first(&self, spot: Spot, threads: bool, out: &mut Vec<Seen>) {
        self.leaf_first(spot.stack, out);
        self.marks.add_state(spot, out);
        if threads && let Some((process, thread)) = self.roots.get(spot.thread.0 as usize) {
            out.push(*thread);
            out.extend(process);
        }
        self.marks.add_gil(spot, out);
        out.reverse();
    }
}

/// A process as people know it: by its program.
fn process_name(info: Option<&ProcessInfo>, pid: Pid) -> String {
    let program = info.and_then(|info| info.command.split(' ').next());
    let name = program.and_then(|program| program.rsplit('/').next());
    match name {
        None | Some("") => format!("process (pid {pid})"),
        Some(name) => format!("{name} (pid {pid})"),
    }
}

/// A thread as people know it.
pub(super) fn thread_name(info: &ThreadInfo) -> String {
    match (info.name.as_str(), info.tid.0) {
        ("", tid) => format!("thread (tid {tid})"),
        (name, 0) => name.to_owned(),
        (name, tid) => format!("{name} (tid {tid})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was `process 7`, which a folded line had to write as `process\x207`.
    #[test]
    fn a_process_goes_by_its_program_and_its_number() {
        let named = |command: &str| {
            let info = ProcessInfo {
                pid: Pid(7),
                parent: None,
                command: command.to_owned(),
                python: String::new(),
            };
            process_name(Some(&info), info.pid)
        };
        assert_eq!(named("/usr/bin/gunicorn -w 4"), "gunicorn (pid 7)");
        assert_eq!(named("python3"), "python3 (pid 7)");
        assert_eq!(named(""), "process (pid 7)");
        assert_eq!(process_name(None, Pid(7)), "process (pid 7)");
    }
}
