//! `cargo xtask soak-agent`: one agent for minutes or hours on four services that are under load and restarted; what must hold
//! of its counts, rows, cost and memory in, each with what was measured and whether it holds, out.
//!
//! ```text
//! load generators ──► services (restarted) ◄── agent (killed) ──► /metrics ──► watch ──► claims ──► page
//!        └─ counts ──► rounds ───────────────────── rows ──► ship ──► an engine that is away at times ─┘
//! ```
//!
//! With a budget that is never reached ([`counts`]) all counts are exact; with one that is not enough ([`budget`]) the service
//! is traced and not traced in turns.

mod budget;
mod counts;
mod databases;
mod disk;
mod kept;
mod paced;
mod report;
mod service;
mod shipping;
mod usage;
mod watch;
mod web;
mod weights;

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use report::Claim;
pub use report::Measured;
use service::{KINDS, Running};

/// Arguments of `soak-agent`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// For how long
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u32).range(2..=1440))]
    pub minutes: u32,
    /// What tracing may take of a service's CPU time, percent. From 20 on all counts have to be exact; below it the services are
    /// traced and not traced in turns
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub max_cost: u32,
    /// Requests a second of each service
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(4..=10_000))]
    pub rate: u32,
    /// Seconds between two restarts of a service
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(10..=3600))]
    pub restart_every: u64,
    /// The agent is killed at random, in the mean after so many seconds; 0: never
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub kill_every: u64,
    /// It is not killed before so many minutes: an agent that lives that long tells whether its memory is flat
    #[arg(long, value_name = "MINUTES", default_value_t = 0)]
    pub kill_after: u32,
    /// Of the requests that are not slow one in so many has a row
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub one_in: u32,
    /// What the agent may have, its own memory and the kernel's tables together, MB
    #[arg(long, value_name = "MB", default_value_t = 1024)]
    pub memory: u64,
    /// Seconds of a turn, and those before it that are left out, with a budget below 20 %
    #[arg(long, value_names = ["SECONDS", "BEFORE"], num_args = 2, default_values_t = [60, 30])]
    pub turn: Vec<u64>,
    /// When the agent is killed
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Runs it. What does not hold is in what was measured.
///
/// # Errors
///
/// When something does not run.
pub fn run(args: &Args) -> Result<Measured> {
    ensure!(
        args.turn
            .iter()
            .all(|seconds| (5..=3_600).contains(seconds)),
        "a turn takes 5 to 3600 s: {:?}",
        args.turn
    );
    match args.has_exact_counts() {
        true => counts::run(args),
        false => budget::run(args),
    }
}

impl Args {
    /// The budget is never reached.
    #[must_use]
    pub fn has_exact_counts(&self) -> bool {
        self.max_cost >= 20
    }

    fn restart_every(&self) -> Duration {
        Duration::from_secs(self.restart_every)
    }

    /// Section `[agent]`.
    fn agent(&self) -> String {
        format!(
            "window = \"2s\"\nmemory = \"{}MB\"\nmax-cost = \"{}%\"",
            self.memory, self.max_cost
        )
    }
}

/// Starts all four from programs of our own, in this folder.
fn start(args: &Args, folder: &Path) -> Result<Vec<Running>> {
    KINDS
        .into_iter()
        .map(|kind| Running::start(kind, folder, args.rate))
        .collect()
}

/// What holds whatever the budget is: of what was seen of the agents.
fn claims_of_agents(args: &Args, seen: &watch::Seen) -> Vec<Claim> {
    let most =
        |value: fn(&usage::Sample) -> u64| seen.samples.iter().map(value).max().unwrap_or(0) >> 20;
    let memory = most(usage::Sample::memory);
    let mut claims = vec![Claim::new(
        "memory, the agent's own and the kernel's tables, stays below `memory`",
        memory <= args.memory,
        format!(
            "at most {memory} MB of {} MB: {} MB of tables, {} MB of its own; {} MB resident with pages of files and rings; {} samples",
            args.memory,
            most(|sample| sample.tables),
            most(|sample| sample.own),
            most(|sample| sample.resident),
            seen.samples.len()
        ),
    )];
    let p99 = watch::quantile(&seen.took, 0.99);
    claims.push(Claim::new(
        "a scrape of `/metrics` takes at most 100 ms in 99 of 100",
        p99 <= Duration::from_millis(100),
        format!(
            "p99 {:.1} ms, longest {:.1} ms, {} scrapes",
            p99.as_secs_f64() * 1e3,
            watch::quantile(&seen.took, 1.0).as_secs_f64() * 1e3,
            seen.took.len()
        ),
    ));
    claims.extend(growth(seen));
    claims.push(Claim::new(
        "parts add up to the durations at each scrape; what is given up is not shown",
        seen.wrong.is_empty(),
        match seen.wrong.first() {
            None => format!("{} scrapes", seen.took.len()),
            Some(first) => format!("{} times not, first: {first}", seen.wrong.len()),
        },
    ));
    claims
}

/// What an agent holds grows while its tables and caches fill up: of a shorter life it is not judged.
const JUDGED: f64 = 600.0;

/// The agent that lived longest: whether what it holds grows. Nothing of one that did not live long.
fn growth(seen: &watch::Seen) -> Vec<Claim> {
    let lives = 0..seen.lives.len();
    let of = |life: usize| {
        seen.samples
            .iter()
            .filter(move |sample| sample.life == life)
    };
    let longest = lives.max_by_key(|life| of(*life).count()).unwrap_or(0);
    let values = |value: fn(&usage::Sample) -> f64| -> Vec<(f64, f64)> {
        of(longest)
            .map(|sample| (sample.at, value(sample)))
            .collect()
    };
    let memory = values(|sample| sample.memory() as f64);
    let seconds = memory.last().map_or(0.0, |last| last.0 - memory[0].0);
    if seconds < JUDGED {
        return Vec::new();
    }
    let block = (seconds / 12.0).clamp(5.0, 60.0);
    let of_memory = match usage::line(&memory, block) {
        None => Claim::new(
            "memory is flat",
            false,
            format!("no agent lived long enough: {seconds:.0} s"),
        ),
        Some(line) => Claim::new(
            "memory is flat: the slope of the line through means of blocks, less twice its standard error, is at most 0.5 % an hour",
            line.slope - line.error <= 0.005,
            format!(
                "{:+.2} % an hour ± {:.2} (two standard errors); {} blocks of {block:.0} s of an agent that lived {seconds:.0} s, \
                 but for its first 30 s; {:.1} MB at its end",
                line.slope * 100.0,
                line.error * 100.0,
                line.points,
                memory.last().map_or(0.0, |last| last.1 / 1048576.0)
            ),
        ),
    };
    let flat = |what: &str, value: fn(&usage::Sample) -> f64, spare: f64| {
        let values = values(value);
        let later = values.iter().skip_while(|(at, _)| *at < values[0].0 + 30.0);
        let later: Vec<f64> = later.map(|(_, value)| *value).collect();
        let half = later.len() / 2;
        let most = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
        let (first, second) = (most(&later[..half]), most(&later[half..]));
        Claim::new(
            format!(
                "{what} are flat: no more in the second half than in the first, but for {spare}"
            ),
            half > 0 && second <= first + spare,
            format!("at most {first}, then {second}"),
        )
    };
    // A reader of the metrics has one.
    let descriptors = flat("descriptors", |sample| sample.descriptors as f64, 2.0);
    let probes = flat("probes", |sample| sample.probes as f64, 0.0);
    vec![of_memory, descriptors, probes]
}
