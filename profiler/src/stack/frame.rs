//! A named frame: Python, native, kernel, or one that stands for something else (a collection,
//! a thread, what it was doing, a cut in a deep stack, a frame that could not be read).
//!
//! It holds names, not addresses. How names are escaped for a format is the format's affair.

use std::fmt;
use std::sync::{Arc, LazyLock};

use crate::native::NativeFrame;

/// The file of a frame that has none: one allocation for all of them.
static NO_FILE: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(""));

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrameKind {
    /// A Python function.
    Python,
    /// A function of a native library or program.
    Native,
    /// A function of the kernel.
    Kernel,
    /// The garbage collector, at work for the frame below it.
    Gc,
    /// A thread, as the root of its stacks.
    Thread,
    /// A process, as the root of its threads.
    Process,
    /// A task, as the root of its coroutines or of a greenlet's functions.
    Task,
    /// What the thread was doing, as the root or leaf of its stacks.
    State,
    /// Frames left out of the middle of a deep stack.
    Cut,
    /// A frame that could not be read, or a place where none were.
    Unknown,
}

impl FrameKind {
    /// The word for it in files.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Native => "native",
            Self::Kernel => "kernel",
            Self::Gc => "gc",
            Self::Thread => "thread",
            Self::Process => "process",
            Self::Task => "task",
            Self::State => "state",
            Self::Cut => "cut",
            Self::Unknown => "unknown",
        }
    }
}

/// A named frame. Two are equal when every field is, the line included.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// What it is.
    pub kind: FrameKind,
    /// The function's qualified name, or the words that stand for it.
    pub function: Arc<str>,
    /// The source file as the code object has it; empty when there is none.
    pub file: Arc<str>,
    /// The line being executed, when it is known.
    pub line: Option<u32>,
    /// The line on which the function begins, when it is known.
    pub first_line: Option<u32>,
    /// The library or program of a native frame, the module of a kernel frame.
    pub module: Option<Arc<str>>,
}

impl Frame {
    /// A Python function: its qualified name, its file, where it begins, where it is.
    pub fn python(
        function: impl Into<Arc<str>>,
        file: impl Into<Arc<str>>,
        first_line: Option<u32>,
        line: Option<u32>,
    ) -> Self {
        Self {
            kind: FrameKind::Python,
            function: function.into(),
            file: file.into(),
            line,
            first_line,
            module: None,
        }
    }

    /// A native function and the file it is mapped from.
    pub fn native(function: impl Into<Arc<str>>, module: Option<Arc<str>>) -> Self {
        Self {
            module,
            ..Self::words(FrameKind::Native, function)
        }
    }

    /// The same where debug information has its source: a file, and the line being executed.
    #[must_use]
    pub fn at(mut self, file: Option<Arc<str>>, line: Option<u32>) -> Self {
        if let Some(file) = file {
            self.file = file;
            self.line = line;
        }
        self
    }

    /// A function of the kernel.
    pub fn kernel(function: impl Into<Arc<str>>) -> Self {
        Self::words(FrameKind::Kernel, function)
    }

    /// The garbage collector, as the leaf of the stack that set it off.
    #[must_use]
    pub fn gc() -> Self {
        Self::words(FrameKind::Gc, "<GC>")
    }

    /// A task by its name, as the root of what it runs.
    #[must_use]
    pub fn task(name: &str) -> Self {
        Self::words(FrameKind::Task, format!("[task {name}]"))
    }

    /// A task of which not even the name is known, and why.
    #[must_use]
    pub fn unreadable_task(reason: &str) -> Self {
        Self::words(FrameKind::Task, format!("[task unreadable: {reason}]"))
    }

    /// The place where `frames` frames were left out, between both ends of a deep stack.
    #[must_use]
    pub fn cut(frames: u32) -> Self {
        let noun = if frames == 1 { "frame" } else { "frames" };
        Self::words(FrameKind::Cut, format!("[… {frames} {noun} cut]"))
    }

    /// A frame that could not be read, and why: `reason` is lower case without a full stop.
    pub fn unreadable(reason: impl fmt::Display) -> Self {
        Self::words(FrameKind::Unknown, format!("[unreadable: {reason}]"))
    }

