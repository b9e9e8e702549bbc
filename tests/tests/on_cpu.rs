//! Samples of requests on their CPUs, against a program that measures the CPU time of its functions itself.
//!
//! Needs root, a kernel with BPF and g++.

use std::path::PathBuf;

use reqtrace_tests::fixtures::{Fixture, compile};
use reqtrace_tests::reqtrace::{self, Outcome, Trace};
use reqtrace_tests::{ledger, workspace, xml};
use serde_json::Value;

const REQUESTS: u64 = 250;
/// Above the default: the more samples, the surer the shares.
const RATE: f64 = 999.0;
/// A share may be so many standard deviations from the truth.
const DEVIATIONS: f64 = 5.0;
/// `perf_event_open` of x86-64.
const PERF_EVENT_OPEN: &str = "298";

/// What the program says of itself, ns.
struct Truth {
    parse: u64,
    render: u64,
    ask: u64,
    outside: u64,
    latency: u64,
}

fn truth(printed: &str) -> Truth {
    let mut numbers = printed.split(' ').skip(1).map(|word| word.parse().unwrap());
    let mut next = || numbers.next().unwrap();
    Truth {
        parse: next(),
        render: next(),
        ask: next(),
        outside: next(),
        latency: next(),
    }
}

/// Traces the program; it must be a whole trace.
fn trace(more: &[&str]) -> (Outcome, Truth) {
    let mut fixture = Fixture::start("hot", &[&REQUESTS.to_string()]).unwrap();
    let profile = fixture.profile("work*", "nest").unwrap();
    let more = [&["--max-overhead", "100", "--yes"], more].concat();
    let trace = Trace::start(&profile, fixture.pid(), &more).unwrap();
    let printed = fixture.work().unwrap();
    fixture.end().unwrap();
    let outcome = trace.wait().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    (outcome, truth(&printed))
}

/// Microseconds of the lines that `fits`, and how many lines there are.
fn sum(folded: &str, fits: impl Fn(&str) -> bool) -> (u64, u64) {
    let lines = folded.lines().map(|line| line.rsplit_once(' ').unwrap());
    let fitting = lines.filter(|(frames, _)| fits(frames));
    fitting.fold((0, 0), |(sum, count), (_, us)| {
        (sum + us.parse::<u64>().unwrap(), count + 1)
    })
}

