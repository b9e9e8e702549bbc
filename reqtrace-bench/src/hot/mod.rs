//! `cargo xtask bench hot`: what the kernel programs take for each begin, end and switch, by the kernel's own
//! statistics, beyond an empty program at the same place and time.
//!
//! In: nothing, or another build to compare with. Out: a table, printed and, with `--write`, put into
//! docs/measured/hot.md; with `--json`, every round. Tracers take turns on one process (tests/fixtures/tight.cpp), and on the
//! tasks of another.

mod report;
mod units;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::reqtrace::{self, Trace};
use reqtrace_tests::workspace;
use serde::Serialize;

use super::Common;
use crate::cost::empty::{self, EmptyPrograms};
use crate::cost::model::Program;
use crate::cost::programs::{Holdings, Stats};
use units::Units;
use xtask::workspace::find_command;

/// Which part of requests `--sample` records.
const SAMPLE: &str = "1/64";

/// Calls of each thread, or turns of a pair of threads, in one round. What they send has room in the ring.
mod calls {
    pub(super) const WARM: u32 = 10_000;
    pub(super) const COLD: u32 = 6;
    pub(super) const BLOCK: u32 = 4_000;
    pub(super) const COLD_BLOCK: u32 = 15;
    /// Before the first measurement: every thread has met a marker, and its stacks are known.
    pub(super) const FIRST: u32 = 3;
}

/// Arguments of `bench hot`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Rounds; in each, every tracer has its turn
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Another build of reqtrace, in turns with this one
    #[arg(long, value_name = "PROGRAM", conflicts_with = "write")]
    against: Option<PathBuf>,
    /// Write every round to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// What is measured of a tracer in one round, ns beyond the empty program.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Turn {
    begin: f64,
    end: f64,
    cold_begin: f64,
    cold_end: f64,
    /// A thread in a request leaves its CPU and comes back.
    switch: f64,
    cold_switch: f64,
    /// A switch between threads that are not traced.
    foreign: f64,
    /// A marker of tokio, hit by a task that is no request.
    unit: f64,
    /// What the kernel's clock takes itself: an empty program on a marker, and on a switch.
    empty_marker: f64,
    empty_switch: f64,
}

/// A tracer, and its turns in the order of the rounds.
#[derive(Debug, Serialize)]
struct Tracer {
    name: String,
    #[serde(skip)]
    program: PathBuf,
    #[serde(skip)]
    options: &'static [&'static str],
    turns: Vec<Turn>,
}

/// Measures.
pub(super) fn run(args: &Args) -> Result<()> {
    ensure!(
        find_command("bpftool").is_some(),
        "`bpftool` is missing: apt-get install -y bpftool"
    );
    args.common.prepare_only(&["reqtrace"])?;
    let mut tracers = tracers(args)?;
    let mut bench = Bench::new()?;
    for round in 1..=args.rounds {
        let count = tracers.len();
        for at in 0..count {
            // Each comes first equally often.
            let tracer = &mut tracers[(at + round as usize) % count];
            let turn = bench.turn(tracer)?;
            eprintln!("round {round}, {}: {turn:.0?}", tracer.name);
            tracer.turns.push(turn);
        }
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&tracers)?;
        std::fs::write(path, text + "\n").with_context(|| path.display().to_string())?;
    }
    let text = report::page(args, &tracers)?;
    args.common.page("hot.md", &text)
}

fn tracers(args: &Args) -> Result<Vec<Tracer>> {
    let mut builds = vec![("", workspace::reqtrace()?)];
    if let Some(other) = &args.against {
        ensure!(other.is_file(), "{} does not exist", other.display());
        builds.insert(0, ("other build: ", other.clone()));
    }
    let mut tracers = Vec::new();
    for (build, program) in builds {
        for (how, options) in [
            ("all recorded", &[][..]),
            ("sampled", &["--sample", SAMPLE]),
        ] {
            tracers.push(Tracer {
                name: format!("{build}{how}"),
                program: program.clone(),
                options,
                turns: Vec::new(),
            });
        }
    }
    Ok(tracers)
}

