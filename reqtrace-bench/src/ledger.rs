//! `cargo xtask bench ledger`: where the time of MariaDB's commands goes under sysbench.
//!
//! In: nothing. Out: a table of shares per wait class for two loads and two ways to commit, printed
//! and, with `--write`, put into docs/measured/ledger.md. Fails when the ledger has gaps.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::sysbench::Sysbench;
use serde_json::Value;

use super::Common;
use xtask::kernel;

/// The greatest share of blocked time without a class, in percent.
const MOST_OTHER: f64 = 2.0;
/// The greatest share of latency that is unattributed, in percent.
const MOST_UNATTRIBUTED: f64 = 0.5;

/// The loads: sysbench's test, and `innodb_flush_log_at_trx_commit`.
const LOADS: [(&str, u32); 4] = [
    ("oltp_read_write", 1),
    ("oltp_read_write", 2),
    ("oltp_write_only", 1),
    ("oltp_write_only", 2),
];

/// What one run gave.
struct Run {
    test: &'static str,
    durability: u32,
    commands: u64,
    lost: usize,
    /// Sum of the ledgers, as `summary.json` has it.
    ledger: Value,
}

impl Run {
    fn ns(&self, key: &str) -> u64 {
        self.ledger[key].as_u64().unwrap_or(0)
    }

    fn class_ns(&self, class: &str) -> u64 {
        self.ledger["classes_ns"][class].as_u64().unwrap_or(0)
    }

    /// A sum as a share of the latency, in percent.
    fn share(&self, ns: u64) -> f64 {
        ns as f64 * 100.0 / self.ns("latency_ns").max(1) as f64
    }

    /// Microseconds per command.
    fn per_command(&self, ns: u64) -> f64 {
        ns as f64 / 1_000.0 / self.commands.max(1) as f64
    }

    fn other_of_blocked(&self) -> f64 {
        self.class_ns("other") as f64 * 100.0 / self.ns("blocked_ns").max(1) as f64
    }
}

/// Arguments of `bench ledger`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Connections of sysbench
    #[arg(long, default_value_t = 16)]
    threads: u32,
    /// Seconds of each load
    #[arg(long, default_value_t = 30)]
    seconds: u32,
    #[command(flatten)]
    common: Common,
}

/// Measures.
pub(super) fn run(args: &Args) -> Result<()> {
    let Args {
        threads,
        seconds,
        common,
    } = args;
    common.prepare_with_servers(&[])?;
    let server = MariaDb::open()?;
    let sysbench = Sysbench::prepare(&server, 4, 100_000)?;
    let mut runs = Vec::new();
    for (test, durability) in LOADS {
        eprintln!("{test}, innodb_flush_log_at_trx_commit = {durability}, {seconds} s");
        server.sql(&format!(
            "set global innodb_flush_log_at_trx_commit = {durability}"
        ))?;
        let trace = Trace::start(Path::new("mysql.toml"), server.pid(), &[])?;
        sysbench.run_seconds(test, *threads, *seconds)?;
        server.wait_until_alone()?;
        let outcome = trace.finish()?;
        let summary: Value = serde_json::from_str(&outcome.summary_text()?)?;
        let request = &summary["requests"][0];
        runs.push(Run {
            test,
            durability,
            commands: request["count"].as_u64().context("no count")?,
            lost: summary["losses"].as_array().map_or(0, Vec::len),
            ledger: request["ledger"].clone(),
        });
    }
    let text = report(&runs, *threads, *seconds)?;
    common.page("ledger.md", &text)?;
    for run in &runs {
        let (other, unattributed) = (run.other_of_blocked(), run.share(run.ns("unattributed_ns")));
        ensure!(
            other <= MOST_OTHER && unattributed <= MOST_UNATTRIBUTED,
            "{} at {}: {other:.2} % of blocked time is `other`, {unattributed:.2} % of latency is \
             unattributed",
            run.test,
            run.durability
        );
    }
    Ok(())
}

