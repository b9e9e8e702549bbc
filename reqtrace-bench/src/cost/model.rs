//! What was measured, as it stands in the JSON file of `bench --json`.
//!
//! In: runs. Out: medians and spreads of them. The file is read again by `bench compare`, so that
//! fields are added, never renamed.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

/// The version of the file.
const FORMAT: u32 = 1;

/// One call of `bench`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    format: u32,
    /// Commit of the checkout, with `+` when files have changed since.
    pub(super) commit: String,
    pub(super) kernel: String,
    /// The tracer was given, and not built for this.
    #[serde(default)]
    pub(super) is_given: bool,
    pub(super) cpus: usize,
    pub(super) rounds: u32,
    /// How long everything took, s.
    pub(super) took_s: u64,
    pub(super) loads: Vec<LoadRuns>,
    /// What a switch between threads outside of any request costs.
    pub(super) bystander: Option<Bystander>,
}

/// All runs of a load.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LoadRuns {
    /// Its name in tables, such as `pgbench -S`.
    pub(super) name: String,
    /// The generator's command line.
    pub(super) command: String,
    /// What the generator counts: statements, commands, requests.
    pub(super) unit: String,
    pub(super) watchers: Vec<WatcherRuns>,
}

/// All runs of a load under one watcher.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct WatcherRuns {
    pub(super) name: String,
    /// One for each round, in their order.
    pub(super) runs: Vec<Run>,
    /// One more run with `kernel.bpf_stats_enabled`, which costs time itself.
    pub(super) programs: Vec<Program>,
}

/// One run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Run {
    /// Events that the generator counted in a second.
    pub(super) per_second: f64,
    /// CPU time of the server for each of them, ns.
    pub(super) server_cpu_ns: f64,
    /// CPU time of the tracer's process for each of them, ns; its kernel programs are in the
    /// server's.
    pub(super) tracer_cpu_ns: f64,
    /// CPU time of the tracer's process in a second, s.
    pub(super) tracer_cpus: f64,
    /// Most memory of the tracer's process, bytes.
    pub(super) memory: u64,
    /// Memory of its maps in the kernel, bytes.
    pub(super) maps: u64,
    /// From the signal that ends the trace to the tracer's end, s.
    pub(super) report_s: Option<f64>,
}

/// What one kernel program cost in one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) runs: u64,
    pub(crate) ns: u64,
    /// Events of the load meanwhile.
    pub(crate) events: u64,
}

/// What the switches of other processes' threads cost: a tracer of one server runs at them too.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Bystander {
    /// reqtrace's program, ns each.
    pub(super) switch_ns: f64,
    /// An empty program at the same place and time: what the kernel's measuring takes.
    pub(super) empty_ns: f64,
}

impl Results {
    pub(super) fn new(commit: String, kernel: String, rounds: u32) -> Self {
        Self {
            format: FORMAT,
            commit,
            kernel,
            is_given: false,
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            rounds,
            took_s: 0,
            loads: Vec::new(),
            bystander: None,
        }
    }

    pub(super) fn load(&self, name: &str) -> Option<&LoadRuns> {
        self.loads.iter().find(|load| load.name == name)
    }

    /// Writes the file.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        fs::write(path, text + "\n").with_context(|| path.display().to_string())
    }

    /// Reads it.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let shown = || path.display().to_string();
        let text = fs::read_to_string(path).with_context(shown)?;
        let results: Self = serde_json::from_str(&text)
            .with_context(|| format!("{}: not a file of `cargo xtask bench --json`", shown()))?;
        ensure!(
            results.format == FORMAT,
            "{}: format {}, and this program reads {FORMAT}; measure again",
            shown(),
            results.format
        );
        Ok(results)
    }
}

impl LoadRuns {
    pub(super) fn watcher(&self, name: &str) -> Option<&WatcherRuns> {
        self.watchers.iter().find(|watcher| watcher.name == name)
    }

    /// The runs that nobody watched.
    fn unwatched(&self) -> &[Run] {
        let nobody = self.watchers.first();
        nobody.map_or(&[], |watcher| watcher.runs.as_slice())
    }

    /// Throughput under a watcher as a share of the untraced one of the same round.
    pub(super) fn shares(&self, watcher: &WatcherRuns) -> Spread {
        self.ratios(watcher, |run| run.per_second)
    }

    /// The server's CPU time per event, as a multiple of the untraced one of the same round.
    pub(super) fn cpu_ratios(&self, watcher: &WatcherRuns) -> Spread {
        self.ratios(watcher, |run| run.server_cpu_ns)
    }

    /// How much of the unwatched throughput one watcher takes more than another one, round by round.
    pub(super) fn taken_more(&self, more: &WatcherRuns, than: &WatcherRuns) -> Vec<f64> {
        let rounds = more.runs.iter().zip(&than.runs).zip(self.unwatched());
        rounds
            .map(|((more, than), base)| (than.per_second - more.per_second) / base.per_second)
            .collect()
    }

    fn ratios(&self, watcher: &WatcherRuns, value: impl Fn(&Run) -> f64) -> Spread {
        let pairs = watcher.runs.iter().zip(self.unwatched());
        Spread::of(pairs.map(|(run, base)| value(run) / value(base).max(f64::MIN_POSITIVE)))
    }
}

