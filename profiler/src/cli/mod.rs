//! The command line: arguments as typed (`args`), as meant (`settings`), and one file for each
//! command. The only room that prints, and the only one that decides an exit status.

mod args;
mod doctor;
mod dump;
mod engine;
mod log;
mod progress;
mod remedy;
mod report;
mod run;
mod settings;
mod signals;
mod slips;
mod start;
mod voice;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser as _};

use args::{Cli, Command};
use voice::say;

/// A profile was written.
const DONE: u8 = 0;
/// It could not profile.
const FAILED: u8 = 1;
/// Wrong usage; clap's own number for it.
const USAGE: u8 = 2;

/// Run the program; the exit status is documented in `--help`.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are asked for and go to standard output.
            let status = match error.print() {
                _ if error.use_stderr() => USAGE,
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => FAILED,
                _ => DONE,
            };
            let words: Vec<String> = std::env::args_os()
                .map(|word| word.to_string_lossy().into_owned())
                .collect();
            if let Some(line) = slips::meant(&error, &words) {
                say!("\n  tip: type {line}");
            }
            return ExitCode::from(status);
        }
    };
    let outcome = match &cli.command {
        Command::Run(args) => run::main(args),
        Command::Dump(args) => dump::main(args).map(|()| DONE),
        Command::Doctor(args) => doctor::main(args),
        Command::Become { gate, command } => start::become_command(gate, command),
        Command::Completions { shell } => completions(*shell).map(|()| DONE),
        Command::Man => manual(&mut io::stdout()).context(NO_STDOUT).map(|()| DONE),
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(error) if is_broken_pipe(&error) => ExitCode::from(DONE),
        Err(error) => match error.downcast_ref::<settings::UsageError>() {
            Some(settings::UsageError(message)) => {
                say!("error: {message}");
                ExitCode::from(USAGE)
            }
            None => {
                say!("error: {error:#}");
                ExitCode::from(FAILED)
            }
        },
    }
}

/// What could not be done, where results go to standard output.
const NO_STDOUT: &str = "cannot write to standard output";

/// What a shell completes. It is made whole first: what makes it panics where it cannot be written.
fn completions(shell: clap_complete::Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "profiler", &mut script);
    io::stdout().write_all(&script).context(NO_STDOUT)
}

/// One page with all commands.
fn manual(out: &mut dyn io::Write) -> io::Result<()> {
    let mut whole = Cli::command();
    whole.build();
    clap_mangen::Man::new(whole.clone()).render(out)?;
    for command in whole
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
    {
        let page = clap_mangen::Man::new(command.clone());
        writeln!(out, ".SH COMMAND {}", command.get_name().to_uppercase())?;
        page.render_synopsis_section(out)?;
        page.render_description_section(out)?;
        page.render_options_section(out)?;
    }
    Ok(())
}

/// A reader that has seen enough is no error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
