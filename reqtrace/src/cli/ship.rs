//! `reqtrace ship`: a configuration in; files of an agent's rows sent to an engine out.

use std::path::PathBuf;

use super::logger;
use reqtrace_agent::ShipMode;
use reqtrace_base::error::Result;

/// Arguments of `ship`.
#[derive(Clone, Debug, clap::Args)]
pub struct ShipArgs {
    /// The configuration, TOML: [ship], and [clickhouse] or [s3]
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,

    /// Print what would be sent and where to, and whether it can be read; send nothing
    #[arg(long)]
    pub check: bool,

    /// Send the files that are there, and end; exit code 1 if some are left
    #[arg(long, conflicts_with = "check")]
    pub once: bool,

    /// Say more: each time that sending fails or works again; twice: each file
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// Runs it.
///
/// # Errors
///
/// What is wrong with the configuration, its folders and secrets.
pub fn run(args: &ShipArgs) -> Result<()> {
    logger::start(args.verbose);
    let mode = match (args.check, args.once) {
        (true, _) => ShipMode::Check,
        (_, true) => ShipMode::Once,
        _ => ShipMode::Always,
    };
    reqtrace_agent::ship(&args.config, mode)
}