impl WatcherRuns {
    pub(super) fn spread(&self, value: impl Fn(&Run) -> f64) -> Spread {
        Spread::of(self.runs.iter().map(value))
    }

    /// Time of all its kernel programs for each event, ns.
    pub(super) fn programs_ns(&self) -> f64 {
        self.net_programs_ns(0.0)
    }

    /// The same beyond what an empty program takes, ns each.
    pub(super) fn net_programs_ns(&self, empty_ns: f64) -> f64 {
        let net = |program: &Program| {
            let ns = program.ns as f64 - program.runs as f64 * empty_ns;
            ns / program.events.max(1) as f64
        };
        self.programs.iter().map(net).sum()
    }

    /// Average time of the programs whose name begins like this, over all their runs, ns.
    pub(super) fn program_ns(&self, name: &str) -> Option<f64> {
        let found = || self.programs.iter().filter(|p| p.name.starts_with(name));
        let runs: u64 = found().map(|program| program.runs).sum();
        let ns: u64 = found().map(|program| program.ns).sum();
        (runs > 0).then(|| ns as f64 / runs as f64)
    }
}

impl Program {
    pub(super) fn each_ns(&self) -> f64 {
        self.ns as f64 / self.runs.max(1) as f64
    }

    pub(super) fn per_event_ns(&self) -> f64 {
        self.ns as f64 / self.events.max(1) as f64
    }
}

/// Sorted values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spread(Vec<f64>);

impl Spread {
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    /// The value below which `part` of all lie, 0 to 1; 0 of nothing.
    fn at(&self, part: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        let index = (last as f64 * part).round() as usize;
        self.0.get(index).copied().unwrap_or(0.0)
    }

    pub(crate) fn median(&self) -> f64 {
        self.at(0.5)
    }

    pub(crate) fn least(&self) -> f64 {
        self.at(0.0)
    }

    pub(crate) fn most(&self) -> f64 {
        self.at(1.0)
    }

    /// The middle half of the values.
    pub(crate) fn quartiles(&self) -> [f64; 2] {
        [self.at(0.25), self.at(0.75)]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn runs(speeds: &[f64], cpu: f64) -> Vec<Run> {
        let run = |&per_second: &f64| Run {
            per_second,
            server_cpu_ns: cpu,
            ..Run::default()
        };
        speeds.iter().map(run).collect()
    }

    /// Results of two watchers on one load.
    pub(in crate::cost) fn example(speed: f64) -> Results {
        let mut results = Results::new("abc".to_owned(), "6.1".to_owned(), 3);
        let watcher = |name: &str, runs: Vec<Run>, ns: u64| WatcherRuns {
            name: name.to_owned(),
            runs,
            programs: vec![Program {
                name: "sched_switch".to_owned(),
                runs: 100,
                ns,
                events: 50,
            }],
        };
        results.loads.push(LoadRuns {
            name: "Redis GET".to_owned(),
            command: "redis-benchmark".to_owned(),
            unit: "command".to_owned(),
            watchers: vec![
                watcher("nobody", runs(&[100.0, 110.0, 90.0], 1000.0), 0),
                watcher(
                    "reqtrace",
                    runs(&[100.0 * speed, 110.0 * speed, 45.0], 1200.0),
                    4000,
                ),
            ],
        });
        results
    }

    #[test]
    fn the_spread_is_that_of_the_sorted_values() {
        let spread = Spread::of([0.9, 0.7, 1.0].into_iter());
        assert!((spread.median() - 0.9).abs() < 1e-9);
        assert!((spread.least() - 0.7).abs() < 1e-9);
        assert!((spread.most() - 1.0).abs() < 1e-9);
        assert!(Spread::default().median().abs() < 1e-9);
    }

    #[test]
    fn shares_are_of_the_same_round() {
        let results = example(0.8);
        let load = &results.loads[0];
        let shares = load.shares(&load.watchers[1]);
        assert!((shares.median() - 0.8).abs() < 1e-9);
        assert!((shares.least() - 0.5).abs() < 1e-9);
        let cpu = load.cpu_ratios(&load.watchers[1]);
        assert!((cpu.median() - 1.2).abs() < 1e-9);
        let ns = load.watchers[1].program_ns("sched_").unwrap();
        assert!((ns - 40.0).abs() < 1e-9);
        assert!((load.watchers[1].programs[0].per_event_ns() - 80.0).abs() < 1e-9);
    }

    #[test]
    fn the_file_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        example(0.8).write(&path).unwrap();
        let read = Results::read(&path).unwrap();
        assert_eq!(read.loads[0].watchers[1].runs.len(), 3);
        let other = fs::read_to_string(&path).unwrap();
        let other = other.replace("\"format\": 1", "\"format\": 9");
        fs::write(&path, other).unwrap();
        let error = Results::read(&path).unwrap_err().to_string();
        assert!(error.contains("format 9"), "{error}");
        fs::write(&path, "[]").unwrap();
        let error = Results::read(&path).unwrap_err().to_string();
        assert!(error.contains("bench --json"), "{error}");
    }
}
