//! `cargo xtask bench --stacks`: how far user stacks come and what they cost, on four servers.
//!
//! In: nothing. Out: tables of whole stacks, time per walk and size of the unwind tables, by
//! `.eh_frame` and beside it by frame pointers under the same load; printed and, with `--write`,
//! put into docs/unwinding.md.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use reqtrace_tests::corpus::PROGRAMS;
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::process::{Child, Stream, until};
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::servers::Server;
use reqtrace_tests::summary::Walks;
use reqtrace_tests::sysbench::Sysbench;
use tempfile::TempDir;

use super::Args;
use crate::setup::{self, Need};
use crate::workspace;

/// How long a program may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Functions that a thread begins in.
const OUTERMOST: [&str; 5] = ["_start", "clone3", "clone", "__clone3", "__clone"];
const BEGIN_MARK: &str = "<!-- written by `cargo xtask bench --stacks --write` -->";
const END_MARK: &str = "<!-- end of what is written -->";
const NGINX_PROFILE: &str = "[profile]\nname = \"nginx\"\n\n[[request]]\nname = \"request\"\n\
    begin = { function = \"ngx_http_process_request\" }\n";

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
///
/// # Errors
///
/// When something that is measured does not run.
pub(super) fn run(args: &Args) -> Result<()> {
    setup::prepare(&[Need::Build, Need::Test], false)?;
    for command in ["nginx", "wrk"] {
        if workspace::find_command(command).is_none() {
            bail!("`{command}` is missing: apt-get install -y {command}");
        }
    }
    args.binaries.build()?;
    let mut runs = Vec::new();
    mariadb(args, &mut runs)?;
    postgresql(&mut runs)?;
    redis(&mut runs)?;
    nginx(&mut runs)?;
    deepest(&mut runs)?;
    let text = report(args, &runs)?;
    println!("{text}");
    if args.write {
        write(&text)?;
    }
    Ok(())
}

fn mariadb(args: &Args, runs: &mut Vec<Run>) -> Result<()> {
    let server = MariaDb::open()?;
    let sysbench = Sysbench::prepare(&server, 4, 10_000)?;
    for way in Way::ALL {
        let trace = Trace::start("mysql.toml".as_ref(), server.pid(), way.options())?;
        sysbench.run(args.threads, args.events.min(5_000))?;
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
    let server = Nginx::open()?;
    let profile = server.folder.path().join("nginx.toml");
    fs::write(&profile, NGINX_PROFILE)?;
    for way in Way::ALL {
        let trace = Trace::start(&profile, server.process.pid(), way.options())?;
        server.load()?;
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
    let text = NGINX_PROFILE.replace("ngx_http_process_request", "request");
    fs::write(&profile, text)?;
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

/// A master and two workers that serve a file.
struct Nginx {
    process: Child,
    folder: TempDir,
    port: u16,
}

impl Nginx {
    fn open() -> Result<Self> {
        let folder = reqtrace_tests::workspace::scratch()?;
        // Free now; nobody else is likely to take it in the next moment.
        let port = std::net::TcpListener::bind("127.0.0.1:0")?
            .local_addr()?
            .port();
        let at = folder.path().display();
        let configuration = format!(
            "daemon off; worker_processes 2; pid {at}/pid; error_log {at}/error.log;\n\
             events {{ worker_connections 256; }}\n\
             http {{ access_log {at}/access.log; client_body_temp_path {at}/b;\n\
             proxy_temp_path {at}/p; fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u;\n\
             scgi_temp_path {at}/s;\n\
             server {{ listen 127.0.0.1:{port}; root {at}; }} }}\n"
        );
        let file = folder.path().join("nginx.conf");
        fs::write(&file, configuration)?;
        fs::write(folder.path().join("file"), vec![b'x'; 64 << 10])?;
        let mut command = Command::new(reqtrace_tests::workspace::program("nginx")?);
        command.arg("-c").arg(&file).arg("-p").arg(folder.path());
        let process = Child::start(command, folder.path(), "nginx")?;
        until(LIMIT, "nginx to listen", || {
            Ok(std::net::TcpStream::connect(("127.0.0.1", port)).ok())
        })?;
        Ok(Self {
            process,
            folder,
            port,
        })
    }

    fn load(&self) -> Result<()> {
        let status = Command::new(reqtrace_tests::workspace::program("wrk")?)
            .args(["-t", "2", "-c", "32", "-d", "5"])
            .arg(format!("http://127.0.0.1:{}/file", self.port))
            .stdout(Stdio::null())
            .status()?;
        ensure!(status.success(), "wrk: {status}");
        Ok(())
    }
}

fn measured(server: &'static str, way: Way, outcome: &Outcome) -> Result<Run> {
    ensure!(outcome.code == Some(0), "{}", outcome.said());
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
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut text = String::new();
    writeln!(
        text,
        "Kernel {}, Debian's packages, each server under the same load both times: sysbench \
         oltp_read_write with {} threads, pgbench with 8 clients, redis-benchmark (set, lpush, \
         zadd; every write synced), wrk with 32 connections for a file of 64 KiB. Last a program that blocks for 1 ms below 120 \
         nested calls.\n",
        kernel.trim(),
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

/// Puts the text between its two marks.
fn write(text: &str) -> Result<()> {
    let path: PathBuf = workspace::root().join("docs/unwinding.md");
    let page = fs::read_to_string(&path)?;
    let marks = page.split_once(BEGIN_MARK).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END_MARK)?;
        Some((before, after))
    });
    let (before, after) = marks.with_context(|| {
        format!(
            "{} has lost its mark {BEGIN_MARK} or {END_MARK}",
            path.display()
        )
    })?;
    let page = format!("{before}{BEGIN_MARK}\n\n{text}\n{END_MARK}{after}");
    fs::write(&path, page).with_context(|| path.display().to_string())
}