    /// A frame of `kind` that has words instead of a function, and no file.
    pub fn words(kind: FrameKind, words: impl Into<Arc<str>>) -> Self {
        Self {
            kind,
            function: words.into(),
            file: Arc::clone(&NO_FILE),
            line: None,
            first_line: None,
            module: None,
        }
    }

    /// The same function without regard to the line being executed: its line is the first one. A
    /// native function is its module's, whichever of the sources that were inlined there it is in.
    #[must_use]
    pub fn without_line(&self) -> Self {
        Self {
            line: self.first_line,
            file: match (self.kind, &self.module) {
                (FrameKind::Native, Some(_)) => Arc::clone(&NO_FILE),
                _ => Arc::clone(&self.file),
            },
            ..self.clone()
        }
    }
}

impl From<&NativeFrame> for Frame {
    /// Code without a name is shown by its module and the address in it, else by the reason.
    fn from(frame: &NativeFrame) -> Self {
        match frame {
            NativeFrame::Known {
                function,
                module,
                file,
                line,
                ..
            } => Self::native(Arc::clone(function), module.clone()).at(file.clone(), *line),
            NativeFrame::Unknown {
                module: Some((module, addr)),
                ..
            } => Self::native(format!("{module}+{addr:#x}"), Some(Arc::clone(module))),
            NativeFrame::Unknown { reason, .. } => Self::unreadable(reason),
        }
    }
}

impl fmt::Display for Frame {
    /// The label: `qualname (file:line)`, with what is not known left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name: &str = if self.function.is_empty() {
            "<no name>"
        } else {
            &self.function
        };
        f.write_str(name)?;
        match (&*self.file, self.line.or(self.first_line), &self.module) {
            ("", _, None) => Ok(()),
            // `module+0x1234` names it already.
            ("", _, Some(module)) if name.starts_with(&**module) => Ok(()),
            ("", _, Some(module)) => write!(f, " ({module})"),
            (file, Some(line), _) => write!(f, " ({file}:{line})"),
            (file, None, _) => write!(f, " ({file})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::RemoteAddr;

    #[test]
    fn a_label_leaves_out_what_is_not_known() {
        let check = |frame: Frame, label: &str| assert_eq!(frame.to_string(), label);
        check(
            Frame::python("A.run", "a.py", Some(1), Some(7)),
            "A.run (a.py:7)",
        );
        check(
            Frame::python("A.run", "a.py", Some(1), None),
            "A.run (a.py:1)",
        );
        check(Frame::python("A.run", "a.py", None, None), "A.run (a.py)");
        check(Frame::python("A.run", "", Some(1), Some(7)), "A.run");
        check(
            Frame::python("", "a.py", Some(1), Some(7)),
            "<no name> (a.py:7)",
        );
        check(
            Frame::native("deflate", Some("libz.so.1".into())),
            "deflate (libz.so.1)",
        );
        check(Frame::native("deflate", None), "deflate");
        let lined = Frame::native("deflate", Some("libz.so.1".into()));
        check(
            lined.at(Some("deflate.c".into()), Some(9)),
            "deflate (deflate.c:9)",
        );
        let nameless = NativeFrame::Unknown {
            addr: RemoteAddr(0x7f_1234),
            module: Some(("libz.so.1".into(), 0x1234)),
            reason: "module without symbols",
        };
        check(Frame::from(&nameless), "libz.so.1+0x1234");
        check(Frame::gc(), "<GC>");
        check(Frame::cut(1), "[… 1 frame cut]");
        check(Frame::cut(312), "[… 312 frames cut]");
        check(
            Frame::unreadable("its code object is gone"),
            "[unreadable: its code object is gone]",
        );
    }

    #[test]
    fn without_its_line_a_frame_is_its_function() {
        let a = Frame::python("f", "a.py", Some(1), Some(7));
        let b = Frame::python("f", "a.py", Some(1), Some(9));
        assert_ne!(a, b);
        assert_eq!(a.without_line(), b.without_line());
        assert_eq!(a.without_line().to_string(), "f (a.py:1)");
    }
}
