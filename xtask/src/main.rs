//! What cargo alone cannot do.

mod build_ebpf;
mod cache;

use clap::Parser;

#[derive(Parser)]
enum Command {
    /// Build the kernel programs.
    BuildEbpf(build_ebpf::Options),
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::BuildEbpf(options) => build_ebpf::run(&options),
    }
}
