//! `cargo xtask soak [TIME]`: four servers under load in; what attaching to them for a long time did to
//! them out, on a page of the manual.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use crate::setup::{self, Need};
use crate::workspace::{Binaries, BinaryArgs, Profile, cargo, root};

/// Options of a soak.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// For how long: seconds, or minutes as in `10m`
    #[arg(value_name = "TIME", default_value = "10m", value_parser = seconds)]
    seconds: u64,
    /// Write docs/measured/soak.md
    #[arg(long)]
    write: bool,
}

/// `cargo xtask soak`.
pub(crate) fn run(args: &Args) -> Result<()> {
    setup::prepare(&[Need::Test], false)?;
    let binaries = BinaryArgs::default().build(Profile::Release, &Binaries::MEASURED)?;
    let output = cargo()
        .args([
            "test",
            "--release",
            "--package",
            "reqtrace-tests",
            "--test",
            "e2e",
        ])
        .args(["--", "--nocapture", "soak::"])
        .env("SOAK_SECONDS", args.seconds.to_string())
        .env("REQTRACE_BIN", &binaries.reqtrace)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("the soak test could not be started")?;
    let printed = String::from_utf8_lossy(&output.stdout);
    print!("{printed}");
    ensure!(output.status.success(), "the soak test failed");
    let table: Vec<&str> = printed
        .lines()
        .filter(|line| line.starts_with('|'))
        .collect();
    ensure!(table.len() > 2, "the soak test printed no table");
    if args.write {
        let path = root().join("docs/measured/soak.md");
        let text = page(args.seconds, &table.join("\n"));
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// `600`, `600s` or `10m`.
fn seconds(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.strip_suffix('m') {
        Some(number) => (number, 60),
        None => (text.strip_suffix('s').unwrap_or(text), 1),
    };
    let number: Option<u64> = number.parse().ok();
    number
        .and_then(|number| number.checked_mul(unit))
        .ok_or_else(|| "a time is a number of seconds, or of minutes as in `10m`".to_owned())
}

fn page(seconds: u64, table: &str) -> String {
    format!(
        "# Soak\n\n`cargo xtask soak --write` writes this page. For {seconds} seconds reqtrace attached every two seconds to the \
         next of four servers, traced it for one second and left. All the while each was under a load that checks every \
         result: a row of MariaDB that only grows, the sums of TPC-B in PostgreSQL, a counter in Redis, pages and log lines \
         of nginx. After every trace the code in the server's memory was compared with that before the first: it was the \
         same each time.\n\n{table}\n\nDescriptors, mappings and resident memory are the server's, before the first \
         trace and after the last; a load makes a server open files and connections of its own.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_or_is_in_seconds() {
        assert_eq!(
            ["90", "90s", "10m"].map(|text| seconds(text).unwrap()),
            [90, 90, 600]
        );
        assert!(
            ["", "m", "1h", "-1"]
                .iter()
                .all(|text| seconds(text).is_err())
        );
    }
}
