//! Set-up, demo, tests and VM tier of reqtrace.
//!
//! In: a subcommand. Out: a machine that can build reqtrace, a demo, or a verdict of the tests.

mod demo;
mod dist;
mod fuzz;
mod lines;
#[cfg(test)]
mod links;
mod soak;
mod test;
mod vm;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use xtask::{kernel, packages, page_checks, process, setup, workspace};

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
    /// Trace the example service under load for some seconds and leave its output files
    Demo(demo::Args),
    /// Lint, unit tests, end-to-end tests and the VM tier
    Test(test::Args),
    /// Measure what tracing costs and how right it is, for the pages of docs/
    #[command(disable_help_flag = true)]
    Bench {
        /// What to measure, and its options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Replay recordings as a fleet of machines into Prometheus, ClickHouse and DuckDB, and see that its queries find what is wrong
    #[command(disable_help_flag = true)]
    Fleet {
        /// How many machines, and other options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Feed one reader of foreign bytes with broken ones for some minutes
    Fuzz(fuzz::Args),
    /// Count the lines of the product, by crate
    Lines,
    /// Attach to four servers under checked load again and again, and see that nothing differs
    Soak(soak::Args),
    /// Trace four services under load with one agent for a long time, restart them and kill it, and see that its figures hold
    #[command(disable_help_flag = true)]
    SoakAgent {
        /// For how long, its budget, and other options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Make the packages that users install: a .deb and a .tar.gz
    Dist(dist::Args),
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
        Command::Bench { args } => bench(&args),
        Command::Fleet { mut args } => {
            args.insert(0, FLEET.to_owned());
            bench(&args)
        }
        Command::SoakAgent { mut args } => {
            args.insert(0, SOAK_AGENT.to_owned());
            bench(&args)
        }
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Lines => lines::run(),
        Command::Soak(args) => soak::run(&args),
        Command::Dist(args) => dist::run(&args),
        Command::VmTest(args) => vm::run(&args),
    }
}

/// The measurement in which the product's code runs in the benchmarks' own process.
const FLEET: &str = "fleet";

/// The agent's long run: what it measures runs in other processes.
const SOAK_AGENT: &str = "soak-agent";

/// Builds the benchmarks, which nothing else needs, and hands the arguments over.
fn bench(args: &[String]) -> Result<()> {
    let mut command = workspace::cargo();
    command.args(["run", "--quiet", "--package", "reqtrace-bench"]);
    if args.first().is_some_and(|what| what == FLEET) {
        command.arg("--release");
    }
    process::run(command.arg("--").args(args))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
