//! `cargo xtask bench stacks`: how far user stacks come and what they cost, on four servers.
//!
//! In: nothing. Out: tables of whole stacks, time per walk and size of the unwind tables, by
//! `.eh_frame` and beside it by frame pointers under the same load; printed and, with `--write`,
//! put into docs/measured/stacks.md.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use reqtrace_tests::corpus::PROGRAMS;
use reqtrace_tests::fixtures::write_profile;
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::nginx::Nginx;
use reqtrace_tests::process::{Child, Stream};
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::servers::Server;
use reqtrace_tests::summary::Walks;
use reqtrace_tests::sysbench::Sysbench;

use super::Common;
use xtask::kernel;

/// How long a program may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Functions that a thread begins in.
const OUTERMOST: [&str; 5] = ["_start", "clone3", "clone", "__clone3", "__clone"];

/// Arguments of `bench stacks`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Transactions of sysbench
    #[arg(long, default_value_t = 5_000)]
    events: u64,
    /// Connections of sysbench
    #[arg(long, default_value_t = 16)]
    threads: u32,
    #[command(flatten)]
    common: Common,
}

/// One server under one load, walked in one way.
struct Run {
    server: &'static str,
    way: Way,
    /// Off-CPU microseconds in requests, and those whose stack reaches the outermost function.
    micros: u64,
    whole: u64,
    truncated: Vec<(String, u64)>,
    walks: Walks,
    /// Nanoseconds of `sched_switch` per run.
    switch_ns: u64,
    /// What `-v` says about the tables.
    tables: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Tables,
    FramePointers,
}

impl Way {
    const ALL: [Self; 2] = [Self::Tables, Self::FramePointers];

    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Tables => &["-v", "-d"],
            Self::FramePointers => &["-v", "-d", "--unwind", "fp"],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Tables => "`.eh_frame`",
            Self::FramePointers => "frame pointers",
        }
    }
}

/// Measures.
pub(super) fn run(args: &Args) -> Result<()> {
    args.common.prepare_with_servers(&[("wrk", "wrk")])?;
    let mut runs = Vec::new();
    mariadb(args, &mut runs)?;
    postgresql(&mut runs)?;
    redis(&mut runs)?;
    nginx(&mut runs)?;
    deepest(&mut runs)?;
    let text = report(args, &runs)?;
    args.common.tables("stacks.md", "stacks", &text)
}

fn mariadb(args: &Args, runs: &mut Vec<Run>) -> Result<()> {
    let server = MariaDb::open()?;
    let sysbench = Sysbench::prepare(&server, 4, 10_000)?;
    for way in Way::ALL {
        let trace = Trace::start("mysql.toml".as_ref(), server.pid(), way.options())?;
        sysbench.run(args.threads, args.events)?;
        runs.push(measured("MariaDB", way, &trace.finish()?)?);
    }
    Ok(())
}

fn postgresql(runs: &mut Vec<Run>) -> Result<()> {
    let server = Server::postgresql()?;
    server.run("pgbench", &["-i", "-q"])?;
    for way in Way::ALL {
        let trace = Trace::start("postgresql.toml".as_ref(), server.pid(), way.options())?;
        server.run("pgbench", &["-n", "-c", "8", "-t", "500"])?;
        runs.push(measured("PostgreSQL", way, &trace.finish()?)?);
    }
    Ok(())
}

fn redis(runs: &mut Vec<Run>) -> Result<()> {
    let server = Server::redis()?;
    for way in Way::ALL {
        let trace = Trace::start("redis.toml".as_ref(), server.pid(), way.options())?;
        server.redis_benchmark(&["-t", "set,lpush,zadd", "-n", "20000", "-c", "16", "-q"])?;
        runs.push(measured("Redis", way, &trace.finish()?)?);
    }
    Ok(())
}

fn nginx(runs: &mut Vec<Run>) -> Result<()> {
    let server = Nginx::start(2)?;
    let file = server.documents().join("file");
    fs::write(file, vec![b'x'; 64 << 10])?;
    let folder = reqtrace_tests::workspace::scratch()?;
    let profile = folder.path().join("nginx.toml");
    write_profile(&profile, "request", "ngx_http_process_request", "")?;
    for way in Way::ALL {
        let trace = Trace::start(&profile, server.pid(), way.options())?;
        server.wrk("/file", 32, 5)?;
        runs.push(measured("nginx", way, &trace.finish()?)?);
    }
    Ok(())
}

