//! `cargo xtask bench pages`: what the page takes of the tracer's CPU time, on MariaDB under sysbench.
//!
//! In: nothing. Out: a table of the tracer's CPU time a request with and without the page, while it traces and
//! at its end, without and with blame; printed and, with `--write`, put into docs/measured/page.md.

use std::fmt::Write as _;
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::process::{Child, Stream};
use reqtrace_tests::reqtrace;
use reqtrace_tests::sysbench::Sysbench;
use reqtrace_tests::workspace;
use serde_json::Value;

use super::Common;
use super::cost::programs::{peak_memory, process_cpu};
use xtask::kernel;

/// Connections of sysbench.
const THREADS: u32 = 16;
/// How long attaching, or the report, may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Files of `--out` that are no page, and the options for them.
const FILES: [(&str, &str); 4] = [
    ("--csv", "requests.csv"),
    ("--folded", "stacks.folded"),
    ("--flamegraph", "flamegraph.svg"),
    ("--json", "summary.json"),
];

/// Arguments of `bench pages`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Seconds of each load
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Loads with and without a page, in turns
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    #[command(flatten)]
    common: Common,
}

/// One load under a trace.
#[derive(Clone, Copy, Debug)]
struct Run {
    requests: u64,
    /// CPU time of the tracer while the load ran, µs a request.
    during_us: f64,
    /// From the end of the load to that of the tracer, µs a request.
    end_us: f64,
    /// Most memory until the end of the load, MiB.
    memory: f64,
}

/// Measures.
pub(super) fn run(args: &Args) -> Result<()> {
    args.common.prepare_with_servers(&[])?;
    let server = MariaDb::open()?;
    let sysbench = Sysbench::prepare(&server, 4, 10_000)?;
    let mut pairs = Vec::new();
    for blame in [false, true] {
        let mut runs = [Vec::new(), Vec::new()];
        for round in 1..=args.rounds {
            // Which is first changes: a load leaves the server in another state.
            let first = round % 2 == 0;
            for page in [first, !first] {
                let run = traced(args, &server, &sysbench, page, blame)?;
                eprintln!("round {round}, blame {blame}, page {page}: {run:?}");
                runs[usize::from(page)].push(run);
            }
        }
        pairs.push((blame, runs));
    }
    args.common
        .tables("page.md", "pages", &report(args, &pairs)?)
}

fn traced(
    args: &Args,
    server: &MariaDb,
    load: &Sysbench<'_>,
    page: bool,
    blame: bool,
) -> Result<Run> {
    let folder = workspace::scratch()?;
    let out = folder.path().join("out");
    std::fs::create_dir(&out)?;
    let pid = server.pid().to_string();
    let mut command = reqtrace::command(["--profile", "mysql", "--labels", "-p", &pid])?;
    if blame {
        command.arg("--blame");
    }
    if page {
        command.arg("--out").arg(&out);
    } else {
        for (option, file) in FILES {
            command.arg(option).arg(out.join(file));
        }
    }
    let mut tracer = Child::start(command, folder.path(), "reqtrace")?;
    tracer.wait_for_line(Stream::Err, "tracing ", LIMIT)?;
    let before = process_cpu(tracer.pid())?;
    load.run_seconds("oltp_read_write", THREADS, args.seconds)?;
    let during = process_cpu(tracer.pid())?;
    let memory = peak_memory(tracer.pid())? as f64 / f64::from(1 << 20);
    let others = ended_children()?;
    tracer.signal(libc::SIGINT)?;
    let status = tracer.wait(LIMIT)?;
    ensure!(status.success(), "{}", tracer.output(Stream::Err));
    let all = ended_children()?.saturating_sub(others);
    ensure!(
        page == out.join("report.html").exists(),
        "the page is there or not as it was not asked for"
    );
    let requests = complete(&out.join("summary.json"))?;
    let each = |time: Duration| time.as_secs_f64() * 1e6 / requests as f64;
    Ok(Run {
        requests,
        during_us: each(during.saturating_sub(before)),
        end_us: each(all.saturating_sub(during)),
        memory,
    })
}

/// Complete requests of a trace.
fn complete(summary: &Path) -> Result<u64> {
    let text = std::fs::read_to_string(summary)?;
    let summary: Value = serde_json::from_str(&text)?;
    let requests = summary["requests"][0]["count"].as_u64();
    let requests = requests.context("summary.json says no number of requests")?;
    ensure!(requests > 0, "no request was traced");
    Ok(requests)
}

/// CPU time of all children that have ended and were waited for.
fn ended_children() -> Result<Duration> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: it is a valid place.
    let read = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) };
    ensure!(read == 0, "getrusage: {}", std::io::Error::last_os_error());
    // SAFETY: all zeros is a valid value, and the call has set it.
    let usage = unsafe { usage.assume_init() };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    Ok(time(usage.ru_utime) + time(usage.ru_stime))
}

/// The middle of all rounds.
fn median(runs: &[Run], value: impl Fn(&Run) -> f64) -> f64 {
    let mut values: Vec<f64> = runs.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn report(args: &Args, pairs: &[(bool, [Vec<Run>; 2])]) -> Result<String> {
    let mut text = String::new();
    writeln!(
        text,
        "MariaDB under `sysbench oltp_read_write`, {THREADS} connections, {} s, kernel {}, with `--labels`; medians of {} \
         rounds, in turns. The tracer's own CPU time, with `--out DIR` and with all of its files but the page:\n",
        args.seconds,
        kernel::release(),
        args.rounds,
    )?;
    writeln!(text, "| | without the page | with it |")?;
    writeln!(text, "| --- | ---: | ---: |")?;
    for (blame, [without, with]) in pairs {
        let name = if *blame { "with `--blame`" } else { "no blame" };
        let mut row = |what: &str, digits: usize, value: &dyn Fn(&Run) -> f64| {
            let [without, with] = [without, with].map(|runs| median(runs, value));
            writeln!(
                text,
                "| {name}: {what} | {without:.digits$} | {with:.digits$} |"
            )
        };
        row("requests", 0, &|run| run.requests as f64)?;
        row("while it traces, µs a request", 2, &|run| run.during_us)?;
        row("after that, µs a request", 2, &|run| run.end_us)?;
        row("memory before the end, MiB", 0, &|run| run.memory)?;
    }
    Ok(text)
}