/// Empty programs where a profile has its markers in a process: those whose line of `check --sites` begins so.
fn empty_beside(name: &[u8], profile: &Path, pid: u32, marker: &str) -> Result<EmptyPrograms> {
    let pid = pid.to_string();
    let mut command = reqtrace::command(["check", "--sites", "-p", &pid, "--profile"])?;
    command.arg(profile);
    let outcome = reqtrace::run(command)?;
    ensure!(outcome.code == Some(0), "{}", outcome.printed());
    let lines = outcome.stdout.lines();
    let lines: Vec<&str> = lines.filter(|line| line.starts_with(marker)).collect();
    let sites = empty::parse_sites(&lines.join("\n"))?;
    ensure!(!sites.is_empty(), "no {marker}: {}", outcome.stdout);
    EmptyPrograms::named(name, &sites)
}

/// What is traced, and what is not.
struct Bench {
    traced: Fixture,
    foreign: Fixture,
    profile: PathBuf,
    units: Units,
    _empty: [EmptyPrograms; 3],
    _stats: Stats,
    orders: u32,
}

/// Runs and ns of one of our programs, and of the empty one.
#[derive(Clone, Copy, Debug)]
struct Cost {
    ours: Runs,
    empty: Runs,
}

#[derive(Clone, Copy, Debug, Default)]
struct Runs {
    count: u64,
    ns: u64,
}

impl Runs {
    fn of(programs: &[Program], name: &str) -> Self {
        let found = programs.iter().find(|program| program.name == name);
        found.map_or(Self::default(), |program| Self {
            count: program.runs,
            ns: program.ns,
        })
    }

    fn each(self) -> f64 {
        self.ns as f64 / self.count.max(1) as f64
    }
}

impl Cost {
    /// ns of one run beyond the empty program.
    fn net(self) -> f64 {
        self.ours.each() - self.empty.each()
    }

    /// ns beyond the empty program for one of `switches`, of which each is out and in again. Where they are two runs of
    /// the program, or a thread of somebody else was switched, there are more runs; these took what a foreign one takes.
    fn net_of(self, switches: u64, foreign: f64) -> f64 {
        let all = self.net() * self.ours.count as f64;
        let others = self.ours.count.saturating_sub(switches) as f64;
        (all - others * foreign) / switches.max(1) as f64
    }
}

/// What an order has cost.
struct Done {
    begin: Cost,
    end: Cost,
    switch: Cost,
    /// Threads of the traced process that were switched out in requests.
    switches: u64,
}

impl Bench {
    fn new() -> Result<Self> {
        let traced = Fixture::start("tight", &[])?;
        let foreign = Fixture::start("tight", &[])?;
        let profile = traced.profile("work", "nest")?;
        let pid = traced.pid();
        // Two programs: the first one behind a trap takes longer, and the two traps differ.
        let empty = |name, marker| empty_beside(name, &profile, pid, marker);
        let empty = [
            empty(b"empty_begin\0", "begin\t")?,
            empty(b"empty_end\0", "end\t")?,
            EmptyPrograms::on_switches()?,
        ];
        Ok(Self {
            traced,
            foreign,
            profile,
            units: Units::new()?,
            _empty: empty,
            _stats: Stats::set(true)?,
            orders: 0,
        })
    }

