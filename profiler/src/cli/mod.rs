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
mod start;

use std::{io, process::ExitCode};

use clap::{CommandFactory as _, Parser as _};

use args::{Cli, Command};

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
            let status = if error.use_stderr() { USAGE } else { DONE };
            let _ = error.print();
            return ExitCode::from(status);
        }
    };
    let outcome = match &cli.command {
        Command::Run(args) => run::main(args),
        Command::Dump(args) => dump::main(args).map(|()| DONE),
        Command::Doctor(args) => doctor::main(args),
        Command::Become { gate, command } => start::become_command(gate, command),
        Command::Completions { shell } => {
            clap_complete::generate(*shell, &mut Cli::command(), "profiler", &mut io::stdout());
            Ok(DONE)
        }
        Command::Man => manual(&mut io::stdout()).map(|()| DONE).map_err(Into::into),
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(error) if is_broken_pipe(&error) => ExitCode::from(DONE),
        Err(error) => match error.downcast_ref::<settings::UsageError>() {
            Some(settings::UsageError(message)) => {
                eprintln!("error: {message}");
                ExitCode::from(USAGE)
            }
            None => {
                eprintln!("error: {error:#}");
                ExitCode::from(FAILED)
            }
        },
    }
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
