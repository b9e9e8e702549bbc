//! CPUs that others have: who had them by the trace against who had them by their own clocks, and the verdict of it.
//!
//! Needs root, a kernel with BPF, two CPUs, a controller of CPU time (cgroup, either version), g++, sysbench and mariadb-server.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::limited::Limited;
use reqtrace_tests::noise;
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::sysbench::Sysbench;
use serde_json::Value;

use super::verdict::{How, Right, duration, is_right, one, server, verdicts};

/// The CPU that is taken, and the other one.
const TAKEN: &str = "1";
const OTHER: &str = "0";
/// How long, how often, and how many times.
const BUSY: Duration = Duration::from_millis(60);
const EVERY: Duration = Duration::from_millis(560);
const ROUNDS: usize = 20;

/// Takes the first CPU, with real-time priority.
fn reindexd() -> Fixture {
    let [busy, pause] = [BUSY, EVERY - BUSY].map(|time| time.as_millis().to_string());
    let args = ["reindexd", TAKEN, "10", &busy, &pause, &ROUNDS.to_string()];
    Fixture::start("burner", &args).unwrap()
}

/// Computes on the other one all the time.
fn bystander() -> Fixture {
    let busy = (EVERY * (ROUNDS as u32 - 1)).as_millis().to_string();
    Fixture::start("burner", &["bystander", OTHER, "0", &busy, "1", "1"]).unwrap()
}

/// A service whose requests take nine milliseconds, eight of which they sleep, with four threads; for about `seconds`.
fn service(seconds: usize) -> Fixture {
    let requests = (seconds * 50).to_string();
    Fixture::start("taken", &[TAKEN, "4", &requests, "500", "8000", "9000"]).unwrap()
}

/// Times behind `done`, in pairs of begin and end, in order.
fn times(results: &str) -> Vec<[u64; 2]> {
    let numbers = results.split(' ').skip(1).map(|text| text.parse().unwrap());
    let numbers: Vec<u64> = numbers.collect();
    let mut times: Vec<[u64; 2]> = numbers.chunks(2).map(|pair| [pair[0], pair[1]]).collect();
    times.sort_unstable();
    times
}

fn overlap(one: &[[u64; 2]], other: &[[u64; 2]]) -> u64 {
    let pairs = one
        .iter()
        .flat_map(|one| other.iter().map(move |other| (one, other)));
    pairs
        .map(|(one, other)| one[1].min(other[1]).saturating_sub(one[0].max(other[0])))
        .sum()
}

/// Who had the CPUs of the requests, as `summary.json` has it.
fn had_by(outcome: &Outcome) -> Vec<Value> {
    let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let cpu = &summary["blame"][0]["cpu"];
    let all = cpu["had_by"].as_array().cloned();
    all.unwrap_or_else(|| panic!("{:#} {}", summary["blame"], outcome.printed()))
}

fn ns_of(takers: &[Value], pid: u32) -> u64 {
    let own = takers.iter().filter(|taker| taker["pid"] == pid);
    own.map(|taker| taker["ns"].as_u64().unwrap()).sum()
}

#[test]
fn who_had_a_cpu_is_who_really_ran() {
    let service = service(12);
    let profile = service.profile("handle", "ignore").unwrap();
    let (mut burner, mut bystander) = (reindexd(), bystander());
    let [burner_pid, bystander_pid] = [burner.pid(), bystander.pid()];
    let burning = thread::spawn(move || {
        thread::sleep(Duration::from_secs(2));
        let burned = burner.work();
        (burner, burned)
    });
    let standing_by = thread::spawn(move || bystander.work());
    let (outcome, requests) = service
        .traced(&profile, &["--blame", "--max-overhead", "100"])
        .unwrap();
    let (_burner, burned) = burning.join().unwrap();
    standing_by.join().unwrap().unwrap();
    let (requests, burned) = (times(&requests), times(&burned.unwrap()));
    let shared_ns = overlap(&requests, &burned);
    assert!(
        shared_ns > 100_000_000,
        "{shared_ns} ns: too little to tell"
    );
    let takers = had_by(&outcome);
    let taken_ns = ns_of(&takers, burner_pid);
    // Waits below 0.2 ms are not looked at, and a switch takes its time.
    let least_ns = shared_ns * 95 / 100;
    assert!(
        (least_ns..=shared_ns + shared_ns / 50).contains(&taken_ns),
        "{taken_ns} ns of {shared_ns}: {takers:#?} {}",
        outcome.printed()
    );
    assert_eq!(ns_of(&takers, bystander_pid), 0, "{takers:#?}");
    let burner = takers.iter().find(|taker| taker["pid"] == burner_pid);
    let burner = burner.unwrap();
    assert_eq!(burner["comm"], "reindexd");
    assert_eq!(burner["scheduling"], "SCHED_FIFO 10");
    assert_eq!(burner["cpu"], 1);
    assert_eq!(burner["kind"], "process");
    // On a machine that has more to do nothing may be sure; whoever is named is who it was.
    for verdict in verdicts(&outcome) {
        assert_eq!(verdict["class"], "cpu_taken", "{verdict:#}");
        assert!(is_reindexd(&verdict["culprit"], burner_pid), "{verdict:#}");
    }
}