fn report(runs: &[Run], threads: u32, seconds: u32) -> Result<String> {
    let mut text = String::new();
    writeln!(text, "# The ledger of a database\n")?;
    writeln!(
        text,
        "Written by `cargo xtask bench ledger --write`: MariaDB under sysbench with {threads} \
         connections for {seconds} s each, everything on one machine of {} CPUs, kernel {}, at \
         `innodb_flush_log_at_trx_commit` 1 (the redo log is synced at each commit) and 2 (it is \
         written at each commit, and synced once a second). One request is one command.\n",
        std::thread::available_parallelism().map_or(0, usize::from),
        kernel::release()
    )?;
    let titles = runs
        .iter()
        .map(|run| format!("{} at {}", run.test, run.durability));
    row(&mut text, "", titles)?;
    writeln!(text, "| --- |{}", " ---: |".repeat(runs.len()))?;
    row(
        &mut text,
        "commands",
        runs.iter().map(|run| run.commands.to_string()),
    )?;
    let mean = |run: &Run| format!("{:.1} µs", run.per_command(run.ns("latency_ns")));
    row(&mut text, "mean latency", runs.iter().map(mean))?;
    for (name, key) in [
        ("on CPU", "on_cpu_ns"),
        ("run queue", "run_queue_ns"),
        ("preempted", "preempted_ns"),
        ("blocked", "blocked_ns"),
    ] {
        let share = |run: &Run| percent(run.share(run.ns(key)));
        row(&mut text, name, runs.iter().map(share))?;
    }
    for class in classes(runs) {
        let share = |run: &Run| percent(run.share(run.class_ns(&class)));
        row(&mut text, &format!("– {class}"), runs.iter().map(share))?;
    }
    let share = |run: &Run| percent(run.share(run.ns("unattributed_ns")));
    row(&mut text, "unattributed", runs.iter().map(share))?;
    let other = |run: &Run| percent(run.other_of_blocked());
    row(
        &mut text,
        "`other`, of blocked time",
        runs.iter().map(other),
    )?;
    let lost = |run: &Run| run.lost.to_string();
    row(&mut text, "causes of loss", runs.iter().map(lost))?;
    let redo = |run: &Run| format!("{:.2} µs", run.per_command(run.class_ns("redo log")));
    row(&mut text, "**redo log per command**", runs.iter().map(redo))?;
    writeln!(
        text,
        "\nShares are of the sum of all latencies. Classes below 0.005 % everywhere are left out. \
         The command fails when more than {MOST_OTHER} % of blocked time is `other` or more than \
         {MOST_UNATTRIBUTED} % of latency is unattributed.\n"
    )?;
    for pair in runs.chunks(2) {
        if let [at_one, at_two] = pair {
            let (one, two) = (
                at_one.per_command(at_one.class_ns("redo log")),
                at_two.per_command(at_two.class_ns("redo log")),
            );
            writeln!(
                text,
                "From 2 to 1 the redo log of {} grows from {two:.2} µs to {one:.2} µs per command: \
                 {:.1} times.",
                at_one.test,
                one / two.max(0.001)
            )?;
        }
    }
    Ok(text)
}

/// Classes that are worth a row, those with most time first.
fn classes(runs: &[Run]) -> Vec<String> {
    let names: Vec<String> = runs
        .first()
        .and_then(|run| run.ledger["classes_ns"].as_object())
        .map_or_else(Vec::new, |classes| classes.keys().cloned().collect());
    let greatest = |class: &str| {
        runs.iter()
            .map(|run| run.share(run.class_ns(class)))
            .fold(0.0, f64::max)
    };
    let mut names: Vec<(f64, String)> = names
        .into_iter()
        .map(|class| (greatest(&class), class))
        .filter(|(share, _)| *share >= 0.005)
        .collect();
    names.sort_by(|a, b| b.0.total_cmp(&a.0));
    names.into_iter().map(|(_, class)| class).collect()
}

fn row(text: &mut String, name: &str, cells: impl Iterator<Item = String>) -> Result<()> {
    let cells: Vec<String> = cells.collect();
    writeln!(text, "| {name} | {} |", cells.join(" | "))?;
    Ok(())
}

fn percent(value: f64) -> String {
    if value > 0.0 && value < 0.005 {
        "<0.01 %".to_owned()
    } else {
        format!("{value:.2} %")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(redo_log: u64, durability: u32) -> Run {
        Run {
            test: "oltp_write_only",
            durability,
            commands: 10,
            lost: 0,
            ledger: json!({
                "latency_ns": 1_000_000, "on_cpu_ns": 1_000_000 - redo_log - 5_000,
                "run_queue_ns": 0, "preempted_ns": 0, "unattributed_ns": 1_000,
                "blocked_ns": redo_log + 4_000,
                "classes_ns": {"redo log": redo_log, "other": 4_000, "disk": 0},
            }),
        }
    }

    #[test]
    fn the_page_has_shares_and_growth() {
        let text = report(&[run(600_000, 1), run(200_000, 2)], 16, 30).unwrap();
        assert!(
            text.contains("| – redo log | 60.00 % | 20.00 % |"),
            "{text}"
        );
        assert!(
            text.contains("| unattributed | 0.10 % | 0.10 % |"),
            "{text}"
        );
        assert!(text.contains("from 20.00 µs to 60.00 µs per command: 3.0 times"));
        assert!(!text.contains("disk"));
    }
}
