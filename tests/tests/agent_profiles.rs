//! `[profiles]` of `reqtrace agent`: what a Pyroscope gets, and what stands in the folder, has the time of the metrics, part by
//! part, and the stacks of the program.
//!
//! Needs root, a kernel with BPF and readelf.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use reqtrace_tests::collector::{Collector, Does};
use reqtrace_tests::http::free_port;
use reqtrace_tests::process::until;
use reqtrace_tests::profiles::{Profile, pushed, read};
use reqtrace_tests::scraped::{Agent, Scrape, files_in};
use reqtrace_tests::shop::Shop;
use reqtrace_tests::{tasks, workspace};

use crate::agent::rule_of_shop;

const LIMIT: Duration = Duration::from_secs(60);
const COUNT: &str = "reqtrace_request_duration_seconds_count{service=\"shop\",type=\"order\"}";
const TRACED: &str = "reqtrace_traced{service=\"shop\"}";
const SENT: &str = "reqtrace_profiles_sent_total";
const EVERY_NS: u64 = 2_000_000_000;

/// What an agent that makes profiles is told.
fn section(folder: &Path, port: u16) -> String {
    format!(
        "{}every = \"2s\"\npyroscope = \"http://127.0.0.1:{port}\"\n",
        files_in("profiles", &folder.join("profiles"))
    )
}

/// The shop, and an agent that sends profiles to this port.
fn begin(folder: &Path, port: u16) -> (Shop, Agent, PathBuf) {
    let program = folder.join("shop");
    workspace::copy_program(&workspace::shop().unwrap(), &program).unwrap();
    let config = section(folder, port) + &rule_of_shop(&program);
    let shop = Shop::open_from(&program).unwrap();
    let agent = Agent::start(folder, &config).unwrap();
    agent.wait_for(TRACED, 1.0).unwrap();
    (shop, agent, program)
}

/// Files of profiles below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false => {
                all.extend(Some(path).filter(|path| path.to_string_lossy().ends_with(".pb.gz")));
            }
        }
    }
    all.sort();
    all
}

/// Each profile closes by itself; all together have the time of each part of the metrics, and their requests.
fn have_the_time_of_the_metrics(profiles: &[Profile], seen: &Scrape, of: &str) {
    let mut parts: BTreeMap<String, f64> = BTreeMap::new();
    for profile in profiles {
        let wanted = ("time".to_owned(), "nanoseconds".to_owned());
        assert_eq!(profile.types, [wanted]);
        assert_eq!(
            profile.period,
            ("time".to_owned(), "nanoseconds".to_owned(), 1)
        );
        assert!(profile.time_ns.is_multiple_of(EVERY_NS) && profile.duration_ns == EVERY_NS);
        let stated = |key: &str| profile.stated(key).unwrap();
        assert_eq!(profile.sum(0), stated("off_cpu_ns"));
        assert_eq!(
            stated("off_cpu_ns") + stated("on_cpu_ns"),
            stated("latency_ns")
        );
        for sample in &profile.samples {
            let part = sample.labels["class"].replace(": ", ":").replace(' ', "_");
            *parts.entry(part).or_default() += sample.values[0] as f64 / 1e9;
        }
        *parts.entry("on_cpu".to_owned()).or_default() += stated("on_cpu_ns") as f64 / 1e9;
    }
    let key = format!("reqtrace_request_part_seconds_total{{{of},part=\"");
    let mut compared = 0.0;
    for (name, seconds) in seen {
        let Some(part) = name.strip_prefix(&key) else {
            continue;
        };
        let part = part.trim_end_matches("\"}");
        let own = parts.remove(part).unwrap_or(0.0);
        assert!((own - seconds).abs() < 1e-6, "{part}: {own} {seconds}");
        compared += own;
    }
    assert!(parts.is_empty(), "{parts:#?}");
    assert!(compared > 0.0);
    let stated = |key: &str| {
        profiles
            .iter()
            .map(|of| of.stated(key).unwrap())
            .sum::<u64>()
    };
    let count = seen[&format!("reqtrace_request_duration_seconds_count{{{of}}}")];
    assert_eq!(
        (stated("requests"), stated("requests_recorded")),
        (count as u64, count as u64)
    );
    assert_eq!(stated("stack_not_taken_ns"), 0);
}

/// By the program that wrote the file, not by ours.
fn build_id(program: &Path) -> String {
    let output = Command::new("readelf")
        .arg("-n")
        .arg(program)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, rest) = text
        .split_once("Build ID: ")
        .unwrap_or_else(|| panic!("{text}"));
    rest.lines().next().unwrap().trim().to_owned()
}

