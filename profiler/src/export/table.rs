//! Columns of text that line up, coloured when asked for.
//!
//! Widths are counted in the columns of a terminal: a Han or Kana character takes two, a
//! combining one none.

use std::io;

use crate::export::escape::shortened;

/// How a piece of text looks in a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paint {
    Plain,
    Bold,
    Dim,
    /// A great part of the whole.
    Hot,
    /// A part worth a look.
    Warm,
    Warning,
}

impl Paint {
    /// The text between the ANSI sequences of this look, or as it is without `style`.
    pub(super) fn on(self, text: &str, style: bool) -> String {
        let code = match self {
            Self::Plain => return text.to_owned(),
            _ if !style || text.trim().is_empty() => return text.to_owned(),
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Hot => "1;31",
            Self::Warm => "33",
            Self::Warning => "1;33",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// A cell: text for one line and its look.
#[derive(Debug)]
pub(super) struct Cell(pub(super) String, pub(super) Paint);

/// Rows of cells; all columns but the last are right-aligned, the last takes what is left.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(super) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    pub(super) fn write(
        &self,
        width: usize,
        style: bool,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let n_columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut widths = vec![0; n_columns];
        for row in &self.rows {
            for (column, cell) in widths.iter_mut().zip(row) {
                *column = columns(&cell.0).max(*column);
            }
        }
        let fixed = widths.iter().rev().skip(1).map(|column| column + 2).sum();
        let left = width.saturating_sub(fixed).max(16);
        for row in &self.rows {
            let mut line = String::new();
            for (i, (Cell(text, paint), column)) in row.iter().zip(&widths).enumerate() {
                let last = i + 1 == n_columns;
                if last {
                    line += &paint.on(&fitted(text, left), style);
                } else {
                    line += &" ".repeat(column - columns(text));
                    line += &paint.on(text, style);
                    line += "  ";
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// `text` in at most `max` columns.
pub(super) fn fitted(text: &str, max: usize) -> String {
    if columns(text) <= max {
        return text.to_owned();
    }
    // Characters of two columns make the first tries too wide.
    for chars in (2..=max).rev() {
        let fitted = shortened(text, chars);
        if columns(&fitted) <= max {
            return fitted.into_owned();
        }
    }
    String::from("…")
}

/// How many columns of a terminal `text` takes.
pub(super) fn columns(text: &str) -> usize {
    text.chars().map(width).sum()
}

/// The blocks of Unicode that terminals draw in two columns or in none; by and large, which is
/// all that alignment needs.
fn width(c: char) -> usize {
    match c as u32 {
        0x300..=0x36f | 0x200b..=0x200d | 0x20d0..=0x20ff | 0xfe00..=0xfe0f | 0xfe20..=0xfe2f => 0,
        0x1100..=0x115f
        | 0x2e80..=0x303e
        | 0x3041..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1f64f
        | 0x1f680..=0x1f6ff
        | 0x1f900..=0x1f9ff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_fits_by_columns_not_by_characters() {
        let check = |text: &str, max, expected: &str| assert_eq!(fitted(text, max), expected);
        check("変数", 4, "変数");
        check("変数変数", 5, "変…数");
        check("e\u{301}e\u{301}", 2, "e\u{301}e\u{301}");
        check("abcdef", 3, "a…f");
        check("変", 1, "…");
        check("変数", 0, "…");
    }

    #[test]
    fn columns_line_up_and_paint_takes_no_room() {
        let mut table = Table::default();
        let cell = |text: &str, paint| Cell(text.to_owned(), paint);
        table.row(vec![cell("1", Paint::Bold), cell("a", Paint::Plain)]);
        table.row(vec![cell("100", Paint::Hot), cell("変数", Paint::Plain)]);
        let text = |style| {
            let mut out = Vec::new();
            let written = table.write(40, style, &mut out);
            assert!(written.is_ok());
            String::from_utf8_lossy(&out).into_owned()
        };
        assert_eq!(text(false), "  1  a\n100  変数\n");
        assert_eq!(
            text(true),
            "  \x1b[1m1\x1b[0m  a\n\x1b[1;31m100\x1b[0m  変数\n"
        );
    }
}
