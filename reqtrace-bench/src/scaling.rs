//! `cargo xtask bench scaling`: how the cost of tracing grows with requests a second, with threads in
//! requests, and with different stacks.
//!
//! In: nothing. Out: a table for each, and a chart, printed and, with `--write`, put into
//! docs/measured/scaling.md.

mod curve;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::servers::Server;
use reqtrace_tests::sysbench::Sysbench;

use super::cost::loads::{Done, pgbench};
use super::cost::model::Spread;
use super::cost::programs::{Holdings, family_cpu, peak_memory, process_cpu};
use super::{Common, page};
use curve::Curve;
use xtask::kernel;

/// Transactions a second that pgbench is held to.
const RATES: [u32; 5] = [300, 1_000, 3_000, 10_000, 20_000];
/// Connections of sysbench.
const THREADS: [u32; 5] = [1, 4, 16, 64, 128];
/// Different stacks of the program `crossroads`.
const STACKS: [u32; 5] = [1, 100, 1_000, 10_000, 30_000];
/// Its requests: each stack comes once at least.
const REQUESTS: u32 = 30_000;

/// With fewer rounds the page says that it is not to be relied on.
const ENOUGH_ROUNDS: u32 = 3;
/// How it says that.
const FIRST_LOOK: &str =
    "**A first look**: fewer than three rounds, of which a single one is off by a tenth and more.";

/// Arguments of `bench scaling`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Rounds; each runs every point once without and once with reqtrace
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Seconds of each load
    #[arg(long, default_value_t = 2)]
    seconds: u32,
    #[command(flatten)]
    common: Common,
}

/// One run.
#[derive(Default)]
struct Run {
    per_second: f64,
    events: u64,
    /// CPU time of the traced process, and of the tracer.
    cpu: [Duration; 2],
    wall: Duration,
    /// Of the tracer: memory of the process and of its maps, bytes; s to the report.
    memory: u64,
    maps: u64,
    report_s: f64,
    lost: u64,
    /// Lines of the report that gave up their frames.
    merged: u64,
}

/// Runs of one point of a curve, without and with a tracer.
struct Point {
    x: u32,
    runs: [Vec<Run>; 2],
}

impl Point {
    fn new(x: u32) -> Self {
        Self {
            x,
            runs: [Vec::new(), Vec::new()],
        }
    }

    fn traced(&self, value: impl Fn(&Run) -> f64) -> f64 {
        Spread::of(self.runs[1].iter().map(value)).median()
    }

    fn pairs(&self) -> impl Iterator<Item = (&Run, &Run)> {
        self.runs[0].iter().zip(&self.runs[1])
    }

    /// Throughput of the untraced.
    fn share(&self) -> Spread {
        Spread::of(
            self.pairs()
                .map(|(base, run)| run.per_second / base.per_second),
        )
    }

    /// CPU time that tracing took, the tracer's own and what the process took more, of the machine.
    fn taken(&self) -> Spread {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        Spread::of(self.pairs().map(|(base, run)| {
            let used = |run: &Run| run.cpu.iter().map(Duration::as_secs_f64).sum::<f64>();
            let of_machine = |run: &Run| used(run) / run.wall.as_secs_f64() / cpus;
            of_machine(run) - of_machine(base)
        }))
    }

    /// The same for each event, µs.
    fn taken_each(&self) -> Spread {
        Spread::of(self.pairs().map(|(base, run)| {
            let each = |run: &Run| {
                let used = run.cpu.iter().map(Duration::as_secs_f64).sum::<f64>();
                used * 1e6 / run.events.max(1) as f64
            };
            each(run) - each(base)
        }))
    }
}

/// Measures.
pub(super) fn run(args: &Args) -> Result<()> {
    args.common
        .prepare_with_servers(&[("bpftool", "bpftool")])?;
    let rates = rates(args)?;
    let threads = threads(args)?;
    let stacks = stacks(args)?;
    if args.common.write {
        page::write_picture(
            "scaling.svg",
            &curve::draw(&curves(&rates, &threads, &stacks)),
        )?;
    }
    let text = report(args, &rates, &threads, &stacks)?;
    args.common.page("scaling.md", &text)
}

