//! Rust without its comments and the insides of its literals, so that a rule's word in a
//! sentence or a string is not taken for code. It is a lexer of just that, not a parser.

/// The same text with comments and the insides of strings and characters made blank; lines and
/// columns stay where they are.
pub(super) fn bare(text: &str) -> String {
    let mut rest = text;
    let mut out = String::with_capacity(text.len());
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let (length, keep) = token(rest, first, before);
        let (taken, after) = rest.split_at(length);
        for char in taken.chars() {
            out.push(if keep || char == '\n' { char } else { ' ' });
        }
        before = taken.chars().next_back().unwrap_or(' ');
        rest = after;
    }
    out
}

/// The length of the next piece in bytes, and whether it is code.
fn token(rest: &str, first: char, before: char) -> (usize, bool) {
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), false);
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), false);
    }
    let in_word = before.is_alphanumeric() || before == '_';
    if !in_word && let Some(length) = raw_string(rest) {
        return (length, false);
    }
    if first == '"' {
        return (quoted(rest, '"').unwrap_or(rest.len()), false);
    }
    if first == '\''
        && let Some(length) = character(rest)
    {
        return (length, false);
    }
    (first.len_utf8(), true)
}

/// Block comments nest.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// `r"…"`, `r#"…"#`, and the same after `b` or `c`.
fn raw_string(rest: &str) -> Option<usize> {
    let body = rest.trim_start_matches(['b', 'c']).strip_prefix('r')?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    let inside = body[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let close = inside.find(&end).map_or(inside.len(), |at| at + end.len());
    Some(rest.len() - inside.len() + close)
}

/// From a quote to its end, past escapes.
fn quoted(rest: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, char) in rest.char_indices().skip(1) {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if char == quote => return Some(at + char.len_utf8()),
            _ => {}
        }
    }
    None
}

/// A character literal, which a lifetime or a label is not.
fn character(rest: &str) -> Option<usize> {
    let mut chars = rest.chars().skip(1);
    let first = chars.next()?;
    if first == '\\' {
        return quoted(rest, '\'');
    }
    (chars.next()? == '\'').then(|| 2 + first.len_utf8())
}

#[cfg(test)]
mod tests {
    use super::bare;

    #[test]
    fn only_code_is_left() {
        let check = |text: &str, expected: &str| {
            let squeezed = bare(text).split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(squeezed, expected, "of {text}");
        };
        check("a // b\nc", "a c");
        check("a /* b /* c */ d */ e", "a e");
        check(r#"f("a \" b", c)"#, "f( , c)");
        check(r##"f(r#"a " b"#, c)"##, "f( , c)");
        check("f(b\"x\", br\"y\\\", z)", "f(b , , z)");
        check("let a: &'static str = 'x';", "let a: &'static str = ;");
        check(r"['\'', '/', '\u{1}', a]", "[ , , , a]");
        check("var\"x\"", "var");
        check("'outer: loop {}", "'outer: loop {}");
    }

    #[test]
    fn lines_stay_where_they_are() {
        let text = "a\n/* b\nc */ d\n\"e\nf\" g";
        assert_eq!(bare(text).lines().count(), text.lines().count());
        assert_eq!(bare(text).len(), text.len());
    }
}
