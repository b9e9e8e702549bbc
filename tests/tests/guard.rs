//! What tracing takes is in every report; above `--max-overhead` less is recorded, and every
//! request is counted all the same.
//!
//! Needs root, a kernel with BPF, redis-server, redis-tools, g++ and Go.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use reqtrace_tests::fixtures::{Fixture, write_profile};
use reqtrace_tests::load;
use reqtrace_tests::process::{Child, Stream, run};
use reqtrace_tests::reqtrace::{self, Outcome, Trace};
use reqtrace_tests::servers::Server;
use reqtrace_tests::workspace;
use serde_json::Value;

/// Commands of each round of the load, and those that redis-benchmark makes for itself.
const COMMANDS: u64 = 20_000;
const OWN: u64 = 2;
/// For a program that does not answer.
const LIMIT: Duration = Duration::from_secs(60);

fn trace_of(outcome: &Outcome) -> Value {
    let text = outcome.summary_text().unwrap();
    let summary: Value = serde_json::from_str(&text).unwrap();
    summary["trace"].clone()
}

/// Loads Redis for some seconds while it is traced; gives the outcome and the commands.
fn load(options: &[&str]) -> (Outcome, u64) {
    let server = Server::redis_without_file().unwrap();
    let trace = Trace::start(Path::new("redis.toml"), server.pid(), options).unwrap();
    let started = std::time::Instant::now();
    let mut commands = 0;
    while started.elapsed().as_secs_f64() < 6.0 {
        let count = COMMANDS.to_string();
        server
            .redis_benchmark(&["-t", "get", "-n", &count, "-c", "4", "-q"])
            .unwrap();
        commands += COMMANDS + OWN;
    }
    let outcome = trace.finish().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    (outcome, commands)
}

#[test]
fn what_tracing_takes_is_in_the_report_and_nothing_is_shed_that_is_allowed() {
    let (outcome, commands) = load(&["--yes", "--max-overhead", "100"]);
    let summary = outcome.summary().unwrap();
    assert_eq!(summary.request("command").unwrap().count, commands);
    let trace = trace_of(&outcome);
    let overhead = &trace["overhead"];
    let number = |name: &str| overhead[name].as_u64().unwrap();
    // A begin and an end of each, at least.
    assert!(number("hits") >= 2 * commands, "{overhead}");
    for part in ["traps_ns", "programs_ns", "tracer_ns", "processes_ns"] {
        assert!(number(part) > 0, "{part}: {overhead}");
    }
    // A command costs between a fifth of a microsecond and 100.
    let each = number("tracing_ns") / commands;
    assert!((200..100_000).contains(&each), "{each} ns: {overhead}");
    let share = overhead["share"].as_f64().unwrap();
    assert!(share > 0.01 && share <= 1.0, "{share}");
    assert_eq!(trace["shed"].as_array().unwrap().len(), 0, "{trace}");
    assert!(
        outcome.stdout.contains("Tracing took "),
        "{}",
        outcome.stdout
    );
    assert!(!outcome.stdout.contains("Left out"), "{}", outcome.stdout);
}

#[test]
fn a_load_above_the_limit_sheds_and_every_request_is_counted() {
    let (outcome, commands) = load(&["--yes", "--max-overhead", "0.5"]);
    let summary = outcome.summary().unwrap();
    assert_eq!(summary.request("command").unwrap().exact_count, commands);
    let trace = trace_of(&outcome);
    let shed = trace["shed"].as_array().unwrap();
    let first = shed.first().unwrap_or_else(|| panic!("{trace}"));
    assert_eq!(first["what"], "stacks");
    // Not for the first second above, but soon.
    let from = first["from_ns"].as_u64().unwrap();
    assert!((1_500_000_000..5_000_000_000).contains(&from), "{from}");
    for span in shed {
        assert!(span["from_ns"].as_u64() <= span["to_ns"].as_u64(), "{span}");
    }
    assert!(outcome.stdout.contains("Left out"), "{}", outcome.stdout);
    let printed = "left out from now on: stacks";
    assert!(outcome.stderr.contains(printed), "{}", outcome.stderr);
}

#[test]
fn an_idle_process_is_not_said_to_pay() {
    let fixture = Fixture::start("spinner", &["plain"]).unwrap();
    let profile = fixture.profile("work", "nest").unwrap();
    let trace = Trace::start(&profile, fixture.pid(), &["3"]).unwrap();
    let outcome = trace.wait().unwrap();
    let trace = trace_of(&outcome);
    let share = trace["overhead"]["share"].as_f64().unwrap();
    // The tracer's own side, of one CPU.
    assert!(share < 0.2, "{trace}");
    fixture.end().unwrap();
}

#[test]
fn a_limit_that_is_none_is_refused() {
    for word in ["0", "-1", "101", "much"] {
        let args = ["--profile", "mysql", "-p", "1", "--max-overhead", word];
        let outcome = reqtrace::run(reqtrace::command(args).unwrap()).unwrap();
        assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
        assert!(
            outcome.stderr.contains("max-overhead"),
            "{}",
            outcome.stderr
        );
    }
}

