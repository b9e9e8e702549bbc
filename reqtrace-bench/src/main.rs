//! `cargo xtask bench [WHAT]`: measurements whose numbers stand in the manual.
//!
//! In: what to measure. Out: a table, printed and, with `--write`, put into its page of `docs/`.
//!
//! One module for each measurement, with arguments of its own. A new one needs a variant of
//! [`What`], its line in [`run`], and a row in docs/development.md.

mod accuracy;
mod circles;
mod cost;
mod diff;
mod do_command;
mod hot;
mod ledger;
mod page;
mod pages;
mod recording;
mod scaling;
mod servers;
mod stacks;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use reqtrace_bench::{fleet, soak_agent};
use xtask::setup::{self, Need};
use xtask::workspace::{Binaries, BinaryArgs, Profile, find_command};

/// Measure what tracing costs and how right it is, for the pages of docs/.
#[derive(Parser)]
#[command(
    name = "cargo xtask bench",
    bin_name = "cargo xtask bench",
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    subcommand_value_name = "WHAT",
    subcommand_help_heading = "What"
)]
struct Cli {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    cost: cost::Args,
}

/// What is measured.
#[derive(clap::Subcommand)]
enum What {
    /// What tracing costs, beside empty probes and peers, on six servers (the default):
    /// docs/measured/cost.md
    Tracers(cost::Args),
    /// What has changed between two results of `bench --json`
    Compare(cost::compare::Args),
    /// How the cost grows with requests a second, threads in requests, different stacks: docs/measured/scaling.md
    Scaling(scaling::Args),
    /// How far user stacks come and what a walk takes, on four servers: docs/measured/stacks.md
    Stacks(stacks::Args),
    /// What a request that begins at the wrong place says of MariaDB: docs/measured/do-command.md
    DoCommand(do_command::Args),
    /// Requests of every profile against the number of its load generator: docs/measured/servers.md
    Servers(servers::Args),
    /// Where the time of MariaDB's commands goes: docs/measured/ledger.md
    Ledger(ledger::Args),
    /// What a recording costs, and how large it is: docs/measured/recording.md
    Recording(recording::Args),
    /// What the page takes of the tracer's CPU time: docs/measured/page.md
    Pages(pages::Args),
    /// How often a comparison of recordings is right: docs/measured/diff.md
    Diff(diff::Args),
    /// What the kernel programs take for each begin, end and switch: docs/measured/hot.md
    Hot(hot::Args),
    /// Circles of source files that take items from each other
    Circles(circles::Args),
    /// How far a trace is from what a service measures itself: docs/measured/accuracy.md
    Accuracy(accuracy::Args),
    /// What so many machines give Prometheus and the engines to do, as `cargo xtask fleet`: docs/measured/fleet.md
    Fleet(FleetArgs),
    /// An agent for a long time on services under load that are restarted, as `cargo xtask soak-agent`:
    /// docs/measured/soak-agent.md
    SoakAgent(SoakAgentArgs),
}

/// Arguments of `soak-agent`.
#[derive(clap::Args)]
struct SoakAgentArgs {
    #[command(flatten)]
    soak: soak_agent::Args,
    #[command(flatten)]
    common: Common,
}

/// Arguments of `fleet`.
#[derive(clap::Args)]
struct FleetArgs {
    #[command(flatten)]
    fleet: fleet::Args,
    #[command(flatten)]
    common: Common,
}

/// Arguments of every measurement.
#[derive(clap::Args)]
struct Common {
    /// Measure this tracer instead of building one
    #[arg(long, value_name = "FILE")]
    reqtrace: Option<PathBuf>,
    /// Write the result to its page in docs/
    #[arg(long)]
    write: bool,
}

impl Common {
    /// Sets the machine up, with the servers of the tests, and builds what is measured. `commands`
    /// are needed beyond that, each with the Debian package that has it.
    fn prepare_with_servers(&self, commands: &[(&str, &str)]) -> Result<()> {
        setup::prepare(&[Need::Build, Need::Test], false)?;
        for (command, package) in commands {
            if find_command(command).is_none() {
                bail!("`{command}` is missing: apt-get install -y {package}");
            }
        }
        self.build(&Binaries::MEASURED)
    }

    /// Sets the machine up and builds what is measured.
    fn prepare(&self) -> Result<()> {
        setup::prepare(&[Need::Build], false)?;
        self.build(&Binaries::MEASURED)
    }

