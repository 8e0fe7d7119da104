//! Running other programs: each is shown before it runs, and its failure says what to type.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache;

/// Shows a command, runs it, and fails with `hint` when it does.
pub(crate) fn run(command: &mut Command, hint: &str) -> Result<()> {
    eprintln!("$ {}", spelled(command));
    let status = command
        .status()
        .with_context(|| format!("`{}` could not be started: {hint}", spelled(command)))?;
    if !status.success() {
        bail!("`{}` ended with {status}: {hint}", spelled(command));
    }
    Ok(())
}

/// What a command writes to stdout; its failure is an error with what it said.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("`{}` could not be started", spelled(command)))?;
    if !output.status.success() {
        bail!(
            "`{}` ended with {}: {}",
            spelled(command),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("`{}` wrote what is not text", spelled(command)))
}

/// Whether a program is on the path.
pub(crate) fn is_there(program: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else {
        return false;
    };
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The command as one would type it.
fn spelled(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy().into_owned())
        .map(|word| match word.contains([' ', '"', '\'']) {
            true => format!("'{word}'"),
            false => word,
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// The cargo that runs this.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(cache::workspace_root());
    command
}
