//! `reqtrace agent`: a configuration in; an agent that runs, or what it would do, out.

use std::path::PathBuf;

use super::descriptors::raise_descriptors;
use super::{library, logger, profiles::print};
use reqtrace_agent::{Arguments, Config};
use reqtrace_base::error::{Error, Result};

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

/// Arguments of `agent-attacher`, which `agent` gives.
#[derive(Clone, Debug, clap::Args)]
pub struct AgentAttacherArgs {
    /// As of `agent`
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,

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
    raise_descriptors();
    let verbose = || std::iter::repeat_n("-v", args.verbose.into());
    let worker: Vec<&str> = std::iter::once("agent-worker").chain(verbose()).collect();
    let file = path.to_str().ok_or_else(|| {
        Error::usage(format!("--config: {} is no UTF-8", path.display())).next("rename the file")
    })?;
    let attacher = ["agent-attacher", "--config", file].into_iter();
    let attacher: Vec<&str> = attacher.chain(verbose()).collect();
    let arguments = Arguments {
        worker: &worker,
        attacher: &attacher,
    };
    reqtrace_agent::run(path, &library::load, arguments)
}

/// Runs the process that attaches for an agent, whose other end is standard input.
///
/// # Errors
///
/// When nobody is there, and what is wrong with the configuration.
pub fn run_attacher(args: &AgentAttacherArgs) -> Result<()> {
    logger::start(args.verbose);
    raise_descriptors();
    reqtrace_agent::attacher(&args.config, &library::load)
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