    /// The same, with fewer programs.
    fn prepare_only(&self, wanted: &[&str]) -> Result<()> {
        self.prepare_for(&[Need::Build], wanted)
    }

    fn prepare_for(&self, needs: &[Need], wanted: &[&str]) -> Result<()> {
        setup::prepare(needs, false)?;
        self.build(wanted)
    }

    fn build(&self, wanted: &[&str]) -> Result<()> {
        let binaries =
            BinaryArgs::of_reqtrace(self.reqtrace.clone()).build(Profile::Release, wanted)?;
        // SAFETY: nothing has started a thread yet. The harness of the tests takes the newest build
        // otherwise, which may be one for debugging.
        unsafe {
            std::env::set_var("REQTRACE_BIN", &binaries.reqtrace);
            std::env::set_var("TRUTH_BIN", &binaries.truth);
        }
        Ok(())
    }

    /// Prints a page and, with `--write`, writes all of `docs/measured/NAME`.
    fn page(&self, name: &str, text: &str) -> Result<()> {
        println!("{text}");
        if self.write {
            page::write(name, text)?;
        }
        Ok(())
    }

    /// Prints the tables of a page and, with `--write`, puts them between the marks of `what` in
    /// `docs/measured/NAME`.
    fn tables(&self, name: &str, what: &str, text: &str) -> Result<()> {
        println!("{text}");
        if self.write {
            page::write_between_marks(name, what, text)?;
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Fails when something that is measured does not run, or a result is not what it must be.
fn run(cli: &Cli) -> Result<()> {
    match &cli.what {
        None => cost::run(&cli.cost),
        Some(What::Tracers(args)) => cost::run(args),
        Some(What::Compare(args)) => cost::compare::run(args),
        Some(What::Scaling(args)) => scaling::run(args),
        Some(What::Stacks(args)) => stacks::run(args),
        Some(What::DoCommand(args)) => do_command::run(args),
        Some(What::Servers(args)) => servers::run(args),
        Some(What::Ledger(args)) => ledger::run(args),
        Some(What::Recording(args)) => recording::run(args),
        Some(What::Pages(args)) => pages::run(args),
        Some(What::Accuracy(args)) => accuracy::run(args),
        Some(What::Circles(args)) => circles::run(args),
        Some(What::Diff(args)) => diff::run(args),
        Some(What::Hot(args)) => hot::run(args),
        Some(What::Fleet(args)) => {
            let mut needs = vec![Need::Build, Need::Test, Need::Fleet];
            needs.extend(args.fleet.distributed.then_some(Need::Spark));
            args.common.prepare_for(&needs, &["reqtrace", "shop"])?;
            let page = fleet::run(&args.fleet)?.page()?;
            args.common.page("fleet.md", &page)
        }
        Some(What::SoakAgent(args)) => {
            args.common
                .prepare_for(&[Need::Build, Need::Test], &["reqtrace"])?;
            let measured = soak_agent::run(&args.soak)?;
            let what = match args.soak.has_exact_counts() {
                true => "soak-agent --max-cost 50",
                false => "soak-agent --max-cost 2",
            };
            args.common
                .tables("soak-agent.md", what, &measured.page())?;
            measured.check()
        }
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
        assert!(takes("bench --rounds 2 --write"));
        assert!(takes("bench tracers --rounds 2 --write"));
        assert!(takes("bench --quick --json new.json"));
        assert!(takes("bench compare old.json new.json"));
        assert!(takes("bench ledger --seconds 2 --write"));
        assert!(takes("bench hot --rounds 2 --against old --json new.json"));
        assert!(takes(
            "bench fleet --agents 8 --scrape 0 --recordings DIR --write"
        ));
        assert!(takes(
            "bench soak-agent --minutes 3 --max-cost 2 --turn 20 10 --write"
        ));
        assert!(!takes("bench soak-agent --max-cost 0"));
        assert!(!takes("bench fleet --agents 3"));
        assert!(!takes("bench fleet --minutes 51"));
        assert!(!takes("bench ledger --rounds 2"));
        assert!(!takes("bench hot --rounds 0"));
        assert!(!takes("bench hot --against old --write"));
        assert!(!takes("bench --rounds 2 ledger"));
        assert!(!takes("bench --seconds 2"));
        assert!(!takes("bench --only redis --write"));
        assert!(!takes("bench compare old.json"));
    }
}
