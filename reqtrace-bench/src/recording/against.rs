//! `cargo xtask bench recording --against PROGRAM`: another build of reqtrace beside this one, on the same
//! server, in turns.
//!
//! In: the other build. Out: a table of the server's throughput without a tracer and with each.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::sysbench::Sysbench;
use reqtrace_tests::workspace;

use super::{Args, THREADS};
use crate::cost::model::Spread;
use crate::cost::programs::{family_cpu, process_cpu};
use xtask::kernel;

/// Who traces, in the order of the table.
const WHO: [&str; 3] = ["nobody", "the other build", "this build"];

/// One load.
#[derive(Clone, Copy, Debug)]
struct Run {
    per_second: f64,
    /// The server's CPU time a statement, µs.
    server_us: f64,
    /// The tracer's own CPU time, percent of one CPU.
    tracer: f64,
}

/// Measures; gives the table.
pub(super) fn run(args: &Args, other: &Path) -> Result<String> {
    let programs = [None, Some(other.to_owned()), Some(workspace::reqtrace()?)];
    let server = MariaDb::open()?;
    let sysbench = Sysbench::prepare(&server, 4, 10_000)?;
    // The first load fills the server's caches.
    sysbench.run_seconds("oltp_read_write", THREADS, args.seconds)?;
    let mut runs = WHO.map(|_| Vec::new());
    for round in 0..args.rounds as usize {
        for turn in 0..WHO.len() {
            // Each comes first, second and last equally often.
            let who = (round + turn) % WHO.len();
            let run = once(args, &server, &sysbench, programs[who].as_deref())?;
            eprintln!("round {}, {}: {run:?}", round + 1, WHO[who]);
            runs[who].push(run);
        }
    }
    table(args, other, &runs)
}

fn once(args: &Args, server: &MariaDb, load: &Sysbench<'_>, program: Option<&Path>) -> Result<Run> {
    let start = |program: &Path| Trace::start_by(program, Path::new("mysql"), server.pid(), &[]);
    let trace = program.map(start).transpose()?;
    let tracer = trace.as_ref().map(Trace::pid);
    let used = || tracer.map_or(Ok(Default::default()), process_cpu);
    let (before, served, begin) = (used()?, family_cpu(server.pid())?, Instant::now());
    let done = load.run_seconds("oltp_read_write", THREADS, args.seconds)?;
    let wall = begin.elapsed().as_secs_f64();
    let used = used()?.saturating_sub(before).as_secs_f64();
    let served = family_cpu(server.pid())?.saturating_sub(served);
    if let Some(trace) = trace {
        let outcome = trace.finish()?;
        ensure!(outcome.code == Some(0), "{}", outcome.printed());
        // Older builds have a summary of another shape; all have a row for each request.
        ensure!(
            outcome.csv()?.lines().nth(1).is_some(),
            "no request was traced"
        );
    }
    Ok(Run {
        per_second: done.queries as f64 / (done.micros as f64 / 1e6),
        server_us: served.as_secs_f64() * 1e6 / done.queries as f64,
        tracer: used / wall * 100.0,
    })
}

fn table(args: &Args, other: &Path, runs: &[Vec<Run>; 3]) -> Result<String> {
    let version = std::process::Command::new(other)
        .arg("--version")
        .output()
        .with_context(|| other.display().to_string())?;
    let version = String::from_utf8_lossy(&version.stdout);
    let printed = args.printed.as_deref().map_or_else(
        || version.trim().to_owned(),
        |printed| format!("{} {printed}", version.trim()),
    );
    let mut text = format!(
        "MariaDB under `sysbench oltp_read_write`, {THREADS} connections, loads of {} s, kernel {}; {} rounds, in each of \
         which every line has its turn: medians and, in brackets, the least and the most. The other build: {printed}.\n\n\
         | traced by | statements a second | of the untraced | server's CPU time each, µs | tracer, % of a CPU |\n\
         | --- | ---: | ---: | ---: | ---: |\n",
        args.seconds,
        kernel::release(),
        args.rounds,
    );
    for (who, of) in WHO.iter().zip(runs) {
        let spread = |value: fn(&Run) -> f64| Spread::of(of.iter().map(value));
        let shares = of.iter().zip(&runs[0]);
        let share = Spread::of(shares.map(|(run, base)| run.per_second / base.per_second));
        let shown = |spread: &Spread, digits: usize| {
            let [least, median, most] = [spread.least(), spread.median(), spread.most()];
            format!("{median:.digits$} ({least:.digits$}–{most:.digits$})")
        };
        writeln!(
            text,
            "| {who} | {} | {} | {} | {} |",
            shown(&spread(|run| run.per_second), 0),
            shown(&share, 2),
            shown(&spread(|run| run.server_us), 1),
            shown(&spread(|run| run.tracer), 2),
        )?;
    }
    let pairs = runs[2].iter().zip(&runs[1]);
    let ratio = Spread::of(pairs.map(|(this, other)| this.per_second / other.per_second));
    writeln!(
        text,
        "\nThis build over the other, round by round: {:.2} ({:.2}–{:.2}).",
        ratio.median(),
        ratio.least(),
        ratio.most()
    )?;
    Ok(text)
}