/// Runs each point once without and once with a tracer, again and again.
fn measure(
    args: &Args,
    what: &str,
    points: &[u32],
    mut once: impl FnMut(u32, bool) -> Result<Run>,
) -> Result<Vec<Point>> {
    let mut all: Vec<Point> = points.iter().map(|x| Point::new(*x)).collect();
    for round in 1..=args.rounds {
        for point in &mut all {
            for traced in [false, true] {
                let run = once(point.x, traced)?;
                let who = if traced { "reqtrace" } else { "nobody" };
                eprintln!(
                    "round {round}: {} {what}, {who}: {:.0}/s",
                    point.x, run.per_second
                );
                point.runs[usize::from(traced)].push(run);
            }
        }
    }
    Ok(all)
}

/// A load, with a tracer or without.
fn observed(pid: u32, profile: Option<&Path>, load: impl FnOnce() -> Result<Done>) -> Result<Run> {
    let trace = profile
        .map(|profile| Trace::start(profile, pid, &[]))
        .transpose()?;
    let tracer = trace.as_ref().map(Trace::pid);
    let used = || -> Result<[Duration; 2]> {
        let tracer = tracer.map_or(Ok(Duration::ZERO), process_cpu)?;
        Ok([family_cpu(pid)?, tracer])
    };
    let (before, begin) = (used()?, Instant::now());
    let done = load()?;
    let wall = begin.elapsed();
    let after = used()?;
    let mut run = Run {
        per_second: done.events as f64 / done.seconds,
        events: done.events,
        cpu: [0, 1].map(|at| after[at].saturating_sub(before[at])),
        wall,
        ..Run::default()
    };
    if let (Some(trace), Some(tracer)) = (trace, tracer) {
        run.memory = peak_memory(tracer)?;
        run.maps = Holdings::of(tracer)?.map_bytes();
        let ended = Instant::now();
        let outcome = trace.finish()?;
        run.report_s = ended.elapsed().as_secs_f64();
        ensure!(outcome.code == Some(0), "{}", outcome.printed());
        let summary = outcome.summary()?;
        run.merged = summary.merged();
        run.lost = summary.lost() - run.merged;
    }
    Ok(run)
}

fn rates(args: &Args) -> Result<Vec<Point>> {
    let server = Server::postgresql()?;
    server.run("pgbench", &["-i", "-q", "-s", "10"])?;
    let seconds = args.seconds.to_string();
    measure(args, "transactions a second", &RATES, |rate, traced| {
        let rate = rate.to_string();
        let own = [
            "-n", "-S", "-c", "8", "-j", "2", "-R", &rate, "-T", &seconds,
        ];
        let profile = traced.then_some(Path::new("postgresql"));
        observed(server.pid(), profile, || {
            let done = pgbench(&server.run("pgbench", &own)?)?;
            // What has just ended is reaped, and counted as the server's.
            std::thread::sleep(Duration::from_millis(50));
            Ok(done)
        })
    })
}

fn threads(args: &Args) -> Result<Vec<Point>> {
    let server = MariaDb::open()?;
    let sysbench = Sysbench::prepare(&server, 4, 100_000)?;
    sysbench.run_seconds("oltp_read_write", 16, args.seconds)?;
    measure(args, "connections", &THREADS, |threads, traced| {
        let profile = traced.then_some(Path::new("mysql"));
        observed(server.pid(), profile, || {
            let run = sysbench.run_seconds("oltp_read_write", threads, args.seconds)?;
            server.wait_until_alone()?;
            Ok(Done {
                events: run.queries,
                seconds: run.micros as f64 / 1e6,
            })
        })
    })
}

fn stacks(args: &Args) -> Result<Vec<Point>> {
    measure(args, "stacks", &STACKS, |stacks, traced| {
        let numbers = [REQUESTS.to_string(), stacks.to_string()];
        let mut program = Fixture::start("crossroads", &numbers.each_ref().map(String::as_str))?;
        let profile: PathBuf = program.profile("request", "nest")?;
        let run = observed(program.pid(), traced.then_some(&*profile), || {
            let printed = program.work()?;
            let wrong = || format!("crossroads printed {printed:?}");
            let mut numbers = printed.split(' ').skip(1);
            let mut next = || numbers.next().with_context(wrong);
            Ok(Done {
                events: next()?.parse()?,
                seconds: next()?.parse()?,
            })
        })?;
        program.end()?;
        Ok(run)
    })
}

fn curves<'a>(rates: &[Point], threads: &[Point], stacks: &[Point]) -> [Curve<'a>; 3] {
    let points = |all: &[Point], value: fn(&Point) -> Spread| {
        let all = all.iter().map(|point| (f64::from(point.x), value(point)));
        all.map(|(x, spread)| (x, [spread.least(), spread.median(), spread.most()]))
            .collect()
    };
    [
        Curve {
            title: "CPU taken, of the machine",
            axis: "PostgreSQL: transactions a second",
            points: points(rates, Point::taken),
        },
        Curve {
            title: "Throughput kept",
            axis: "MariaDB: connections",
            points: points(threads, Point::share),
        },
        Curve {
            title: "Throughput kept",
            axis: "a program that blocks: different stacks",
            points: points(stacks, Point::share),
        },
    ]
}

