//! `cargo xtask bench recording`: what a recording costs and how large it is, on MariaDB under sysbench.
//!
//! In: nothing. Out: a table of bytes a request, the tracer's own CPU time and memory with and without
//! `--record`, and the time of `reqtrace report`; printed and, with `--write`, put into
//! docs/measured/recording.md. With `--against` instead: another build of reqtrace beside this one.

mod against;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, ensure};
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::reqtrace::{self, Trace};
use reqtrace_tests::sysbench::Sysbench;
use reqtrace_tests::workspace;

use super::Common;
use super::cost::programs::{family_cpu, peak_memory, process_cpu};
use xtask::kernel;

/// Connections of sysbench.
const THREADS: u32 = 16;

/// Arguments of `bench recording`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Seconds of each load
    #[arg(long, default_value_t = 30)]
    seconds: u32,
    /// Loads with and without a recording, in turns
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Compare the server's throughput with that under another build of reqtrace, in turns
    #[arg(long, value_name = "PROGRAM")]
    against: Option<PathBuf>,
    /// What the page says of that build, such as its commit
    #[arg(long, value_name = "TEXT", requires = "against")]
    printed: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// One load under a trace.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    requests: u64,
    /// The tracer's own CPU time, percent of one CPU.
    tracer: f64,
    /// The server's CPU time a request, microseconds.
    server_us: f64,
    /// Most memory of the tracer, MiB.
    memory: f64,
    /// Bytes of the recording.
    bytes: u64,
    /// Seconds of `reqtrace report`.
    report_s: f64,
}

/// Measures.
pub(super) fn run(args: &Args) -> Result<()> {
    args.common.prepare_with_servers(&[])?;
    if let Some(other) = &args.against {
        let text = against::run(args, other)?;
        let what = "recording --against PROGRAM";
        return args.common.tables("recording.md", what, &text);
    }
    let server = MariaDb::open()?;
    let sysbench = Sysbench::prepare(&server, 4, 10_000)?;
    let mut runs = [Vec::new(), Vec::new()];
    for round in 1..=args.rounds {
        for recorded in [false, true] {
            let run = traced(args, &server, &sysbench, recorded)?;
            eprintln!("round {round}, recorded {recorded}: {run:?}");
            runs[usize::from(recorded)].push(run);
        }
    }
    args.common
        .tables("recording.md", "recording", &report(args, &runs)?)
}

fn traced(args: &Args, server: &MariaDb, load: &Sysbench<'_>, recorded: bool) -> Result<Run> {
    let folder = workspace::scratch()?;
    let file = folder.path().join("trace.rec");
    let option = format!("--record={}", file.display());
    let more: &[&str] = if recorded { &[&option] } else { &[] };
    let trace = Trace::start(Path::new("mysql"), server.pid(), more)?;
    let tracer = trace.pid();
    let (before, served) = (process_cpu(tracer)?, family_cpu(server.pid())?);
    let begin = Instant::now();
    load.run_seconds("oltp_read_write", THREADS, args.seconds)?;
    let wall = begin.elapsed().as_secs_f64();
    let used = process_cpu(tracer)?.saturating_sub(before).as_secs_f64();
    let served = family_cpu(server.pid())?.saturating_sub(served);
    let memory = peak_memory(tracer)? as f64 / f64::from(1 << 20);
    let outcome = trace.finish()?;
    ensure!(outcome.code == Some(0), "{}", outcome.printed());
    let requests = outcome
        .summary()?
        .request("command")
        .map_or(0, |request| request.rows);
    ensure!(requests > 0, "no request was traced");
    let mut run = Run {
        requests,
        tracer: used / wall * 100.0,
        server_us: served.as_secs_f64() * 1e6 / requests as f64,
        memory,
        ..Run::default()
    };
    if recorded {
        run.bytes = std::fs::metadata(&file)?.len();
        let mut command = reqtrace::command(["report"])?;
        command
            .arg(&file)
            .arg("--out")
            .arg(folder.path().join("out"));
        let begin = Instant::now();
        let reported = reqtrace::run(command)?;
        run.report_s = begin.elapsed().as_secs_f64();
        ensure!(reported.code == Some(0), "{}", reported.printed());
    }
    Ok(run)
}

/// The middle of all rounds.
fn median(runs: &[Run], value: impl Fn(&Run) -> f64) -> f64 {
    let mut values: Vec<f64> = runs.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn report(args: &Args, [plain, recorded]: &[Vec<Run>; 2]) -> Result<String> {
    let mut text = String::new();
    let bytes = median(recorded, |run| run.bytes as f64 / run.requests as f64);
    writeln!(
        text,
        "MariaDB under `sysbench oltp_read_write`, {THREADS} connections, {} s, kernel {}; medians of {}. The \
         server's CPU time is with all that the kernel does for the tracer. What a recording is:\n[Recordings](../recording.md).\n",
        args.seconds,
        kernel::release(),
        args.rounds,
    )?;
    writeln!(text, "| | without `--record` | with it | target |")?;
    writeln!(text, "| --- | ---: | ---: | ---: |")?;
    let mut row = |what: &str, digits: usize, target: &str, value: &dyn Fn(&Run) -> f64| {
        let [plain, recorded] = [plain, recorded].map(|runs| median(runs, value));
        writeln!(
            text,
            "| {what} | {plain:.digits$} | {recorded:.digits$} | {target} |"
        )
    };
    row("requests a second", 0, "", &|run| {
        run.requests as f64 / f64::from(args.seconds)
    })?;
    row("server's CPU time a request, µs", 1, "", &|run| {
        run.server_us
    })?;
    row("tracer, % of a CPU", 2, "2 and 4", &|run| run.tracer)?;
    row("tracer, µs a request", 2, "", &|run| {
        run.tracer / 100.0 * 1e6 * f64::from(args.seconds) / run.requests as f64
    })?;
    row("tracer's memory, MiB", 0, "128", &|run| run.memory)?;
    writeln!(text, "| bytes a request | | {bytes:.1} | 60 |")?;
    let report_s = median(recorded, |run| run.report_s);
    writeln!(text, "| `reqtrace report`, s | | {report_s:.2} | 2 |")?;
    Ok(text)
}
