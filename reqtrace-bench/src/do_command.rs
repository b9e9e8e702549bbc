//! `cargo xtask bench do-command`: what three profiles say of one load, two of which begin a
//! request where the command has been read, and one before.
//!
//! In: nothing. Out: a table, printed and, with `--write`, put into docs/measured/do-command.md.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::rows::{self, Row};
use reqtrace_tests::sysbench::Sysbench;

use super::Common;
use xtask::workspace;

/// Transactions of a load, one statement each, and how many in a second.
const EVENTS: u64 = 500;
const RATE: u32 = 100;
/// Connections.
const THREADS: u32 = 2;
/// Column of the wait for the client.
const CLIENT: &str = "client_network";

/// Arguments of `bench do-command`.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
}

/// Measures.
pub(super) fn run(args: &Args) -> Result<()> {
    args.common.prepare_with_servers(&[])?;
    let server = MariaDb::open()?;
    let sysbench = Sysbench::prepare(&server, 1, 10_000)?;
    let naive = naive_profile()?;
    let mut text = format!(
        "`sysbench oltp_point_select --threads={THREADS} --rate={RATE} --events={EVENTS}`:\n\n\
         | a request is | requests | mean | median | 99 % | waits for the client |\n\
         | --- | ---: | ---: | ---: | ---: | ---: |\n"
    );
    for (what, profile) in [
        ("`do_command`, from its entry", naive),
        (
            "`mysql-do-command`: from the read",
            "mysql-do-command.toml".into(),
        ),
        ("`mysql`: `dispatch_command`", "mysql.toml".into()),
    ] {
        let trace = Trace::start(&profile, server.pid(), &[])?;
        let run = sysbench.run_at_rate("oltp_point_select", THREADS, EVENTS, RATE)?;
        ensure!(run.transactions == EVENTS, "sysbench made {run:?}");
        server.wait_until_alone()?;
        let outcome = trace.finish()?;
        ensure!(outcome.code == Some(0), "{}", outcome.printed());
        let mut rows = outcome.rows()?;
        rows.retain(|row| row.complete);
        writeln!(text, "| {what} | {} |", numbers(&rows))?;
    }
    args.common.tables("do-command.md", "do-command", &text)?;
    server.close()
}

/// The profile that anybody would write first.
fn naive_profile() -> Result<PathBuf> {
    let text = fs::read_to_string(workspace::root().join("profiles/mysql-do-command.toml"))?;
    let naive: Vec<&str> = text
        .lines()
        .map(|line| match line {
            line if line.starts_with("begin = ") => "begin = { function = \"do_command\" }",
            line if line.starts_with("end = ") => "",
            line => line,
        })
        .collect();
    let path = workspace::target_dir().join("naive-do-command.toml");
    fs::write(&path, naive.join("\n")).with_context(|| path.display().to_string())?;
    Ok(path)
}

fn numbers(rows: &[Row]) -> String {
    let mut latencies: Vec<u64> = rows.iter().map(|row| row.latency_ns).collect();
    latencies.sort_unstable();
    let all: u64 = latencies.iter().sum();
    let at = |percent: usize| {
        let index = (latencies.len() * percent / 100).min(latencies.len().saturating_sub(1));
        latencies.get(index).copied().unwrap_or(0)
    };
    let micros = |ns: u64| format!("{:.1} µs", ns as f64 / 1000.0);
    let mean = all.checked_div(rows.len() as u64).unwrap_or(0);
    let client = rows::sum(rows, CLIENT) as f64 / (all as f64).max(1.0);
    format!(
        "{} | {} | {} | {} | {:.1} %",
        rows.len(),
        micros(mean),
        micros(at(50)),
        micros(at(99)),
        client * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_of_all_rows() {
        let row = |latency_ns, client| Row {
            latency_ns,
            classes: [(CLIENT.to_owned(), client)].into(),
            ..Row::default()
        };
        let rows = [row(1000, 0), row(3000, 0), row(8000, 6000)];
        assert_eq!(numbers(&rows), "3 | 4.0 µs | 3.0 µs | 8.0 µs | 50.0 %");
        assert_eq!(numbers(&[]), "0 | 0.0 µs | 0.0 µs | 0.0 µs | 0.0 %");
    }
}
