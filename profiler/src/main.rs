//! The `profiler` binary: everything is in the library.

fn main() -> std::process::ExitCode {
    profiler::cli::main()
}
