//! What cargo alone cannot do for this workspace: `cargo xtask COMMAND`.
//!
//! Each command is a module with its options; this file only tells them apart.

mod bench;
mod build_ebpf;
mod cache;
mod demo;
mod free_threaded;
mod image;
mod instructions;
mod kinds;
mod layouts;
mod setup;
mod shell;
mod test;
mod tidy;
mod vm;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    about = "What cargo alone cannot do for this workspace"
)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build the profiler, let it watch a small program, and show what it saw
    Demo(demo::Options),
    /// Build the kernel programs, or check that the committed object is theirs
    BuildEbpf(build_ebpf::Options),
    /// Install what the tests need and is not there yet
    Setup(setup::Options),
    /// Install what the tests need, build the binary and run every test this machine allows
    Test(test::Options),
    /// Hold the house rules that a machine can hold
    Tidy(tidy::Options),
    /// Measure the profiler by its own yardstick, beside its peers
    Bench(bench::Options),
    /// Count the instructions of a sample's path and hold them to the committed counts
    Instructions(instructions::Options),
    /// Record processes of every interpreter as images for the tests
    Image(image::Options),
    /// Measure again the layouts of CPython's structures
    Layouts(layouts::Options),
}

fn main() -> ExitCode {
    match run(Options::parse().command) {
        Ok(status) => status,
        // The causes in one line; a backtrace of a tool's refusal helps nobody.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Demo(options) => demo::run(&options)?,
        Command::BuildEbpf(options) => build_ebpf::run(&options)?,
        Command::Setup(options) => setup::run(&options)?,
        Command::Test(options) => test::run(&options)?,
        Command::Tidy(options) => tidy::run(&options)?,
        Command::Bench(options) => bench::run(&options)?,
        Command::Instructions(options) => instructions::run(&options)?,
        Command::Image(options) => image::run(&options)?,
        Command::Layouts(options) => return layouts::run(&options),
    }
    Ok(ExitCode::SUCCESS)
}
