//! `cargo xtask bench`: what tracing costs, beside empty probes and peers, on six servers.
//!
//! In: nothing. Out: tables and a chart, printed and, with `--write`, put into docs/measured/cost.md;
//! with `--json`, all runs in a file that `bench compare` reads. Rounds are interleaved, because a
//! shared machine's speed drifts; throughput is given as ratios within one round.

mod chart;
pub(super) mod compare;
pub(super) mod empty;
pub(super) mod loads;
pub(super) mod model;
pub(super) mod programs;
mod report;
mod targets;
pub(super) mod watchers;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::process::until;

use super::Common;
use super::page;
use empty::EmptyPrograms;
use loads::{Load, Server};
use model::{Bystander, LoadRuns, Program, Results, Run, WatcherRuns};
use programs::{Holdings, Stats};
use watchers::{Added, Watch, Watcher};
use xtask::{kernel, process, workspace};

/// Rounds, and those of `--quick`.
const ROUNDS: [u32; 2] = [9, 3];
/// How long children of a server may take to end after a load.
const FAREWELL: Duration = Duration::from_secs(2);

/// Arguments of `bench`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Less than three minutes: three rounds, without sampling and the peers
    #[arg(long)]
    quick: bool,
    /// Rounds; each runs every load once under every watcher [default: 9; 3 with --quick]
    #[arg(long)]
    rounds: Option<u32>,
    /// Make each run so many times as long
    #[arg(long, value_name = "TIMES", default_value_t = 1)]
    longer: u32,
    /// Only the server with this profile: mysql, postgresql, redis, nginx, axum or go-http
    #[arg(long, value_name = "PROFILE", conflicts_with = "write")]
    only: Option<String>,
    /// Only nobody, reqtrace and reqtrace --blame, for more rounds in less time: docs/measured/cost-of-blame.md
    #[arg(long, conflicts_with_all = ["quick", "variants"])]
    blame: bool,
    /// The same of --interrupts: docs/measured/cost-of-interrupts.md
    #[arg(long, conflicts_with_all = ["quick", "variants", "blame"])]
    interrupts: bool,
    /// On MariaDB also reqtrace with `--unwind fp` and with uretprobes
    #[arg(long)]
    variants: bool,
    /// Write every run to this file, for `bench compare`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure nothing: take the runs of this file, and make the page of them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "quick", "rounds", "only"])]
    from: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

impl Args {
    /// What the page is about, if it is one option.
    fn added(&self) -> Option<Added> {
        let blame = self.blame.then_some(Added::Blame);
        blame.or(self.interrupts.then_some(Added::Interrupts))
    }
}

/// Measures.
pub(super) fn run(args: &Args) -> Result<()> {
    let results = match &args.from {
        Some(path) => Results::read(path)?,
        None => measured(args)?,
    };
    if let Some(added) = args.added() {
        let text = report::page_of(added, &results)?;
        let name = format!("cost-of-{}.md", added.name());
        return args.common.page(&name, &text);
    }
    let text = report::page(&results)?;
    if args.common.write {
        page::write_picture("cost.svg", &chart::draw(&results))?;
        if let Some(table) = report::beside_peers(&results) {
            page::write_into_readme("tracers", &table)?;
        }
    }
    args.common.page("cost.md", &text)
}

/// Starts the servers, and measures everything.
fn measured(args: &Args) -> Result<Results> {
    args.common.prepare_with_servers(&[
        ("offcputime", "libbpf-tools"),
        ("bpftool", "bpftool"),
        ("bpftrace", "bpftrace"),
    ])?;
    let begin = Instant::now();
    let mariadb = MariaDb::open()?;
    let mut servers = vec![
        Server::mariadb(&mariadb)?,
        Server::postgresql()?,
        Server::redis()?,
        Server::nginx()?,
        Server::axum()?,
        Server::go()?,
    ];
    if let Some(only) = &args.only {
        servers.retain(|server| server.profile() == only);
        ensure!(
            !servers.is_empty(),
            "no server is measured with profile {only:?}"
        );
    }
    let bench = Bench::new(args)?;
    let mut results = bench.measure(&servers)?;
    results.is_given = args.common.reqtrace.is_some();
    results.took_s = begin.elapsed().as_secs();
    if let Some(path) = &args.json {
        results.write(path)?;
    }
    Ok(results)
}

