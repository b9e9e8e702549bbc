//! `cargo xtask soak [SECONDS]`: four servers under load in; what attaching to them for a long time did to
//! them out, on a page of the manual.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use crate::setup::{self, Need};
use crate::workspace::{BinaryArgs, cargo, root};

/// Options of a soak.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// For how many seconds
    #[arg(default_value_t = 600)]
    seconds: u64,
    /// Write docs/measured/soak.md
    #[arg(long)]
    write: bool,
}

/// `cargo xtask soak`.
pub(crate) fn run(args: &Args) -> Result<()> {
    setup::prepare(&[Need::Test], false)?;
    let binaries = BinaryArgs::default().build()?;
    let output = cargo()
        .args([
            "test",
            "--release",
            "--package",
            "reqtrace-tests",
            "--test",
            "soak",
        ])
        .args(["--", "--nocapture"])
        .env("SOAK_SECONDS", args.seconds.to_string())
        .env("REQTRACE_BIN", &binaries.reqtrace)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("the soak test could not be started")?;
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    ensure!(output.status.success(), "the soak test failed");
    let table: Vec<&str> = said.lines().filter(|line| line.starts_with('|')).collect();
    ensure!(table.len() > 2, "the soak test printed no table");
    if args.write {
        let path = root().join("docs/measured/soak.md");
        let text = page(args.seconds, &table.join("\n"));
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn page(seconds: u64, table: &str) -> String {
    format!(
        "# Soak\n\nWritten by `cargo xtask soak --write`: for {seconds} seconds reqtrace attached every two seconds to the \
         next of four servers, traced it for one second and left. All the while each was under a load that checks every \
         result: a row of MariaDB that only grows, the sums of TPC-B in PostgreSQL, a counter in Redis, pages and log lines \
         of nginx. After every trace the code in the server's memory was compared with that before the first: it was the \
         same each time.\n\n{table}\n\nDescriptors, mappings and resident memory are the server's, before the first \
         trace and after the last; a load makes a server open files and connections of its own.\n"
    )
}
