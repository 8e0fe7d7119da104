//! Names of a target made harmless where characters have a meaning: terminals, lines, XML.
//!
//! A function may be called anything, an escape sequence that rewrites the terminal included.

use std::borrow::Cow;
use std::fmt::Write;

/// `text` on one line, fit for a terminal and for XML: control characters, line separators
/// and those that turn the direction of writing become `\n`, `\xNN` or `\u{NNNN}`.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_unprintable(c).then_some(c))
}

/// The same, fit for a frame of a folded line: `;` and `\` are escaped too, so that `;` is
/// always between frames and every escape can be undone. A number at the end loses its blank
/// to `\x20`: readers would take it for a second weight.
pub(super) fn foldable(text: &str) -> Cow<'_, str> {
    let folded = escaped(text, |c| {
        (c == ';' || c == '\\' || is_unprintable(c)).then_some(c)
    });
    match folded.rsplit_once(' ') {
        Some((before, last)) if last.bytes().all(|b| b.is_ascii_digit() || b == b'.') => {
            Cow::Owned(format!("{before}\\x20{last}"))
        }
        _ => folded,
    }
}

fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{2028}' | '\u{2029}'                         // line and paragraph separators
            | '\u{200e}' | '\u{200f}' | '\u{061c}'          // direction marks
            | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            | '\u{feff}' | '\u{fffe}' | '\u{ffff}') // not characters of XML, but the first
}

fn escaped(text: &str, pick: impl Fn(char) -> Option<char>) -> Cow<'_, str> {
    if !text.chars().any(|c| pick(c).is_some()) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        // Writing to a string cannot fail.
        let _ = match pick(c) {
            None => {
                out.push(c);
                Ok(())
            }
            Some('\n') => write!(out, "\\n"),
            Some('\r') => write!(out, "\\r"),
            Some('\t') => write!(out, "\\t"),
            Some('\\') => write!(out, "\\\\"),
            Some(c) if (c as u32) < 0x100 => write!(out, "\\x{:02x}", c as u32),
            Some(c) => write!(out, "\\u{{{:x}}}", c as u32),
        };
    }
    Cow::Owned(out)
}

/// `text` in at most `max` characters, the middle replaced by `…` where it is longer; the end
/// of a label holds its file and line, so more of that is kept than of the middle.
pub(super) fn shortened(text: &str, max: usize) -> Cow<'_, str> {
    let length = text.chars().count();
    if length <= max {
        return Cow::Borrowed(text);
    }
    let kept = max.saturating_sub(1);
    let tail = kept / 2;
    let head = kept - tail;
    let mut out: String = text.chars().take(head).collect();
    out.push('…');
    out.extend(text.chars().skip(length - tail));
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_meaning_is_escaped_and_nothing_else() {
        let check = |text: &str, on_a_line: &str, folded: &str| {
            assert_eq!(printable(text), on_a_line);
            assert_eq!(foldable(text), folded);
        };
        check("größe 変数 <b>&", "größe 変数 <b>&", "größe 変数 <b>&");
        check("a;b\\c", "a;b\\c", "a\\x3bb\\\\c");
        check("a\nb\r\tc", "a\\nb\\r\\tc", "a\\nb\\r\\tc");
        check("\x1b[2J\0", "\\x1b[2J\\x00", "\\x1b[2J\\x00");
        check("a 2", "a 2", "a\\x202");
        check("a 2b", "a 2b", "a 2b");
        check("\u{85}\u{202e}", "\\x85\\u{202e}", "\\x85\\u{202e}");
    }

    #[test]
    fn a_long_label_keeps_both_ends() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("compress (worker.py:10)", 11), "compr…y:10)");
        assert_eq!(shortened("äöüäöü", 4), "äö…ü");
        assert_eq!(shortened("abc", 1), "…");
        assert_eq!(shortened("abc", 0), "…");
    }
}
