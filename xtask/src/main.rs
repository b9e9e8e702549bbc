//! Set-up, demo, tests and VM tier of reqtrace.
//!
//! In: a subcommand. Out: a machine that can build reqtrace, a demo, or a verdict of the tests.

mod bench;
mod demo;
mod dist;
mod fuzz;
mod kernel;
mod linker;
#[cfg(test)]
mod links;
mod packages;
mod page_checks;
mod perfetto;
mod process;
mod servers;
mod setup;
mod soak;
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
    /// Measure what tracing costs and how right it is, for the pages of docs/
    Bench(bench::Args),
    /// Feed one reader of foreign bytes with broken ones for some minutes
    Fuzz(fuzz::Args),
    /// Attach to four servers under checked load again and again, and see that nothing differs
    Soak(soak::Args),
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
        Command::Bench(args) => bench::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Soak(args) => soak::run(&args),
        Command::Dist(args) => dist::run(&args),
        Command::VmTest(args) => vm::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_measurement_has_its_own_options_only() {
        let takes = |line: &str| Cli::try_parse_from(line.split(' ')).is_ok();
        assert!(takes("xtask bench --rounds 2 --write"));
        assert!(takes("xtask bench tracers --rounds 2 --write"));
        assert!(takes("xtask bench --quick --json new.json"));
        assert!(takes("xtask bench compare old.json new.json"));
        assert!(takes("xtask bench ledger --seconds 2 --write"));
        assert!(!takes("xtask bench ledger --rounds 2"));
        assert!(!takes("xtask bench --rounds 2 ledger"));
        assert!(!takes("xtask bench --seconds 2"));
        assert!(!takes("xtask bench --only redis --write"));
        assert!(!takes("xtask bench compare old.json"));
    }
}