struct Bench<'a> {
    args: &'a Args,
    rounds: u32,
    can_sample: bool,
}

impl<'a> Bench<'a> {
    fn new(args: &'a Args) -> Result<Self> {
        let can_sample = watchers::can_sample()?;
        if !can_sample {
            eprintln!("bench: this reqtrace has no --sample: that column is left out");
        }
        Ok(Self {
            args,
            rounds: args.rounds.unwrap_or(ROUNDS[usize::from(args.quick)]),
            can_sample,
        })
    }

    /// Who watches a server, nobody first.
    fn watchers(&self, server: &Server<'_>) -> Vec<Watcher> {
        if let Some(added) = self.args.added() {
            return vec![Watcher::Nobody, Watcher::Reqtrace, added.watcher()];
        }
        let mut all = watchers::WATCHERS.to_vec();
        if self.args.variants && matches!(server, Server::MariaDb(..)) {
            all.extend(watchers::VARIANTS);
        }
        all.retain(|watcher| {
            let is_further = watcher.is_peer() || *watcher == Watcher::Sampled;
            let is_left_out = self.args.quick && is_further
                || server.has_runtime() && watcher.is_peer()
                || *watcher == Watcher::Cheap && !server.can_be_cheap()
                || !self.can_sample && *watcher == Watcher::Sampled;
            !is_left_out
        });
        all
    }

