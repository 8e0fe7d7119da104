//! What is said beside the results, to standard error. Nobody may be listening any more (a reader
//! that has seen enough, a full disk); a run and its files are worth more than a line about them, so
//! that this cannot be said is no error, and no panic as `eprintln!` would make of it.

use std::{
    fmt::Arguments,
    io::{self, Write as _},
};

/// What [`say!`] expands to.
pub(super) fn line(words: Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{words}");
}

/// `say!("…")`, as `eprintln!`.
macro_rules! say {
    ($($words:tt)*) => {
        $crate::cli::voice::line(format_args!($($words)*))
    };
}
pub(super) use say;
