//! `reqtrace agent`: a configuration in; an agent that runs, or what it would do, out.

use std::path::PathBuf;

use super::{library, logger, profiles::print};
use reqtrace_agent::Config;
use reqtrace_base::error::Result;

/// Arguments of `agent`.
#[derive(Clone, Debug, clap::Args)]
pub struct AgentArgs {
    /// The configuration, TOML. SIGHUP reads it again; one that is wrong changes nothing
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,

    /// Print what would be traced now and by which rule, and why not the other processes; trace nothing
    #[arg(long)]
    pub check: bool,

    /// Print the configuration with everything that it leaves out; trace nothing
    #[arg(long, conflicts_with = "check")]
    pub print_effective_config: bool,

    /// Say more: each session and process; twice: everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// Arguments of `agent-worker`, which `agent` gives.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct AgentWorkerArgs {
    /// As of `agent`
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// Runs it.
///
/// # Errors
///
/// What is wrong with the configuration, and when its metrics cannot be served.
pub fn run(args: &AgentArgs) -> Result<()> {
    logger::start(args.verbose);
    let path = &args.config;
    if args.check {
        return print(&reqtrace_agent::check(path, &library::load)?);
    }
    if args.print_effective_config {
        return print(&Config::read(path, &library::load)?.effective());
    }
    super::trace::raise_descriptors();
    let mut worker = vec!["agent-worker"];
    worker.extend(std::iter::repeat_n("-v", args.verbose.into()));
    reqtrace_agent::run(path, &library::load, &worker)
}

/// Runs the worker of an agent, whose other end is standard input.
///
/// # Errors
///
/// When nobody is there, and when the agent ends without a word.
pub fn run_worker(args: &AgentWorkerArgs) -> Result<()> {
    logger::start(args.verbose);
    reqtrace_agent::worker()
}