    fn measure(&self, servers: &[Server<'_>]) -> Result<Results> {
        let mut results = Results::new(commit(), kernel::release(), self.rounds);
        for server in servers {
            for load in server.loads() {
                results.loads.push(self.empty_runs(server, load));
                // Caches are warm from here on, and redis-benchmark's number fits.
                server.run(load, 1)?;
            }
        }
        // Left on, it takes time at each run of a program, and more with blame, which has more of them.
        let stats = Stats::set(false)?;
        for round in 1..=self.rounds {
            for server in servers {
                let mut order = self.watchers(server);
                // Nobody is always first or last of some other round: drift hits all alike.
                let first = round as usize % order.len();
                order.rotate_left(first);
                for watcher in order {
                    self.watched(server, watcher, round, &mut results)?;
                }
            }
        }
        drop(stats);
        self.costs(servers, &mut results)?;
        Ok(results)
    }

    fn empty_runs(&self, server: &Server<'_>, load: &Load) -> LoadRuns {
        let watchers = self.watchers(server).into_iter();
        LoadRuns {
            name: load.name.to_owned(),
            command: load.command.to_owned(),
            unit: load.unit.to_owned(),
            watchers: watchers
                .map(|watcher| WatcherRuns {
                    name: watcher.name().to_owned(),
                    runs: Vec::new(),
                    programs: Vec::new(),
                })
                .collect(),
        }
    }

    /// All loads of a server under one watcher.
    fn watched(
        &self,
        server: &Server<'_>,
        watcher: Watcher,
        round: u32,
        results: &mut Results,
    ) -> Result<()> {
        let watch = watcher.start(server)?;
        let mut runs = Vec::new();
        for load in server.loads() {
            let run = self.observed(server, load, &watch)?.0;
            eprintln!(
                "round {round} of {}: {}, {}: {:.0} {}s/s",
                self.rounds,
                load.name,
                watcher.name(),
                run.per_second,
                load.unit
            );
            runs.push(run);
        }
        let took = watch.end(false)?;
        if let Some(last) = runs.last_mut() {
            last.report_s = took;
        }
        for (load, run) in server.loads().iter().zip(runs) {
            if let Some(watched) = find(results, load, watcher) {
                watched.runs.push(run);
            }
        }
        Ok(())
    }

    /// Runs a load once. Returns what it gave, and the number of its events.
    fn observed(&self, server: &Server<'_>, load: &Load, watch: &Watch) -> Result<(Run, u64)> {
        let pid = server.pid();
        let children = programs::children(pid)?.len();
        let tracer_cpu = || {
            watch
                .pid()
                .map_or(Ok(Duration::ZERO), programs::process_cpu)
        };
        let before = [programs::family_cpu(pid)?, tracer_cpu()?];
        let begin = Instant::now();
        let done = server.run(load, self.args.longer)?;
        let wall = begin.elapsed();
        // A child that ends while CPU times are added up would be missed or counted twice.
        let alone = || Ok((programs::children(pid)?.len() <= children).then_some(()));
        let _ = until(FAREWELL, "a server's children to end", alone);
        let [server_cpu, tracer_cpu] = [
            programs::family_cpu(pid)?.saturating_sub(before[0]),
            tracer_cpu()?.saturating_sub(before[1]),
        ];
        let each = |time: Duration| time.as_nanos() as f64 / done.events.max(1) as f64;
        let memory = watch.pid().map_or(Ok(0), programs::peak_memory)?;
        let maps = match watch.pid() {
            Some(pid) => Holdings::of(pid)?.map_bytes(),
            None => 0,
        };
        let run = Run {
            per_second: done.events as f64 / done.seconds,
            server_cpu_ns: each(server_cpu),
            tracer_cpu_ns: each(tracer_cpu),
            tracer_cpus: tracer_cpu.as_secs_f64() / wall.as_secs_f64(),
            memory,
            maps,
            report_s: None,
        };
        Ok((run, done.events))
    }

    /// One more run of everything with the kernel's clock for BPF programs on.
    fn costs(&self, servers: &[Server<'_>], results: &mut Results) -> Result<()> {
        let _stats = Stats::set(true)?;
        for server in servers {
            for watcher in self.watchers(server).into_iter().skip(1) {
                let watch = watcher.start(server)?;
                for load in server.loads() {
                    eprintln!("time of kernel programs: {}, {}", load.name, watcher.name());
                    let before = watch.holdings()?;
                    let (_, events) = self.observed(server, load, &watch)?;
                    let programs = watch.holdings()?.since(&before).programs(events)?;
                    ensure!(
                        programs.iter().any(|program| program.runs > 0),
                        "{} of {}: none of its programs ran",
                        watcher.name(),
                        load.name
                    );
                    if let Some(watched) = find(results, load, watcher) {
                        watched.programs = programs;
                    }
                }
                // The seconds to a peer's report, once.
                let with_report = watcher.is_peer() && matches!(server, Server::MariaDb(..));
                if let (true, Some(took)) = (with_report, watch.end(with_report)?)
                    && let Some(load) = server.loads().last()
                    && let Some(run) = find(results, load, watcher).and_then(|w| w.runs.last_mut())
                {
                    run.report_s = Some(took);
                }
            }
        }
        let busy = servers
            .iter()
            .find(|server| matches!(server, Server::MariaDb(..)));
        let idle = servers
            .iter()
            .find(|server| matches!(server, Server::Redis(..)));
        if let (Some(busy), Some(idle)) = (busy, idle) {
            results.bystander = self.bystander(busy, idle)?;
        }
        Ok(())
    }

    /// What a switch costs between threads of a server that is not traced.
    fn bystander(&self, busy: &Server<'_>, idle: &Server<'_>) -> Result<Option<Bystander>> {
        let watch = Watcher::Reqtrace.start(idle)?;
        let empty = Watch::Empty(EmptyPrograms::on_switches()?);
        let Some(load) = busy.loads().first() else {
            return Ok(None);
        };
        let before = [watch.holdings()?, empty.holdings()?];
        let (_, events) = self.observed(busy, load, &watch)?;
        let [traced, nothing] = [
            watch.holdings()?.since(&before[0]).programs(events)?,
            empty.holdings()?.since(&before[1]).programs(events)?,
        ];
        watch.end(false)?;
        empty.end(false)?;
        let switches = |programs: &[Program], name: &str| {
            let found = programs
                .iter()
                .find(|program| program.name.starts_with(name));
            found.map(Program::each_ns)
        };
        let switch_ns = switches(&traced, "sched_switch");
        let empty_ns = switches(&nothing, "empty_switch");
        Ok(switch_ns
            .zip(empty_ns)
            .map(|(switch_ns, empty_ns)| Bystander {
                switch_ns,
                empty_ns,
            }))
    }
}

fn find<'a>(
    results: &'a mut Results,
    load: &Load,
    watcher: Watcher,
) -> Option<&'a mut WatcherRuns> {
    let mut loads = results.loads.iter_mut();
    let runs = loads.find(|runs| runs.name == load.name)?;
    let mut watchers = runs.watchers.iter_mut();
    watchers.find(|runs| runs.name == watcher.name())
}

/// The commit of the checkout, with `+` when files have changed since.
fn commit() -> String {
    let mut git = Command::new("git");
    git.current_dir(workspace::root());
    git.args(["describe", "--always", "--dirty=+"]);
    process::output(&mut git).map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
}