#[test]
fn profiles_have_the_time_of_the_metrics_and_the_stacks_of_the_program() {
    const ORDERS: u64 = 1_200;
    let folder = workspace::scratch().unwrap();
    let pyroscope = Collector::start_pyroscope(0).unwrap();
    let (shop, agent, program) = begin(folder.path(), pyroscope.port());
    let mut orders = 0;
    for _ in 0..3 {
        orders += shop.load(4, ORDERS / 3).unwrap();
    }
    let seen = agent.wait_for(COUNT, orders as f64).unwrap();
    let (code, printed) = agent.end().unwrap();
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("profiles (experimental)"), "{printed}");

    let pushed = pushed(&pyroscope.bodies()).unwrap();
    let profiles: Vec<Profile> = pushed.iter().map(|of| read(&of.raw).unwrap()).collect();
    have_the_time_of_the_metrics(&profiles, &seen, "service=\"shop\",type=\"order\"");
    let begins: BTreeSet<u64> = profiles.iter().map(|of| of.time_ns).collect();
    assert_eq!(begins.len(), profiles.len(), "one of each period");
    let ids: BTreeSet<&str> = pushed.iter().map(|of| of.id.as_str()).collect();
    assert_eq!(ids.len(), pushed.len());
    for of in &pushed {
        let labels: Vec<(&str, &str)> = of
            .labels
            .iter()
            .map(|(key, value)| (&**key, &**value))
            .collect();
        let [name, (host, _), request, service] = labels[..] else {
            panic!("{labels:?}");
        };
        assert_eq!(
            (name, host, request, service),
            (
                ("__name__", "off_cpu"),
                "hostname",
                ("request", "order"),
                ("service_name", "shop")
            )
        );
    }

    // The same ones are in the folder.
    let files = files(&folder.path().join("profiles"));
    let in_folder: BTreeSet<Vec<u8>> = files
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect();
    assert_eq!(in_folder, pushed.iter().map(|of| of.raw.clone()).collect());
    for file in files {
        let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777;
        assert!(
            mode == 0o640 && file.to_string_lossy().contains("/service=shop/"),
            "{}",
            file.display()
        );
    }

    // Blocked time has both sides of its stack, from main or a thread's begin to the scheduler.
    let id = build_id(&program);
    let path = program.display().to_string();
    assert!(
        profiles
            .iter()
            .any(|of| of.mappings.contains(&(path.clone(), id.clone()))),
        "{id}"
    );
    let samples = || profiles.iter().flat_map(|of| &of.samples);
    let blocked = samples().filter(|sample| {
        let class = sample.labels["class"].as_str();
        !["run queue", "preempted", "unattributed"].contains(&class)
    });
    let is_whole = |frames: &[(String, Option<String>)]| {
        let own = frames
            .iter()
            .any(|(name, file)| name.contains("shop::") && file.as_ref() == Some(&path));
        let kernel = frames
            .last()
            .is_some_and(|(name, _)| name.contains("schedule"));
        own && kernel
    };
    let (mut all_ns, mut whole_ns) = (0, 0);
    for sample in blocked {
        all_ns += sample.values[0];
        whole_ns += if is_whole(&sample.frames) {
            sample.values[0]
        } else {
            0
        };
    }
    assert!(
        whole_ns * 10 >= all_ns * 9 && all_ns > 0,
        "{whole_ns} of {all_ns}"
    );
}