    /// Attaches a tracer, and measures it.
    fn turn(&mut self, tracer: &Tracer) -> Result<Turn> {
        let pid = self.traced.pid();
        let trace = Trace::start_by(&tracer.program, &self.profile, pid, tracer.options)?;
        for how in ["cold", "block", "cold-block"] {
            self.order(&trace, how, calls::FIRST)?;
        }
        let warm = self.order(&trace, "warm", calls::WARM)?;
        let cold = self.order(&trace, "cold", calls::COLD)?;
        let foreign = self.foreign(&trace)?;
        let block = self.order(&trace, "block", calls::BLOCK)?;
        let cold_block = self.order(&trace, "cold-block", calls::COLD_BLOCK)?;
        let outcome = trace.finish()?;
        ensure!(outcome.code == Some(0), "{}", outcome.printed());
        let unit = self.units.turn(&tracer.program, tracer.options)?;
        Ok(Turn {
            begin: warm.begin.net(),
            end: warm.end.net(),
            cold_begin: cold.begin.net(),
            cold_end: cold.end.net(),
            switch: block.switch.net_of(block.switches, foreign.net()),
            cold_switch: (cold_block.switch).net_of(cold_block.switches, foreign.net()),
            foreign: foreign.net(),
            unit: unit.net(),
            empty_marker: warm.begin.empty.each(),
            empty_switch: foreign.empty.each(),
        })
    }

    /// Lets the traced process carry out an order.
    fn order(&mut self, trace: &Trace, how: &str, count: u32) -> Result<Done> {
        self.orders += 1;
        let (ours, empty, switches) = measured(trace, &mut self.traced, how, count, self.orders)?;
        let cost = |name, beside| Cost {
            ours: Runs::of(&ours, name),
            empty: Runs::of(&empty, beside),
        };
        let done = Done {
            begin: cost("request_begin", "empty_begin"),
            end: cost("request_end", "empty_end"),
            switch: cost("sched_switch", "empty_switch"),
            switches,
        };
        for cost in [done.begin, done.end] {
            let [hits, beside] = [cost.ours.count, cost.empty.count];
            ensure!(
                hits == beside && hits > 0,
                "{hits} hits of a marker, and {beside} of the empty program beside it"
            );
        }
        Ok(done)
    }

    /// Lets a process work that is not traced.
    fn foreign(&mut self, trace: &Trace) -> Result<Cost> {
        self.orders += 1;
        let (ours, empty, _) =
            measured(trace, &mut self.foreign, "block", calls::BLOCK, self.orders)?;
        Ok(Cost {
            ours: Runs::of(&ours, "sched_switch"),
            empty: Runs::of(&empty, "empty_switch"),
        })
    }
}

/// The tracer's programs and the empty ones while a process carries out an order, and how often its threads were
/// switched out in requests.
fn measured(
    trace: &Trace,
    process: &mut Fixture,
    how: &str,
    count: u32,
    number: u32,
) -> Result<(Vec<Program>, Vec<Program>, u64)> {
    let own = std::process::id();
    let before = [Holdings::of(trace.pid())?, Holdings::of(own)?];
    let answer = format!("answer {number} ");
    let line = process.ask(&format!("{how} {count} {number}"), &answer)?;
    let after = [Holdings::of(trace.pid())?, Holdings::of(own)?];
    let [ours, empty] = after;
    let switches = line
        .strip_prefix(&answer)
        .and_then(|text| text.parse().ok());
    Ok((
        ours.since(&before[0]).programs(1)?,
        empty.since(&before[1]).programs(1)?,
        switches.with_context(|| format!("the process printed {line:?}"))?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(count: u64, ns: u64) -> Runs {
        Runs { count, ns }
    }

    #[test]
    fn a_run_is_net_of_the_empty_program() {
        let cost = Cost {
            ours: runs(10, 3000),
            empty: runs(20, 2000),
        };
        assert!((cost.net() - 200.0).abs() < 1e-9);
    }

    #[test]
    fn switches_of_others_are_taken_off() {
        // Six of ours at 500 and four of others at 50, each with 100 of the clock.
        let cost = Cost {
            ours: runs(10, 6 * 600 + 4 * 150),
            empty: runs(10, 1000),
        };
        assert!((cost.net_of(6, 50.0) - 500.0).abs() < 1e-9);
        assert!(cost.net_of(0, 50.0).is_finite());
    }
}
