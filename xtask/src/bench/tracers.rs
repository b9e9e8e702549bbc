//! `cargo xtask bench tracers`: what tracing costs, beside a peer, on a MariaDB under sysbench.
//!
//! In: nothing. Out: a table of throughput and of the kernel programs' own time, printed and, with
//! `--write`, put into docs/benchmarks.md. Rounds are interleaved, because a shared machine's speed
//! drifts; throughput is given as ratios within one round.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::summary::Summary;
use reqtrace_tests::sysbench::Sysbench;
use serde_json::Value;

use super::Common;
use crate::kernel;
use crate::process::Guard;
use crate::workspace;

/// The peer: frame pointers, no requests, sums in the kernel.
const PEER: &str = "offcputime";
/// Where the kernel's own clock for BPF programs is switched.
const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// Arguments of `bench tracers`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Rounds; each runs the load once without a tracer and once with each
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Transactions of a load
    #[arg(long, default_value_t = 15_000)]
    events: u64,
    /// Connections of sysbench
    #[arg(long, default_value_t = 16)]
    threads: u32,
    #[command(flatten)]
    common: Common,
}

/// Who watches the load.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watcher {
    Nobody,
    Reqtrace,
    ReqtraceFp,
    ReqtraceUretprobe,
    Peer,
}

impl Watcher {
    const ALL: [Self; 5] = [
        Self::Nobody,
        Self::Reqtrace,
        Self::ReqtraceFp,
        Self::ReqtraceUretprobe,
        Self::Peer,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::Reqtrace => "reqtrace",
            Self::ReqtraceFp => "reqtrace --unwind fp",
            Self::ReqtraceUretprobe => "reqtrace, `return-probe = \"uretprobe\"`",
            Self::Peer => "offcputime (libbpf-tools)",
        }
    }
}

/// What one kernel program cost.
#[derive(Clone, Debug)]
struct Cost {
    program: String,
    runs: u64,
    ns: u64,
}

/// Measures.
pub(super) fn run(args: &Args) -> Result<()> {
    args.common
        .prepare_with_servers(&[(PEER, "libbpf-tools"), ("bpftool", "bpftool")])?;
    let server = MariaDb::open()?;
    let sysbench = Sysbench::prepare(&server, 4, 100_000)?;
    let bench = Bench {
        args,
        server: &server,
        sysbench: &sysbench,
    };
    bench.load(Watcher::Nobody)?;
    let mut ratios: Vec<(Watcher, Vec<f64>)> = Vec::new();
    let mut plain = Vec::new();
    for round in 1..=args.rounds {
        let base = bench.load(Watcher::Nobody)?.0;
        plain.push(base);
        for watcher in Watcher::ALL.into_iter().skip(1) {
            let (speed, _) = bench.load(watcher)?;
            eprintln!(
                "round {round}: {} {:.3} of {base:.0}/s",
                watcher.name(),
                speed / base
            );
            match ratios.iter_mut().find(|(known, _)| *known == watcher) {
                Some((_, all)) => all.push(speed / base),
                None => ratios.push((watcher, vec![speed / base])),
            }
        }
    }
    let costs = bench.costs()?;
    let text = report(args, &plain, &ratios, &costs)?;
    args.common.page("benchmarks.md", &text)
}

struct Bench<'a> {
    args: &'a Args,
    server: &'a MariaDb,
    sysbench: &'a Sysbench<'a>,
}

