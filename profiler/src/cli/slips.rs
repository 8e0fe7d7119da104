//! Usual slips of the hand on a command line that clap has refused, and what was meant: the line to
//! type. It decides nothing; what is no usual slip has clap's own words alone.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// What to type instead of these words, the program's name first.
pub(super) fn meant(error: &Error, words: &[String]) -> Option<String> {
    let command = words.get(1).map(String::as_str);
    let rest = |from: usize| words.get(from..).unwrap_or_default().join(" ");
    match (error.kind(), command) {
        (ErrorKind::MissingRequiredArgument, Some("run" | "record")) if words.len() == 2 => {
            Some("`profiler run --pid PID`, or `profiler run -- python3 app.py`".to_owned())
        }
        (ErrorKind::InvalidSubcommand, Some(word)) if is_pid(word) => {
            Some(format!("`profiler run --pid {word}`"))
        }
        (ErrorKind::InvalidSubcommand, Some(word)) if is_python(word) => {
            Some(format!("`profiler run -- {}`", rest(1)))
        }
        (ErrorKind::UnknownArgument, Some(option)) if option.starts_with('-') => {
            // `--verison` is nearer to what there is.
            let is_of_run = option.starts_with("--pid") || option.starts_with("-p");
            is_of_run.then(|| format!("`profiler run {}`", rest(1)))
        }
        (ErrorKind::UnknownArgument, Some(command)) => {
            let Some(ContextValue::String(stray)) = error.get(ContextKind::InvalidArg) else {
                return None;
            };
            // Behind the program's name and the command: the stray word can be either's namesake.
            let at = 2 + words.iter().skip(2).position(|word| word == stray)?;
            let before = words.get(at - 1).map(String::as_str);
            let runs = matches!(command, "run" | "record");
            match stray.as_str() {
                how @ ("flat" | "tree") if before == Some("--tasks") => {
                    Some(format!("`--tasks={how}`"))
                }
                pid if is_pid(pid) && (runs || matches!(command, "dump" | "doctor")) => {
                    Some(format!("`profiler {command} --pid {pid}`"))
                }
                word if runs && !word.starts_with('-') => Some(format!(
                    "`profiler {} -- {}`",
                    words[1..at].join(" "),
                    rest(at)
                )),
                _ => None,
            }
        }
        _ => None,
    }
}

fn is_pid(word: &str) -> bool {
    word.parse::<u32>().is_ok()
}

fn is_python(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    name.starts_with("python") || name.ends_with(".py")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::args::Cli;

    #[test]
    fn a_usual_slip_is_told_what_to_type() {
        let cases = [
            (
                "run",
                Some("`profiler run --pid PID`, or `profiler run -- python3 app.py`"),
            ),
            ("run 32", Some("`profiler run --pid 32`")),
            ("record -d 5 32", Some("`profiler record --pid 32`")),
            ("dump 32", Some("`profiler dump --pid 32`")),
            ("dump --tasks 32", Some("`profiler dump --pid 32`")),
            ("doctor 32", Some("`profiler doctor --pid 32`")),
            ("32", Some("`profiler run --pid 32`")),
            ("--pid 32 -d 5", Some("`profiler run --pid 32 -d 5`")),
            (
                "run python3 app.py -v",
                Some("`profiler run -- python3 app.py -v`"),
            ),
            (
                "run -d 5 --native ./app.py 8080",
                Some("`profiler run -d 5 --native -- ./app.py 8080`"),
            ),
            (
                "python3.12 app.py",
                Some("`profiler run -- python3.12 app.py`"),
            ),
            ("./app.py", Some("`profiler run -- ./app.py`")),
            // Of the same name as the program, and as the command: the first was a panic.
            ("run profiler -v", Some("`profiler run -- profiler -v`")),
            ("run run", Some("`profiler run -- run`")),
            ("dump profiler", None),
            ("run --pid 1 --tasks tree", Some("`--tasks=tree`")),
            ("run --pid 1 --frmat text", None),
            ("run --pid", None),
            ("run -d 5", None),
            ("--verison", None),
            ("top", None),
            ("dump app", None),
            ("man 32", None),
        ];
        for (line, expected) in cases {
            let words: Vec<String> = std::iter::once("profiler")
                .chain(line.split(' '))
                .map(str::to_owned)
                .collect();
            let error = Cli::try_parse_from(&words).expect_err(line);
            let meant = meant(&error, &words);
            assert_eq!(meant.as_deref(), expected, "{line}");
        }
    }
}
