//! What cargo alone cannot do.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod layouts;

#[derive(Parser)]
#[command(name = "xtask", about = "What cargo alone cannot do")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Generate the layout tables, or compare them with an interpreter's headers
    Layouts(layouts::LayoutsArgs),
}

fn main() -> anyhow::Result<ExitCode> {
    match Args::parse().task {
        Task::Layouts(args) => layouts::run(&args),
    }
}