fn report(args: &Args, rates: &[Point], threads: &[Point], stacks: &[Point]) -> Result<String> {
    let mut text = String::new();
    writeln!(text, "# How the cost grows\n")?;
    writeln!(
        text,
        "Written by `cargo xtask bench scaling --write`: {} rounds, loads of {} s, everything on one machine of {} CPUs, \
         kernel {}. Each run with reqtrace is compared with the run before it without; tables give medians and, in \
         brackets, the least and the most.\n\n![Curves](../img/scaling.svg)\n",
        args.rounds,
        args.seconds,
        std::thread::available_parallelism().map_or(0, usize::from),
        kernel::release()
    )?;
    if args.rounds < ENOUGH_ROUNDS {
        writeln!(text, "{FIRST_LOOK}\n")?;
    }
    writeln!(
        text,
        "## With requests a second\n\nPostgreSQL under `pgbench -S -c 8 -R RATE`. Taken is the CPU time of tracer, traps and \
         kernel programs: what server and tracer use beyond the server alone.\n\n\
         | transactions a second | reached | taken, of the machine | taken, µs each |\n| ---: | ---: | ---: | ---: |"
    )?;
    for point in rates {
        let (taken, each) = (point.taken(), point.taken_each());
        writeln!(
            text,
            "| {} | {:.0} | {:.1} % ({:.1}–{:.1}) | {:.1} ({:.1}–{:.1}) |",
            point.x,
            point.traced(|run| run.per_second),
            taken.median() * 100.0,
            taken.least() * 100.0,
            taken.most() * 100.0,
            each.median(),
            each.least(),
            each.most()
        )?;
    }
    writeln!(
        text,
        "\n## With threads in requests\n\nMariaDB under `sysbench oltp_read_write`.\n\n\
         | connections | throughput kept | tracer's memory | its maps |\n| ---: | ---: | ---: | ---: |"
    )?;
    for point in threads {
        writeln!(
            text,
            "| {} | {} | {:.0} MB | {:.0} MB |",
            point.x,
            share(point),
            point.traced(|run| run.memory as f64 / 1e6),
            point.traced(|run| run.maps as f64 / 1e6)
        )?;
    }
    writeln!(
        text,
        "\n## With different stacks\n\n{REQUESTS} requests of [a program](../../tests/fixtures/crossroads.cpp) that goes down \
         twenty forks and blocks for 20 µs, over four threads. Lines merged are those of the report beyond 32,768: \
         their time is all there, under `[other stacks]`.\n\n\
         | stacks | throughput kept | tracer's memory | its maps | seconds to the report | lost | lines merged |\n\
         | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    )?;
    for point in stacks {
        writeln!(
            text,
            "| {} | {} | {:.0} MB | {:.0} MB | {:.2} | {:.0} | {:.0} |",
            point.x,
            share(point),
            point.traced(|run| run.memory as f64 / 1e6),
            point.traced(|run| run.maps as f64 / 1e6),
            point.traced(|run| run.report_s),
            point.traced(|run| run.lost as f64),
            point.traced(|run| run.merged as f64)
        )?;
    }
    Ok(text)
}

fn share(point: &Point) -> String {
    let share = point.share();
    format!(
        "{:.2} ({:.2}–{:.2})",
        share.median(),
        share.least(),
        share.most()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_the_difference_within_a_pair() {
        let run = |per_second, cpu: [u64; 2]| Run {
            per_second,
            events: 1000,
            cpu: cpu.map(Duration::from_millis),
            wall: Duration::from_secs(1),
            ..Run::default()
        };
        let mut point = Point::new(7);
        point.runs = [
            vec![run(100.0, [100, 0]), run(50.0, [100, 0])],
            vec![run(90.0, [130, 20]), run(45.0, [130, 20])],
        ];
        assert!((point.share().least() - 0.9).abs() < 1e-9);
        assert!((point.taken_each().median() - 50.0).abs() < 1e-6);
        let cpus = std::thread::available_parallelism().unwrap().get() as f64;
        assert!((point.taken().median() - 0.05 / cpus).abs() < 1e-9);
    }
}
