//! A Prometheus that scrapes all machines: their pages, moving as time goes, in; what they cost it, and whether it sees the
//! outlier, out.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use reqtrace_tests::prometheus::Prometheus;
use reqtrace_tests::workspace;

use super::machine::{Machine, Recordings};
use super::plan::{Plan, SHOP};
use super::recorded::SECOND_NS;

/// How often each machine is scraped, s.
pub(super) const EVERY: u32 = 5;
/// Machines have figures for so long before the first scrape: a window, and the time in which it is handed over.
const BEFORE: u64 = 12;
/// Parts and durations may differ by so much.
const ROUNDING: f64 = 1e-6;

/// What was measured.
#[derive(Clone, Debug)]
pub(super) struct Scraped {
    /// Seconds of it.
    pub(super) seconds: u64,
    /// Series of agents, and all of the server's.
    pub(super) series: [f64; 2],
    /// Samples of a scrape of all machines.
    pub(super) samples: f64,
    /// Duration of a scrape, s: on average, and the longest.
    pub(super) scrape: [f64; 2],
    /// Memory of the server at the end, and at most, bytes.
    pub(super) memory: [u64; 2],
    /// Its CPU time, s.
    pub(super) cpu: f64,
    /// p99 of the shop on the outlier over the next highest of a machine.
    pub(super) outlier: f64,
    /// |Σ parts − Σ durations| over these.
    pub(super) error: f64,
}

/// Measures for so many seconds.
///
/// # Errors
///
/// When the server does not run, misses a machine, or does not see what it has to.
pub(super) fn measure(plan: &Plan, recordings: &Recordings, seconds: u64) -> Result<Scraped> {
    ensure!(
        seconds >= 4 * u64::from(EVERY),
        "--scrape {seconds}: rates need four scrapes, give {} or more",
        4 * EVERY
    );
    let folder = workspace::scratch()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let begin_unix_ns = (now.as_secs() - BEFORE) * SECOND_NS;
    // Time goes here as it does outside: these machines stay at the first third of their plan.
    let plan = Plan {
        seconds: u64::MAX / 4,
        ..plan.clone()
    };
    let machines =
        (0..plan.agents).map(|at| Machine::start(&plan, at, begin_unix_ns, recordings, None));
    let mut machines: Vec<Machine<'_>> = machines.collect::<Result<_>>()?;
    let mut hosts = BTreeMap::new();
    for (index, machine) in machines.iter().enumerate() {
        let at = machine.agent.serve("127.0.0.1:0".parse()?)?;
        hosts.insert(at.to_string(), index);
    }
    let mut second = 0;
    let mut advance = |until: u64, machines: &mut [Machine<'_>]| -> Result<()> {
        while second < until {
            for machine in machines.iter_mut() {
                machine.second(second)?;
                machine.agent.look();
            }
            second += 1;
        }
        Ok(())
    };
    advance(BEFORE, &mut machines)?;
    let targets: Vec<String> = hosts.keys().cloned().collect();
    let rules = workspace::root().join("deploy/prometheus/reqtrace-rules.yml");
    // It ends with the thread that starts it.
    let server = Prometheus::of_all(folder.path(), &targets, EVERY, &rules)?;
    let began = Instant::now();
    for passed in 1..=seconds {
        let until = began + Duration::from_secs(passed);
        thread::sleep(until.saturating_duration_since(Instant::now()));
        advance(BEFORE + passed, &mut machines)?;
    }
    read(&server, &plan, &hosts, began.elapsed().as_secs())
}

fn read(
    server: &Prometheus,
    plan: &Plan,
    hosts: &BTreeMap<String, usize>,
    seconds: u64,
) -> Result<Scraped> {
    let one = |query: &str| -> Result<f64> {
        let series = server.query(query)?;
        let value = series.first().map(|series| series.value);
        value.with_context(|| format!("Prometheus has no answer to {query}"))
    };
    let up = one("count(up == 1)")?;
    ensure!(
        up == plan.agents as f64,
        "{up} of {} machines are up",
        plan.agents
    );
    let range = format!("[{seconds}s]");
    // At one moment, and without a rate's guess of what was before the first scrape, which is another one for each series.
    let [parts, durations] = ["part_seconds_total", "duration_seconds_sum"].map(|name| {
        let name = format!("reqtrace_request_{name}");
        format!("sum({name} - {name} offset {}s)", seconds / 2)
    });
    let error = one(&format!("abs({parts} - {durations}) / {durations}"))?;
    ensure!(
        error <= ROUNDING,
        "parts and durations of all machines differ by {error} of these"
    );
    let p99 = format!(
        "sort_desc(histogram_quantile(0.99, sum by (instance, le) \
         (rate(reqtrace_request_duration_seconds_bucket{{service=\"{SHOP}\"}}{range}))))"
    );
    let p99 = server.query(&p99)?;
    ensure!(
        p99.len() == plan.agents,
        "{} machines have a p99",
        p99.len()
    );
    let instance = p99[0].labels["instance"].as_str().unwrap_or_default();
    let first = hosts.get(instance).copied();
    ensure!(
        first == Some(plan.outlier),
        "Prometheus has machine {first:?} as the outlier, which is {}",
        plan.outlier
    );
    let head = server.ask("status/tsdb", &[])?;
    let head = head["headStats"]["numSeries"].as_f64();
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid()))?;
    Ok(Scraped {
        seconds,
        series: [
            one("count({job=\"reqtrace\", __name__=~\"reqtrace_.*\"})")?,
            head.context("Prometheus tells no number of series")?,
        ],
        samples: one("sum(scrape_samples_scraped)")?,
        scrape: [
            one(&format!(
                "avg(avg_over_time(scrape_duration_seconds{range}))"
            ))?,
            one(&format!(
                "max(max_over_time(scrape_duration_seconds{range}))"
            ))?,
        ],
        memory: [bytes(&status, "VmRSS:")?, bytes(&status, "VmHWM:")?],
        cpu: cpu(server.pid())?,
        outlier: p99[0].value / p99[1].value,
        error,
    })
}

/// A line of `/proc/PID/status`.
fn bytes(status: &str, name: &str) -> Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib
        .context("no memory in /proc/PID/status")?
        .parse::<u64>()?
        << 10)
}

/// CPU time of a process, s.
fn cpu(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, words) = stat
        .rsplit_once(") ")
        .context("no name in /proc/PID/stat")?;
    let ticks = words.split(' ').skip(11).take(2).map(str::parse::<u64>);
    let ticks: u64 = ticks.sum::<std::result::Result<u64, _>>()?;
    // SAFETY: it takes no pointer.
    let each = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Ok(ticks as f64 / each as f64)
}
