//! The command line: arguments in, one of the commands run.

#[cfg(feature = "agent")]
pub mod agent;
pub mod args;
#[cfg(feature = "capture")]
pub mod check;
#[cfg(feature = "capture")]
mod classes;
#[cfg(feature = "capture")]
mod descriptors;
pub mod diff;
#[cfg(feature = "capture")]
pub mod doctor;
#[cfg(feature = "capture")]
mod filter;
#[cfg(feature = "capture")]
pub mod functions;
pub mod library;
#[cfg(feature = "capture")]
mod logger;
#[cfg(feature = "capture")]
pub mod options;
pub mod outputs;
pub mod profiles;
pub mod report;
#[cfg(feature = "capture")]
mod running;
#[cfg(feature = "ship")]
pub mod ship;
mod show;
#[cfg(feature = "capture")]
mod signals;
#[cfg(feature = "capture")]
pub mod trace;
#[cfg(feature = "capture")]
mod users;
#[cfg(feature = "capture")]
mod values;

use args::{Args, Command};

#[cfg(not(feature = "capture"))]
use reqtrace_base::error::Error;
use reqtrace_base::error::Result;

/// Runs what the command line asks for.
///
/// # Errors
///
/// Whatever stopped it; the error has the exit code.
pub fn run(args: Args) -> Result<()> {
    match args.command {
        #[cfg(feature = "agent")]
        Some(Command::Agent(agent)) => agent::run(&agent),
        #[cfg(feature = "agent")]
        Some(Command::AgentWorker(worker)) => agent::run_worker(&worker),
        #[cfg(feature = "agent")]
        Some(Command::AgentAttacher(attacher)) => agent::run_attacher(&attacher),
        #[cfg(feature = "capture")]
        Some(Command::Check(check)) => check::run(&check),
        #[cfg(feature = "capture")]
        Some(Command::Doctor(doctor)) => doctor::run(&doctor),
        #[cfg(feature = "capture")]
        Some(Command::Functions(functions)) => functions::run(&functions),
        #[cfg(feature = "capture")]
        Some(Command::Classes) => classes::run(),
        Some(Command::Profiles(profiles)) => profiles::run(&profiles),
        Some(Command::Report(report)) => report::run(*report),
        #[cfg(feature = "ship")]
        Some(Command::Ship(ship)) => ship::run(&ship),
        Some(Command::Diff(diff)) => diff::run(*diff),
        #[cfg(feature = "capture")]
        None => trace::run(args.trace.into_options()?),
        #[cfg(not(feature = "capture"))]
        None => Err(
            Error::unsupported("this reqtrace was built without tracing")
                .next("build it with the feature `capture`, or see `reqtrace --help`"),
        ),
    }
}
