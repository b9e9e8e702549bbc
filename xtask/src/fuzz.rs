//! `cargo xtask fuzz NAME`: a reader of foreign bytes in, inputs that it cannot stand out.

use std::process::Command;

use anyhow::{Result, bail};

use crate::workspace::cargo;

/// Options of a fuzz run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to fuzz: profile, elf, perf-map, maps, ring or recording
    name: String,
    /// For how many seconds
    #[arg(default_value_t = 600)]
    seconds: u64,
    /// The number that makes the same inputs again
    seed: Option<u64>,
}

/// `cargo xtask fuzz`.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut command: Command = cargo();
    command
        .args(["run", "--release", "--package", "reqtrace-fuzz", "--"])
        .arg(&args.name)
        .arg(args.seconds.to_string());
    command.args(args.seed.map(|seed| seed.to_string()));
    let status = command.status()?;
    if !status.success() {
        bail!(
            "{} was found to fail: the input is in fuzz/corpus/{0}",
            args.name
        );
    }
    Ok(())
}