/// Lines are rounded to microseconds, and never to 0.
fn is_all(us: (u64, u64), ns: u64) {
    let (sum, lines) = us;
    assert!(
        (sum * 1000).abs_diff(ns) <= lines * 1000,
        "{sum} µs in {lines} lines, and {ns} ns"
    );
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// A number of the only request type.
fn number(summary: &Value, path: &str) -> u64 {
    let at = format!("/requests/0{path}");
    summary.pointer(&at).and_then(Value::as_u64).unwrap()
}

fn is_on_cpu(frames: &str) -> bool {
    frames.ends_with(";[on CPU]")
}

#[test]
fn samples_share_out_the_exact_on_cpu_time() {
    let scratch = workspace::scratch().unwrap();
    let recording = scratch.path().join("trace.rec");
    let file = recording.to_str().unwrap();
    let rate = RATE.to_string();
    let (outcome, truth) = trace(&["--cpu-rate", &rate, "--stacks", "all", "--record", file]);
    let summary = json(&outcome.summary_text().unwrap());
    let folded = outcome.folded().unwrap();
    outcome.checked().unwrap();

    // The numbers of the JSON, the CSV, the table and the stacks are the same.
    let on_cpu = number(&summary, "/ledger/on_cpu_ns");
    assert_eq!(number(&summary, "/on_cpu/ns"), on_cpu);
    let csv = outcome.csv().unwrap();
    assert_eq!(ledger::check(&csv).unwrap() as u64, REQUESTS);
    let rows = outcome.rows().unwrap();
    assert_eq!(rows.iter().map(|row| row.on_cpu_ns).sum::<u64>(), on_cpu);
    is_all(sum(&folded, is_on_cpu), on_cpu);
    let latency = number(&summary, "/ledger/latency_ns");
    is_all(sum(&folded, |_| true), latency);
    assert!(latency <= truth.latency, "{latency} of {}", truth.latency);
    let hottest = &summary["requests"][0]["on_cpu"]["hottest"];
    let first = hottest[0]["samples"].as_u64().unwrap();
    let is_first = |line: &str| {
        let shown: String = line.chars().filter(|c| *c != ',').collect();
        shown.trim_start().starts_with("parse") && shown.contains(&format!(" {first} "))
    };
    assert!(outcome.stdout.lines().any(is_first), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("999 Hz, cpu-clock"));

    // Samples are as many as the time that was spent, and each function has its share of them.
    let samples = number(&summary, "/on_cpu/samples") as f64;
    let expected = on_cpu as f64 * RATE / 1e9;
    assert!(
        samples > 0.8 * expected && samples < 1.1 * expected,
        "{samples} samples in {on_cpu} ns"
    );
    let inside = (truth.parse + truth.render + truth.ask) as f64;
    for (function, ns) in [
        ("parse()", truth.parse),
        ("render()", truth.render),
        ("ask()", truth.ask),
    ] {
        let named = |frames: &str| is_on_cpu(frames) && frames.contains(&format!(";{function}"));
        let seen = (sum(&folded, named).0 * 1000) as f64 / on_cpu as f64;
        let real = ns as f64 / inside;
        // Beside these three there is the rest of the request: a trap each, and falling asleep.
        let allowed = DEVIATIONS * (real * (1.0 - real) / samples).sqrt() + 0.02;
        assert!(
            (seen - real).abs() < allowed,
            "{function}: {seen:.3} of the samples, {real:.3} of the time, {allowed:.3} allowed"
        );
    }
    // The kernel's part has the kernel's functions.
    let asked = |frames: &str| frames.contains(";ask()") && frames.contains("getrandom");
    assert!(sum(&folded, asked).0 > 0, "{folded}");
    // The thread computed as long outside of its requests.
    assert!(truth.outside > truth.parse);
    assert!(!folded.contains("outside"), "{folded}");
    // Blocked time is beside it.
    assert!(folded.contains("nanosleep"), "{folded}");
    let cut = sum(&folded, |frames| {
        is_on_cpu(frames) && frames.contains("[truncated")
    })
    .0;
    assert!(
        cut * 1000 * 100 <= on_cpu,
        "{cut} µs of stacks that are not whole"
    );
    xml::check(&outcome.flamegraph().unwrap()).unwrap();

    a_recording_says_the_same(&recording, &folded, &outcome);
    slow_requests_have_their_own(&recording, &outcome);
}

fn report(recording: &PathBuf, more: &[&str]) -> Outcome {
    let mut command = reqtrace::command(["report"]).unwrap();
    command.arg(recording).args(more);
    reqtrace::run(command).unwrap()
}

fn a_recording_says_the_same(recording: &PathBuf, folded: &str, outcome: &Outcome) {
    let again = report(recording, &["--stacks", "all", "-f", "-q"]);
    assert_eq!(again.stdout, folded);
    let again = report(recording, &["--json", "-", "-q"]);
    assert_eq!(again.stdout, outcome.summary_text().unwrap());
    let on = report(recording, &["--stacks", "on-cpu", "-f", "-q"]).stdout;
    let summary = json(&outcome.summary_text().unwrap());
    is_all(sum(&on, |_| true), number(&summary, "/ledger/on_cpu_ns"));
    let off = report(recording, &["-f", "-q"]).stdout;
    assert!(
        !off.contains("parse()") || off.contains("[preempted]"),
        "{off}"
    );
}

/// Of requests that were slow, on-CPU time is that of their own samples, and off-CPU time is all there.
fn slow_requests_have_their_own(recording: &PathBuf, outcome: &Outcome) {
    let mut rows = outcome.rows().unwrap();
    rows.sort_by_key(|row| row.latency_ns);
    let threshold = rows[rows.len() / 2].latency_ns;
    let slow = rows.iter().filter(|row| row.latency_ns >= threshold);
    let latency: u64 = slow.map(|row| row.latency_ns).sum();
    let slower_than = format!("{threshold}ns");
    let options = ["--slower-than", &slower_than, "--stacks", "all", "-f", "-q"];
    let folded = report(recording, &options).stdout;
    is_all(sum(&folded, |_| true), latency);
    // A filter of requests does the same.
    let first = report(
        recording,
        &["--to", "1s", "--stacks", "all", "--json", "-", "-q"],
    )
    .stdout;
    let summary = json(&first);
    let on_cpu = number(&summary, "/on_cpu/ns");
    assert_eq!(number(&summary, "/ledger/on_cpu_ns"), on_cpu);
    assert!(number(&summary, "/on_cpu/samples") > 0);
}

#[test]
fn a_machine_without_hardware_cycles_takes_the_timer() {
    let (outcome, _) = trace(&["--cpu-engine", "cycles"]);
    let summary = json(&outcome.summary_text().unwrap());
    let samples = &summary["trace"]["samples"];
    assert_eq!(samples["rate_hz"], 199);
    match samples["engine"].as_str() {
        Some("cycles") => assert!(!outcome.stderr.contains("cannot be counted")),
        Some("cpu-clock") => assert!(
            outcome.stderr.contains("cycles cannot be counted here"),
            "{}",
            outcome.stderr
        ),
        other => panic!("{other:?}"),
    }
    assert!(number(&summary, "/on_cpu/samples") > 0);
}

#[test]
fn none_are_taken_where_none_are_wanted() {
    let (outcome, _) = trace(&["--cpu-rate", "0"]);
    let summary = json(&outcome.summary_text().unwrap());
    assert_eq!(summary["trace"].get("samples"), None);
    assert_eq!(summary["requests"][0].get("on_cpu"), None);
    let programs = summary["programs"].as_array().unwrap();
    assert!(programs.iter().all(|program| program["name"] != "sample"));
}

/// A container may deny `perf_event_open`, which tracing itself does not need from 6.6 on.
#[test]
fn a_trace_goes_on_without_samples_where_they_are_denied() {
    let mut fixture = Fixture::start("hot", &["20"]).unwrap();
    let profile = fixture.profile("work*", "nest").unwrap();
    let scratch = workspace::scratch().unwrap();
    let denied = compile("denied", scratch.path()).unwrap();
    let program = workspace::reqtrace().unwrap();
    let run = |more: &[&str]| {
        let mut command = std::process::Command::new(&denied);
        command.arg(PERF_EVENT_OPEN).arg(&program);
        command.arg("--profile").arg(&profile);
        command.args(["-p", &fixture.pid().to_string(), "--yes", "1"]);
        reqtrace::run({
            command.args(more);
            command
        })
        .unwrap()
    };
    let outcome = run(&[]);
    if outcome.code == Some(3) {
        // Before 6.6 probes are perf events, too.
        assert!(
            outcome.stderr.contains("perf_event_open"),
            "{}",
            outcome.stderr
        );
    } else {
        assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
        assert!(
            outcome
                .stderr
                .contains("no samples of requests on their CPUs are taken")
                && outcome.stderr.contains("CAP_PERFMON"),
            "{}",
            outcome.stderr
        );
        // Who asks for them is refused.
        let refused = run(&["--stacks", "all"]);
        assert_eq!(refused.code, Some(3), "{}", refused.printed());
        assert!(refused.stderr.contains("no samples"), "{}", refused.stderr);
    }
    fixture.work().unwrap();
    fixture.end().unwrap();
}

#[test]
fn what_cannot_be_right_is_refused() {
    for (options, word) in [
        (&["--cpu-rate", "1000"][..], "1 to 999"),
        (&["--cpu-rate", "-1"], "--cpu-rate"),
        (&["--stacks", "all", "--cpu-rate", "0"], "--cpu-rate 0"),
        (&["--stacks", "on-cpu", "-m", "100"], "-m"),
        (&["--stacks", "all", "--state", "2"], "--state"),
        (&["--stacks", "all", "--blocked-only"], "--blocked-only"),
        (&["--stacks", "hot"], "off-cpu"),
        (&["--cpu-engine", "wall"], "cpu-clock"),
    ] {
        let mut command = reqtrace::command(["-p", "1", "1"]).unwrap();
        command.args(options);
        let outcome = reqtrace::run(command).unwrap();
        assert_eq!(outcome.code, Some(2), "{options:?}: {}", outcome.printed());
        assert!(
            outcome.stderr.contains(word),
            "{options:?}: {}",
            outcome.stderr
        );
    }
    // A recording from before there were samples.
    let old = workspace::root().join("reqtrace/tests/data/shop.rec");
    let outcome = report(&old, &["--stacks", "all", "-f"]);
    assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
    assert!(outcome.stderr.contains("no samples"), "{}", outcome.stderr);
}