/// Each request type has profiles of its own, and parked time of tasks the stack at which they parked.
#[test]
fn tasks_that_are_parked_have_the_stack_at_which_they_parked() {
    const JOBS: u64 = 300;
    let folder = workspace::scratch().unwrap();
    let pyroscope = Collector::start_pyroscope(0).unwrap();
    let mut running = tasks::start("multi", JOBS).unwrap();
    let rule = format!(
        "[[rule]]\nmatch = {{ exe = \"{}\", min-age = \"0s\" }}\nservice = \"tasks\"\nprofile = \"{}\"\n",
        workspace::tasks()
            .unwrap()
            .canonicalize()
            .unwrap()
            .display(),
        tasks::profile("tasks.toml").display()
    );
    let config = section(folder.path(), pyroscope.port()) + &rule;
    let agent = Agent::start(folder.path(), &config).unwrap();
    agent
        .wait_for("reqtrace_traced{service=\"tasks\"}", 1.0)
        .unwrap();
    running.carry_out().unwrap();
    let done = "reqtrace_window_end_timestamp_seconds{service=\"tasks\"}";
    let now = agent.scrape().unwrap()[done];
    let seen = agent.wait_for(done, now + 5.0).unwrap();
    assert_eq!(agent.end().unwrap().0, Some(0));
    let pushed = pushed(&pyroscope.bodies()).unwrap();
    let mut types: BTreeMap<String, Vec<Profile>> = BTreeMap::new();
    for of in &pushed {
        let profile = read(&of.raw).unwrap();
        let request = of.labels["request"].clone();
        assert!(
            profile
                .samples
                .iter()
                .all(|sample| sample.labels["request"] == request)
        );
        types.entry(request).or_default().push(profile);
    }
    assert!(types.len() >= 5, "{:?}", types.keys());
    let (mut parked_ns, mut with_stack_ns) = (0, 0);
    for (request, profiles) in &types {
        let of = format!("service=\"tasks\",type=\"{request}\"");
        have_the_time_of_the_metrics(profiles, &seen, &of);
        for sample in profiles.iter().flat_map(|of| &of.samples) {
            if sample.labels["class"].starts_with("parked") {
                parked_ns += sample.values[0];
                let is_known = sample
                    .frames
                    .iter()
                    .any(|(name, _)| name.contains("tasks::"));
                with_stack_ns += if is_known { sample.values[0] } else { 0 };
            }
        }
    }
    assert!(
        parked_ns > 0 && with_stack_ns * 10 >= parked_ns * 9,
        "{with_stack_ns} of {parked_ns}"
    );
}

/// A Pyroscope that is away, then busy, gets everything when it is back; what it refuses is counted, and in the folder.
#[test]
fn a_pyroscope_that_is_away_gets_all_profiles_later() {
    const ORDERS: u64 = 200;
    let folder = workspace::scratch().unwrap();
    let port = free_port().unwrap();
    let (shop, agent, _) = begin(folder.path(), port);
    let mut orders = 0;
    let figure = |name: &str, least: f64| {
        until(LIMIT, name, || {
            let seen = agent.scrape()?;
            Ok((seen[name] >= least).then_some(seen))
        })
        .unwrap_or_else(|error| panic!("{error} {:#?}", agent.scrape()))
    };
    let mut serve = || {
        orders += shop.load(4, ORDERS).unwrap();
        agent.wait_for(COUNT, orders as f64).unwrap()
    };
    serve();
    figure(
        "reqtrace_profiles_failures_total{cause=\"unreachable\"}",
        1.0,
    );
    let pyroscope = Collector::start_pyroscope(port).unwrap();
    pyroscope.set(Does::Answers(503));
    serve();
    let busy = figure("reqtrace_profiles_failures_total{cause=\"busy\"}", 1.0);
    assert_eq!(busy[SENT], 0.0);
    pyroscope.set(Does::Takes);
    let before = figure(SENT, 2.0);
    assert_eq!(
        before["reqtrace_profiles_dropped_total{cause=\"refused\"}"],
        0.0
    );
    until(LIMIT, "all that wait", || {
        let seen = agent.scrape()?;
        Ok((seen["reqtrace_profiles_waiting"] == 0.0).then_some(()))
    })
    .unwrap();
    pyroscope.set(Does::Answers(400));
    let seen = serve();
    figure("reqtrace_profiles_dropped_total{cause=\"refused\"}", 1.0);
    let (code, printed) = agent.end().unwrap();
    assert_eq!(code, Some(0), "{printed}");
    assert_eq!(printed.matches("is tried again").count(), 1, "{printed}");
    assert_eq!(
        printed.matches("profiles are sent again").count(),
        1,
        "{printed}"
    );
    let sent = pushed(&pyroscope.bodies()).unwrap();
    let ids: BTreeSet<&str> = sent.iter().map(|of| of.id.as_str()).collect();
    assert_eq!(ids.len(), sent.len(), "each once");
    // The folder has what was refused, too.
    let files = files(&folder.path().join("profiles"));
    assert!(files.len() > sent.len(), "{} {}", files.len(), sent.len());
    let all: Vec<Profile> = files
        .iter()
        .map(|path| read(&std::fs::read(path).unwrap()).unwrap())
        .collect();
    have_the_time_of_the_metrics(&all, &seen, "service=\"shop\",type=\"order\"");
}
