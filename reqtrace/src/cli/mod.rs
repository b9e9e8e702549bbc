//! The command line: arguments in, one of the commands run.

pub mod args;
pub mod check;
mod classes;
pub mod doctor;
mod filter;
pub mod functions;
pub mod library;
mod logger;
pub mod options;
mod outputs;
pub mod profiles;
pub mod report;
mod running;
mod show;
pub mod trace;

use args::{Args, Command};

use crate::error::Result;

/// Runs what the command line asks for.
///
/// # Errors
///
/// Whatever stopped it; the error has the exit code.
pub fn run(args: Args) -> Result<()> {
    match args.command {
        Some(Command::Check(check)) => check::run(&check),
        Some(Command::Doctor(doctor)) => doctor::run(&doctor),
        Some(Command::Functions(functions)) => functions::run(&functions),
        Some(Command::Classes) => classes::run(),
        Some(Command::Profiles(profiles)) => profiles::run(&profiles),
        Some(Command::Report(report)) => report::run(report),
        None => trace::run(args.trace.into_options()?),
    }
}