/// Held against what the process itself takes for the same work, traced and untraced.
#[test]
fn what_tracing_takes_is_what_the_process_takes_more() {
    const CALLS: u64 = 10_000;
    let start = || Fixture::start("fixedwork", &[&CALLS.to_string()]).unwrap();
    let cpu_ns = |printed: &str| printed.split(' ').nth(1).unwrap().parse::<f64>().unwrap();
    let untraced = (0..3).map(|_| cpu_ns(&start().work().unwrap()));
    let untraced = untraced.fold(f64::INFINITY, f64::min);
    let fixture = start();
    let profile = fixture.profile("handle", "nest").unwrap();
    // --yes does not count before: it would see a process that does nothing.
    let options = ["--yes", "--max-overhead", "100"];
    let (outcome, printed) = fixture.traced(&profile, &options).unwrap();
    let traced = cpu_ns(&printed);
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let outside = (traced - untraced) / CALLS as f64;
    let trace = trace_of(&outcome);
    let overhead = &trace["overhead"];
    let each = |name: &str| overhead[name].as_u64().unwrap() as f64 / CALLS as f64;
    let (least, most) = (each("inside_least_ns"), each("inside_most_ns"));
    let all = format!("{outside} ns a call, not {least} to {most}: {overhead}");
    // The machine may be busy: a range around the range.
    assert!(
        least <= most && least / 2.0 <= outside && outside <= 1.5 * most,
        "{all}"
    );
    // The share is that of the time in which it ran, whatever it slept.
    let busy = each("processes_ns");
    assert!(least / busy > 0.5 * (1.0 - untraced / traced), "{all}");
    assert!(
        outcome.printed().contains("% of the processes' CPU time"),
        "{all}"
    );
}

/// A second figure, which needs no calibration: a normal trace of a server under load has it.
#[test]
fn the_cpu_time_of_a_hit_is_held_against_that_before() {
    let server = Server::redis_without_file().unwrap();
    let asks = || {
        let line = ["-t", "get", "-n", "20000", "-c", "2", "-q"];
        drop(server.redis_benchmark(&line).unwrap());
    };
    let outcome = load::beside(asks, || {
        // The gate counts, as it does without --yes, and lets it through whatever this machine takes for a trap.
        let options = ["--max-probe-rate", "99.9", "3"];
        let trace = Trace::start(Path::new("redis.toml"), server.pid(), &options);
        trace.and_then(Trace::wait).unwrap()
    });
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let trace = trace_of(&outcome);
    let before = &trace["overhead"]["untraced"];
    let (work_ns, hits) = (before["work_ns"].as_u64(), before["hits"].as_u64());
    assert!(work_ns > Some(0) && hits > Some(100), "{trace}");
    let printed: Vec<&str> = outcome.stdout.split_whitespace().collect();
    let printed = printed.join(" ");
    assert!(
        printed.contains("; per hit of a probe the processes used "),
        "{printed}"
    );
    // What the gate says of what will be is in the words of what was.
    for printed in [&outcome.stdout, &outcome.stderr] {
        let words: Vec<&str> = printed.split_whitespace().collect();
        let words = words.join(" ");
        assert!(
            words.contains("of the processes' CPU time"),
            "{}",
            outcome.printed()
        );
    }
}

/// The runtime of Go moves stacks and preempts goroutines: what a hit takes there is in the range too.
#[test]
fn what_tracing_takes_of_a_go_service_is_what_it_takes_more() {
    const CALLS: u64 = 20_000;
    let folder = workspace::scratch().unwrap();
    let binary = folder.path().join("work");
    let mut build = Command::new(workspace::program("go").unwrap());
    build
        .args(["build", "-o"])
        .arg(&binary)
        .arg(workspace::root().join("tests/fixtures/work.go"))
        .env("GOCACHE", folder.path().join("cache"))
        .env("GOPROXY", "off")
        .env("GOTOOLCHAIN", "local");
    run(&mut build).unwrap();
    let start = || {
        let mut command = Command::new(&binary);
        command.arg(CALLS.to_string());
        let mut child = Child::start(command, folder.path(), "work").unwrap();
        child.wait_for_line(Stream::Out, "ready", LIMIT).unwrap();
        child
    };
    let work = |child: &mut Child| {
        child.tell("go").unwrap();
        let printed = child.wait_for_line(Stream::Out, "done", LIMIT).unwrap();
        printed.split(' ').nth(1).unwrap().parse::<f64>().unwrap()
    };
    let untraced = (0..3).map(|_| work(&mut start()));
    let untraced = untraced.fold(f64::INFINITY, f64::min);
    let profile = folder.path().join("work.toml");
    write_profile(&profile, "work", "main.serve", "").unwrap();
    let mut child = start();
    let options = ["--yes", "--max-overhead", "100"];
    let trace = Trace::start(&profile, child.pid(), &options).unwrap();
    let traced = work(&mut child);
    let outcome = trace.finish().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let summary = outcome.summary().unwrap();
    let work = summary.request("work").unwrap();
    // A goroutine that is preempted goes on in another thread now and then.
    assert_eq!(work.begins, CALLS, "{}", outcome.printed());
    assert!(work.count >= CALLS / 100 * 99, "{}", outcome.printed());
    let trace = trace_of(&outcome);
    let overhead = &trace["overhead"];
    let each = |name: &str| overhead[name].as_u64().unwrap() as f64 / CALLS as f64;
    let (least, most) = (each("inside_least_ns"), each("inside_most_ns"));
    let outside = (traced - untraced) / CALLS as f64;
    let all = format!("{outside} ns a call, not {least} to {most}: {overhead}");
    println!("{all}");
    // The machine may be busy: a range around the range.
    assert!(least <= most && least / 2.0 <= outside, "{all}");
    assert!(outside <= 2.0 * most, "{all}");
}
