//! The words for formats and granularities, and the format that a file's name asks for.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A format of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// One line a stack: `root;…;leaf weight`.
    Folded,
    /// An SVG to look at in a browser.
    Flamegraph,
    /// speedscope's JSON.
    Speedscope,
    /// pprof's compressed protocol buffer.
    Pprof,
    /// The report for people.
    Text,
    /// The profile and its ledger as plain JSON.
    Json,
}

impl Format {
    /// Every format, in the order in which help lists them.
    pub const ALL: [Self; 6] = [
        Self::Folded,
        Self::Flamegraph,
        Self::Speedscope,
        Self::Pprof,
        Self::Text,
        Self::Json,
    ];

    /// The word for it on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Folded => "folded",
            Self::Flamegraph => "flamegraph",
            Self::Speedscope => "speedscope",
            Self::Pprof => "pprof",
            Self::Text => "text",
            Self::Json => "json",
        }
    }

    /// Ends of file names that ask for it.
    #[must_use]
    pub const fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::Folded => &[".folded", ".collapsed"],
            Self::Flamegraph => &[".svg"],
            Self::Speedscope => &[".speedscope.json", ".speedscope"],
            Self::Pprof => &[".pb.gz", ".pprof", ".pprof.gz"],
            Self::Text => &[".txt"],
            Self::Json => &[".json"],
        }
    }

    /// The format that the end of the file's name asks for.
    ///
    /// # Errors
    /// When it asks for none.
    pub fn from_extension(path: &Path) -> Result<Self, FormatError> {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().to_lowercase())
            .unwrap_or_default();
        let asks = |format: &Self| format.extensions().iter().any(|end| name.ends_with(end));
        // speedscope's end is also json's, so the order of `ALL` matters here.
        Self::ALL
            .into_iter()
            .find(asks)
            .ok_or_else(|| FormatError(path.to_path_buf()))
    }

    /// Whether it can show samples in the order of time, so that a timeline is worth keeping.
    #[must_use]
    pub const fn shows_time(self) -> bool {
        matches!(self, Self::Speedscope)
    }
}

/// Which frames count as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Granularity {
    /// Those of one function, whatever their line.
    #[default]
    Function,
    /// Those of one function on one line.
    Line,
}

impl Granularity {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Function, Self::Line];

    /// The word for it on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Line => "line",
        }
    }
}

/// A file name that asks for no format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatError(PathBuf);

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the name `{}` does not say which format to write: end it in {}, or say --format {}",
            self.0.display(),
            Format::ALL.map(|format| format.extensions()[0]).join(", "),
            Format::ALL.map(Format::name).join("|"),
        )
    }
}

impl std::error::Error for FormatError {}

/// A word that names none of the choices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWord {
    word: String,
    choices: Vec<&'static str>,
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is none of {}", self.word, self.choices.join("|"))
    }
}

impl std::error::Error for UnknownWord {}

macro_rules! words {
    ($($name:ident),+) => {
        $(
            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(self.name())
                }
            }

            impl FromStr for $name {
                type Err = UnknownWord;

                fn from_str(word: &str) -> Result<Self, UnknownWord> {
                    let found = Self::ALL.into_iter().find(|choice| choice.name() == word);
                    found.ok_or_else(|| UnknownWord {
                        word: word.to_owned(),
                        choices: Self::ALL.map(Self::name).to_vec(),
                    })
                }
            }
        )+
    };
}
words!(Format, Granularity);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_name_asks_for_a_format() {
        let check = |path: &str, format| {
            assert_eq!(
                Format::from_extension(Path::new(path)).ok(),
                format,
                "{path}"
            );
        };
        check("a.folded", Some(Format::Folded));
        check("dir.svg/a.collapsed", Some(Format::Folded));
        check("A.SVG", Some(Format::Flamegraph));
        check("a.speedscope.json", Some(Format::Speedscope));
        check("a.json", Some(Format::Json));
        check("a.pb.gz", Some(Format::Pprof));
        check("a.txt", Some(Format::Text));
        check("a.png", None);
        check("/dev/stdout", None);
        check("/", None);
    }

    #[test]
    fn every_format_is_known_by_its_name_and_its_ends() {
        for format in Format::ALL {
            assert_eq!(format.name().parse(), Ok(format));
            for end in format.extensions() {
                let path = format!("x{end}");
                assert_eq!(Format::from_extension(Path::new(&path)), Ok(format));
            }
        }
        let error = "svg".parse::<Format>().map_err(|e| e.to_string());
        let text = "`svg` is none of folded|flamegraph|speedscope|pprof|text|json";
        assert_eq!(error, Err(text.to_owned()));
    }
}