impl Bench<'_> {
    /// Runs the load once. Returns transactions per second, and what the kernel programs cost when
    /// the kernel counts that.
    fn load(&self, watcher: Watcher) -> Result<(f64, Vec<Cost>)> {
        let trace = match watcher {
            Watcher::Reqtrace => Some(self.trace("mysql.toml".as_ref(), &[])?),
            Watcher::ReqtraceFp => Some(self.trace("mysql.toml".as_ref(), &["--unwind", "fp"])?),
            Watcher::ReqtraceUretprobe => Some(self.trace(&uretprobe_profile()?, &[])?),
            Watcher::Nobody | Watcher::Peer => None,
        };
        let peer = (watcher == Watcher::Peer)
            .then(|| self.peer())
            .transpose()?;
        let started = Instant::now();
        let done = self.sysbench.run(self.args.threads, self.args.events)?;
        let speed = done.transactions as f64 / started.elapsed().as_secs_f64();
        let mut costs = Vec::new();
        if let Some(trace) = trace {
            costs = of_summary(&trace.finish()?.summary()?);
        }
        if let Some(peer) = peer {
            costs = of_peer()?;
            // Its report takes minutes, and is not what is measured.
            drop(peer);
        }
        Ok((speed, costs))
    }

    fn trace(&self, profile: &Path, more: &[&str]) -> Result<Trace> {
        Trace::start(profile, self.server.pid(), more)
    }

    fn peer(&self) -> Result<Guard> {
        let mut command = Command::new(PEER);
        command.args(["-p", &self.server.pid().to_string(), "3600"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let guard = Guard::spawn(&mut command)?;
        // It says nothing when it has attached.
        sleep(Duration::from_secs(2));
        Ok(guard)
    }

    /// One load per watcher with the kernel's clock for BPF programs on.
    fn costs(&self) -> Result<Vec<(Watcher, Vec<Cost>)>> {
        let before = fs::read_to_string(STATS).context(STATS)?;
        fs::write(STATS, "1").context(STATS)?;
        let costs = Watcher::ALL
            .into_iter()
            .skip(1)
            .map(|watcher| Ok((watcher, self.load(watcher)?.1)))
            .collect();
        fs::write(STATS, before.trim()).context(STATS)?;
        costs
    }
}

/// The profile `mysql` with its end probed by a uretprobe.
fn uretprobe_profile() -> Result<PathBuf> {
    let text = fs::read_to_string(workspace::root().join("profiles/mysql.toml"))?;
    let text = text.replacen(
        "[[request]]\n",
        "[[request]]\nreturn-probe = \"uretprobe\"\n",
        1,
    );
    let path = workspace::target_dir().join("mysql-uretprobe.toml");
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// Programs in reqtrace's own summary.
fn of_summary(summary: &Summary) -> Vec<Cost> {
    let programs = summary.programs.iter();
    programs
        .map(|program| Cost {
            program: program.name.clone(),
            runs: program.runs,
            ns: program.run_ns,
        })
        .collect()
}

/// The peer's programs, while it runs: those on `sched_switch`, as bpftool shows them.
fn of_peer() -> Result<Vec<Cost>> {
    let output = Command::new("bpftool")
        .args(["prog", "show", "--json"])
        .output()?;
    let programs: Vec<Value> =
        serde_json::from_slice(&output.stdout).context("bpftool printed no JSON")?;
    Ok(programs
        .iter()
        .filter(|program| program["name"].as_str() == Some("sched_switch"))
        .map(|program| Cost {
            program: "sched_switch".to_owned(),
            runs: program["run_cnt"].as_u64().unwrap_or(0),
            ns: program["run_time_ns"].as_u64().unwrap_or(0),
        })
        .collect())
}

fn report(
    args: &Args,
    plain: &[f64],
    ratios: &[(Watcher, Vec<f64>)],
    costs: &[(Watcher, Vec<Cost>)],
) -> Result<String> {
    let mut text = String::new();
    writeln!(text, "# What tracing costs\n")?;
    writeln!(
        text,
        "Written by `cargo xtask bench tracers --write`: MariaDB under sysbench oltp_read_write, {} threads, \
         {} transactions a run, {} interleaved rounds, kernel {}.\n",
        args.threads,
        args.events,
        args.rounds,
        kernel::release()
    )?;
    writeln!(text, "## Throughput\n")?;
    writeln!(
        text,
        "Transactions per second against the run of the same round that nobody watched \
         (median {:.0}/s, {:.0} to {:.0}).\n",
        median(plain),
        least(plain),
        most(plain)
    )?;
    writeln!(
        text,
        "| watched by | median | least | most |\n| --- | ---: | ---: | ---: |"
    )?;
    for (watcher, ratios) in ratios {
        writeln!(
            text,
            "| {} | {:.3} | {:.3} | {:.3} |",
            watcher.name(),
            median(ratios),
            least(ratios),
            most(ratios)
        )?;
    }
    writeln!(
        text,
        "\nThe load is the hardest kind: commands of some 20 µs on CPUs that are all busy. What is \
         lost beyond the kernel programs' time below is the traps of the probes: the `ret` of a \
         return site is single-stepped, which costs an exit to the hypervisor on a virtual \
         machine; a uretprobe needs none, but rewrites the target's stack.\n"
    )?;
    writeln!(text, "## Time in kernel programs\n")?;
    writeln!(
        text,
        "From `kernel.bpf_stats_enabled`, averaged over all runs; the kernel's clock itself \
         adds some 40 ns to each. `sched_switch` runs at every context switch of the machine.\n"
    )?;
    writeln!(
        text,
        "| watched by | program | runs | ns each |\n| --- | --- | ---: | ---: |"
    )?;
    for (watcher, costs) in costs {
        for cost in costs.iter().filter(|cost| cost.runs > 100) {
            writeln!(
                text,
                "| {} | {} | {} | {} |",
                watcher.name(),
                cost.program,
                cost.runs,
                cost.ns / cost.runs
            )?;
        }
    }
    Ok(text)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

fn median(values: &[f64]) -> f64 {
    sorted(values).get(values.len() / 2).copied().unwrap_or(0.0)
}

fn least(values: &[f64]) -> f64 {
    sorted(values).first().copied().unwrap_or(0.0)
}

fn most(values: &[f64]) -> f64 {
    sorted(values).last().copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_that_of_the_sorted_values() {
        let values = [0.9, 0.7, 1.0];
        assert!((median(&values) - 0.9).abs() < 1e-9);
        assert!((least(&values) - 0.7).abs() < 1e-9);
        assert!((most(&values) - 1.0).abs() < 1e-9);
        assert!(median(&[]).abs() < 1e-9);
    }
}
