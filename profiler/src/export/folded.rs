//! Folded stacks: one line a stack, `root;…;leaf weight`, in the order of the names.
//!
//! The weights of all lines sum to the profile's ticks (or nanoseconds) exactly. In names, `;`
//! is written `\x3b`, a newline `\n`, `\` itself `\\`. Frames that are no functions are in `[ ]`.

use std::io;

use crate::aggregate::Profile;
use crate::export::Options;
use crate::export::escape::foldable;
use crate::export::fold::Fold;
use crate::export::view::View;

/// Writes `profile` as folded lines; an empty profile is an empty file.
///
/// # Errors
/// Those of `out`.
pub fn write(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let view = View::new(profile, options);
    let fold = Fold::new(&view, options.threads, options.unit, |frame| {
        foldable(&frame.to_string()).into_owned()
    });
    let mut line = String::new();
    for (stack, weight) in &fold.stacks {
        join(&fold.labels, stack, *weight, &mut line);
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Fills `line` with one folded line.
pub(super) fn join(labels: &[String], stack: &[u32], weight: u64, line: &mut String) {
    line.clear();
    for (depth, label) in stack.iter().enumerate() {
        if depth > 0 {
            line.push(';');
        }
        line.push_str(&labels[*label as usize]);
    }
    // Readers of this format take a line that begins so for a comment.
    if line.starts_with('#') {
        line.replace_range(..1, "\\x23");
    }
    line.push(' ');
    line.push_str(&weight.to_string());
}