/// As deep as a stack is kept: 120 calls of one function and what is around them.
fn deepest(runs: &mut Vec<Run>) -> Result<()> {
    let folder = reqtrace_tests::workspace::scratch()?;
    let program = PROGRAMS
        .iter()
        .find(|program| program.name == "recursion")
        .context("the corpus has no `recursion`")?
        .build(folder.path())?;
    let profile = folder.path().join("deepest.toml");
    write_profile(&profile, "request", "request", "")?;
    for way in Way::ALL {
        let mut command = Command::new(&program.path);
        command.args(["2000", "1"]);
        let mut child = Child::start(command, folder.path(), "recursion")?;
        child.wait_for_line(Stream::Out, "chain: ", LIMIT)?;
        let trace = Trace::start(&profile, child.pid(), way.options())?;
        child.tell("go")?;
        child.wait(LIMIT)?;
        runs.push(measured("120 nested calls", way, &trace.wait()?)?);
    }
    Ok(())
}

fn measured(server: &'static str, way: Way, outcome: &Outcome) -> Result<Run> {
    ensure!(outcome.code == Some(0), "{}", outcome.printed());
    let summary = outcome.summary()?;
    let (mut micros, mut whole) = (0, 0);
    for line in outcome.folded()?.lines() {
        let (stack, time) = line.rsplit_once(' ').context("a line without a number")?;
        let time: u64 = time.parse()?;
        micros += time;
        let user = stack.split(";-;").next().unwrap_or_default();
        // The name of the process, perhaps that of the request type, and the outermost function.
        if user
            .split(';')
            .skip(1)
            .take(2)
            .any(|frame| OUTERMOST.contains(&frame))
        {
            whole += time;
        }
    }
    let walks = summary.unwinding.walks.context("no walk was counted")?;
    let switch = summary
        .programs
        .iter()
        .find(|program| program.name == "sched_switch")
        .context("sched_switch is not listed")?;
    let tables = outcome
        .stderr
        .lines()
        .find_map(|line| line.split_once("unwind tables: "))
        .map(|(_, rest)| rest.to_owned());
    Ok(Run {
        server,
        way,
        micros,
        whole,
        truncated: summary.unwinding.truncated_ns.into_iter().collect(),
        walks,
        switch_ns: switch.run_ns / switch.runs.max(1),
        tables,
    })
}

fn report(args: &Args, runs: &[Run]) -> Result<String> {
    let mut text = String::new();
    writeln!(
        text,
        "Kernel {}, Debian's packages, each server under the same load both times: sysbench \
         oltp_read_write with {} threads, pgbench with 8 clients, redis-benchmark (set, lpush, \
         zadd; every write synced), wrk with 32 connections for a file of 64 KiB. Last a program that blocks for 1 ms below 120 \
         nested calls.\n",
        kernel::release(),
        args.threads
    )?;
    writeln!(
        text,
        "| server | walked by | time whose stack reaches the outermost function | truncated | \
         frames | ns per walk | 99.9 % below | longest | `sched_switch`, ns |\n\
         | --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |"
    )?;
    for run in runs {
        let walks = run.walks.walks.max(1);
        writeln!(
            text,
            "| {} | {} | {:.1} % of {:.1} s | {} | {:.1} | {} | {:.1} µs | {:.1} µs | {} |",
            run.server,
            run.way.name(),
            run.whole as f64 * 100.0 / run.micros.max(1) as f64,
            run.micros as f64 / 1e6,
            truncated(run),
            run.walks.frames as f64 / walks as f64,
            run.walks.run_ns / walks,
            run.walks.p999_ns as f64 / 1e3,
            run.walks.max_ns as f64 / 1e3,
            run.switch_ns
        )?;
    }
    writeln!(
        text,
        "\nTime of a walk is from a clock before and after it, with interrupts off; on a virtual \
         machine the longest holds what the hypervisor took meanwhile. `sched_switch` is from \
         `bpf_stats`, over all switches of the machine, those of no request included.\n"
    )?;
    writeln!(text, "| process | its unwind tables |\n| --- | --- |")?;
    for run in runs.iter().filter(|run| run.way == Way::Tables) {
        if let Some(tables) = &run.tables {
            writeln!(text, "| {} | {tables} |", run.server)?;
        }
    }
    Ok(text)
}

fn truncated(run: &Run) -> String {
    let all: Vec<String> = run
        .truncated
        .iter()
        .map(|(reason, ns)| format!("{reason}: {:.1} ms", *ns as f64 / 1e6))
        .collect();
    if all.is_empty() {
        "nothing".to_owned()
    } else {
        all.join(", ")
    }
}