/// Whoever is named is who it was.
fn is_reindexd(culprit: &Value, pid: u32) -> bool {
    culprit["kind"] == "process"
        && culprit["pid"] == pid
        && culprit["comm"] == "reindexd"
        && culprit["scheduling"] == "SCHED_FIFO 10"
        && culprit["cpu"] == 1
}

/// Whether how often and how long it took the CPU is what it did.
fn has_its_times(how: How, verdict: &Value) -> bool {
    let episode = duration(&verdict["episode_ns"]);
    let period = duration(&verdict["cadence"]["period_ns"]);
    let times = verdict["times"].as_u64();
    times.is_some_and(|times| (ROUNDS as u64 / 2..=ROUNDS as u64 + 1).contains(&times))
        && episode.is_some_and(|episode| (BUSY / 2..BUSY * 3 / 2).contains(&episode))
        && period.map_or(how == How::Sampled, |period| {
            period.abs_diff(EVERY) < EVERY / 20
        })
}

/// Keeps all threads of a process on one CPU, also those that come.
fn keep_on(pid: u32, cpu: &str) -> Result<()> {
    let mut command = std::process::Command::new("taskset");
    command.args(["-a", "-p", "-c", cpu, &pid.to_string()]);
    reqtrace_tests::process::run(&mut command).map(drop)
}

pub(super) fn taken_cpu(how: How) -> Right {
    let server = server();
    keep_on(server.pid(), TAKEN).unwrap();
    let mut burner = reindexd();
    let pid = burner.pid();
    let options = how.options(&["--blame", "--labels"]);
    let trace = Trace::start(Path::new("mysql.toml"), server.pid(), &options).unwrap();
    // It sleeps in the request: who is in one while a CPU is taken is slow.
    let rate = if how == How::Sampled {
        3_000
    } else {
        how.rate()
    };
    let sleeps = "do sleep(0.008)";
    let mut load = Sysbench::start_statement(&server, sleeps, how.clients(), rate).unwrap();
    keep_on(load.pid(), OTHER).unwrap();
    how.beside(|| burner.work()).unwrap();
    load.stop().unwrap();
    one(
        &trace.finish().unwrap(),
        |culprit| is_reindexd(culprit, pid),
        |verdict| verdict["class"] == "cpu_taken" && has_its_times(how, verdict),
    )
}

#[test]
fn a_real_time_process_that_takes_a_cpu_of_a_database() {
    noise::once_in(3, "sure verdict", || taken_cpu(How::Alone));
}

pub(super) fn limited_cpu(how: How) -> Right {
    let limited = Limited::to(6_000).unwrap();
    let service = service(if how == How::Sampled { 20 } else { 8 });
    limited.take(service.pid()).unwrap();
    let profile = service.profile("handle", "ignore").unwrap();
    let mut bystander = bystander();
    let bystander_pid = bystander.pid();
    let options = how.options(&["--blame", "--max-overhead", "100"]);
    let outcome = how.beside(|| {
        let standing_by = thread::spawn(move || bystander.work());
        let (outcome, _) = service.traced(&profile, &options).unwrap();
        standing_by.join().unwrap().unwrap();
        outcome
    });
    assert!(
        limited.throttled_ns().unwrap() > 500_000_000,
        "it was not held back"
    );
    let takers = had_by(&outcome);
    let limits = takers.iter().filter(|taker| taker["kind"] == "cpu_limit");
    let limits: Vec<_> = limits.collect();
    assert!(
        limits.iter().all(|limit| limit["comm"] == limited.path()),
        "{takers:#?}"
    );
    let by_limit: u64 = limits
        .iter()
        .map(|limit| limit["ns"].as_u64().unwrap())
        .sum();
    let all: u64 = takers
        .iter()
        .map(|taker| taker["ns"].as_u64().unwrap())
        .sum();
    let most = if how == How::Noisy { 6 } else { 9 };
    assert!(by_limit * 10 > all * most, "{takers:#?}");
    assert_eq!(ns_of(&takers, bystander_pid), 0, "{takers:#?}");
    one(
        &outcome,
        |_| false,
        |verdict| verdict["class"] == "cpu_limited" && verdict["object"] == limited.path(),
    )
}

#[test]
fn a_limit_of_cpu_time() {
    is_right(limited_cpu);
}

/// The same processes, and nobody is in the way: none of them is blamed.
#[test]
fn a_cpu_that_nobody_takes() {
    let service = service(5);
    let profile = service.profile("handle", "ignore").unwrap();
    let mut bystander = bystander();
    let standing_by = thread::spawn(move || bystander.work());
    let (outcome, _) = service.traced(&profile, &["--blame"]).unwrap();
    standing_by.join().unwrap().unwrap();
    let named = verdicts(&outcome);
    let named = named
        .iter()
        .filter(|verdict| verdict["culprit"].is_object() || verdict["class"] == "cpu_limited");
    assert_eq!(named.count(), 0, "{}", outcome.printed());
}
