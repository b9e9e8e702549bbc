//! Set-up, demo, tests and VM tier of reqtrace.
//!
//! In: a subcommand. Out: a machine that can build reqtrace, a demo, or a verdict of the tests.

mod accuracy;
mod bench;
mod counts;
mod demo;
mod do_command;
mod kernel;
mod ledger;
mod linker;
mod packages;
mod process;
mod servers;
mod setup;
mod test;
mod toolchain;
mod vm;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Set-up, demo, tests and VM tier of reqtrace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install what building, the demo or the tests need; does nothing the second time
    Setup(setup::Args),
    /// Trace the example service under load for some seconds and leave the four output files
    Demo(demo::Args),
    /// Lint, unit tests, end-to-end tests and the VM tier
    Test(test::Args),
    /// Measure what tracing costs, beside a peer
    Bench(bench::Args),
    /// Measure how far a trace is from what a service measures itself
    Accuracy(accuracy::Args),
    /// Run the kernel programs on Debian's 6.1 and 6.12 kernels under qemu
    VmTest(vm::Args),
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<()> {
    match cli.command {
        Command::Setup(args) => setup::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Accuracy(args) => accuracy::run(&args),
        Command::VmTest(args) => vm::run(&args),
    }
}
